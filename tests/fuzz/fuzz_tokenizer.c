/* tokenizer.json, and behind a byte FF a text that it encodes and decodes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/token/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char usual[] = "Hello  world, it's 123 \xC3\xA9\xE2\x96\x81 <s>x</s>\n\n";
    const uint8_t *cut = n ? memchr(data, 0xFF, n) : NULL;
    const char *text = cut ? (const char *)cut + 1 : usual;
    const size_t text_n = cut ? n - (size_t)(cut + 1 - data) : sizeof usual - 1;
    struct ft_tokenizer *t = NULL;
    struct ft_err err = {0};
    if (ft_tokenizer_parse("fuzz", (const char *)data, cut ? (size_t)(cut - data) : n, &t, &err) != FT_OK) return 0;
    struct ft_encoder *e = ft_encoder_create(t);
    struct ft_tokens out = {0};
    struct ft_buf back = {0};
    const struct ft_byte_range plain = {0, text_n / 2};
    for (unsigned flags = 0; flags < 4; flags++) {
        const struct ft_encode_how how = {.flags = flags, .plain = &plain, .n_plain = flags & 1, .base = 0};
        out.n = 0;
        if (ft_encode(e, text, text_n, &how, &out, &err) != FT_OK) break;
        int32_t *ids = ft_xcalloc(out.n + 1, sizeof *ids);
        for (size_t i = 0; i < out.n; i++) {
            if (out.v[i].begin > out.v[i].end || out.v[i].end > text_n) abort();
            ids[i] = out.v[i].id;
        }
        ft_buf_clear(&back);
        ft_decode(t, ids, out.n, flags & 1, &back);
        if (ft_utf8_valid(ft_buf_str(&back), back.n) != back.n) abort();
        free(ids);
    }
    ft_buf_fini(&back);
    ft_tokens_fini(&out);
    ft_encoder_destroy(e);
    ft_tokenizer_destroy(t);
    return 0;
}
