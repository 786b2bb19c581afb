/* The weights of one checkpoint for whoever only wants to read them (export): no lock, no other rank, no optimizer. Works while a run
 * writes beside it.
 *
 *  1. ft_weights_find()   RUN, its checkpoints folder or one checkpoint -> the checkpoint: the best, else the latest
 *  2. ft_weights_open()   manifest, files and tiles are checked; no data is read
 *  3. ft_weights_read()   masters of a parameter, a tensor at a time, with its CRCs
 *  4. ft_weights_close() */
#ifndef FT_RUNTIME_CKPT_WEIGHTS_H
#define FT_RUNTIME_CKPT_WEIGHTS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "runtime/nn/param.h"

struct ft_weights;

enum ft_code ft_weights_find(const char *path, struct ft_buf *dir, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_weights_open(const char *dir, struct ft_weights **out, struct ft_err *err) FT_MUST_CHECK;
int64_t ft_weights_step(const struct ft_weights *w);
const char *ft_weights_base(const struct ft_weights *w); /* the model folder that was trained; NULL: not said */
/* What an export says beside the tensors, as the run that trained them would: template and end of an answer. false: the checkpoint is of a
 * version that did not know. */
bool ft_weights_chat(const struct ft_weights *w, const char **template_text, int64_t *terminator_id);
/* Every parameter is there with its shape. */
enum ft_code ft_weights_check(const struct ft_weights *w, const struct ft_param *params, size_t n,
                              struct ft_err *err) FT_MUST_CHECK;
/* Elements [from,to) of a whole parameter. One thread. */
enum ft_code ft_weights_read(struct ft_weights *w, const struct ft_param *p, int64_t from, int64_t to, float *out,
                             struct ft_err *err) FT_MUST_CHECK;
void ft_weights_close(struct ft_weights *w); /* NULL is fine */

#endif
