/* A run of some ranks that opens a folder, resumes, saves and ends; what came out stands in the results. */
#ifndef FT_TESTS_CKPT_DRIVE_H
#define FT_TESTS_CKPT_DRIVE_H

#include "run.h"

struct job {
    const char *dir, *run_id, *resume;
    enum ft_ckpt_precision precision;
    struct fake_layout layout;
    int64_t saves[8];                                   /* steps, ends with 0 */
    int64_t best;                                       /* the save of this step is the best */
    int64_t values;                                     /* saves have the values of this step (0: of their own) */
    int64_t keep;                                       /* 0: 2; -1: all */
    bool loaded;                                        /* saves have what was loaded */
    bool go_on;                                         /* after a failed save go on with the next one */
    bool beside;                                        /* saves begin, the pieces change at once, then they are drained */
    const char *fault;                                  /* FT_FAULT */
    void (*change)(struct fake *f);                     /* before opening */
    void (*spoil)(struct fake *f, int rank, int world); /* before a save */
};

/* Each rank says: "resumed K" (0: afresh), "fresh position", "saved K", errors; rank 0 also what was said for people. Exit status:
 * 0, 10 + code of the error that ended it, 3 wrong values, 4 wrong scalars. */
void drive(struct job *j, int n, struct ranks *r);
/* The run went well and every rank resumed from step. */
void went_well(const struct ranks *r, int64_t resumed);
/* Every rank ended with this code; rank 0's words have text. */
void refused(const struct ranks *r, enum ft_code code, const char *text);

/* Whole files, for damage. */
char *slurp(const char *dir, const char *name, size_t *n);
void spill(const char *dir, const char *name, const char *text, size_t n);
/* Replaces the first `from` of a manifest and makes its CRC right again. */
void edit_manifest(const char *dir, const char *from, const char *to);
void flip_byte(const char *dir, const char *name, int64_t at);

#endif
