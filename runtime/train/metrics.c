#include "runtime/train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

enum { FILE_MAX = 1 << 30 };

double ft_flops_per_token(int64_t n_mm, int64_t layers, int64_t q, double s)
{
    return 6 * (double)n_mm + 12 * (double)layers * (double)q * s;
}

static const char *kind_of(double x) { return isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"; }

static double per_second(int64_t n, double ms) { return ms > 0 ? (double)n / ms * 1e3 : NAN; }

void ft_update_line_json(const struct ft_update_line *u, int64_t wall_ns, struct ft_buf *out)
{
    char now[32];
    ft_wall_iso(wall_ns, now);
    const double rate = per_second(u->tokens, u->step_ms), flops = rate * u->flops_per_token / u->n_ranks;
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_object(&w);
    ft_jw_kint(&w, "step", u->step);
    ft_jw_kstr(&w, "time", now);
    ft_jw_kreal(&w, "epoch", u->epoch);
    ft_jw_kint(&w, "rows", u->rows);
    ft_jw_kreal(&w, "loss", u->loss);
    ft_jw_kreal(&w, "lr", u->lr);
    ft_jw_kreal(&w, "grad_norm", u->grad_norm);
    ft_jw_kreal(&w, "clip_coef", u->clip_coef);
    ft_jw_kint(&w, "tokens", u->tokens);
    ft_jw_kint(&w, "trained_tokens", u->trained_tokens);
    ft_jw_kint(&w, "samples", u->samples);
    ft_jw_kreal(&w, "tokens_per_s", rate);
    ft_jw_kreal(&w, "step_ms", u->step_ms);
    ft_jw_kreal(&w, "data_ms", u->data_ms);
    ft_jw_kreal(&w, "comm_ms", u->comm_ms);
    ft_jw_kreal(&w, "ckpt_ms", u->ckpt_ms);
    ft_jw_kreal(&w, "mfu", u->peak_flops > 0 ? flops / u->peak_flops : NAN);
    ft_jw_kreal(&w, "tflops", flops / 1e12);
    ft_jw_kint(&w, "mem", u->mem);
    ft_jw_kint(&w, "mem_plan", u->mem_plan);
    ft_jw_kint(&w, "skipped_steps", u->skipped_steps);
    if (!isfinite(u->loss)) ft_jw_kstr(&w, "nonfinite", kind_of(u->loss));
    else if (!isfinite(u->grad_norm)) ft_jw_kstr(&w, "nonfinite", kind_of(u->grad_norm));
    ft_jw_end(&w);
    ft_buf_addc(out, '\n');
}

void ft_eval_line_json(const struct ft_eval_line *e, struct ft_buf *out)
{
    struct ft_jw w = ft_jw_begin(out);
    ft_jw_object(&w);
    ft_jw_kint(&w, "step", e->step);
    ft_jw_kstr(&w, "eval", e->name);
    ft_jw_kreal(&w, "loss", e->loss);
    ft_jw_kint(&w, "tokens", e->tokens);
    ft_jw_kreal(&w, "best", e->best_step ? e->best : NAN);
    ft_jw_key(&w, "best_step");
    e->best_step ? ft_jw_int(&w, e->best_step) : ft_jw_null(&w);
    ft_jw_kint(&w, "bad", e->bad);
    if (e->tokens > 0 && !isfinite(e->loss)) ft_jw_kstr(&w, "nonfinite", kind_of(e->loss));
    ft_jw_end(&w);
    ft_buf_addc(out, '\n');
}

void ft_update_line_text(const struct ft_update_line *u, int64_t n_updates, struct ft_buf *out)
{
    ft_buf_addf(out, "step %lld of %lld  loss ", (long long)u->step, (long long)n_updates);
    ft_buf_add_real(out, u->loss);
    ft_buf_adds(out, "  norm ");
    ft_buf_add_real(out, u->grad_norm);
    ft_buf_adds(out, "  lr ");
    ft_buf_add_real(out, u->lr);
    ft_buf_addf(out, "  %.0f tokens/s  %.1f ms\n", per_second(u->tokens, u->step_ms), u->step_ms);
}

/* Keeps the lines whose step is at most keep; a line that is no object (cut by a crash) goes too. */
static void cut_lines(const struct ft_buf *text, int64_t keep, struct ft_buf *out)
{
    for (size_t at = 0; at < text->n;) {
        const char *nl = memchr(text->data + at, '\n', text->n - at);
        const size_t n = nl ? (size_t)(nl - text->data) - at : text->n - at;
        struct ft_json *v = NULL;
        if (nl && !ft_json_parse(text->data + at, n, 0, &v, NULL, NULL) && ft_json_int(ft_json_get(v, "step"), INT64_MAX) <= keep)
            ft_buf_add(out, text->data + at, n + 1);
        ft_json_destroy(v);
        at += n + 1;
    }
}

enum ft_code ft_metrics_open(struct ft_metrics *m, const char *path, int64_t keep, struct ft_err *err)
{
    struct ft_buf old = {0}, kept = {0};
    enum ft_code code = FT_OK;
    if (keep >= 0 && ft_is_file(path)) code = ft_read_file(path, FILE_MAX, &old, err);
    if (!code) {
        cut_lines(&old, keep, &kept);
        code = ft_write_file(path, ft_buf_str(&kept), kept.n, 0666, err);
    }
    if (!code) {
        m->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (m->fd < 0) code = ft_fail(err, FT_IO, "cannot open '%s': %s", path, strerror(errno));
        else m->path = ft_xstrdup(path);
    }
    ft_buf_fini(&old);
    ft_buf_fini(&kept);
    return code;
}

static enum ft_code put(struct ft_metrics *m, struct ft_buf *line, struct ft_err *err)
{
    enum ft_code code = ft_write_all(m->fd, line->data, line->n, err);
    if (code) ft_wrap(err, "writing '%s'", m->path);
    ft_buf_fini(line);
    return code;
}

enum ft_code ft_metrics_update(struct ft_metrics *m, const struct ft_update_line *u, struct ft_err *err)
{
    struct ft_buf line = {0};
    ft_update_line_json(u, ft_wall_ns(), &line);
    return put(m, &line, err);
}

enum ft_code ft_metrics_eval(struct ft_metrics *m, const struct ft_eval_line *e, struct ft_err *err)
{
    struct ft_buf line = {0};
    ft_eval_line_json(e, &line);
    return put(m, &line, err);
}

void ft_metrics_close(struct ft_metrics *m)
{
    ft_close(&m->fd);
    free(m->path);
    m->path = NULL;
}
