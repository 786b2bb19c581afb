/* Writing a Hugging Face model folder (on-disk formats, section 15).
 *
 *  1. ft_export_check()  before training: the target does not exist and its parent can be written
 *  2. ft_export_full()   into a temporary sibling folder, every file synced, then one rename: the target is whole or absent.
 *                        Tensors as in the base folder (names, prefix, order, fused parts together), each from the masters with one
 *                        rounding; config.json is the base's bytes but for changed keys; tokenizer, template and licence files are
 *                        copied byte for byte
 * One process writes; `fetch` gives it the values. */
#ifndef FT_RUNTIME_CKPT_EXPORT_H
#define FT_RUNTIME_CKPT_EXPORT_H

#include "runtime/ckpt/import.h"

struct ft_export {
    const char *dir;              /* target; must not exist */
    const char *base_dir;         /* the folder that was trained */
    const struct ft_import *base; /* its tensors */
    enum ft_dtype dtype;          /* FT_F32, FT_F16, FT_BF16; FT_N_DTYPES: each tensor's own type in the base folder */
    int terminator_id;            /* trained end of an answer, first in eos_token_id; -1: none */
    const char *chat_template;    /* text of the template trained with: it stands in chat_template.jinja, and no other one in
                                   * tokenizer_config.json; NULL: none, files are copied as they are */
    int64_t max_file_bytes;       /* 0: 5e9 */
    /* Elements [from,to) of the logical (whole, unpadded) parameter i of ft_import_params(). */
    enum ft_code (*fetch)(void *ctx, size_t i, int64_t from, int64_t to, float *out, struct ft_err *err);
    void *ctx;
};

enum ft_code ft_export_check(const char *dir, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_export_full(const struct ft_export *e, struct ft_err *err) FT_MUST_CHECK;

/* Everything but the tensors, into the temporary folder tmp (a step of ft_export_full). */
enum ft_code ft_export_files(const struct ft_export *e, const char *tmp, struct ft_err *err) FT_MUST_CHECK;

/* The text of a JSON object with the value of one of its own keys replaced (or the key added at the end); every other byte stays.
 * FT_DATA: not an object. */
enum ft_code ft_json_edit(const char *text, size_t n, const char *key, const char *value, struct ft_buf *out,
                          struct ft_err *err) FT_MUST_CHECK;

#endif
