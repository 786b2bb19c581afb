#include "runtime/data/statistics.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/token/unicode.h"

enum { WORDS = 4, RARE_SHOWN = 5 };

static void add_pattern(struct ft_statistics *s, const struct ft_convo *c)
{
    struct ft_buf text = {0};
    if (c->tools.type == FT_V_LIST) ft_buf_adds(&text, "tools: ");
    for (size_t i = 0; i < c->n; i++) {
        struct ft_jval role;
        const struct ft_jval m = c->messages.u.list->v[i];
        if (i) ft_buf_addc(&text, ' ');
        if (ft_message_calls(m)) ft_buf_adds(&text, "call");
        else if (ft_v_get_str(m, "role", 4, &role)) ft_buf_add(&text, role.u.s, role.n);
    }
    ft_tally_add(&s->patterns, ft_buf_str(&text), text.n);
    ft_buf_fini(&text);
}

/* The first four words, one blank between them. */
static void add_start(struct ft_tally *t, struct ft_jval v)
{
    struct ft_buf text = {0};
    int words = 0;
    bool in_word = false;
    for (size_t i = 0, k; i < v.n && words <= WORDS; i += k) {
        uint32_t cp;
        k = (size_t)ft_utf8_decode(v.u.s + i, v.n - i, &cp);
        const bool space = ft_is_space(cp);
        if (!space && !in_word && ++words > WORDS) break;
        if (!space && !in_word && words > 1) ft_buf_addc(&text, ' ');
        if (!space) ft_buf_add(&text, v.u.s + i, k);
        in_word = !space;
    }
    ft_tally_add(t, ft_buf_str(&text), text.n);
    ft_buf_fini(&text);
}

/* Digits become 0, what stands in quotes goes. */
static void add_masked(struct ft_tally *t, struct ft_jval v)
{
    struct ft_buf text = {0};
    for (size_t i = 0; i < v.n; i++) {
        const char c = v.u.s[i];
        if (c == '"') {
            const char *end = memchr(v.u.s + i + 1, '"', v.n - i - 1);
            ft_buf_adds(&text, "\"\"");
            i = end ? (size_t)(end - v.u.s) : i;
        } else if (c >= '0' && c <= '9') {
            if (!text.n || text.data[text.n - 1] != '0') ft_buf_addc(&text, '0');
        } else {
            ft_buf_addc(&text, c);
        }
    }
    ft_tally_add(t, ft_buf_str(&text), text.n);
    ft_buf_fini(&text);
}

void ft_statistics_add(struct ft_statistics *s, struct ft_convo *c)
{
    if (c->format == FT_FORMAT_TEXT) return;
    bool prompt = false, answer = false;
    add_pattern(s, c);
    for (size_t i = c->n; i-- > 0;) {
        const struct ft_jval m = c->messages.u.list->v[i];
        struct ft_jval text;
        if (!ft_message_text(&c->render.heap, m, &text)) continue;
        if (!answer && ft_message_is(m, "assistant")) answer = true, add_start(&s->answer_starts, text);
        if (!prompt && ft_message_is(m, "user")) prompt = true, add_start(&s->prompt_starts, text), add_masked(&s->prompts, text);
    }
}

void ft_statistics_fini(struct ft_statistics *s)
{
    ft_tally_fini(&s->patterns);
    ft_tally_fini(&s->prompts);
    ft_tally_fini(&s->prompt_starts);
    ft_tally_fini(&s->answer_starts);
}

struct rare {
    void (*note)(void *ctx, const char *text);
    void *ctx;
    int64_t total;
    int n;
};

static void rare_pattern(void *ctx, const struct ft_tally_entry *e)
{
    struct rare *r = ctx;
    char text[200];
    if (r->n++ >= RARE_SHOWN) return;
    snprintf(text, sizeof text, "a rare pattern of turns: '%s' in %" PRId64 " of %" PRId64 " records", e->text, e->n, r->total);
    r->note(r->ctx, text);
}

static double percent(int64_t n, int64_t of) { return of ? 100.0 * (double)n / (double)of : 0; }

void ft_statistics_notes(const struct ft_statistics *s, void (*note)(void *ctx, const char *text), void *ctx)
{
    char text[320];
    struct rare r = {note, ctx, s->patterns.total, 0};
    const struct ft_tally_entry *pattern = ft_tally_top(&s->patterns), *prompt = ft_tally_top(&s->prompts);
    const struct ft_tally_entry *start = ft_tally_top(&s->prompt_starts), *answer = ft_tally_top(&s->answer_starts);
    if (!pattern) return;
    snprintf(text, sizeof text, "turns: '%s' in %.1f %% of the records, %zu patterns in all", pattern->text,
             percent(pattern->n, s->patterns.total), s->patterns.n);
    note(ctx, text);
    ft_tally_rare(&s->patterns, 0.01, rare_pattern, &r);
    if (!start || !answer || !prompt) return;
    snprintf(text, sizeof text,
             "diversity: %zu%s distinct prompts (digits and quotes masked); commonest beginnings: '%s' (%.1f %% of prompts), '%s' "
             "(%.1f %% of answers)",
             s->prompts.n, s->prompts.n >= FT_TALLY_MAX ? " or more" : "", start->text, percent(start->n, s->prompt_starts.total),
             answer->text, percent(answer->n, s->answer_starts.total));
    note(ctx, text);
    if (2 * prompt->n <= s->prompts.total || s->prompts.total < 2) return;
    snprintf(text, sizeof text, "one prompt pattern is %.1f %% of the set: '%s'; other wordings make the model less brittle",
             percent(prompt->n, s->prompts.total), prompt->text);
    note(ctx, text);
}
