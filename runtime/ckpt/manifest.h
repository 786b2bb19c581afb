/* manifest.json of a checkpoint (on-disk formats, section 6): what is in it, its strict reader and its writer.
 * Nothing of a size that the file claims is allocated before the claim is checked. */
#ifndef FT_RUNTIME_CKPT_MANIFEST_H
#define FT_RUNTIME_CKPT_MANIFEST_H

#include "base/arena.h"
#include "base/bits/dtype.h"
#include "base/json.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/ckpt/rects.h"

enum { FT_MF_VERSION = 1, FT_MF_MAX_ENTRIES = 65536 /* of one tensor */ };

struct ft_mf_file {
    const char *name;
    int64_t size, header_bytes;
    uint32_t header_crc;
    int writer;
};
struct ft_mf_entry {
    struct ft_rect rect; /* from is not used */
    size_t file;
    int64_t begin, bytes; /* begin: absolute offset in the file */
    uint32_t crc;
};
struct ft_mf_tensor {
    const char *name;
    enum ft_dtype dtype;
    int n_dims;
    int64_t dims[2]; /* dims[1] = 1 when n_dims is 1 */
    uint64_t hash;
    const char *from; /* derived ones only */
    struct ft_mf_entry *entries;
    size_t n_entries;
};
struct ft_mf_list {
    struct ft_mf_tensor *v;
    size_t n;
    const struct ft_mf_tensor **sorted; /* by name; NULL in one that is being written */
};

struct ft_manifest {
    struct ft_arena *arena;
    struct ft_json *root;
    int64_t step;
    const char *run_id, *lineage, *created, *precision;
    struct ft_mf_file *files;
    size_t n_files;
    struct ft_mf_list tensors, derived, frozen;
    int64_t bytes;
    uint64_t state_hash;
    uint32_t self_crc;
    struct ft_ckpt_scalars scalars;
    char **warnings; /* unknown keys */
    size_t n_warnings;
};

/* Parses n bytes; path stands in messages. FT_DATA: damaged or no manifest of ours; FT_UNSUPPORTED: a newer version. */
enum ft_code ft_manifest_parse(const char *path, const char *text, size_t n, struct ft_manifest **out,
                               struct ft_err *err) FT_MUST_CHECK;
void ft_manifest_destroy(struct ft_manifest *m); /* NULL is fine */
/* Reads PATH/manifest.json whole (at most 1 GiB). */
enum ft_code ft_manifest_read(const char *dir, struct ft_buf *out, struct ft_err *err) FT_MUST_CHECK;
/* Are the files there, with the right sizes and header CRCs? No data is read. */
enum ft_code ft_manifest_check_files(const struct ft_manifest *m, const char *dir, struct ft_err *err) FT_MUST_CHECK;
/* Does every tensor's set of entries tile its shape? FT_DATA with tensor and rows. */
enum ft_code ft_manifest_check_tiles(const struct ft_manifest *m, struct ft_err *err) FT_MUST_CHECK;
/* "step_00000100" of a folder's path, for messages. */
const char *ft_manifest_base(const char *dir);

const struct ft_mf_tensor *ft_mf_find(const struct ft_mf_list *l, const char *name); /* NULL: not there */
/* Key of a rectangle in a tensor file: the name, with ranges unless it is the whole tensor. */
void ft_mf_key(struct ft_buf *b, const char *name, int n_dims, const int64_t dims[2], const struct ft_rect *r);
/* "rows 8..16", "elements 3..5": for messages; half-open. */
void ft_mf_rows(struct ft_buf *b, int n_dims, int64_t from, int64_t to);
uint64_t ft_mf_state_hash(const struct ft_mf_list *stored, const struct ft_mf_list *derived);

struct ft_mf_origin {
    const char *lineage;
    bool has_parent;
    int64_t parent_step;
    uint32_t parent_crc;
};
/* The fields from "format" to "fp8", without the closing brace: what the comparison of section 10 reads, too. */
void ft_manifest_write_head(struct ft_buf *b, const struct ft_ckpt_run *run, const struct ft_ckpt_scalars *s,
                            const struct ft_mf_origin *origin, const char *created);
/* The rest, with the CRC. m: files, tensors, derived, frozen, bytes, state_hash are read. */
void ft_manifest_write_rest(struct ft_buf *b, const struct ft_manifest *m);

#endif
