#include "runtime/data/report.h"

#include <inttypes.h>

const char *ft_fault_kind_name(enum ft_fault_kind kind)
{
    static const char *const names[FT_N_KINDS] = {
        [FT_KIND_JSON] = "json",
        [FT_KIND_NOT_OBJECT] = "not-object",
        [FT_KIND_DUPLICATE_KEY] = "duplicate-key",
        [FT_KIND_LINE_TOO_LONG] = "line-too-long",
        [FT_KIND_UTF8] = "utf8",
        [FT_KIND_MISSING_FIELD] = "missing-field",
        [FT_KIND_WRONG_TYPE] = "wrong-type",
        [FT_KIND_EMPTY_OUTPUT] = "empty-output",
        [FT_KIND_NULL_OUTPUT] = "null-output",
        [FT_KIND_EMPTY_PROMPT] = "empty-prompt",
        [FT_KIND_EMPTY_MESSAGES] = "empty-messages",
        [FT_KIND_LAST_NOT_ASSISTANT] = "last-not-assistant",
        [FT_KIND_UNKNOWN_ROLE] = "unknown-role",
        [FT_KIND_NO_TRAINED_TURN] = "no-trained-turn",
        [FT_KIND_OTHER_SHAPE] = "other-shape",
        [FT_KIND_TEMPLATE] = "template",
        [FT_KIND_NO_SPAN] = "no-span",
        [FT_KIND_NO_TERMINATOR] = "no-terminator",
        [FT_KIND_DROPPED_CONTENT] = "dropped-content",
        [FT_KIND_BAD_ID] = "bad-id",
        [FT_KIND_IDS_LABELS_LENGTH] = "ids-labels-length",
        [FT_KIND_OVERLONG] = "overlong",
        [FT_KIND_SPECIAL_TOKEN] = "special-token",
        [FT_KIND_FILE] = "file",
    };
    return (unsigned)kind < FT_N_KINDS ? names[kind] : "unknown";
}

bool ft_report_add(struct ft_report *r, enum ft_fault_kind kind, const char *file, int64_t line, int64_t column, const char *fmt,
                   ...)
{
    const bool allowed = kind != FT_KIND_FILE && r->skipped < r->skip;
    const size_t limit = r->limit ? r->limit : FT_REPORT_LIMIT;
    r->n++, r->by_kind[kind]++;
    if (allowed) r->skipped++;
    if ((size_t)r->n <= limit && r->faults) {
        struct ft_buf text = {0};
        va_list ap;
        va_start(ap, fmt);
        ft_buf_vaddf(&text, fmt, ap);
        va_end(ap);
        const struct ft_source at = {file, (int)(line > INT32_MAX ? INT32_MAX : line),
                                     (int)(column > INT32_MAX ? INT32_MAX : column)};
        ft_faults_add(r->faults, allowed ? FT_SEV_WARNING : FT_SEV_ERROR, at, NULL, NULL, "%s: %s", ft_fault_kind_name(kind),
                      ft_buf_str(&text));
        ft_buf_fini(&text);
    }
    return allowed;
}

void ft_report_summary(const struct ft_report *r, struct ft_buf *out)
{
    ft_buf_addf(out, "%" PRId64 " faulty record%s (", r->n, r->n == 1 ? "" : "s");
    const char *comma = "";
    for (int k = 0; k < FT_N_KINDS; k++)
        if (r->by_kind[k])
            ft_buf_addf(out, "%s%s %" PRId64, comma, ft_fault_kind_name((enum ft_fault_kind)k), r->by_kind[k]), comma = ", ";
    ft_buf_adds(out, ")");
}

void ft_report_print(FILE *out, const struct ft_faults *f)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct ft_fault *x = &f->v[i];
        if (x->at.file) fprintf(out, "%s:", x->at.file);
        if (x->at.file && x->at.line > 0) fprintf(out, "%d:%d:", x->at.line, x->at.column > 0 ? x->at.column : 1);
        fprintf(out, "%s%s%s\n", x->at.file ? " " : "",
                x->severity == FT_SEV_ERROR     ? ""
                : x->severity == FT_SEV_WARNING ? "warning: "
                                                : "note: ",
                x->text);
        if (x->fix) fprintf(out, "  fix:   %s\n", x->fix);
    }
}
