/* A record of any format but tokens, as a conversation (or a plain text) with its rules checked.
 *
 * One ft_convo serves many records, one after another: ft_convo_begin() empties it, ft_convo_fini() frees. Values point into the JSON
 * of the record and into the heap of the rendering. */
#ifndef FT_RUNTIME_DATA_RECORD_H
#define FT_RUNTIME_DATA_RECORD_H

#include "runtime/chat/template.h"
#include "runtime/data/data_fields.h"
#include "runtime/data/jsonl.h"

struct ft_convo {
    enum ft_data_format format;
    struct ft_render render; /* its heap holds the values below */
    struct ft_jval messages; /* list of dicts; FORMAT_TEXT: undefined */
    struct ft_jval tools;    /* none, or what the record gives */
    bool *trained;           /* (messages) this assistant turn may carry loss */
    size_t trained_cap, n;
    const char *text; /* FORMAT_TEXT */
    size_t text_n;
    struct ft_json **owned; /* JSON found inside strings */
    size_t n_owned, owned_cap;
};
void ft_convo_fini(struct ft_convo *c);

/* The shape that a record's field names show; FT_FORMAT_AUTO: none. */
enum ft_data_format ft_record_shape(const struct ft_json *record, const struct ft_list *columns);
const char *ft_format_name(enum ft_data_format format);

/* Fills c (emptied first); false with the fault. */
bool ft_record_read(enum ft_data_format format, const struct ft_list *columns, const struct ft_line *line,
                    const struct ft_json *record, struct ft_convo *c, struct ft_line_fault *fault);

/* Text of a message: its content, or its text parts one after another (copied when several). */
bool ft_message_text(struct ft_vheap *heap, struct ft_jval message, struct ft_jval *text);
bool ft_message_is(struct ft_jval message, const char *role);
bool ft_message_calls(struct ft_jval message); /* tool_calls that is no empty list */

#endif
