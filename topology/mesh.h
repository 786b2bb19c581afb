/* The mesh of ranks: sizes of the parallel axes and their order, left-most fastest: rank = sum c_i * prod_{j<i} size_j.
 * A list of axes; a later axis (cp) is one more entry. Layout as in Megatron-LM parallel_state.py. Pure arithmetic. */
#ifndef FT_TOPOLOGY_MESH_H
#define FT_TOPOLOGY_MESH_H

#include <stdbool.h>

#include "base/err.h"

enum ft_axis { FT_AXIS_TP, FT_AXIS_CP, FT_AXIS_DP, FT_AXIS_PP, FT_N_AXES };

struct ft_mesh {
    int size[FT_N_AXES];           /* >= 1 each */
    enum ft_axis order[FT_N_AXES]; /* order[0] is the fastest */
};
struct ft_coord {
    int c[FT_N_AXES]; /* coordinate along each axis */
};

struct ft_mesh ft_mesh_make(int tp, int cp, int dp, int pp); /* order tp-cp-dp-pp */
/* "tp-dp-pp": every axis of {tp,dp,pp} once, cp optional (it then stands after tp). */
enum ft_code ft_mesh_parse_order(const char *text, struct ft_mesh *mesh, struct ft_err *err) FT_MUST_CHECK;
int ft_mesh_world(struct ft_mesh m);
struct ft_coord ft_mesh_coord(struct ft_mesh m, int rank);
int ft_mesh_rank(struct ft_mesh m, struct ft_coord c);
const char *ft_axis_name(enum ft_axis a);

/* Groups over a set of axes (bit per axis): all other coordinates are fixed. Groups are numbered by the free coordinates,
 * members by their own, left-most fastest. */
int ft_mesh_n_groups(struct ft_mesh m, unsigned axes);
int ft_mesh_group_size(struct ft_mesh m, unsigned axes);
int ft_mesh_group_member(struct ft_mesh m, unsigned axes, int group, int i); /* rank of member i */
int ft_mesh_group_of(struct ft_mesh m, unsigned axes, int rank);             /* number of the group of a rank */
int ft_mesh_group_index(struct ft_mesh m, unsigned axes, int rank);          /* position of the rank in its group */

/* First and last stage of each pp group (one rank when pp = 1), numbered like the pp groups. Returns the number of members. */
int ft_mesh_n_embedding_groups(struct ft_mesh m);
int ft_mesh_embedding_group(struct ft_mesh m, int group, int out[2]);

#endif
