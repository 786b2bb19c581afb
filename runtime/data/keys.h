/* Keys of records: what counts as the same record and as the same prompt, whatever its case and white space. */
#ifndef FT_RUNTIME_DATA_KEYS_H
#define FT_RUNTIME_DATA_KEYS_H

#include "base/hash.h"
#include "runtime/data/record.h"

struct ft_record_keys {
    struct ft_hash128 record; /* all turns */
    struct ft_hash128 prompt; /* what stands before the first answer (a plain text: all of it) */
};
/* xxh3-128 over roles and texts after NFC, lower case, white space runs to one blank, trimmed. */
struct ft_record_keys ft_record_keys(struct ft_convo *c);

#endif
