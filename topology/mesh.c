#include "topology/mesh.h"

#include <string.h>

static const char *const names[FT_N_AXES] = {[FT_AXIS_TP] = "tp", [FT_AXIS_CP] = "cp", [FT_AXIS_DP] = "dp", [FT_AXIS_PP] = "pp"};

const char *ft_axis_name(enum ft_axis a) { return names[a]; }

struct ft_mesh ft_mesh_make(int tp, int cp, int dp, int pp)
{
    return (struct ft_mesh){.size = {[FT_AXIS_TP] = tp, [FT_AXIS_CP] = cp, [FT_AXIS_DP] = dp, [FT_AXIS_PP] = pp},
                            .order = {FT_AXIS_TP, FT_AXIS_CP, FT_AXIS_DP, FT_AXIS_PP}};
}

/* The axis that text[0..n) names, or FT_N_AXES. */
static enum ft_axis axis_of(const char *text, size_t n)
{
    for (int a = 0; a < FT_N_AXES; a++)
        if (strlen(names[a]) == n && !memcmp(names[a], text, n)) return (enum ft_axis)a;
    return FT_N_AXES;
}

enum ft_code ft_mesh_parse_order(const char *text, struct ft_mesh *mesh, struct ft_err *err)
{
    enum ft_axis order[FT_N_AXES];
    bool seen[FT_N_AXES] = {false};
    size_t n = 0;
    for (const char *p = text;; p++) {
        size_t len = strcspn(p, "-");
        enum ft_axis a = axis_of(p, len);
        if (a == FT_N_AXES || seen[a]) {
            ft_fail(err, FT_CONFIG, "order '%s': '%.*s' is %s", text, (int)len, p, a == FT_N_AXES ? "no axis" : "given twice");
            return ft_fix(err, "name tp, dp and pp once each, like tp-dp-pp");
        }
        seen[a] = true;
        order[n++] = a;
        p += len;
        if (!*p) break;
    }
    for (int a = 0; a < FT_N_AXES; a++) {
        if (seen[a] || a == FT_AXIS_CP) continue;
        ft_fail(err, FT_CONFIG, "order '%s' does not name %s", text, names[a]);
        return ft_fix(err, "name tp, dp and pp once each, like tp-dp-pp");
    }
    for (size_t i = 0; i < n && !seen[FT_AXIS_CP]; i++) { /* cp stands behind tp */
        if (order[i] != FT_AXIS_TP) continue;
        memmove(&order[i + 2], &order[i + 1], (n - i - 1) * sizeof *order);
        order[i + 1] = FT_AXIS_CP;
        break;
    }
    memcpy(mesh->order, order, sizeof order);
    return FT_OK;
}

int ft_mesh_world(struct ft_mesh m)
{
    int world = 1;
    for (int i = 0; i < FT_N_AXES; i++) world *= m.size[i];
    return world;
}

struct ft_coord ft_mesh_coord(struct ft_mesh m, int rank)
{
    struct ft_coord c;
    for (int i = 0; i < FT_N_AXES; i++) {
        enum ft_axis a = m.order[i];
        c.c[a] = rank % m.size[a];
        rank /= m.size[a];
    }
    return c;
}

int ft_mesh_rank(struct ft_mesh m, struct ft_coord c)
{
    int rank = 0, stride = 1;
    for (int i = 0; i < FT_N_AXES; i++) {
        enum ft_axis a = m.order[i];
        rank += c.c[a] * stride;
        stride *= m.size[a];
    }
    return rank;
}

static bool holds(unsigned axes, enum ft_axis a) { return axes >> a & 1; }

/* Ranks of the axes that are in the set (inside) or are not. */
static int count(struct ft_mesh m, unsigned axes, bool inside)
{
    int n = 1;
    for (int a = 0; a < FT_N_AXES; a++)
        if (holds(axes, (enum ft_axis)a) == inside) n *= m.size[a];
    return n;
}

/* Number of a coordinate among those of the axes inside (or outside) the set, left-most fastest. */
static int number(struct ft_mesh m, unsigned axes, bool inside, struct ft_coord c)
{
    int at = 0, stride = 1;
    for (int i = 0; i < FT_N_AXES; i++) {
        enum ft_axis a = m.order[i];
        if (holds(axes, a) != inside) continue;
        at += c.c[a] * stride;
        stride *= m.size[a];
    }
    return at;
}

int ft_mesh_n_groups(struct ft_mesh m, unsigned axes) { return count(m, axes, false); }
int ft_mesh_group_size(struct ft_mesh m, unsigned axes) { return count(m, axes, true); }
int ft_mesh_group_of(struct ft_mesh m, unsigned axes, int rank) { return number(m, axes, false, ft_mesh_coord(m, rank)); }
int ft_mesh_group_index(struct ft_mesh m, unsigned axes, int rank) { return number(m, axes, true, ft_mesh_coord(m, rank)); }

int ft_mesh_group_member(struct ft_mesh m, unsigned axes, int group, int i)
{
    struct ft_coord c;
    for (int k = 0; k < FT_N_AXES; k++) {
        enum ft_axis a = m.order[k];
        int *from = holds(axes, a) ? &i : &group;
        c.c[a] = *from % m.size[a];
        *from /= m.size[a];
    }
    return ft_mesh_rank(m, c);
}

int ft_mesh_n_embedding_groups(struct ft_mesh m) { return ft_mesh_n_groups(m, 1u << FT_AXIS_PP); }

int ft_mesh_embedding_group(struct ft_mesh m, int group, int out[2])
{
    int last = m.size[FT_AXIS_PP] - 1;
    out[0] = ft_mesh_group_member(m, 1u << FT_AXIS_PP, group, 0);
    if (!last) return 1;
    out[1] = ft_mesh_group_member(m, 1u << FT_AXIS_PP, group, last);
    return 2;
}
