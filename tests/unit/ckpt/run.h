/* A run without training: parameters whose masters, m and v are known functions of the logical element and the step, laid out by the
 * real rows of a model and the real buckets over any number of tensor ranks, stages and data ranks. */
#ifndef FT_TESTS_CKPT_RUN_H
#define FT_TESTS_CKPT_RUN_H

#include "base/arena.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/train/buckets.h"
#include "tests/unit/coll/ranks.h"

enum { N_PARAMS = 5 }; /* without a config.json */

struct fake_layout {
    int tensor, pipeline; /* 0: 1 */
    const char *config;   /* text of a config.json; NULL: five parameters of many shapes, one stage */
};

struct fake {
    struct ft_arena *arena;
    struct ft_param *params, *model; /* of this rank; of the whole model */
    size_t n_params, n_model;
    size_t *model_of; /* n_params */
    struct ft_buckets buckets;
    float *master, *m, *v; /* state_total each; room for a copy of them is in o.copy */
    struct ft_ckpt_piece *pieces;
    struct ft_ckpt_run run;
    struct ft_ckpt_fact maths[4];
    struct ft_ckpt_options o;
    struct ft_comm *comm;
    const char *accept[8];
    char said[16384]; /* lines for people of rank 0 */
};

/* Opens the comm (order tp-dp-pp) and lays everything out; values are poison until fake_fill or ft_ckpt_resume. */
enum ft_code fake_begin(struct fake *f, const struct ft_place *place, const char *dir, const char *run_id,
                        enum ft_ckpt_precision precision, const struct fake_layout *layout, struct ft_err *err);
void fake_end(struct fake *f);
void fake_fill(struct fake *f, int64_t step);
/* Elements that are not bitwise those of the step; 0: all right. */
int64_t fake_wrong(const struct fake *f, int64_t step);
struct ft_ckpt_scalars fake_scalars(int64_t step);
bool scalars_equal(const struct ft_ckpt_scalars *a, const struct ft_ckpt_scalars *b);

/* A fresh folder under /tmp, and its end. */
char *make_dir(void);
void remove_dir(char *dir);
void copy_dir(const char *from, const char *to); /* folders and files; to exists */
/* Names in a folder, sorted, one space between: "LATEST step_00000001 …". */
void list_dir(const char *dir, char *out, size_t n);

#endif
