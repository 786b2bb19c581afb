#include "ssh_oracle.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"

int run_program(char *const *argv, struct ft_buf *out, int both)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC)) return 127;
    const pid_t pid = fork();
    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(both ? p[1] : null, 2);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(p[1]);
    char chunk[4096];
    for (ssize_t n; (n = read(p[0], chunk, sizeof chunk)) > 0;) ft_buf_add(out, chunk, (size_t)n);
    close(p[0]);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 127;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

char *make_folder(void)
{
    char *path = ft_xstrdup("/tmp/ft-test-XXXXXX");
    if (!mkdtemp(path)) FT_BUG("mkdtemp");
    return path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void remove_folder(char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(path);
}

void write_text(const char *folder, const char *name, const char *text)
{
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/%s", folder, name);
    FILE *f = fopen(path.data, "w");
    if (!f) FT_BUG("%s", path.data);
    fputs(text, f);
    fclose(f);
    ft_buf_fini(&path);
}
