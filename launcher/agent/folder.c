/* The run folder on a node: the head's own when it is shared (its nonce file is seen there), else one of the node's with the job
 * file in it. And the program beside ftlaunch, which a node may have elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "launcher/agent/agent.h"

enum { NONCE_BYTES = 64 };

static bool is_shared(const char *path, const char *nonce)
{
    struct ft_buf name = {0}, have = {0};
    ft_buf_addf(&name, "%s/.head", path);
    const bool same = ft_read_file(name.data, 4096, &have, NULL) == FT_OK && have.n == NONCE_BYTES && strcmp(have.data, nonce) == 0;
    ft_buf_fini(&name);
    ft_buf_fini(&have);
    return same;
}

bool ft_agent_make_folder(struct ft_agent *a, struct ft_buf *why)
{
    if (!a->job.run_dir.n) return true; /* the head's machine */
    const char *path = a->job.run_dir.data, *nonce = path + strlen(path) + 1;
    if (path[0] != '/' || nonce >= path + a->job.run_dir.n || strlen(nonce) != NONCE_BYTES) {
        ft_buf_adds(why, "the head's run folder cannot be read");
        return false;
    }
    if (is_shared(path, nonce)) return true;
    struct ft_err err = {.code = FT_OK};
    struct ft_buf name = {0};
    struct stat st;
    ft_buf_addf(&name, "%s/job.ini", path);
    const size_t n = a->job.job_file.n ? a->job.job_file.n - 1 : 0; /* without the NUL that ends lists */
    if (ft_mkdirs(path, 0700, &err) ||
        (lstat(path, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) &&
         ft_fail(&err, FT_IO, "it is no folder of this user; set [launch] run_dir to one that every node's user can make")) ||
        ft_write_file(name.data, a->job.job_file.data ? a->job.job_file.data : "", n, 0600, &err))
        ft_buf_addf(why, "run folder '%s': %s", path, err.text);
    else if (a->job.first_rank == 0)
        ft_agent_note(
            a, 1,
            "the run folder is not shared: what rank 0 writes there (metrics.jsonl, checkpoints, export) stays on this node, in %s",
            path);
    ft_buf_fini(&name);
    return err.code == FT_OK;
}

void ft_agent_else_path(struct ft_agent *a)
{
    const char *name = a->job.argv.data, *slash = name ? strrchr(name, '/') : NULL;
    if (!a->job.else_path || !slash || access(name, X_OK) == 0) return;
    ft_buf_drop(&a->job.argv, (size_t)(slash + 1 - name));
}
