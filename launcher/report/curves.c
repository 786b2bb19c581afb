#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "launcher/report/report.h"

enum { WIDTH = 520, HEIGHT = 240, LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 26, MOST = 800, COLORS = 6 };

/* What is drawn, in this order; "eval" lines are the loss on data that is not trained on. */
static const struct kind {
    const char *key, *title;
    bool eval, log;
} kinds[] = {
    {"loss", "Training loss", false, false},
    {"loss", "Validation loss", true, false},
    {"lr", "Learning rate", false, false},
    {"grad_norm", "Norm of the gradient", false, false},
    {"tokens_per_s", "Tokens per second", false, false},
    {"step_ms", "Milliseconds per step", false, false},
    {"mfu", "Model FLOP/s utilisation", false, false},
    {"mem", "Memory, bytes (worst rank)", false, false},
};

struct series {
    double *x, *y;
    size_t n, cap_x, cap_y;
    size_t run;
};

static void add_point(struct series *s, double x, double y)
{
    ft_grow(&s->x, &s->cap_x, s->n + 1, sizeof *s->x);
    ft_grow(&s->y, &s->cap_y, s->n + 1, sizeof *s->y);
    s->x[s->n] = x;
    s->y[s->n++] = y;
}

static void read_series(const struct ft_run_info *r, const struct kind *k, struct ft_arena *arena, struct series *s)
{
    struct ft_jsonl l;
    if (ft_jsonl_open(&l, ft_rundir_file(&r->dir, "metrics.jsonl", arena)))
        for (struct ft_json *v; (v = ft_jsonl_next(&l)); ft_json_destroy(v)) {
            const struct ft_json *step = ft_json_get(v, "step"), *value = ft_json_get(v, k->key);
            if ((ft_json_get(v, "eval") != NULL) == k->eval && ft_json_is_number(step) && ft_json_is_number(value))
                add_point(s, ft_json_real(step, 0), ft_json_real(value, 0));
        }
    ft_jsonl_close(&l);
}

/* Steps at which an attempt was begun again. */
static void read_restarts(const struct ft_run_info *r, struct ft_arena *arena, struct series *s)
{
    struct ft_jsonl l;
    if (ft_jsonl_open(&l, ft_rundir_file(&r->dir, "events.jsonl", arena)))
        for (struct ft_json *v; (v = ft_jsonl_next(&l)); ft_json_destroy(v)) {
            const char *ev = ft_json_str(ft_json_get(v, "ev"));
            int64_t step = ft_json_int(ft_json_get(v, "step"), -1);
            if (ft_str_eq(ev, "restart") && step >= 0) add_point(s, (double)step, 0);
        }
    ft_jsonl_close(&l);
}

static void number(double x, struct ft_buf *out)
{
    double a = fabs(x);
    if (a >= 1e9) ft_buf_addf(out, "%.3gG", x / 1e9);
    else if (a >= 1e6) ft_buf_addf(out, "%.3gM", x / 1e6);
    else if (a >= 1e4) ft_buf_addf(out, "%.3gk", x / 1e3);
    else ft_buf_addf(out, "%.4g", x);
}

struct frame {
    double x0, x1, y0, y1;
};

static double px(const struct frame *f, double x) { return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT); }
static double py(const struct frame *f, double y)
{
    return HEIGHT - BOTTOM - (y - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static struct frame frame_of(const struct series *s, size_t n)
{
    struct frame f = {HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s[i].n; k++) {
            f.x0 = fmin(f.x0, s[i].x[k]);
            f.x1 = fmax(f.x1, s[i].x[k]);
            f.y0 = fmin(f.y0, s[i].y[k]);
            f.y1 = fmax(f.y1, s[i].y[k]);
        }
    if (f.x1 <= f.x0) f.x1 = f.x0 + 1;
    if (f.y1 <= f.y0) {
        double pad = f.y0 != 0 ? fabs(f.y0) * 0.1 : 1;
        f.y0 -= pad;
        f.y1 += pad;
    }
    return f;
}

static void axes(const struct frame *f, struct ft_buf *out)
{
    for (int i = 0; i <= 4; i++) {
        double y = f->y0 + (f->y1 - f->y0) * i / 4, x = f->x0 + (f->x1 - f->x0) * i / 4;
        ft_buf_addf(
            out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
            LEFT, WIDTH - RIGHT, py(f, y), py(f, y), LEFT - 6, py(f, y) + 4);
        number(y, out);
        ft_buf_addf(out, "</text><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", px(f, x), HEIGHT - 8);
        number(round(x), out);
        ft_buf_adds(out, "</text>");
    }
}

/* At most MOST points: of each stretch the smallest and the largest, so that no spike is lost. */
static void line(const struct frame *f, const struct series *s, struct ft_buf *out)
{
    size_t stretch = s->n / (MOST / 2) + 1;
    ft_buf_addf(out, "<polyline class=\"c%zu\" points=\"", s->run % COLORS);
    for (size_t i = 0; i < s->n; i += stretch) {
        size_t low = i, high = i;
        for (size_t k = i; k < s->n && k < i + stretch; k++) {
            if (s->y[k] < s->y[low]) low = k;
            if (s->y[k] > s->y[high]) high = k;
        }
        size_t a = low < high ? low : high, b = low < high ? high : low;
        ft_buf_addf(out, "%.1f,%.1f ", px(f, s->x[a]), py(f, s->y[a]));
        if (b != a) ft_buf_addf(out, "%.1f,%.1f ", px(f, s->x[b]), py(f, s->y[b]));
    }
    ft_buf_adds(out, "\"/>");
}

static void figure(const struct kind *k, const struct series *s, const struct series *restarts, size_t n, struct ft_buf *out)
{
    struct frame f = frame_of(s, n);
    ft_buf_addf(out, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by step\">",
                k->title, WIDTH, HEIGHT, k->title);
    axes(&f, out);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < restarts[i].n; j++)
            if (restarts[i].x[j] >= f.x0 && restarts[i].x[j] <= f.x1)
                ft_buf_addf(out, "<line class=\"restart\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", px(&f, restarts[i].x[j]),
                            px(&f, restarts[i].x[j]), TOP, HEIGHT - BOTTOM);
        if (s[i].n) line(&f, &s[i], out);
    }
    ft_buf_adds(out, "</svg>");
    for (size_t i = 0; i < n; i++) {
        if (!s[i].n) continue;
        ft_buf_addf(out, "<span class=\"key k%zu\">last ", i % COLORS);
        number(s[i].y[s[i].n - 1], out);
        ft_buf_adds(out, " at step ");
        number(s[i].x[s[i].n - 1], out);
        ft_buf_adds(out, "</span> ");
    }
    ft_buf_adds(out, "</figure>\n");
}

static void free_series(struct series *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(s[i].x);
        free(s[i].y);
    }
    free(s);
}

void ft_report_curves(const struct ft_run_info *runs, size_t n, struct ft_arena *arena, struct ft_buf *out)
{
    struct series *restarts = ft_xcalloc(n, sizeof *restarts);
    struct ft_buf figures = {0};
    for (size_t i = 0; i < n; i++) read_restarts(&runs[i], arena, &restarts[i]);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct series *s = ft_xcalloc(n, sizeof *s);
        size_t points = 0;
        for (size_t i = 0; i < n; i++) {
            s[i].run = i;
            read_series(&runs[i], &kinds[k], arena, &s[i]);
            points += s[i].n;
        }
        if (points) figure(&kinds[k], s, restarts, n, &figures);
        free_series(s, n);
    }
    free_series(restarts, n);
    if (figures.n) {
        ft_buf_adds(out, "<h2>Curves</h2>\n");
        if (n > 1) {
            ft_buf_adds(out, "<p class=\"key\">");
            for (size_t i = 0; i < n; i++) {
                ft_buf_addf(out, "<span class=\"k%zu\">&#9632; ", i % COLORS);
                ft_html(runs[i].dir.id, strlen(runs[i].dir.id), out);
                ft_buf_adds(out, "</span>");
            }
            ft_buf_adds(out, "</p>\n");
        }
        ft_buf_adds(out, "<div class=\"grid\">\n");
        ft_buf_add(out, figures.data, figures.n);
        ft_buf_adds(out, "</div>\n");
    }
    ft_buf_fini(&figures);
}
