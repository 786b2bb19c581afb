#include "base/fault.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static const char *keep(struct ft_faults *f, const char *s) { return s ? ft_arena_strdup(f->arena, s) : NULL; }

struct ft_fault *ft_faults_add(struct ft_faults *f, enum ft_severity sev, struct ft_source at, const char *section, const char *key,
                               const char *fmt, ...)
{
    if (f->n == f->cap) { /* old arrays stay in the arena: their sizes are a geometric row */
        const size_t cap = f->cap ? f->cap * 2 : 8;
        struct ft_fault *v = ft_arena_array(f->arena, cap, sizeof *v);
        if (f->n) memcpy(v, f->v, f->n * sizeof *v);
        f->v = v;
        f->cap = cap;
    }
    va_list ap;
    va_start(ap, fmt);
    const char *text = ft_arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
    at.file = keep(f, at.file);
    f->v[f->n] = (struct ft_fault){
        .severity = sev, .at = at, .section = keep(f, section), .key = keep(f, key), .text = text, .order = (unsigned)f->n};
    f->n_errors += sev == FT_SEV_ERROR;
    f->n_warnings += sev == FT_SEV_WARNING;
    return &f->v[f->n++];
}

void ft_fault_fix(struct ft_faults *f, const char *fmt, ...)
{
    FT_ASSERT(f->n > 0);
    va_list ap;
    va_start(ap, fmt);
    f->v[f->n - 1].fix = ft_arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
}

/* While sorting, `file_rank` of a fault is the arrival of the first fault of its file. */
struct keyed {
    struct ft_fault fault;
    unsigned file_rank;
};

static int by_place(const void *pa, const void *pb)
{
    const struct keyed *a = pa, *b = pb;
    if (a->file_rank != b->file_rank) return a->file_rank < b->file_rank ? -1 : 1;
    if (a->fault.at.line != b->fault.at.line) return a->fault.at.line < b->fault.at.line ? -1 : 1;
    if (a->fault.at.column != b->fault.at.column) return a->fault.at.column < b->fault.at.column ? -1 : 1;
    return a->fault.order < b->fault.order ? -1 : a->fault.order > b->fault.order;
}

static bool same(const struct ft_fault *a, const struct ft_fault *b)
{
    return a->severity == b->severity && a->at.line == b->at.line && a->at.column == b->at.column &&
           ft_str_eq(a->at.file, b->at.file) && ft_str_eq(a->text, b->text);
}

void ft_faults_sort(struct ft_faults *f)
{
    if (!f->n) return;
    struct keyed *v = ft_xcalloc(f->n, sizeof *v);
    for (size_t i = 0; i < f->n; i++) {
        v[i] = (struct keyed){f->v[i], (unsigned)i};
        for (size_t j = 0; j < i; j++)
            if (ft_str_eq(f->v[j].at.file, f->v[i].at.file)) {
                v[i].file_rank = v[j].file_rank;
                break;
            }
    }
    qsort(v, f->n, sizeof *v, by_place);
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (n && same(&f->v[n - 1], &v[i].fault)) {
            f->n_errors -= v[i].fault.severity == FT_SEV_ERROR;
            f->n_warnings -= v[i].fault.severity == FT_SEV_WARNING;
            continue;
        }
        f->v[n++] = v[i].fault;
    }
    f->n = n;
    free(v);
}

static void print_where(FILE *out, const struct ft_fault *v)
{
    if (!v->at.file && !v->section) return;
    struct ft_buf b = {0};
    if (v->at.file) ft_buf_adds(&b, v->at.file);
    if (v->at.line > 0) ft_buf_addf(&b, ":%d", v->at.line);
    if (v->at.line > 0 && v->at.column > 0) ft_buf_addf(&b, ":%d", v->at.column);
    if (v->section) ft_buf_addf(&b, "%s[%s]%s%s", v->at.file ? ", " : "", v->section, v->key ? " " : "", v->key ? v->key : "");
    ft_err_put(out, "  where: ", b.data);
    ft_buf_fini(&b);
}

void ft_faults_print(FILE *out, const char *prog, const struct ft_faults *f)
{
    static const char *const words[] = {"error", "warning", "note"};
    for (size_t i = 0; i < f->n; i++) {
        const struct ft_fault *v = &f->v[i];
        fprintf(out, "%s: %s", prog, words[v->severity]);
        ft_err_put(out, ": ", v->text);
        print_where(out, v);
        if (v->fix) ft_err_put(out, "  fix:   ", v->fix);
    }
    fflush(out);
}
