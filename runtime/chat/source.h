/* Where a chat template comes from, and the names of the special tokens that it may write.
 *
 * First hit wins: `template = PATH` (a .jinja file) or a NAME of the folder; chat_template.jinja; chat_template in
 * tokenizer_config.json (a text, or a list of {name, template} of which "tool_use" is for records with tools and "default" for the
 * others); chat_template.json. additional_chat_templates/NAME.jinja adds names. */
#ifndef FT_RUNTIME_CHAT_SOURCE_H
#define FT_RUNTIME_CHAT_SOURCE_H

#include "runtime/chat/template.h"

struct ft_chat_source {
    struct ft_template *plain, *tools; /* tools NULL: plain serves both; plain NULL: there is no template */
    char *origin;                      /* "DIR/tokenizer_config.json: chat_template" */
    char *text;                        /* of the plain template (it goes into exported folders); NULL with plain */
    char sha256[65];                   /* of that text */
    char *warning;                     /* two sources that differ; NULL */
    char *bos, *eos, *unk, *pad;       /* NULL: not named */
};

/* want: "auto", "none", a path or a name; dir may be NULL (then want must be a path). A template that is missing though it was
 * asked for by path or name, or that does not compile, is an error; none with "auto" is not. */
enum ft_code ft_chat_source_load(const char *dir, const char *want, struct ft_chat_source *out, struct ft_err *err) FT_MUST_CHECK;
void ft_chat_source_fini(struct ft_chat_source *s);

#endif
