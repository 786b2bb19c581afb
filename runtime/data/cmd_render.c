/* data render: conversations to texts, as training renders them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fd.h"
#include "runtime/chat/source.h"
#include "runtime/chat/spans.h"
#include "runtime/data/cmd.h"
#include "runtime/data/jsonl.h"

enum { OPT_MODEL = 1, OPT_TEMPLATE, OPT_SET, OPT_SPANS };

struct job {
    struct ft_chat_source source;
    struct ft_json **set;  /* values of --set */
    const char **set_name; /* in ft_xcalloc memory of their own */
    size_t n_set;
    const char *date;
    bool spans;
    struct ft_buf out;
    int64_t faults;
};

static bool flush(struct job *j)
{
    struct ft_err err = {0};
    const bool good = ft_write_all(1, ft_buf_str(&j->out), j->out.n, &err) == FT_OK;
    if (!good) ft_err_print(stderr, "fttrain data render", &err);
    ft_buf_clear(&j->out);
    return good;
}

/* NAME=JSON; a value that is no JSON is taken as a text. */
static bool add_set(struct job *j, const char *text, struct ft_err *err)
{
    const char *eq = strchr(text, '=');
    struct ft_buf value = {0};
    if (!eq || eq == text) return ft_fail(err, FT_USAGE, "--set %s is not NAME=JSON", text) == FT_OK;
    struct ft_err first = {0};
    if (ft_json_parse(eq + 1, strlen(eq + 1), FT_JSON_ANY_ROOT, &j->set[j->n_set], NULL, &first) != FT_OK) {
        struct ft_jw w = ft_jw_begin(&value);
        ft_jw_str(&w, eq + 1);
        const enum ft_code rc = ft_json_parse(value.data, value.n, FT_JSON_ANY_ROOT, &j->set[j->n_set], NULL, err);
        ft_buf_fini(&value);
        if (rc != FT_OK) return false;
    }
    char *name = ft_xcalloc((size_t)(eq - text) + 1, 1);
    memcpy(name, text, (size_t)(eq - text));
    if (ft_str_eq(name, "template_date") && ft_json_is(j->set[j->n_set], FT_JSON_STRING)) j->date = ft_json_str(j->set[j->n_set]);
    j->set_name[j->n_set++] = name;
    return true;
}

/* Variables of a record: what is usual, then --set, then every field of the record. */
static size_t collect(const struct job *j, const struct ft_json *record, struct ft_vheap *heap, struct ft_var *vars)
{
    const struct ft_chat_source *s = &j->source;
    size_t n = 0;
    vars[n++] = (struct ft_var){"tools", ft_v_none()};
    vars[n++] = (struct ft_var){"documents", ft_v_none()};
    vars[n++] = (struct ft_var){"add_generation_prompt", ft_v_bool(false)};
    if (s->bos) vars[n++] = (struct ft_var){"bos_token", ft_v_cstr(s->bos)};
    if (s->eos) vars[n++] = (struct ft_var){"eos_token", ft_v_cstr(s->eos)};
    if (s->unk) vars[n++] = (struct ft_var){"unk_token", ft_v_cstr(s->unk)};
    if (s->pad) vars[n++] = (struct ft_var){"pad_token", ft_v_cstr(s->pad)};
    for (size_t i = 0; i < j->n_set; i++) vars[n++] = (struct ft_var){j->set_name[i], ft_v_json(heap, j->set[i])};
    for (void *it = ft_json_iter(record); it; it = ft_json_iter_next(record, it))
        vars[n++] = (struct ft_var){ft_json_iter_key(it), ft_v_json(heap, ft_json_iter_value(it))};
    return n;
}

static void write_spans(struct ft_jw *w, const struct ft_spans *s)
{
    ft_jw_key(w, "spans");
    ft_jw_array(w);
    for (size_t i = 0; i < s->n; i++) {
        const struct ft_span *x = &s->v[i];
        ft_jw_object(w);
        ft_jw_kint(w, "msg", (int64_t)x->message);
        ft_jw_kstr(w, "how", ft_span_how_name(x->how));
        if (x->how != FT_SPAN_NONE) {
            ft_jw_kint(w, "start", (int64_t)x->begin);
            if (x->has_content) {
                ft_jw_key(w, "content");
                ft_jw_array(w);
                ft_jw_int(w, (int64_t)x->content_begin);
                ft_jw_int(w, (int64_t)x->content_end);
                ft_jw_end(w);
            }
            if (x->has_end) ft_jw_kint(w, "end", (int64_t)x->end);
            ft_jw_kbool(w, "prompt_differs", x->prompt_differs);
            ft_jw_kbool(w, "rewritten", x->rewritten);
        } else {
            ft_jw_kstr(w, "why", x->why);
        }
        ft_jw_end(w);
    }
    ft_jw_end(w);
}

static void write_record(struct job *j, const struct ft_template *t, const struct ft_var *vars, size_t n, struct ft_render *r)
{
    const size_t from = j->out.n;
    struct ft_jw w = ft_jw_begin(&j->out);
    ft_jw_object(&w);
    if (!j->spans) {
        if (ft_template_render(t, vars, n, j->date, r)) {
            ft_jw_key(&w, "text");
            ft_jw_strn(&w, ft_buf_str(&r->out), r->out.n);
        } else {
            ft_jw_kstr(&w, "error", r->error);
        }
    } else {
        struct ft_spans s = {0};
        if (ft_spans_find(t, vars, n, j->date, r, &s)) {
            ft_jw_key(&w, "text");
            ft_jw_strn(&w, ft_buf_str(&s.text), s.text.n);
            write_spans(&w, &s);
        } else {
            ft_jw_kstr(&w, "error", r->error);
        }
        ft_spans_fini(&s);
    }
    ft_jw_end(&w);
    ft_cmd_end_line(&j->out, from);
}

static void take_line(struct job *j, const char *file, const struct ft_line *line)
{
    struct ft_json *v = NULL;
    struct ft_line_fault f;
    if (!ft_line_parse(line, &v, &f)) {
        if (++j->faults <= FT_REPORT_LIMIT)
            fprintf(stderr, "%s:%" PRId64 ":%" PRId64 ": %s: %s\n", file, line->number, f.column, ft_fault_kind_name(f.kind),
                    f.text);
        return;
    }
    struct ft_render r;
    ft_render_begin(&r);
    struct ft_var *vars = ft_xcalloc(ft_json_count(v) + j->n_set + 8, sizeof *vars);
    const size_t n = collect(j, v, &r.heap, vars);
    const struct ft_json *tools = ft_json_get(v, "tools");
    const bool with_tools = j->source.tools && ft_json_is(tools, FT_JSON_ARRAY) && ft_json_count(tools);
    write_record(j, with_tools ? j->source.tools : j->source.plain, vars, n, &r);
    free(vars);
    ft_render_end(&r);
    ft_json_destroy(v);
}

static int run_file(struct job *j, const char *path)
{
    struct ft_jsonl *in = NULL;
    struct ft_line line;
    struct ft_err err = {0};
    bool good = ft_jsonl_open(path, &in, &err) == FT_OK;
    while (good && ft_jsonl_next(in, &line, &err)) {
        take_line(j, ft_str_eq(path, "-") ? "(stdin)" : path, &line);
        if (j->out.n > (1 << 16)) good = flush(j);
    }
    if (!in || ft_jsonl_failed(in)) {
        ft_err_print(stderr, "fttrain data render", &err);
        good = false;
    }
    ft_jsonl_close(in);
    return good ? 0 : 2;
}

static int open_source(struct job *j, const struct ft_command *self, const char *model, const char *template_)
{
    struct ft_err err = {0};
    if (!model && !template_) {
        (void)ft_fail(&err, FT_USAGE, "which template?");
        (void)ft_fix(&err, "give --model DIR or --template FILE");
        return ft_cmd_usage(self, &err);
    }
    if (ft_chat_source_load(model, template_ ? template_ : "auto", &j->source, &err) != FT_OK) return ft_cmd_usage(self, &err);
    if (j->source.warning) fprintf(stderr, "fttrain data render: warning: %s\n", j->source.warning);
    if (j->source.plain) return -1;
    (void)ft_fail(&err, FT_CONFIG, "'%s' has no chat template", model);
    (void)ft_fix(&err, "give --template FILE");
    return ft_cmd_usage(self, &err);
}

static int render_main(const struct ft_command *self, int argc, char **argv)
{
    struct job j = {0};
    struct ft_err err = {0};
    struct ft_argv a = ft_argv_begin(self, argc, argv);
    const char *value, *model = NULL, *template_ = NULL, **files = ft_xcalloc((size_t)argc + 1, sizeof *files);
    size_t n_files = 0;
    int status = -1;
    j.set = ft_xcalloc((size_t)argc + 1, sizeof(struct ft_json *));
    j.set_name = ft_xcalloc((size_t)argc + 1, sizeof *j.set_name);
    for (int id; status < 0 && (id = ft_argv_next(&a, &value, &err)) != FT_ARG_END;) {
        if (id == FT_ARG_HELP) status = ft_cmd_help(self);
        else if (id == FT_ARG_BAD || (id == OPT_SET && !add_set(&j, value, &err))) status = ft_cmd_usage(self, &err);
        else if (id == OPT_MODEL) model = value;
        else if (id == OPT_TEMPLATE) template_ = value;
        else if (id == OPT_SPANS) j.spans = true;
        else if (id == FT_ARG_WORD) files[n_files++] = value;
    }
    if (status < 0) status = open_source(&j, self, model, template_);
    if (status < 0) {
        status = 0;
        if (!n_files) files[n_files++] = "-";
        for (size_t i = 0; i < n_files && !status; i++) status = run_file(&j, files[i]);
        if (!flush(&j)) status = 2;
        if (j.faults > FT_REPORT_LIMIT) fprintf(stderr, "%" PRId64 " faulty lines, %d shown\n", j.faults, FT_REPORT_LIMIT);
    }
    for (size_t i = 0; i < j.n_set; i++) ft_json_destroy(j.set[i]), free((void *)(uintptr_t)j.set_name[i]);
    free(j.set);
    free(j.set_name);
    free(files);
    ft_chat_source_fini(&j.source);
    ft_buf_fini(&j.out);
    return j.faults ? 2 : status;
}

static const struct ft_option options[] = {
    {.name = "model", .arg = "DIR", .help = "model folder: its template and the names of its special tokens", .id = OPT_MODEL},
    {.name = "template", .arg = "FILE", .help = "another template (a .jinja file, or a name of the folder)", .id = OPT_TEMPLATE},
    {.name = "set", .arg = "NAME=JSON", .help = "a template variable (bos_token, template_date, …)", .id = OPT_SET},
    {.name = "spans", .help = "also the byte ranges of the answers", .id = OPT_SPANS},
};

const struct ft_command ft_cmd_render = {
    .name = "render",
    .usage = "--model DIR [--template FILE] [--set NAME=JSON]… [--spans] [FILE…]",
    .summary = "conversations to texts",
    .text = "Reads lines {\"messages\": …} from files or stdin; further fields (tools, add_generation_prompt, …) are template "
            "variables. Writes\n"
            "one line {\"text\"} each, or {\"error\"} where the template refuses the conversation (the status stays 0).",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .main = render_main};
