/* Chat templates: a subset of Jinja, compiled once, rendered for every conversation. Set up as transformers sets up jinja2:
 * trim_blocks, lstrip_blocks, loop controls, tojson without ASCII escapes, raise_exception, strftime_now, {% generation %}.
 *
 *  1. ft_template_compile()   refuses what the subset has not, with its line
 *  2. ft_template_render()    once per conversation; many threads may render one template at a time
 *  3. ft_template_destroy()
 *
 * Templates are untrusted: no files, no globals but the five functions, bounded steps, nesting, memory and output. */
#ifndef FT_RUNTIME_CHAT_TEMPLATE_H
#define FT_RUNTIME_CHAT_TEMPLATE_H

#include "runtime/chat/value.h"

struct ft_template;

enum { FT_RENDER_STEPS = 1000000, FT_RENDER_DEPTH = 1000, FT_RENDER_OUTPUT = 64 << 20 };

/* name stands in messages. text (n) need not live on. */
enum ft_code ft_template_compile(const char *name, const char *text, size_t n, struct ft_template **out,
                                 struct ft_err *err) FT_MUST_CHECK;
void ft_template_destroy(struct ft_template *t);
const char *ft_template_name(const struct ft_template *t);
bool ft_template_has_generation(const struct ft_template *t);
bool ft_template_is_dated(const struct ft_template *t); /* asks for the date somewhere */

struct ft_var {
    const char *name;
    struct ft_jval value;
};

/* One rendering; {0} with heap set up by ft_render_begin. out and gen are valid until ft_render_end. */
struct ft_render {
    struct ft_vheap heap;
    struct ft_buf out;
    struct ft_gen { /* output of the generation blocks, in order */
        size_t begin, end;
    } * gen;
    size_t n_gen, gen_cap;
    char error[512]; /* why it was refused */
    int error_line;
    bool needs_date; /* the reason is a date that is not pinned */
};
void ft_render_begin(struct ft_render *r);
void ft_render_end(struct ft_render *r);
/* Renders into r->out (replaced). date: "YYYY-MM-DD" for strftime_now, NULL: not pinned. false: the template refuses (r->error). */
bool ft_template_render(const struct ft_template *t, const struct ft_var *vars, size_t n_vars, const char *date,
                        struct ft_render *r);

#endif
