/* fttrain ckpt ls|verify|diff|prune: shared by cmd.c (words, ls, prune), cmd_verify.c and cmd_diff.c. */
#ifndef FT_RUNTIME_CKPT_CMD_H
#define FT_RUNTIME_CKPT_CMD_H

#include "runtime/ckpt/state.h"

struct ft_ckpt_call {
    FILE *out, *err;
    const char **words;
    size_t n_words;
    bool json, verbose, dry_run;
    int64_t keep; /* -1: not given */
};

/* A checkpoint that can be looked at; NULL with the reason. text is kept by the caller as long as m. */
enum ft_code ft_ckpt_cmd_open(const char *path, struct ft_buf *text, struct ft_manifest **m, struct ft_err *err) FT_MUST_CHECK;
int ft_ckpt_cmd_verify(struct ft_ckpt_call *c);
int ft_ckpt_cmd_diff(struct ft_ckpt_call *c);

#endif
