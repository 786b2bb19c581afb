#include "runtime/data/record_tokens.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/samples.h"

void ft_ids_fini(struct ft_ids *s)
{
    free(s->ids);
    free(s->labels);
    memset(s, 0, sizeof *s);
}

void ft_ids_add(struct ft_ids *s, int32_t id, int32_t label)
{
    ft_grow(&s->ids, &s->ids_cap, s->n + 1, sizeof *s->ids);
    ft_grow(&s->labels, &s->labels_cap, s->n + 1, sizeof *s->labels);
    s->ids[s->n] = id, s->labels[s->n] = label;
    s->n++;
}

struct place {
    const struct ft_line *line;
    struct ft_line_fault *fault;
    int64_t vocab_rows;
};

static FT_PRINTF(5, 6) bool bad(const struct place *p, enum ft_fault_kind kind, const char *key, int64_t index, const char *fmt,
                                ...)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, index);
    const char *path[] = {key, index >= 0 ? number : NULL, NULL};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->fault->text, sizeof p->fault->text, fmt, ap);
    va_end(ap);
    p->fault->kind = kind;
    p->fault->column = ft_line_column(p->line, path);
    return false;
}

static bool check_array(const struct place *p, const struct ft_json *v, const char *key, size_t n)
{
    if (!ft_json_is(v, FT_JSON_ARRAY))
        return bad(p, FT_KIND_WRONG_TYPE, key, -1, "%s must be an array of integers, this is %s", key, ft_json_type_name(v));
    if (ft_json_count(v) != n)
        return bad(p, FT_KIND_IDS_LABELS_LENGTH, key, -1, "%s has %zu elements, input_ids has %zu", key, ft_json_count(v), n);
    return true;
}

static bool check_id(const struct place *p, const struct ft_json *v, const char *key, size_t i, bool label)
{
    if (ft_json_is_number(v) && fabs(ft_json_real(v, 0)) >= 9e18) /* an integer that no 64 bits hold was read as a real */
        return bad(p, FT_KIND_BAD_ID, key, (int64_t)i, "%s[%zu] is %.17g, no token id", key, i, ft_json_real(v, 0));
    if (!ft_json_is(v, FT_JSON_INT))
        return bad(p, FT_KIND_WRONG_TYPE, key, (int64_t)i, "%s[%zu] must be an integer, this is %s", key, i, ft_json_type_name(v));
    const int64_t x = ft_json_int(v, -1), top = p->vocab_rows > 0 ? p->vocab_rows : INT32_MAX;
    if (label && x == FT_NOT_TRAINED) return true;
    if (x >= 0 && x < top) return true;
    if (p->vocab_rows > 0)
        return bad(p, FT_KIND_BAD_ID, key, (int64_t)i, "%s[%zu] is %" PRId64 ", the model has ids 0 to %" PRId64, key, i, x,
                   top - 1);
    return bad(p, FT_KIND_BAD_ID, key, (int64_t)i, "%s[%zu] is %" PRId64 ", no token id", key, i, x);
}

/* The part of the record that is no padding: mask 1…1 with zeros before or after. */
static bool read_mask(const struct place *p, const struct ft_json *mask, size_t n, size_t *from, size_t *to)
{
    *from = 0, *to = n;
    if (!mask) return true;
    if (!check_array(p, mask, "attention_mask", n)) return false;
    size_t first = n, end = 0, ones = 0;
    for (size_t i = 0; i < n; i++) {
        const struct ft_json *v = ft_json_at(mask, i);
        const int64_t x = ft_json_int(v, -1);
        if (!ft_json_is(v, FT_JSON_INT) || (x != 0 && x != 1))
            return bad(p, FT_KIND_WRONG_TYPE, "attention_mask", (int64_t)i, "attention_mask[%zu] must be 0 or 1", i);
        if (!x) continue;
        if (first == n) first = i;
        end = i + 1, ones++;
    }
    if (!ones) return bad(p, FT_KIND_WRONG_TYPE, "attention_mask", -1, "attention_mask is all 0: nothing is left of the record");
    if (ones != end - first)
        return bad(p, FT_KIND_WRONG_TYPE, "attention_mask", -1,
                   "attention_mask has a 0 between ones: only padding at an end is understood");
    *from = first, *to = end;
    return true;
}

bool ft_record_tokens(const struct ft_line *line, const struct ft_json *record, int64_t vocab_rows, bool train_all,
                      struct ft_ids *s, struct ft_line_fault *fault)
{
    const struct place p = {line, fault, vocab_rows};
    const struct ft_json *ids = ft_json_get(record, "input_ids"), *labels = ft_json_get(record, "labels");
    size_t from, to;
    s->n = 0;
    if (!ids) return bad(&p, FT_KIND_MISSING_FIELD, "input_ids", -1, "no field input_ids");
    if (!ft_json_is(ids, FT_JSON_ARRAY))
        return bad(&p, FT_KIND_WRONG_TYPE, "input_ids", -1, "input_ids must be an array of integers, this is %s",
                   ft_json_type_name(ids));
    const size_t n = ft_json_count(ids);
    if (!n) return bad(&p, FT_KIND_WRONG_TYPE, "input_ids", -1, "input_ids is empty");
    if (!labels && !train_all)
        return bad(&p, FT_KIND_MISSING_FIELD, "labels", -1, "no field labels (set train_on = all to train on every token)");
    if (labels && !check_array(&p, labels, "labels", n)) return false;
    if (!read_mask(&p, ft_json_get(record, "attention_mask"), n, &from, &to)) return false;
    for (size_t i = 0; i < n; i++) {
        const struct ft_json *id = ft_json_at(ids, i), *label = labels ? ft_json_at(labels, i) : id;
        if (!check_id(&p, id, "input_ids", i, false) || (labels && !check_id(&p, label, "labels", i, true))) return false;
        if (i >= from && i < to) ft_ids_add(s, (int32_t)ft_json_int(id, 0), (int32_t)ft_json_int(label, FT_NOT_TRAINED));
    }
    return true;
}
