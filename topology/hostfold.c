/* Folding names into ranges, and finding names without regard to case. */
#include <ctype.h>
#include <string.h>

#include "topology/hostlist.h"

/* ---- folding ---- */

/* A name cut at one run of digits: name[0,from) digits name[to,end). */
struct cut {
    size_t from, to;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The run of digits in which a and b differ, all else being equal; false: there is no such run. */
static bool differ(const char *a, const char *b, struct cut *ca, struct cut *cb)
{
    size_t na = strlen(a), nb = strlen(b), p = 0, s = 0;
    while (p < na && p < nb && a[p] == b[p]) p++;
    while (p > 0 && is_digit(a[p - 1])) p--;
    while (s < na - p && s < nb - p && a[na - 1 - s] == b[nb - 1 - s]) s++;
    while (s > 0 && is_digit(a[na - s])) s--;
    *ca = (struct cut){p, na - s};
    *cb = (struct cut){p, nb - s};
    size_t da = strspn(a + p, "0123456789"), db = strspn(b + p, "0123456789");
    return da && db && p + da == na - s && p + db == nb - s && da <= 18 && db <= 18;
}

static uint64_t value(const char *name, struct cut c)
{
    uint64_t v = 0;
    for (size_t i = c.from; i < c.to; i++) v = v * 10 + (uint64_t)(name[i] - '0');
    return v;
}

static int width(struct cut c) { return (int)(c.to - c.from); }
static bool padded(const char *name, struct cut c) { return name[c.from] == '0' && c.to - c.from > 1; }

/* May b stand behind a in one bracket? Both unpadded, or both of one width: 09 and 010 stay two names. */
static bool same_form(const char *a, struct cut ca, const char *b, struct cut cb)
{
    return width(ca) == width(cb) || (!padded(a, ca) && !padded(b, cb));
}

/* Is b the next number behind a, written as a range that begins with a number of `first` digits would write it? */
static bool follows(int first, const char *a, struct cut ca, const char *b, struct cut cb)
{
    return value(b, cb) == value(a, ca) + 1 && width(cb) >= width(ca) && (!padded(b, cb) || width(cb) == first);
}

/* Folds names from i on into one item; returns how many it took. */
static size_t fold_item(const struct ft_names *names, size_t i, struct ft_buf *out)
{
    const char *const *v = names->v;
    struct cut c, next;
    if (i + 1 == names->n || !differ(v[i], v[i + 1], &c, &next)) {
        ft_buf_adds(out, v[i]);
        return 1;
    }
    size_t at = i, start = i;
    struct cut cat = c, cstart = c;
    ft_buf_add(out, v[i], c.from);
    ft_buf_addc(out, '[');
    for (;;) {
        struct cut ca, cb;
        bool joins = at + 1 < names->n && differ(v[at], v[at + 1], &ca, &cb) && ca.from == cat.from && ca.to == cat.to;
        bool runs = joins && follows(width(cstart), v[at], ca, v[at + 1], cb);
        joins = joins && (runs || same_form(v[at], ca, v[at + 1], cb));
        if (!runs) {
            ft_buf_add(out, v[start] + cstart.from, (size_t)width(cstart));
            if (at > start) {
                ft_buf_addc(out, '-');
                ft_buf_add(out, v[at] + cat.from, (size_t)width(cat));
            }
            if (joins) ft_buf_addc(out, ',');
        }
        if (!joins) break;
        at++;
        cat = cb;
        if (!runs) {
            start = at;
            cstart = cb;
        }
    }
    if (at == i) { /* nothing joined after all: a plain name */
        out->n -= (size_t)width(c) + 1;
        out->data[out->n] = '\0';
        ft_buf_adds(out, v[i] + c.from);
        return 1;
    }
    ft_buf_addc(out, ']');
    ft_buf_adds(out, v[at] + cat.to);
    return at - i + 1;
}

void ft_hostlist_fold(const struct ft_names *names, struct ft_buf *out)
{
    for (size_t i = 0; i < names->n;) {
        if (i) ft_buf_addc(out, ',');
        i += fold_item(names, i, out);
    }
}

/* ---- index ---- */

struct ft_name_index ft_name_index_make(struct ft_arena *arena) { return (struct ft_name_index){.arena = arena}; }

static uint64_t hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (uint64_t)tolower((unsigned char)*name)) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t slot_of(const struct ft_name_index *x, const char *name)
{
    size_t i = (size_t)hash(name) & (x->n_slots - 1);
    while (x->slots[i] && !ft_str_case_eq(x->names[x->slots[i] - 1], name)) i = (i + 1) & (x->n_slots - 1);
    return i;
}

long ft_name_index_find(const struct ft_name_index *x, const char *name)
{
    return x->n_slots ? (long)x->slots[slot_of(x, name)] - 1 : -1;
}

long ft_name_index_add(struct ft_name_index *x, const char *name)
{
    if (2 * (x->n + 1) > x->n_slots) {
        x->n_slots = x->n_slots ? x->n_slots * 2 : 32;
        x->slots = ft_arena_array(x->arena, x->n_slots, sizeof *x->slots);
        for (size_t i = 0; i < x->n; i++) x->slots[slot_of(x, x->names[i])] = i + 1;
    }
    size_t s = slot_of(x, name);
    if (x->slots[s]) return (long)x->slots[s] - 1;
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 16;
        const char **names = ft_arena_array(x->arena, cap, sizeof *names);
        if (x->n) memcpy(names, x->names, x->n * sizeof *names);
        x->names = names;
        x->cap = cap;
    }
    x->names[x->n++] = name;
    x->slots[s] = x->n;
    return (long)x->n - 1;
}
