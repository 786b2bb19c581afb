/* Manifests of checkpoints. The input is one without its CRC and end, which are put behind it: else nothing would get past the first
 * check. What is accepted holds together: entries lie in their files and shapes, and what tiles a tensor covers each element once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct ft_manifest *m)
{
    struct ft_err err;
    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct ft_mf_tensor *t = &m->tensors.v[i];
        FT_ASSERT(ft_mf_find(&m->tensors, t->name) == t);
        for (size_t k = 0; k < t->n_entries; k++) {
            const struct ft_mf_entry *e = &t->entries[k];
            FT_ASSERT(e->file < m->n_files && e->begin >= 8 && e->begin + e->bytes <= m->files[e->file].size);
            FT_ASSERT(e->rect.at[0] + e->rect.n[0] <= t->dims[0] && e->rect.at[1] + e->rect.n[1] <= t->dims[1]);
            FT_ASSERT(!strchr(m->files[e->file].name, '/'));
        }
    }
    if (ft_manifest_check_tiles(m, &err)) return;
    for (size_t i = 0; i < m->tensors.n; i++) {
        const struct ft_mf_tensor *t = &m->tensors.v[i];
        int64_t volume = 0;
        for (size_t k = 0; k < t->n_entries; k++) volume += ft_rect_count(&t->entries[k].rect);
        FT_ASSERT(volume == t->dims[0] * t->dims[1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ft_buf b = {0};
    struct ft_manifest *m = NULL;
    struct ft_err err;
    ft_buf_add(&b, data, n);
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, data, n));
    if (!ft_manifest_parse("fuzz/manifest.json", b.data, b.n, &m, &err)) {
        check(m);
        ft_manifest_destroy(m);
    }
    ft_buf_fini(&b);
    return 0;
}
