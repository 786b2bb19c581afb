/* Weights of a Hugging Face model folder, seen through the model's parameter rows (on-disk formats, section 14).
 *
 *  1. ft_import_open()   finds every parameter of the model in the folder's safetensors files, strictly both ways: missing and
 *                        unknown tensors, other shapes, other dtypes, an untied head that is absent, a tied one that differs
 *                        are refused. Nothing of the data is read but a second head
 *  2. ft_import_read()   elements of a row as this rank holds it, widened exactly to fp32; NaN and Inf are refused by name
 *  3. ft_import_close()
 * Many threads may read one handle. A checkpoint of another framework is refused with its kind. */
#ifndef FT_RUNTIME_CKPT_IMPORT_H
#define FT_RUNTIME_CKPT_IMPORT_H

#include "runtime/arch/config.h"
#include "runtime/ckpt/safetensors.h"

struct ft_import;

/* Where one parameter of the whole model lies: element (i,j) is tensor element (row0+i, col0+j). Parts of a fused tensor share it. */
struct ft_import_place {
    const struct ft_st_tensor *tensor;
    int64_t row0, col0;
};

enum ft_code ft_import_open(const char *dir, const struct ft_model_config *config, struct ft_import **out,
                            struct ft_err *err) FT_MUST_CHECK;
void ft_import_close(struct ft_import *m); /* NULL is fine */

/* Local elements [from,to) of row p (of any layout of the same model) into out. Rows of the padded vocabulary are zero. */
enum ft_code ft_import_read(const struct ft_import *m, const struct ft_param *p, int64_t from, int64_t to, float *out,
                            struct ft_err *err) FT_MUST_CHECK;

/* What export needs: the tensors of the folder that hold parameters, in file order (no buffers, no second tied head). */
struct ft_import_tensor {
    const struct ft_st_tensor *tensor;
    size_t *params; /* rows of the whole model whose parts make it up, in order of columns (one, or q k v) */
    size_t n_params;
};
const struct ft_import_tensor *ft_import_tensors(const struct ft_import *m, size_t *n);
const struct ft_param *ft_import_params(const struct ft_import *m, size_t *n); /* rows of the whole model */
struct ft_import_place ft_import_place(const struct ft_import *m, size_t param);
/* Sentences worth a warning (files that are ignored); NULL terminated. */
const char *const *ft_import_warnings(const struct ft_import *m);

/* DIR/config.json; where there is none, a checkpoint of another framework is told by its kind. */
enum ft_code ft_import_config(const char *dir, struct ft_arena *a, struct ft_model_config *out, struct ft_err *err) FT_MUST_CHECK;

/* When dir holds (or is a file of) a checkpoint of another framework (Megatron-LM, DeepSpeed, torch pickles, GGUF …): its kind and what
 * would help, as FT_UNSUPPORTED; FT_OK when nothing of the kind is seen. */
enum ft_code ft_import_foreign(const char *dir, struct ft_err *err) FT_MUST_CHECK;

#endif
