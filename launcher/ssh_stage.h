/* Our agent's file brought to a node over sftp (version 3), in a thread of the pool. Many nodes may share one home: the file
 * is written under a random name and renamed.
 *
 * Folders, first usable one first: ~/.cache/ftlaunch, /dev/shm/ftlaunch-UID, /tmp/ftlaunch-UID (UID there). A folder is usable
 * when it is a real folder, mode 0700, of the user that we are there. A folder where the file does not start (noexec) is left
 * by asking for the next one. */
#ifndef FT_LAUNCHER_SSH_STAGE_H
#define FT_LAUNCHER_SSH_STAGE_H

#include <stdint.h>

#include "base/str.h"
#include "launcher/ssh.h"
#include "launcher/ssh_dial.h"

struct ft_ssh_file {
    const void *bytes;
    size_t n;
    const char *name; /* "ftlaunch-agent-BUILD" */
};
enum { FT_SSH_STAGE_FOLDERS = 3 };

/* Puts the file into folder number k (0..) or later; *k is then the one that took it. rewrite: an equal file that is there is
 * written again. *out_path is its absolute path, of [A-Za-z0-9_./+-] only; *out_written says whether it was sent now.
 * FT_UNSUPPORTED: there is no sftp; FT_IO: no folder takes it (why). FT_NET, FT_TIMEOUT: the connection. */
enum ft_code ft_ssh_stage(struct ft_ssh *s, const struct ft_ssh_limits *lim, const struct ft_ssh_file *file, int *k, bool rewrite,
                          struct ft_buf *out_path, bool *out_written, struct ft_err *err) FT_MUST_CHECK;

/* true: one word that every login shell runs as it is. */
bool ft_ssh_plain_word(const char *s);

#endif
