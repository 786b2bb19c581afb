/* Headers of tensor files. First 8 bytes: how many bytes of data follow the header (little-endian); rest: the header. What is accepted
 * must tile the data. */
#include <stdint.h>
#include <string.h>

#include "runtime/ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 8) return 0;
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | data[i];
    struct ft_st_file *f = NULL;
    struct ft_err err;
    if (bytes > INT64_MAX || ft_st_parse("fuzz", (const char *)data + 8, n - 8, (int64_t)bytes, &f, &err)) return 0;
    int64_t at = 0;
    for (size_t i = 0; i < ft_st_count(f); i++) {
        const struct ft_st_tensor *t = ft_st_at(f, i);
        FT_ASSERT(t->begin == at && t->end >= at && ft_st_find(f, t->name) == t);
        FT_ASSERT(t->count == 0 || (t->end - t->begin) % t->count == 0);
        at = t->end;
    }
    FT_ASSERT(at == (int64_t)bytes);
    (void)ft_st_metadata(f, "format");
    ft_st_close(f);
    return 0;
}
