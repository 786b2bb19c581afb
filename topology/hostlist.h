/* Names of nodes: ranges that expand and fold, and the host lists of other tools. Pure text, no look-ups.
 *
 *   set   = item { "," item }                        blanks around commas allowed
 *   item  = ( text | "[" range { "," range } "]" )+  several brackets allowed, the right-most runs fastest
 *   range = D [ "-" D [ "/" STEP ] ]                 digits are text: [08-11] is 08 09 10 11, [1-4] is 1 2 3 4
 *
 * Padding: equal widths, or no leading zero at all, or a padded start with an equal or wider end ([08-111] = 08 … 99 100 …
 * 111). A name: RFC 1123 labels (<= 63 bytes) plus '_', with dots <= 253 bytes, not starting with '-', not digits and dots
 * only unless a full IPv4 address. Case-insensitive for duplicates. */
#ifndef FT_TOPOLOGY_HOSTLIST_H
#define FT_TOPOLOGY_HOSTLIST_H

#include <stdbool.h>

#include "base/fault.h"
#include "base/str.h"

enum { FT_MAX_NODES = 65536, FT_MAX_SLOTS = 4096 };

struct ft_names {
    const char **v;
    size_t n;
};

/* Why a set was refused: offset in bytes from the start of the text, sentence and remedy (NULL: none), in the arena. */
struct ft_range_fault {
    size_t offset;
    const char *text, *fix;
};

/* All names of text[0..n), in order, each once; offsets[i] (may be NULL) is where the name's item (or the range inside it that
 * made it) begins. At most limit names, counted before expanding. */
bool ft_hostlist_expand(const char *text, size_t n, size_t limit, struct ft_arena *arena, struct ft_names *out, size_t **offsets,
                        struct ft_range_fault *fault);
/* The shortest usual form: a set that expands to exactly these names in this order. Cost n log n or better. */
void ft_hostlist_fold(const struct ft_names *names, struct ft_buf *out);
/* One name by the rules above; false: fault says why. */
bool ft_hostname_check(const char *name, size_t n, struct ft_arena *arena, struct ft_range_fault *fault);
bool ft_is_address(const char *text); /* IPv4 or IPv6 (with or without a zone), as an address */

/* A hash of names without regard to case: index of the name or -1. Grows; storage in the arena. */
struct ft_name_index {
    struct ft_arena *arena;
    const char **names;
    size_t *slots; /* index + 1; 0: free */
    size_t n, cap, n_slots;
};
struct ft_name_index ft_name_index_make(struct ft_arena *arena);
long ft_name_index_find(const struct ft_name_index *x, const char *name);
long ft_name_index_add(struct ft_name_index *x, const char *name); /* its index, old or new */

/* One row of a host list of another tool (plain, PBS, Open MPI, DeepSpeed, Hydra, ssh-like, ranges, Slurm). */
struct ft_host_row {
    const char *name;
    const char *user; /* NULL: none */
    int slots;        /* 0: not given; times it was named when it was repeated without attributes */
    int port;         /* 0: not given */
    struct ft_source at;
};
struct ft_host_rows {
    struct ft_host_row *v;
    size_t n;
};
/* Reads a whole list (name stands in messages); all faults are recorded. */
struct ft_host_rows ft_hostfile_parse(const char *name, const char *text, size_t n, struct ft_arena *arena,
                                      struct ft_faults *faults);

#endif
