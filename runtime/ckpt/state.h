/* The inside of a checkpoint handle, shared by the files of this room: open.c, lock.c, folder.c, save.c, publish.c, tensor_file.c,
 * choose.c, load.c, agree.c, replicas.c, gather.c. */
#ifndef FT_RUNTIME_CKPT_STATE_H
#define FT_RUNTIME_CKPT_STATE_H

#include <stdatomic.h>

#include "base/str.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/ckpt/fio.h"
#include "runtime/ckpt/manifest.h"

/* Kinds of values that are stored of a parameter, and the fourth that is only hashed. */
enum ft_ckpt_slot { FT_CKPT_MASTER, FT_CKPT_M, FT_CKPT_V, FT_CKPT_STORED, FT_CKPT_DERIVED = FT_CKPT_STORED, FT_CKPT_SLOTS };

struct ft_ckpt_lock {
    int fd; /* -1: not held */
    int64_t touched;
};

struct ft_ckpt {
    struct ft_ckpt_options o;
    int rank, world;
    char *dir;
    struct ft_fio fio;
    struct ft_ckpt_lock lock;    /* rank 0 */
    size_t *model_of;            /* n_params: the same parameter in o.model */
    enum ft_ckpt_precision kind; /* FP32: the weights themselves are stored; BF16: masters, and a derived bf16 hash */
    char *lineage;               /* NULL: not known before ft_ckpt_resume or the first save */
    struct ft_mf_origin origin;
    char *resumed, *last; /* names of folders in dir, NULL: none */
    int64_t last_step;
    bool wrote_old;            /* there are folders set aside to remove */
    struct ft_ckpt_save *save; /* on its way; NULL: none */
};

/* --- share.c: all ranks, one result ------------------------------------------------------------------------------------------- */

/* Every rank gives its own result; all get the same: FT_OK, or code and error of the lowest rank that failed. */
enum ft_code ft_ckpt_share(struct ft_ckpt *c, enum ft_code own, struct ft_err *err) FT_MUST_CHECK;
/* Rank 0's bytes on all ranks (b is replaced elsewhere). */
enum ft_code ft_ckpt_spread(struct ft_ckpt *c, struct ft_buf *b, struct ft_err *err) FT_MUST_CHECK;
/* All ranks' bytes, one after another, on rank 0 (appended to all). */
enum ft_code ft_ckpt_collect(struct ft_ckpt *c, const struct ft_buf *mine, struct ft_buf *all, struct ft_err *err) FT_MUST_CHECK;
void ft_ckpt_say(struct ft_ckpt *c, const char *fmt, ...) FT_PRINTF(2, 3);

/* --- lock.c ------------------------------------------------------------------------------------------------------------------- */

struct ft_ckpt_owner {
    const char *run_id, *lineage;
};
/* Takes DIR/LOCK. say: told of a take-over. FT_IO: somebody else writes here, or the folder cannot be written. */
enum ft_code ft_ckpt_lock_take(struct ft_ckpt_lock *l, struct ft_fio *f, const char *dir, struct ft_ckpt_owner me,
                               struct ft_buf *taken_over, struct ft_err *err) FT_MUST_CHECK;
void ft_ckpt_lock_touch(struct ft_ckpt_lock *l, int64_t now);
void ft_ckpt_lock_drop(struct ft_ckpt_lock *l, const char *dir);

/* --- folder.c: names of section 1 ------------------------------------------------------------------------------------------------ */

enum ft_ckpt_kind { FT_CKPT_STEP, FT_CKPT_TMP, FT_CKPT_OLD, FT_CKPT_DEL };
struct ft_ckpt_name {
    char *name;
    enum ft_ckpt_kind kind;
    int64_t step;
};
struct ft_ckpt_names {
    struct ft_ckpt_name *v; /* by kind, then step, then name */
    size_t n;
};
bool ft_ckpt_name_parse(const char *name, enum ft_ckpt_kind *kind, int64_t *step);
enum ft_code ft_ckpt_names_read(const char *dir, struct ft_ckpt_names *out, struct ft_err *err) FT_MUST_CHECK;
void ft_ckpt_names_fini(struct ft_ckpt_names *l);
/* LATEST or BEST: the name in it, checked against the pattern; empty when there is none. */
void ft_ckpt_hint_read(const char *dir, const char *hint, struct ft_buf *out);
enum ft_code ft_ckpt_hint_write(struct ft_fio *f, const char *dir, const char *hint, const char *name,
                                struct ft_err *err) FT_MUST_CHECK;
/* A folder and the files in it (no folders below). */
enum ft_code ft_ckpt_remove(struct ft_fio *f, const char *dir, const char *name, struct ft_err *err) FT_MUST_CHECK;
/* Renames to .del-… first: a half-deleted checkpoint does not exist. */
enum ft_code ft_ckpt_delete(struct ft_fio *f, const char *dir, const char *name, const char *run_id,
                            struct ft_err *err) FT_MUST_CHECK;
/* Lineage of the checkpoint DIR/NAME, only its manifest is looked at; false: no manifest that can be read. */
bool ft_ckpt_lineage(const char *dir, const char *name, struct ft_buf *lineage, struct ft_buf *run_id);
/* What earlier runs left half done. Lines for the log go to say. */
enum ft_code ft_ckpt_sweep(struct ft_ckpt *c, struct ft_err *err) FT_MUST_CHECK;
/* Retention (section 11): what may go of one lineage. kept: names that stay whatever their step; best_step: of the best evaluation that
 * the state knows (BEST may speak of a branch that was given up), 0: none. Removed names are said. */
struct ft_ckpt_retention {
    const char *dir, *lineage, *run_id;
    int64_t keep, best_step;
    const char *kept[4]; /* NULL: none */
    bool dry_run;
};
enum ft_code ft_ckpt_retain(struct ft_fio *f, const struct ft_ckpt_retention *r, struct ft_buf *removed,
                            struct ft_err *err) FT_MUST_CHECK;

/* --- tensor_file.c ------------------------------------------------------------------------------------------------------------------ */

struct ft_ckpt_item {
    size_t model; /* parameter of o.model */
    enum ft_ckpt_slot slot;
    struct ft_rect rect;
    const float *x;
    int64_t begin, bytes; /* in the file, after writing */
    uint32_t crc;
};
struct ft_ckpt_written {
    char name[80]; /* "" when there was nothing to write */
    int64_t size, header_bytes;
    uint32_t header_crc;
};
void ft_ckpt_tensor_name(struct ft_buf *b, enum ft_ckpt_precision p, enum ft_ckpt_slot slot, const char *name);
/* Writes this rank's file into tmp, again under another name after errors that may pass. Fails soon after another thread has set
 * cancelled. */
enum ft_code ft_ckpt_write_file(struct ft_ckpt *c, const char *tmp, int64_t step, struct ft_ckpt_item *items, size_t n,
                                const atomic_bool *cancelled, struct ft_ckpt_written *out, struct ft_err *err) FT_MUST_CHECK;

/* --- save.c --------------------------------------------------------------------------------------------------------------------------- */

/* The save that is on its way is given up by this rank alone, when its work can stop; its folder is left to the next start. */
void ft_ckpt_cancel(struct ft_ckpt *c);

/* --- replicas.c --------------------------------------------------------------------------------------------------------------------- */

/* Holders of the same elements have the same bits (section 4); all ranks get the same result. FT_DATA: refusal, tensor and ranks. */
enum ft_code ft_ckpt_check_replicas(struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, const char *refusal,
                                    struct ft_err *err) FT_MUST_CHECK;

/* --- agree.c -------------------------------------------------------------------------------------------------------------------------- */

struct ft_ckpt_agreed {
    bool fresh_position;
    char *changed; /* "tensor 2 -> 1, data 2 -> 4"; heap, may be empty */
};
/* Section 10. dir is for messages. */
enum ft_code ft_ckpt_agree(const struct ft_ckpt *c, const struct ft_manifest *m, const char *dir, struct ft_ckpt_agreed *out,
                           struct ft_err *err) FT_MUST_CHECK;

/* --- load.c ------------------------------------------------------------------------------------------------------------------------------ */

/* The rectangles that this rank stores (replicas left out), in order of pieces. */
struct ft_ckpt_item *ft_ckpt_items(const struct ft_ckpt *c, const struct ft_ckpt_piece *pieces, size_t n, size_t *n_items);
/* Are the tensors of the model there, and no others? From the manifest alone. */
enum ft_code ft_ckpt_cover(const struct ft_ckpt *c, const struct ft_manifest *m, struct ft_err *err) FT_MUST_CHECK;
/* Reads into the pieces and verifies over all ranks. masters_only: m and v are left alone. */
enum ft_code ft_ckpt_load(struct ft_ckpt *c, const struct ft_manifest *m, const char *dir, const struct ft_ckpt_piece *pieces,
                          size_t n, bool masters_only, struct ft_err *err) FT_MUST_CHECK;
/* CRC of one entry as it lies on the disk against the manifest. */
enum ft_code ft_ckpt_check_entry(struct ft_fio *f, const struct ft_manifest *m, const struct ft_mf_tensor *t,
                                 const struct ft_mf_entry *e, const char *dir, uint64_t *hash, struct ft_err *err) FT_MUST_CHECK;

#endif
