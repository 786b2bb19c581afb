#include "runtime/coll/meeting.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static int by_value(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

void ft_ranks_text(struct ft_buf *b, int *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    ft_buf_adds(b, n == 1 ? "rank " : "ranks ");
    for (size_t i = 0; i < n;) {
        size_t j = i;
        while (j + 1 < n && v[j + 1] <= v[j] + 1) j++;
        ft_buf_addf(b, i ? ", %d" : "%d", v[i]);
        if (v[j] != v[i]) ft_buf_addf(b, v[j] == v[i] + 1 ? ", %d" : "-%d", v[j]);
        i = j + 1;
    }
}

/* Value of a name in lines "NAME=VALUE"; length in *n; NULL: not there. */
static const char *find(const char *text, const char *name, size_t name_len, size_t *n)
{
    for (const char *p = text; *p;) {
        const size_t len = strcspn(p, "\n");
        if (len > name_len && !memcmp(p, name, name_len) && p[name_len] == '=') {
            *n = len - name_len - 1;
            return p + name_len + 1;
        }
        p += len + (p[len] == '\n');
    }
    *n = 0;
    return NULL;
}

static bool same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return !a == !b && a_len == b_len && (!a || !memcmp(a, b, a_len));
}

/* The member with the lowest rank of those that are not done; n: none. */
static size_t lowest(const struct ft_member *m, size_t n, const bool *done)
{
    size_t low = n;
    for (size_t i = 0; i < n; i++)
        if (!done[i] && (low == n || m[i].rank < m[low].rank)) low = i;
    return low;
}

/* "4 on ranks 0-2, 8 on rank 3": each distinct value once, in order of the lowest rank that has it. */
static void write_values(struct ft_buf *b, const struct ft_member *m, size_t n, const char *name, size_t name_len)
{
    int *ranks = ft_xcalloc(n, sizeof *ranks);
    bool *done = ft_xcalloc(n, sizeof *done);
    const char *sep = "";
    for (size_t i; (i = lowest(m, n, done)) < n;) {
        size_t len, k = 0, other_len;
        const char *value = find(m[i].text, name, name_len, &len);
        for (size_t j = 0; j < n; j++) {
            const char *other = find(m[j].text, name, name_len, &other_len);
            if (!same(value, len, other, other_len)) continue;
            done[j] = true;
            ranks[k++] = m[j].rank;
        }
        const int shown = len > 120 ? 120 : (int)len;
        ft_buf_addf(b, "%s%.*s%s on ", sep, value ? shown : 7, value ? value : "nothing", len > 120 ? "…" : "");
        ft_ranks_text(b, ranks, k);
        sep = "; ";
    }
    free(ranks);
    free(done);
}

static enum ft_code differ(const struct ft_member *m, size_t n, const char *name, size_t name_len, struct ft_err *err)
{
    struct ft_buf b = {0};
    write_values(&b, m, n, name, name_len);
    ft_fail(err, FT_CONFIG, "the ranks of this run do not agree on %.*s: %s", (int)name_len, name, ft_buf_str(&b));
    ft_buf_fini(&b);
    return FT_CONFIG;
}

/* First name of m[who]'s lines whose value is not the same on all members. */
static enum ft_code compare_lines(const struct ft_member *m, size_t n, size_t who, struct ft_err *err)
{
    for (const char *p = m[who].text; *p;) {
        const size_t len = strcspn(p, "\n"), name_len = strcspn(p, "=\n");
        size_t value_len, other_len;
        if (name_len < len) {
            const char *value = find(m[who].text, p, name_len, &value_len);
            for (size_t i = 0; i < n; i++) {
                const char *other = find(m[i].text, p, name_len, &other_len);
                if (!same(value, value_len, other, other_len)) return differ(m, n, p, name_len, err);
            }
        }
        p += len + (p[len] == '\n');
    }
    return FT_OK;
}

enum ft_code ft_meeting_compare(const struct ft_member *m, size_t n, struct ft_err *err)
{
    size_t low = 0;
    for (size_t i = 0; i < n; i++) {
        if (m[i].rank < m[low].rank) low = i;
        for (size_t j = 0; j < i; j++)
            if (m[i].rank == m[j].rank) {
                ft_fail(err, FT_CONFIG, "two processes are rank %d: pid %d on %s and pid %d on %s", m[i].rank, m[j].pid, m[j].host,
                        m[i].pid, m[i].host);
                return ft_fix(err, "give each process its own RANK, or end what is left of an earlier run");
            }
    }
    if (n && compare_lines(m, n, low, err)) return FT_CONFIG;
    for (size_t i = 0; i < n; i++)
        if (compare_lines(m, n, i, err)) return FT_CONFIG;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (m[i].node_rank == m[j].node_rank && strcmp(m[i].boot, m[j].boot) != 0) {
                ft_fail(err, FT_CONFIG, "ranks %d and %d both have NODE_RANK %d but run on different machines (%s, %s)", m[j].rank,
                        m[i].rank, m[i].node_rank, m[j].host, m[i].host);
                return ft_fix(err, "set NODE_RANK to the number of the node, from 0");
            }
    return FT_OK;
}

enum ft_code ft_meeting_late(const struct ft_member *m, size_t n, int world, double seconds, const char *where, struct ft_err *err)
{
    int *missing = ft_xcalloc((size_t)world, sizeof *missing);
    size_t k = 0;
    for (int r = 0; r < world; r++) {
        bool here = false;
        for (size_t i = 0; i < n; i++) here |= m[i].rank == r;
        if (!here) missing[k++] = r;
    }
    struct ft_buf b = {0};
    ft_ranks_text(&b, missing, k);
    ft_fail(err, FT_TIMEOUT, "%s %s not come after %.3g s: %d of %d met at %s", ft_buf_str(&b), k == 1 ? "has" : "have", seconds,
            world - (int)k, world, where);
    ft_buf_fini(&b);
    free(missing);
    return FT_TIMEOUT;
}
