/* From a conversation to ids and labels: what a model folder and the options of [data] say, applied to one record after another.
 *
 *  1. ft_sampler_open()     tokenizer, template, stop set, BOS of a model folder
 *  2. ft_worker_create()    one per thread
 *  3. ft_sample()           a conversation to ids and labels, or a fault
 *  4. ft_sampler_close()    counts are in the worker until then (ft_worker_counts)
 *
 * The rendered text is the only truth: a token is trained when its bytes meet a trained span of it. */
#ifndef FT_RUNTIME_DATA_SAMPLER_H
#define FT_RUNTIME_DATA_SAMPLER_H

#include "runtime/chat/source.h"
#include "runtime/chat/spans.h"
#include "runtime/data/record.h"
#include "runtime/data/record_tokens.h"
#include "runtime/token/token.h"

enum { FT_MAX_STOPS = 16 };

struct ft_sampler {
    const struct ft_data_fields *fields;
    struct ft_tokenizer *tokenizer;
    struct ft_chat_source source;
    int64_t vocab_rows;          /* 0: not known */
    int32_t stops[FT_MAX_STOPS]; /* eos ids of generation_config.json, config.json and the tokenizer's eos token */
    size_t n_stops;
    int32_t generation_stops[FT_MAX_STOPS]; /* those of generation_config.json alone */
    size_t n_generation_stops;
    int32_t bos;         /* -1: the model has none */
    bool wants_bos;      /* the post-processor or add_bos_token puts one in front */
    int32_t config_bos;  /* bos_token_id of config.json; -1 */
    int32_t eos;         /* the tokenizer's eos token, else the first stop; -1 */
    int32_t terminator;  /* `terminator = TOKEN`; -1 */
    bool split;          /* boundary in force */
    struct ft_var *vars; /* template_vars */
    size_t n_vars;
};

/* Everything that `check` prints; added up over workers. */
struct ft_sample_counts {
    int64_t answers, terminated;                                      /* trained answers; of these with a trained terminator */
    int64_t unterminated;                                             /* accepted by terminator = none */
    int64_t appended;                                                 /* terminators that terminator = TOKEN added */
    int64_t terminator_ids[FT_MAX_STOPS], terminator_n[FT_MAX_STOPS]; /* which tokens, how often */
    int64_t rewritten;                                                /* answers that the template wrote differently */
    int64_t prompt_differs;                                           /* answers whose prompt is not the generation prompt */
    int64_t boundary_differs;                                         /* answers for which split and joint give other tokens */
    int64_t cut_tail;                                                 /* records whose text went on behind the last terminator */
    int64_t special_in_content;                                       /* records with special tokens inside contents */
    int64_t bos_added, bos_removed, bos_there;
    char special_example[96];
};

struct ft_worker;

/* The refusal of conversations that no template makes text of. */
enum ft_code ft_sampler_no_template(const struct ft_data_fields *f, const char *model_dir, struct ft_err *err);
/* vocab_rows 0: taken from config.json when it says. */
enum ft_code ft_sampler_open(const struct ft_data_fields *f, const char *model_dir, int64_t vocab_rows, bool needs_template,
                             struct ft_sampler *out, struct ft_err *err) FT_MUST_CHECK;
/* Why conversations cannot be rendered: the folder has no template, or template = none. */
enum ft_code ft_sampler_no_template(const struct ft_data_fields *f, const char *model_dir, struct ft_err *err);
void ft_sampler_close(struct ft_sampler *s);

struct ft_worker *ft_worker_create(const struct ft_sampler *s);
void ft_worker_destroy(struct ft_worker *w);
const struct ft_sample_counts *ft_worker_counts(const struct ft_worker *w);

/* What stands behind a sample, for `show`: the text that was encoded and the ranges of its tokens and trained spans. */
struct ft_sample_view {
    const char *text;
    size_t n;
    const struct ft_token *tokens; /* as many as ids */
    const struct ft_byte_range *trained;
    size_t n_trained;
};

/* Fills ids (replaced). line: for the column of faults. view may be NULL; it lives until the next call. */
bool ft_sample(struct ft_worker *w, struct ft_convo *c, const struct ft_line *line, struct ft_ids *ids, struct ft_sample_view *view,
               struct ft_line_fault *fault);

#endif
