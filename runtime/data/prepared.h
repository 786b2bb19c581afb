/* Prepared data on disk: cache/KEY/ with header.json, tokens.bin, spans.bin, index.bin. KEY is a hash of everything that decides about
 * the samples: file contents, tokenizer, template, the options that matter. Written under another name, flushed and renamed, so a
 * crash leaves nothing half; one writer at a time (a lock file that dies with its owner), the others wait and say so. */
#ifndef FT_RUNTIME_DATA_PREPARED_H
#define FT_RUNTIME_DATA_PREPARED_H

#include "runtime/data/loader.h"

enum { FT_PREPARED_VERSION = 1 };

/* 32 hex digits. */
enum ft_code ft_prepared_key(const struct ft_dataset_options *o, enum ft_split split, char key[33],
                             struct ft_err *err) FT_MUST_CHECK;

/* ft_load() through the cache folder: from there when the key is there, else read, written there and mapped. *built (may be NULL):
 * it was written now. */
enum ft_code ft_prepared_load(const struct ft_load_how *how, const char *cache, bool *named, struct ft_loaded *out, bool *built,
                              struct ft_err *err) FT_MUST_CHECK;

#endif
