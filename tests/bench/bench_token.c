/* Tokenizer speed: bench_token TOKENIZER.json TEXT [MEGABYTES]   one thread, with byte ranges, in records of 2,000 bytes; then the
 * same as long runs of one character, whose time must grow with their length and not with its square. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "runtime/token/token.h"

static double seconds(struct ft_encoder *e, const char *text, size_t n, size_t record, size_t *tokens)
{
    const int64_t start = ft_clock_now(ft_clock_real());
    struct ft_tokens out = {0};
    struct ft_err err = {0};
    const struct ft_encode_how how = {0};
    *tokens = 0;
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < record ? n - at : record;
        while (at + k < n && ((unsigned char)text[at + k] & 0xC0) == 0x80) k++;
        out.n = 0;
        if (ft_encode(e, text + at, k, &how, &out, &err) != FT_OK) {
            ft_err_print(stderr, "bench_token", &err);
            return -1;
        }
        *tokens += out.n;
    }
    ft_tokens_fini(&out);
    return (double)(ft_clock_now(ft_clock_real()) - start) / 1e9;
}

int main(int argc, char **argv)
{
    struct ft_tokenizer *t = NULL;
    struct ft_buf text = {0};
    struct ft_err err = {0};
    size_t tokens;
    if (argc < 3) {
        fprintf(stderr, "usage: bench_token TOKENIZER.json TEXT\n");
        return 2;
    }
    const int64_t start = ft_clock_now(ft_clock_real());
    if (ft_tokenizer_load(argv[1], &t, &err) != FT_OK || ft_read_file(argv[2], 1u << 30, &text, &err) != FT_OK) {
        ft_err_print(stderr, "bench_token", &err);
        return 2;
    }
    printf("loaded in %.3f s\n", (double)(ft_clock_now(ft_clock_real()) - start) / 1e9);
    struct ft_encoder *e = ft_encoder_create(t);
    for (int i = 0; i < 5; i++) {
        const double s = seconds(e, text.data, text.n, 2000, &tokens);
        printf("%.2f MB, %zu tokens: %.2f MB/s\n", (double)text.n / 1e6, tokens, (double)text.n / 1e6 / s);
    }
    char *run = ft_xcalloc(1, 400000);
    for (const char *c = "a \n"; *c; c++) {
        memset(run, *c, 400000);
        const double once = seconds(e, run, 200000, 200000, &tokens), twice = seconds(e, run, 400000, 400000, &tokens);
        printf("200,000 x 0x%02x: %.3f s, 400,000: %.3f s (x %.2f)\n", (unsigned)*c, once, twice, twice / once);
    }
    free(run);
    ft_encoder_destroy(e);
    ft_tokenizer_destroy(t);
    ft_buf_fini(&text);
    return 0;
}
