#include "runtime/train/schedule.h"

#include <math.h>
#include <string.h>

double ft_lr_at(const struct ft_schedule *s, int64_t k)
{
    if (s->warmup > 0 && k <= s->warmup) return s->hi * (double)k / (double)s->warmup;
    if (s->style == FT_LR_CONSTANT) return s->hi;
    if (k >= s->n) return s->lo;
    const double left = (double)(s->n - k) / (double)(s->n - s->warmup);
    if (s->style == FT_LR_LINEAR) return s->lo + (s->hi - s->lo) * left;
    const double done = (double)(k - s->warmup) / (double)(s->n - s->warmup);
    return s->lo + (s->hi - s->lo) / 2 * (1 + cos(M_PI * done));
}

/* Reads "P%"; false when the text is no share between 0 and 100. */
static bool parse_percent(const char *text, double *percent)
{
    const size_t n = strlen(text);
    char digits[64];
    if (n < 2 || n > sizeof digits || text[n - 1] != '%') return false;
    memcpy(digits, text, n - 1);
    digits[n - 1] = 0;
    return ft_parse_real(digits, percent) && *percent >= 0 && *percent <= 100;
}

bool ft_warmup_check(const char *text, struct ft_buf *why)
{
    double percent;
    int64_t updates;
    if (parse_percent(text, &percent) || ft_parse_i64(text, 0, INT64_MAX / 2, &updates)) return true;
    ft_buf_adds(why, "neither a number of updates (100) nor a share of all updates between 0% and 100% (3%)");
    return false;
}

int64_t ft_warmup_updates(const char *text, int64_t n)
{
    double percent;
    int64_t updates = 0;
    if (parse_percent(text, &percent)) {
        /* a share that is whole but for the rounding of its decimal text (7% of 100) is not rounded up */
        const double x = percent * (double)n / 100, whole = nearbyint(x);
        return (int64_t)(fabs(x - whole) <= 1e-9 * fmax(1, x) ? whole : ceil(x));
    }
    return ft_parse_i64(text, 0, INT64_MAX / 2, &updates) ? updates : 0;
}

int64_t ft_updates_of_epochs(int64_t epochs, int64_t n_rows, int64_t global_batch)
{
    return epochs * ((n_rows + global_batch - 1) / global_batch);
}
