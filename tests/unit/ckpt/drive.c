#include "drive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"

static enum ft_code save(struct ft_ckpt *c, struct fake *f, const struct job *j, int64_t step, struct ft_err *err)
{
    const struct ft_ckpt_scalars s = fake_scalars(step);
    const bool best = j->best == step;
    if (!j->beside) return ft_ckpt_save(c, f->pieces, f->buckets.n_pieces, &s, best, err);
    enum ft_code rc = ft_ckpt_begin(c, f->pieces, f->buckets.n_pieces, &s, best, err);
    if (!rc) fake_fill(f, step + 1000);
    return rc ? rc : ft_ckpt_drain(c, err);
}

static int run(const struct ft_place *place, void *arg)
{
    const struct job *j = arg;
    struct ft_err err = {0};
    struct fake f;
    struct ft_ckpt *c = NULL;
    ft_log_set((struct ft_log_sink){.fd = -1, .also_fd = -1});
    if (j->fault) setenv("FT_FAULT", j->fault, 1);
    enum ft_code rc = fake_begin(&f, place, j->dir, j->run_id, j->precision, &j->layout, &err);
    if (rc) return say_err(rc, &err), 10 + (int)rc;
    f.o.resume = j->resume ? j->resume : "auto";
    if (j->keep) f.o.keep = j->keep < 0 ? 0 : j->keep;
    if (j->change) j->change(&f);
    struct ft_ckpt_scalars s = {0};
    int64_t step = -1;
    bool fresh = false;
    int status = 0;
    rc = ft_ckpt_open(&f.o, &c, &err);
    if (!rc) rc = ft_ckpt_resume(c, f.pieces, f.buckets.n_pieces, &s, &step, &fresh, &err);
    if (!rc) {
        say("resumed %lld%s\n", (long long)step, fresh ? ", fresh position" : "");
        const struct ft_ckpt_scalars want = fake_scalars(step);
        if (step && fake_wrong(&f, j->values ? j->values : step)) status = 3;
        if (step && !scalars_equal(&s, &want)) status = 4;
    }
    for (int i = 0; !rc && j->saves[i]; i++) {
        if (!j->loaded) fake_fill(&f, j->values ? j->values : j->saves[i]);
        if (j->spoil) j->spoil(&f, place->rank, place->world);
        rc = save(c, &f, j, j->saves[i], &err);
        if (!rc) say("saved %lld\n", (long long)j->saves[i]);
        if (rc && j->go_on && j->saves[i + 1]) {
            say_err(rc, &err);
            rc = FT_OK;
        }
    }
    if (rc) say_err(rc, &err);
    say("%s", f.said);
    ft_ckpt_close(c);
    fake_end(&f);
    return rc ? 10 + (int)rc : status;
}

void drive(struct job *j, int n, struct ranks *r)
{
    memset(r, 0, sizeof *r);
    r->n = n;
    r->run = run;
    r->arg = j;
    r->limit_s = 120;
    ranks_run(r);
}

void went_well(const struct ranks *r, int64_t resumed)
{
    char want[64];
    snprintf(want, sizeof want, "resumed %lld", (long long)resumed);
    ranks_all_ok(r);
    for (int i = 0; i < r->n; i++)
        if (strncmp(r->text[i], want, strlen(want)) != 0 || (r->text[i][strlen(want)] != '\n' && r->text[i][strlen(want)] != ','))
            fail_msg("rank %d did not say '%s': %s", i, want, r->text[i]);
}

void refused(const struct ranks *r, enum ft_code code, const char *text)
{
    for (int i = 0; i < r->n; i++)
        if (r->late[i] || !WIFEXITED(r->status[i]) || WEXITSTATUS(r->status[i]) != 10 + (int)code)
            fail_msg("rank %d: status %#x, not code %d (%s); said: %s", i, (unsigned)r->status[i], (int)code, text, r->text[i]);
    if (!strstr(r->text[0], text)) fail_msg("rank 0 did not say '%s': %s", text, r->text[0]);
}

char *slurp(const char *dir, const char *name, size_t *n)
{
    char path[1024];
    struct ft_buf b = {0};
    struct ft_err err;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ft_read_file(path, 1 << 26, &b, &err)) fail_msg("%s", err.text);
    *n = b.n;
    return b.data;
}

void spill(const char *dir, const char *name, const char *text, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void edit_manifest(const char *dir, const char *from, const char *to)
{
    size_t n;
    char *text = slurp(dir, "manifest.json", &n), *at = strstr(text, from);
    if (!at) fail_msg("no '%s' in the manifest", from);
    struct ft_buf b = {0};
    ft_buf_add(&b, text, (size_t)(at - text));
    ft_buf_adds(&b, to);
    ft_buf_adds(&b, at + strlen(from));
    b.n -= 11; /* the old CRC and what stands behind it */
    ft_buf_addf(&b, "%08x\"}\n", ft_crc32c(0, b.data, b.n));
    spill(dir, "manifest.json", b.data, b.n);
    ft_buf_fini(&b);
    free(text);
}

void flip_byte(const char *dir, const char *name, int64_t at)
{
    size_t n;
    char *text = slurp(dir, name, &n);
    if (at < 0) at += (int64_t)n;
    text[at] ^= 0x04;
    spill(dir, name, text, n);
    free(text);
}
