/* Inside of a tokenizer (only for files of this folder and its tests). */
#ifndef FT_RUNTIME_TOKEN_TOK_H
#define FT_RUNTIME_TOKEN_TOK_H

#include "base/json.h"
#include "runtime/token/token.h"
#include "runtime/token/unicode.h"

/* ---- vocab.c: strings <-> ids ---- */
struct ft_vocab {
    struct ft_buf blob;
    struct ft_vocab_at {
        uint32_t at, n; /* n UINT32_MAX: no token has this id */
    } * by_id;
    size_t n_ids, ids_cap;
    uint32_t *slot; /* id + 1; 0: empty */
    size_t n, cap;
};
enum { FT_MAX_ID = 1 << 24 };
void ft_vocab_fini(struct ft_vocab *v);
/* A string that is there gets the new id; an id that is there keeps its first string for ft_vocab_text. */
void ft_vocab_add(struct ft_vocab *v, const char *s, size_t n, int32_t id);
int32_t ft_vocab_find(const struct ft_vocab *v, const char *s, size_t n);   /* -1 */
const char *ft_vocab_text(const struct ft_vocab *v, int32_t id, size_t *n); /* NULL */
/* GPT-2's byte alphabet: byte -> code point, and back (-1: not of the alphabet). */
uint32_t ft_byte_to_char(unsigned char byte);
int ft_char_to_byte(uint32_t cp);

/* ---- bpe.c ---- */
struct ft_bpe {
    const struct ft_vocab *names; /* as in the file */
    struct ft_vocab raw;          /* byte-level: the same tokens as bytes */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    int32_t unk;          /* -1 */
    int32_t byte_id[256]; /* byte level: the token of a byte; else <0xNN>; -1 */
    struct ft_merge {
        uint64_t pair; /* left << 32 | right; UINT64_MAX: empty */
        uint32_t rank, id;
    } * merges;
    size_t n_merges, merges_cap;
};
void ft_bpe_fini(struct ft_bpe *b);
void ft_bpe_merge_add(struct ft_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);

struct ft_piece_token {
    int32_t id;
    uint32_t begin, end; /* bytes of the piece */
};
struct ft_bpe_work; /* buffers and cache of a thread */
struct ft_bpe_work *ft_bpe_work_create(void);
void ft_bpe_work_destroy(struct ft_bpe_work *w);
/* Tokens of one pre-token; *v lives until the next call. */
size_t ft_bpe_piece(const struct ft_bpe *b, struct ft_bpe_work *w, const char *s, size_t n, const struct ft_piece_token **v);

/* ---- unigram.c ---- */
struct ft_unigram {
    const struct ft_vocab *names;
    double *score; /* by id */
    size_t n;
    int32_t unk;
    double unk_score;
    bool byte_fallback, fuse_unk;
    int32_t byte_id[256];
    size_t longest; /* bytes of the longest token */
};
void ft_unigram_fini(struct ft_unigram *u);
struct ft_unigram_work;
struct ft_unigram_work *ft_unigram_work_create(void);
void ft_unigram_work_destroy(struct ft_unigram_work *w);
size_t ft_unigram_piece(const struct ft_unigram *u, struct ft_unigram_work *w, const char *s, size_t n,
                        const struct ft_piece_token **v);

/* ---- text.c: normalised text that knows where each byte comes from ---- */
struct ft_text {
    const char *s; /* (n) own.data or borrowed */
    size_t n;
    uint32_t base; /* !aligned: byte i comes from [base+i, base+i+1) */
    bool aligned;  /* byte i comes from [from[i], to[i]) */
    struct ft_buf own;
    uint32_t *from, *to;
    size_t from_cap, to_cap;
};
void ft_text_fini(struct ft_text *t);
void ft_text_borrow(struct ft_text *t, const char *s, size_t n, uint32_t base);
void ft_text_clear(struct ft_text *t); /* empty, aligned, writing to own */
void ft_text_put(struct ft_text *t, const char *s, size_t n, uint32_t from, uint32_t to);
static inline uint32_t ft_text_from(const struct ft_text *t, size_t i) { return t->aligned ? t->from[i] : t->base + (uint32_t)i; }
static inline uint32_t ft_text_to(const struct ft_text *t, size_t i) { return t->aligned ? t->to[i] : t->base + (uint32_t)i + 1; }
/* Appends bytes [a, b) of src with their origin. */
void ft_text_copy(struct ft_text *t, const struct ft_text *src, size_t a, size_t b);

/* ---- unicode.c: the only file that knows utf8proc ---- */
enum ft_nf { FT_NFC, FT_NFD, FT_NFKC, FT_NFKD };
/* Normalises in into out; false: nothing would change (out is untouched). */
bool ft_normal_form(enum ft_nf form, const struct ft_text *in, struct ft_text *out);

/* ---- regex.c: the only file that knows PCRE2 ---- */
struct ft_regex;
struct ft_regex_work;
enum ft_code ft_regex_compile(const char *pattern, struct ft_regex **out, struct ft_err *err) FT_MUST_CHECK;
void ft_regex_destroy(struct ft_regex *r);
const char *ft_regex_pattern(const struct ft_regex *r);
struct ft_regex_work *ft_regex_work_create(void);
void ft_regex_work_destroy(struct ft_regex_work *w);
/* Next match at or after `at`: 1 found ([*begin, *end)), 0 none, -1 a limit was hit (err filled). */
int ft_regex_next(const struct ft_regex *r, struct ft_regex_work *w, const char *s, size_t n, size_t at, size_t *begin, size_t *end,
                  struct ft_err *err);

/* ---- norm.c ---- */
enum ft_norm_kind { FT_NORM_FORM, FT_NORM_REPLACE, FT_NORM_PREPEND, FT_NORM_LOWERCASE, FT_NORM_STRIP, FT_NORM_STRIP_ACCENTS };
struct ft_pattern { /* a literal or a regular expression */
    char *literal;
    size_t literal_n;
    struct ft_regex *regex;
};
void ft_pattern_fini(struct ft_pattern *p);
int ft_pattern_next(const struct ft_pattern *p, struct ft_regex_work *w, const char *s, size_t n, size_t at, size_t *begin,
                    size_t *end, struct ft_err *err);
struct ft_norm {
    enum ft_norm_kind kind;
    enum ft_nf form;
    struct ft_pattern pattern;
    char *content;
    size_t content_n;
    bool left, right;
};
struct ft_norms {
    struct ft_norm *v;
    size_t n, cap;
};
void ft_norms_fini(struct ft_norms *n);
/* Applies all to text; result is in *a or *b (returned). no_prefix: Prepend does nothing. */
enum ft_code ft_norms_apply(const struct ft_norms *n, struct ft_regex_work *w, struct ft_text *a, struct ft_text *b, bool no_prefix,
                            struct ft_text **result, struct ft_err *err) FT_MUST_CHECK;

/* ---- pretok.c ---- */
enum ft_pre_kind {
    FT_PRE_SPLIT,
    FT_PRE_BYTE_LEVEL,
    FT_PRE_METASPACE,
    FT_PRE_DIGITS,
    FT_PRE_PUNCTUATION,
    FT_PRE_WHITESPACE,
    FT_PRE_WHITESPACE_SPLIT
};
enum ft_split_how {
    FT_SPLIT_REMOVED,
    FT_SPLIT_ISOLATED,
    FT_SPLIT_MERGED_WITH_PREVIOUS,
    FT_SPLIT_MERGED_WITH_NEXT,
    FT_SPLIT_CONTIGUOUS
};
enum ft_prepend { FT_PREPEND_ALWAYS, FT_PREPEND_FIRST, FT_PREPEND_NEVER };
struct ft_pre {
    enum ft_pre_kind kind;
    struct ft_pattern pattern;
    enum ft_split_how how;
    bool invert;
    bool add_prefix_space, use_regex, individual, split; /* ByteLevel, Digits, Metaspace */
    bool raw;                                            /* ByteLevel as the last step: bytes stay bytes */
    enum ft_prepend prepend;
    char replacement[5];
};
struct ft_pres {
    struct ft_pre *v;
    size_t n, cap;
};
extern const char ft_gpt2_pattern[]; /* what ByteLevel splits with (use_regex) */
void ft_pres_fini(struct ft_pres *p);
struct ft_piece {
    size_t begin, end;
};
struct ft_pieces {
    struct ft_piece *v;
    size_t n, cap;
};
struct ft_pre_work { /* scratch of ft_pres_apply */
    struct ft_text spare[2];
    struct ft_pieces other;
    struct ft_match {
        size_t begin, end;
        bool match;
    } * matches;
    size_t n_matches, matches_cap;
};
void ft_pre_work_fini(struct ft_pre_work *w);
/* Splits text; pieces (replaced) are ranges of *result, which is text or one of the spares. */
enum ft_code ft_pres_apply(const struct ft_pres *p, struct ft_regex_work *rw, struct ft_pre_work *w, struct ft_text *text,
                           bool no_prefix, struct ft_pieces *pieces, struct ft_text **result, struct ft_err *err) FT_MUST_CHECK;

/* ---- added.c: tokens that stand beside the model ---- */
struct ft_added {
    int32_t id;
    char *name; /* as in the file */
    size_t name_n;
    char *content; /* what is searched and shown (normalised when `normalized`) */
    size_t n;
    bool single_word, lstrip, rstrip, normalized, special;
};
struct ft_trie { /* contents sorted bytewise */
    const struct ft_added **v;
    size_t n;
    bool first[256];
    size_t longest;
};
struct ft_added_set {
    struct ft_added *v;
    size_t n, cap;
    struct ft_vocab names; /* name -> index */
    struct ft_trie plain, normalized;
    int32_t *by_id; /* index + 1 of the last token with this id; 0: none */
    size_t n_ids;
};
void ft_added_fini(struct ft_added_set *a);
void ft_added_build(struct ft_added_set *a);                                  /* tries and by_id, after all are added */
const struct ft_added *ft_added_of(const struct ft_added_set *a, int32_t id); /* NULL */
const struct ft_added *ft_added_find(const struct ft_added_set *a, const char *name, size_t n); /* NULL */
struct ft_part {
    const struct ft_added *token; /* NULL: text */
    size_t begin, end;
};
struct ft_parts {
    struct ft_part *v;
    size_t n, cap;
};
/* Leftmost, longest. skip(ctx, begin, end) true: a special token there is text. */
void ft_added_split(const struct ft_trie *t, const char *s, size_t n, bool (*skip)(void *ctx, size_t begin, size_t end), void *ctx,
                    struct ft_parts *out);

/* ---- decode.c ---- */
enum ft_dec_kind { FT_DEC_BYTE_LEVEL, FT_DEC_BYTE_FALLBACK, FT_DEC_FUSE, FT_DEC_STRIP, FT_DEC_REPLACE, FT_DEC_METASPACE };
struct ft_dec {
    enum ft_dec_kind kind;
    struct ft_pattern pattern;
    char *content;
    size_t content_n;
    uint32_t strip_char;
    size_t start, stop;
    enum ft_prepend prepend;
    char replacement[5];
};
struct ft_decs {
    struct ft_dec *v;
    size_t n, cap;
    bool any; /* a decoder is named; without one tokens are joined with blanks */
};
void ft_decs_fini(struct ft_decs *d);

struct ft_tokenizer {
    char *name;
    struct ft_vocab vocab; /* the model's */
    bool is_unigram;
    struct ft_bpe bpe;
    struct ft_unigram unigram;
    struct ft_norms norms;
    struct ft_pres pres;
    struct ft_added_set added;
    struct ft_decs decs;
    int32_t *front, *back; /* the post-processor's ids around the text */
    size_t n_front, front_cap, n_back, back_cap;
    struct ft_buf remark;
};

/* ---- parts.c: normalizer, pre_tokenizer, decoder, post_processor objects into tables ---- */
enum ft_code ft_read_normalizer(const struct ft_json *v, struct ft_norms *out, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_read_pre_tokenizer(const struct ft_json *v, struct ft_pres *out, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_read_decoder(const struct ft_json *v, struct ft_decs *out, struct ft_err *err) FT_MUST_CHECK;
enum ft_code ft_read_post_processor(const struct ft_json *v, struct ft_tokenizer *t, struct ft_err *err) FT_MUST_CHECK;

#endif
