/* The folder of a run: RUN_DIR/NAME-YYYYMMDD-HHMMSS-xxxx, mode 0700; files 0600. */
#ifndef FT_LAUNCHER_RUNDIR_H
#define FT_LAUNCHER_RUNDIR_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct ft_rundir {
    const char *id;   /* name of the folder */
    const char *path; /* absolute */
};
/* Makes a new folder with ranks/ in it. parent relative: to the current directory; made when missing. */
enum ft_code ft_rundir_create(const char *parent, const char *name, struct ft_arena *arena, struct ft_rundir *out,
                              struct ft_err *err) FT_MUST_CHECK;
/* RUN as a person gives it: a folder, or a name (or unique end or start of one) in parent. */
enum ft_code ft_rundir_find(const char *parent, const char *run, struct ft_arena *arena, struct ft_rundir *out,
                            struct ft_err *err) FT_MUST_CHECK;
const char *ft_rundir_file(const struct ft_rundir *d, const char *name, struct ft_arena *arena); /* PATH/NAME */
enum ft_code ft_rundir_write(const struct ft_rundir *d, const char *name, const struct ft_buf *text,
                             struct ft_err *err) FT_MUST_CHECK;
/* "NAME-20261130-174100-a1b2" looks like a run: its NAME length, or 0. */
size_t ft_rundir_is_run(const char *name);

#endif
