/* Where the answers stand in a rendered conversation: byte ranges, found from renderings, never by searching ids.
 *
 * clean = the conversation rendered without a generation prompt. An answer is found by, in this order: (a) generation blocks of the
 * template; (b) sentinels: one more rendering with every answer wrapped in two unique marks (around all of it; inside its white
 * space; behind its last </think>), which counts only when taking the marks out gives clean again; (c) for a turn that calls
 * tools: between the rendering of the turns before it with a generation prompt and the rendering up to it. */
#ifndef FT_RUNTIME_CHAT_SPANS_H
#define FT_RUNTIME_CHAT_SPANS_H

#include "runtime/chat/template.h"

enum ft_span_how { FT_SPAN_NONE, FT_SPAN_GENERATION, FT_SPAN_OUTER, FT_SPAN_INNER, FT_SPAN_THINK, FT_SPAN_PREFIX, FT_SPAN_START };
const char *ft_span_how_name(enum ft_span_how how); /* NULL for NONE */

struct ft_span {
    size_t message; /* index of the assistant's message */
    enum ft_span_how how;
    size_t begin; /* first trained byte */
    bool has_content;
    size_t content_begin, content_end; /* the answer as rendered */
    bool has_end;
    size_t end;          /* of the block, of the rendering up to this message */
    bool prompt_differs; /* the text before begin is not what the generation prompt would be */
    bool rewritten;      /* the rendered text is not the record's */
    bool dropped;        /* NONE because the template drops the content */
    const char *why;     /* NONE: the reason */
};

struct ft_content { /* a message's text as rendered (any role) */
    size_t message, begin, end;
};

struct ft_spans {       /* {0} is empty */
    struct ft_buf text; /* clean */
    struct ft_span *v;
    size_t n, cap;
};
void ft_spans_fini(struct ft_spans *s);

/* vars hold `messages`; what else the template needs; r->heap holds the values. false: the template refuses (r->error). */
bool ft_spans_find(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date, struct ft_render *r,
                   struct ft_spans *out);

/* Ranges of the contents of all messages in clean; messages without text, or whose text is not found, give none. *n_missing: messages
 * with text that is not found (*first_missing: the first of them). out has room for one entry a message. Returns their number. */
size_t ft_contents_find(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date,
                        struct ft_render *r, const struct ft_buf *clean, struct ft_content *out, size_t *n_missing,
                        size_t *first_missing);

#endif
