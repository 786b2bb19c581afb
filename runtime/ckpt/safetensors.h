/* safetensors files (Hugging Face format): a strict reader, folders of them, and a writer.
 *
 * Layout of a file: 8 bytes little-endian n, n bytes of JSON, data. The JSON maps each name to dtype, shape and data_offsets
 * [begin, end) relative to the data; "__metadata__" maps text to text.
 *
 * Reading:  1. ft_st_folder_open(dir) or ft_st_open(path): every rule below is checked before anything of the size that the
 *              header claims is allocated
 *           2. ft_st_find(), ft_st_read*(): pread, so many threads may read one handle
 *           3. close
 * Refused, each with file, tensor and numbers: a header longer than 100,000,000 bytes or than the file; JSON that is not an object
 * or repeats a key; unknown dtype; negative or overflowing shapes; bytes != product(shape) * size; ranges that overlap, leave a hole or do not
 * end with the file.
 * Writing:  1. ft_st_writer_create() lays out all tensors in the order given and writes the header into PATH.part
 *           2. ft_st_writer_put() in any order, any thread
 *           3. ft_st_writer_commit(): all bytes must have come; fsync and rename: PATH is whole or absent
 *           4. ft_st_writer_destroy() (removes what was not committed) */
#ifndef FT_RUNTIME_CKPT_SAFETENSORS_H
#define FT_RUNTIME_CKPT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits/dtype.h"
#include "base/err.h"

enum { FT_ST_DIMS = 8 }; /* more dimensions are refused */

struct ft_st_file;
struct ft_st_folder;

struct ft_st_tensor {
    const char *name;   /* borrowed from the file */
    const char *dtype;  /* as written: "F32", "I16", … */
    enum ft_dtype type; /* FT_N_DTYPES: a legal dtype that this project does not compute with (I16, U32, …) */
    int n_dims;         /* 0: a scalar */
    int64_t dims[FT_ST_DIMS];
    int64_t count;      /* elements */
    int64_t begin, end; /* bytes, from the start of the data */
    const struct ft_st_file *file;
};

enum ft_code ft_st_open(const char *path, struct ft_st_file **out, struct ft_err *err) FT_MUST_CHECK;
/* The same checks for a header in memory: n bytes from offset 8 of the file, data_bytes after them. path is for messages. */
enum ft_code ft_st_parse(const char *path, const char *header, size_t n, int64_t data_bytes, struct ft_st_file **out,
                         struct ft_err *err) FT_MUST_CHECK;
void ft_st_close(struct ft_st_file *f); /* NULL is fine */
const char *ft_st_path(const struct ft_st_file *f);
size_t ft_st_count(const struct ft_st_file *f);
const struct ft_st_tensor *ft_st_at(const struct ft_st_file *f, size_t i);           /* ascending offsets */
const struct ft_st_tensor *ft_st_find(const struct ft_st_file *f, const char *name); /* NULL: not there */
const char *ft_st_metadata(const struct ft_st_file *f, const char *key);             /* NULL: not there */

/* n elements from element `first` on, as they are on disk. */
enum ft_code ft_st_read(const struct ft_st_tensor *t, int64_t first, int64_t n, void *out, struct ft_err *err) FT_MUST_CHECK;
/* The same, widened exactly to fp32; F32, F16 and BF16 only (else FT_UNSUPPORTED with the name). */
enum ft_code ft_st_read_f32(const struct ft_st_tensor *t, int64_t first, int64_t n, float *out, struct ft_err *err) FT_MUST_CHECK;
/* Rectangle of a tensor of 1 or 2 dimensions: rows [row0,row0+rows), columns [col0,col0+cols) (1-D: rows = elements, col0 = 0,
 * cols = 1), into out (rows, ld_out) fp32. */
enum ft_code ft_st_read_rect_f32(const struct ft_st_tensor *t, int64_t row0, int64_t rows, int64_t col0, int64_t cols, float *out,
                                 int64_t ld_out, struct ft_err *err) FT_MUST_CHECK;

/* All tensors of a model folder: BASE.safetensors, or BASE.safetensors.index.json with its shards (both: refused). With an index, its weight_map and the
 * files must agree both ways and no name may be in two files. BASE: "model", "adapter_model". */
enum ft_code ft_st_folder_open(const char *dir, const char *base, struct ft_st_folder **out, struct ft_err *err) FT_MUST_CHECK;
void ft_st_folder_close(struct ft_st_folder *f); /* NULL is fine */
size_t ft_st_folder_count(const struct ft_st_folder *f);
const struct ft_st_tensor *ft_st_folder_at(const struct ft_st_folder *f, size_t i); /* file by file */
const struct ft_st_tensor *ft_st_folder_find(const struct ft_st_folder *f, const char *name);
const char *ft_st_folder_metadata(const struct ft_st_folder *f, const char *key); /* of the first file that has it */
size_t ft_st_folder_n_files(const struct ft_st_folder *f);
const struct ft_st_file *ft_st_folder_file(const struct ft_st_folder *f, size_t i);

struct ft_st_writer;
struct ft_st_out {
    const char *name;
    enum ft_dtype type;
    int n_dims;
    int64_t dims[FT_ST_DIMS];
};
struct ft_st_writer_options {
    const char *const *metadata; /* key, value, …, NULL; {"format","pt",NULL} for Hugging Face files */
    int64_t align;               /* data begins at a multiple of this (8: Hugging Face; 4096: checkpoints); 0: 8 */
    bool sync;                   /* fsync file and folder on commit */
};
enum ft_code ft_st_writer_create(const char *path, const struct ft_st_out *tensors, size_t n, const struct ft_st_writer_options *o,
                                 struct ft_st_writer **out, struct ft_err *err) FT_MUST_CHECK;
/* Bytes [first, first+n) of tensor i. */
enum ft_code ft_st_writer_put(struct ft_st_writer *w, size_t i, int64_t first, const void *bytes, int64_t n,
                              struct ft_err *err) FT_MUST_CHECK;
/* n fp32 values from element `first` on, rounded once to the tensor's type (F32, F16, BF16); FT_DATA: a finite one that would become
 * infinity. */
enum ft_code ft_st_writer_put_f32(struct ft_st_writer *w, size_t i, int64_t first, const float *x, int64_t n,
                                  struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_st_writer_commit(struct ft_st_writer *w, struct ft_err *err) FT_MUST_CHECK;
void ft_st_writer_destroy(struct ft_st_writer *w); /* NULL is fine */

const char *ft_st_dtype_name(enum ft_dtype t); /* "F32" */

#endif
