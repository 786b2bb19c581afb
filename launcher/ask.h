/* Asking fttrain: what only it knows (keys of its sections, batch arithmetic, memory) the launcher hears as one JSON object on
 * its stdout (interface: "What fttrain answers"). The child gets no stdin, and a deadline. */
#ifndef FT_LAUNCHER_ASK_H
#define FT_LAUNCHER_ASK_H

#include "base/err.h"
#include "base/fault.h"
#include "base/json.h"

/* argv[0] is the program's path. *out: the object (the caller destroys it); *out_status: exit status, 128+N for a signal.
 * FT_IO: it could not be started; FT_TIMEOUT; FT_DATA: no object with schema 1 (its last words are in the text). */
enum ft_code ft_ask(char *const *argv, int64_t timeout_ns, struct ft_json **out, int *out_status, struct ft_err *err) FT_MUST_CHECK;

/* fttrain WORD --json [MORE…] FILES… --set … */
struct ft_question {
    const char *fttrain, *word;
    const char *more[4]; /* NULL at the end */
    char *const *files;
    size_t n_files;
    char *const *sets;
    size_t n_sets;
    const char *more_set; /* a last --set of ours; NULL: none */
};
enum ft_code ft_ask_fttrain(const struct ft_question *q, struct ft_json **out, int *out_status, struct ft_err *err) FT_MUST_CHECK;

/* Adds the faults of a `check --json` answer. */
void ft_ask_take_faults(const struct ft_json *answer, struct ft_faults *faults);

#endif
