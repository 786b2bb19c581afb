/* Tokenizers: a Hugging Face tokenizer.json, text to ids with byte ranges and back. Ids equal those of the reference core exactly.
 *
 *  1. ft_tokenizer_load()   reads a file (or a model folder); what the file asks for and this build lacks is refused by name
 *  2. ft_encoder_create()   one per thread: caches and buffers
 *  3. ft_encode()           as often as wanted
 *  4. ft_encoder_destroy(), ft_tokenizer_destroy()
 * A tokenizer does not change after load and may be shared by threads; an encoder belongs to one thread.
 *
 * Order of work for a text: split at added tokens with normalized = false; normalise the rest; split at added tokens with
 * normalized = true; pre-tokenise; model; post-processor. Merging is O(n log n). */
#ifndef FT_RUNTIME_TOKEN_TOKEN_H
#define FT_RUNTIME_TOKEN_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct ft_tokenizer;
struct ft_encoder;
struct ft_json;

/* path: a tokenizer.json, or a folder that holds one. */
enum ft_code ft_tokenizer_load(const char *path, struct ft_tokenizer **out, struct ft_err *err) FT_MUST_CHECK;
/* The same from memory; name stands in messages. */
enum ft_code ft_tokenizer_parse(const char *name, const char *text, size_t n, struct ft_tokenizer **out,
                                struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_tokenizer_from_json(const char *name, const struct ft_json *root, struct ft_tokenizer **out,
                                    struct ft_err *err) FT_MUST_CHECK;
void ft_tokenizer_destroy(struct ft_tokenizer *t);

int32_t ft_tokenizer_n_ids(const struct ft_tokenizer *t); /* highest id + 1; ids may have gaps */
/* As in the file (byte alphabet), *n bytes, not NUL terminated; NULL: a gap. */
const char *ft_tokenizer_token(const struct ft_tokenizer *t, int32_t id, size_t *n);
int32_t ft_tokenizer_id(const struct ft_tokenizer *t, const char *token); /* -1: no such token */
bool ft_tokenizer_is_added(const struct ft_tokenizer *t, int32_t id);
bool ft_tokenizer_is_special(const struct ft_tokenizer *t, int32_t id); /* added with special = true */
bool ft_tokenizer_adds_prefix(const struct ft_tokenizer *t);            /* encoding a piece alone would put something before it */
bool ft_tokenizer_is_byte_level(const struct ft_tokenizer *t);
const char *ft_tokenizer_remark(const struct ft_tokenizer *t); /* "" or one sentence about what was ignored */
/* First id that the post-processor puts before a text, -1: none. n_front and n_back: how many it adds there. */
int32_t ft_tokenizer_post_front(const struct ft_tokenizer *t);
/* The ids that the post-processor adds before (front) or after a text; returns their number. */
size_t ft_tokenizer_post_ids(const struct ft_tokenizer *t, bool front, const int32_t **ids);

/* One token; [begin, end) are bytes of the original text. An inserted prefix has zero width; a token may begin inside a character. */
struct ft_token {
    int32_t id;
    uint32_t begin, end;
};
struct ft_tokens { /* {0} is empty */
    struct ft_token *v;
    size_t n, cap;
};
void ft_tokens_fini(struct ft_tokens *t);

struct ft_byte_range {
    size_t begin, end;
};

enum ft_encode_flag {
    FT_ENCODE_POST = 1,     /* run the post-processor (add_special_tokens) */
    FT_ENCODE_NO_PREFIX = 2 /* the text is the middle of a longer one: nothing is put before its first piece */
};
struct ft_encode_how {
    unsigned flags;
    const struct ft_byte_range *plain; /* ascending ranges in which special added tokens are ordinary text */
    size_t n_plain;
    size_t base; /* added to all byte positions of the result; plain ranges are positions of the whole text too */
};

struct ft_encoder *ft_encoder_create(const struct ft_tokenizer *t);
void ft_encoder_destroy(struct ft_encoder *e);
/* text must be UTF-8 (checked), below 2 GiB. Appends to *out. */
enum ft_code ft_encode(struct ft_encoder *e, const char *text, size_t n, const struct ft_encode_how *how, struct ft_tokens *out,
                       struct ft_err *err) FT_MUST_CHECK;
/* Appends the text of ids. skip_special leaves tokens with special = true out. Ids that do not exist give nothing. */
void ft_decode(const struct ft_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, struct ft_buf *out);

/* Is some added token with special = true in text? Gives the first one at or after *at (then *at is its begin), else -1. */
int32_t ft_tokenizer_find_special(const struct ft_tokenizer *t, const char *text, size_t n, size_t *at);

#endif
