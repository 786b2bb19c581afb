/* A run without a model: parameters whose masters, m and v are known functions of the logical element and the step, laid out by the
 * real buckets over any number of data and tensor ranks. */
#ifndef FT_TESTS_CKPT_RUN_H
#define FT_TESTS_CKPT_RUN_H

#include "base/arena.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/train/buckets.h"
#include "tests/unit/coll/ranks.h"

enum { N_PARAMS = 5 };

struct fake {
    struct ft_arena *arena;
    struct ft_param params[N_PARAMS];
    struct ft_buckets buckets;
    float *master, *m, *v; /* state_total each */
    struct ft_ckpt_piece *pieces;
    struct ft_ckpt_run run;
    struct ft_ckpt_fact maths[4];
    struct ft_ckpt_options o;
    struct ft_comm *comm;
    const char *accept[8];
    char said[16384]; /* lines for people of rank 0 */
};

/* Opens the comm (tensor ranks fastest) and lays everything out; values are poison until fake_fill or ft_ckpt_resume. */
enum ft_code fake_begin(struct fake *f, const struct ft_place *place, const char *dir, const char *run_id,
                        enum ft_ckpt_precision precision, int tensor, struct ft_err *err);
void fake_end(struct fake *f);
void fake_fill(struct fake *f, int64_t step);
/* Elements that are not bitwise those of the step; 0: all right. */
int64_t fake_wrong(const struct fake *f, int64_t step);
struct ft_ckpt_scalars fake_scalars(int64_t step);
bool scalars_equal(const struct ft_ckpt_scalars *a, const struct ft_ckpt_scalars *b);

/* A fresh folder under /tmp, and its end. */
char *make_dir(void);
void remove_dir(char *dir);
/* Names in a folder, sorted, one space between: "LATEST step_00000001 …". */
void list_dir(const char *dir, char *out, size_t n);

#endif
