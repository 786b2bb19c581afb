#include "base/argv.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct ft_argv ft_argv_begin(const struct ft_command *cmd, int argc, char **argv)
{
    return (struct ft_argv){.cmd = cmd, .argv = argv, .argc = argc, .i = 1};
}

static enum ft_code unknown_long(const struct ft_command *c, const char *name, size_t n, struct ft_err *err)
{
    const char **names = ft_xcalloc(c->n_options + 1, sizeof *names);
    for (size_t i = 0; i < c->n_options; i++) names[i] = c->options[i].name;
    names[c->n_options] = "help";
    struct ft_buf word = {0};
    ft_buf_add(&word, name, n);
    const char *near = ft_nearest(word.data, names, c->n_options + 1);
    const enum ft_code code = ft_fail(err, FT_USAGE, "'%s' has no option --%s", c->name, word.data);
    if (near) ft_fix(err, "did you mean --%s?", near);
    ft_buf_fini(&word);
    free(names);
    return code;
}

static int take_long(struct ft_argv *a, const char *word, const char **value, struct ft_err *err)
{
    const char *eq = strchr(word, '=');
    const size_t n = eq ? (size_t)(eq - word) : strlen(word);
    if (n == 4 && !eq && memcmp(word, "help", 4) == 0) return FT_ARG_HELP;
    for (size_t i = 0; i < a->cmd->n_options; i++) {
        const struct ft_option *o = &a->cmd->options[i];
        if (!o->name || strlen(o->name) != n || memcmp(o->name, word, n) != 0) continue;
        if (!o->arg) {
            if (!eq) return o->id;
            ft_fail(err, FT_USAGE, "option --%s takes no value, found '%s'", o->name, eq + 1);
            return FT_ARG_BAD;
        }
        if (eq) *value = eq + 1;
        else if (a->i < a->argc) *value = a->argv[a->i++];
        else {
            ft_fail(err, FT_USAGE, "option --%s needs a value: --%s %s", o->name, o->name, o->arg);
            return FT_ARG_BAD;
        }
        return o->id;
    }
    unknown_long(a->cmd, word, n, err);
    return FT_ARG_BAD;
}

static int take_letter(struct ft_argv *a, const char **value, struct ft_err *err)
{
    const char letter = *a->cluster++;
    if (!*a->cluster) a->cluster = NULL;
    for (size_t i = 0; i < a->cmd->n_options; i++) {
        const struct ft_option *o = &a->cmd->options[i];
        if (o->letter != letter) continue;
        if (!o->arg) return o->id;
        if (a->cluster) *value = a->cluster;
        else if (a->i < a->argc) *value = a->argv[a->i++];
        else {
            ft_fail(err, FT_USAGE, "option -%c needs a value: -%c %s", letter, letter, o->arg);
            return FT_ARG_BAD;
        }
        a->cluster = NULL;
        return o->id;
    }
    if (letter == 'h') return FT_ARG_HELP;
    ft_fail(err, FT_USAGE, "'%s' has no option -%c", a->cmd->name, letter);
    return FT_ARG_BAD;
}

int ft_argv_next(struct ft_argv *a, const char **value, struct ft_err *err)
{
    *value = NULL;
    if (a->cluster) return take_letter(a, value, err);
    if (a->i >= a->argc) return FT_ARG_END;
    char *word = a->argv[a->i++];
    if (a->only_words || word[0] != '-' || !word[1]) {
        *value = word;
        return FT_ARG_WORD;
    }
    if (strcmp(word, "--") == 0) {
        if (a->cmd->takes_rest) {
            a->rest = a->argv + a->i;
            a->n_rest = a->argc - a->i;
            a->i = a->argc;
            return FT_ARG_END;
        }
        a->only_words = true;
        return ft_argv_next(a, value, err);
    }
    if (word[1] == '-') return take_long(a, word + 2, value, err);
    a->cluster = word + 1;
    return take_letter(a, value, err);
}

static void option_head(const struct ft_option *o, struct ft_buf *out)
{
    if (o->letter) ft_buf_addf(out, "-%c", o->letter);
    if (o->letter && o->name) ft_buf_adds(out, ", ");
    if (o->name) ft_buf_addf(out, "--%s", o->name);
    if (o->arg) ft_buf_addf(out, " %s", o->arg);
}

void ft_command_help(const char *prog, const struct ft_command *c, struct ft_buf *out)
{
    ft_buf_addf(out, "%s %s: %s\n\nusage: %s %s %s\n", prog, c->name, c->summary, prog, c->name, c->usage);
    if (c->text) ft_buf_addf(out, "\n%s\n", c->text);
    ft_buf_adds(out, "\noptions:\n");
    for (size_t i = 0; i < c->n_options; i++) {
        const size_t begin = out->n;
        ft_buf_adds(out, "  ");
        option_head(&c->options[i], out);
        size_t width = out->n - begin;
        if (width > 30) {
            ft_buf_addc(out, '\n');
            width = 0;
        }
        ft_buf_addf(out, "%*s%s\n", (int)(32 - width), "", c->options[i].help);
    }
    ft_buf_adds(out, "  -h, --help                      this text\n");
}

/* roff: a leading dot or quote starts a request, backslash and minus are special. */
void ft_roff(struct ft_buf *out, const char *s)
{
    for (bool start = true; *s; start = *s == '\n', s++) {
        if (start && (*s == '.' || *s == '\'')) ft_buf_adds(out, "\\&");
        if (*s == '\\') ft_buf_adds(out, "\\e");
        else if (*s == '-') ft_buf_adds(out, "\\-");
        else ft_buf_addc(out, *s);
    }
}

void ft_command_man(const char *prog, const struct ft_command *c, struct ft_buf *out)
{
    struct ft_buf line = {0};
    ft_buf_addf(&line, "%s %s %s", prog, c->name, c->usage);
    ft_buf_addf(out, ".SS ");
    ft_roff(out, line.data);
    ft_buf_addc(out, '\n');
    ft_roff(out, c->summary);
    ft_buf_addc(out, '\n');
    if (c->text) {
        ft_buf_adds(out, ".PP\n");
        ft_roff(out, c->text);
        ft_buf_addc(out, '\n');
    }
    for (size_t i = 0; i < c->n_options; i++) {
        ft_buf_clear(&line);
        option_head(&c->options[i], &line);
        ft_buf_adds(out, ".TP\n.B ");
        ft_roff(out, line.data);
        ft_buf_addc(out, '\n');
        ft_roff(out, c->options[i].help);
        ft_buf_addc(out, '\n');
    }
    ft_buf_fini(&line);
}
