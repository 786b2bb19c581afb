/* Running a program in a test: its output as text. */
#ifndef FT_TEST_SSH_ORACLE_H
#define FT_TEST_SSH_ORACLE_H

#include "base/str.h"

/* Runs argv (NULL terminated, found on PATH) with stdin /dev/null; stdout (and stderr when both) goes to out. Returns the exit
 * status, 128+n for a signal, 127 when it cannot be started. */
int run_program(char *const *argv, struct ft_buf *out, int both);
/* A fresh folder below /tmp; remove_folder takes everything in it along. */
char *make_folder(void);
void remove_folder(char *path);
void write_text(const char *folder, const char *name, const char *text);

#endif
