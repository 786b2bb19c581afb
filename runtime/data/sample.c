/* One conversation to ids and labels. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "runtime/data/samples.h"
#include "runtime/data/sampler.h"
#include "runtime/token/unicode.h"

struct stretch { /* a trained range of the text: an answer with its terminator */
    struct ft_byte_range range;
    size_t content_end;
    size_t message;
};

struct ft_worker {
    const struct ft_sampler *s;
    struct ft_encoder *encoder;
    struct ft_sample_counts counts;
    struct ft_spans spans;
    struct ft_buf text;            /* what is encoded */
    struct ft_tokens joint, split; /* of text */
    struct stretch *stretches;
    size_t n_stretches, stretches_cap;
    struct ft_byte_range *plain, *trained; /* special tokens are text there; trained ranges */
    size_t n_plain, plain_cap, n_trained, trained_cap;
    struct ft_content *contents;
    size_t contents_cap;
    struct ft_var *vars;
};

struct ft_worker *ft_worker_create(const struct ft_sampler *s)
{
    struct ft_worker *w = ft_xcalloc(1, sizeof *w);
    w->s = s;
    w->encoder = ft_encoder_create(s->tokenizer);
    w->vars = ft_xcalloc(s->n_vars + 9, sizeof *w->vars);
    return w;
}

void ft_worker_destroy(struct ft_worker *w)
{
    if (!w) return;
    ft_encoder_destroy(w->encoder);
    ft_spans_fini(&w->spans);
    ft_buf_fini(&w->text);
    ft_tokens_fini(&w->joint);
    ft_tokens_fini(&w->split);
    free(w->stretches);
    free(w->plain);
    free(w->trained);
    free(w->contents);
    free(w->vars);
    free(w);
}

const struct ft_sample_counts *ft_worker_counts(const struct ft_worker *w) { return &w->counts; }

static FT_PRINTF(3, 4) bool bad(struct ft_line_fault *f, enum ft_fault_kind kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    f->text[ft_utf8_valid(f->text, strlen(f->text))] = 0;
    f->kind = kind, f->column = 1;
    return false;
}

static size_t variables(struct ft_worker *w, const struct ft_convo *c)
{
    const struct ft_chat_source *s = &w->s->source;
    size_t n = 0;
    w->vars[n++] = (struct ft_var){"messages", c->messages};
    w->vars[n++] = (struct ft_var){"tools", c->tools};
    w->vars[n++] = (struct ft_var){"documents", ft_v_none()};
    w->vars[n++] = (struct ft_var){"add_generation_prompt", ft_v_bool(false)};
    if (s->bos) w->vars[n++] = (struct ft_var){"bos_token", ft_v_cstr(s->bos)};
    if (s->eos) w->vars[n++] = (struct ft_var){"eos_token", ft_v_cstr(s->eos)};
    if (s->unk) w->vars[n++] = (struct ft_var){"unk_token", ft_v_cstr(s->unk)};
    if (s->pad) w->vars[n++] = (struct ft_var){"pad_token", ft_v_cstr(s->pad)};
    for (size_t i = 0; i < w->s->n_vars; i++) w->vars[n++] = w->s->vars[i];
    return n;
}

static bool is_space_only(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        const size_t k = (size_t)ft_utf8_decode(s + i, n - i, &cp);
        if (!ft_is_space(cp)) return false;
        i += k;
    }
    return true;
}

static struct ft_jval trimmed(struct ft_jval t)
{
    uint32_t cp;
    while (t.n) {
        const size_t k = (size_t)ft_utf8_decode(t.u.s, t.n, &cp);
        if (!ft_is_space(cp) && !(cp >= 0x1C && cp <= 0x1F)) break;
        t.u.s += k, t.n -= (uint32_t)k;
    }
    while (t.n && is_space_only(t.u.s + t.n - 1, 1)) t.n--;
    return t;
}

/* ---- contents: special tokens in them, and whether the template drops one ---- */

static bool check_contents(struct ft_worker *w, const struct ft_template *t, struct ft_convo *c, size_t n_vars,
                           struct ft_line_fault *f)
{
    struct ft_render *r = &c->render;
    bool special = false, absent = false;
    size_t missing, first;
    w->n_plain = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct ft_jval text;
        size_t at = 0;
        if (!ft_message_text(&r->heap, c->messages.u.list->v[i], &text) || !text.n) continue;
        const int32_t id = ft_tokenizer_find_special(w->s->tokenizer, text.u.s, text.n, &at);
        if (id >= 0 && !special && !w->counts.special_in_content) {
            size_t n;
            const char *name = ft_tokenizer_token(w->s->tokenizer, id, &n);
            snprintf(w->counts.special_example, sizeof w->counts.special_example, "%.*s", (int)(n < 60 ? n : 60), name);
        }
        special = special || id >= 0;
        const struct ft_jval core = trimmed(text);
        absent = absent || (core.n && !ft_message_is(c->messages.u.list->v[i], "assistant") &&
                            !memmem(ft_buf_str(&w->spans.text), w->spans.text.n, core.u.s, core.n));
    }
    w->counts.special_in_content += special;
    if (!absent && !(special && w->s->fields->special == FT_SPECIAL_TEXT)) return true;
    ft_grow(&w->contents, &w->contents_cap, c->n, sizeof *w->contents);
    const size_t n = ft_contents_find(t, w->vars, n_vars, w->s->fields->template_date, r, &w->spans.text, w->contents, &missing,
                                      &first);
    if (missing) {
        const struct ft_jval m = c->messages.u.list->v[first];
        struct ft_jval text;
        (void)ft_message_text(&r->heap, m, &text);
        if (!ft_message_is(m, "assistant") && absent)
            return bad(f, FT_KIND_DROPPED_CONTENT, "the template does not render the text of message %zu", first);
        if (special && w->s->fields->special == FT_SPECIAL_TEXT)
            return bad(f, FT_KIND_SPECIAL_TOKEN,
                       "the record holds special tokens, and the place of message %zu in the text is not known (special = parse "
                       "reads them as tokens)",
                       first);
    }
    if (!special || w->s->fields->special != FT_SPECIAL_TEXT) return true;
    for (size_t i = 0; i < n; i++) {
        ft_grow(&w->plain, &w->plain_cap, w->n_plain + 1, sizeof *w->plain);
        w->plain[w->n_plain++] = (struct ft_byte_range){w->contents[i].begin, w->contents[i].end};
    }
    return true;
}

/* ---- terminators ---- */

static bool is_stop(const struct ft_sampler *s, int32_t id)
{
    for (size_t i = 0; i < s->n_stops; i++)
        if (s->stops[i] == id) return true;
    return id == s->terminator && id >= 0;
}

static size_t first_token_at(const struct ft_tokens *t, size_t byte)
{
    size_t lo = 0, hi = t->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (t->v[mid].begin < byte) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* The end of the terminator behind byte `from`: the shortest stretch of special tokens and white space that ends with a stop token,
 * else the first special token of the stretch; SIZE_MAX: there is none. */
static size_t terminator_behind(struct ft_worker *w, size_t from, int32_t *id)
{
    const char *text = ft_buf_str(&w->text);
    size_t at = from, first = SIZE_MAX;
    for (size_t i = first_token_at(&w->joint, from); i < w->joint.n; i++) {
        const struct ft_token *t = &w->joint.v[i];
        if (t->begin < at) continue;
        const bool special = t->end > t->begin && ft_tokenizer_is_special(w->s->tokenizer, t->id);
        if (!special) {
            if (t->end > w->text.n || !is_space_only(text + t->begin, t->end - t->begin)) break;
            continue;
        }
        if (!is_space_only(text + at, t->begin - at)) break;
        if (first == SIZE_MAX) first = t->end, *id = t->id;
        at = t->end;
        if (is_stop(w->s, t->id)) {
            *id = t->id;
            return t->end;
        }
    }
    return first;
}

/* A block or rendering that ends at `end` may hold the terminator itself: the last special token of [begin, end), when only white
 * space follows it. */
static size_t terminator_inside(struct ft_worker *w, size_t begin, size_t end, int32_t *id)
{
    for (size_t i = first_token_at(&w->joint, end); i-- > 0;) {
        const struct ft_token *t = &w->joint.v[i];
        if (t->end > end || t->end == t->begin) continue;
        if (t->begin < begin) break;
        if (ft_tokenizer_is_special(w->s->tokenizer, t->id)) {
            *id = t->id;
            return t->end;
        }
        if (!is_space_only(ft_buf_str(&w->text) + t->begin, t->end - t->begin)) break;
    }
    return SIZE_MAX;
}

static size_t first_stop(struct ft_worker *w, size_t from, int32_t *id)
{
    for (size_t i = first_token_at(&w->joint, from); i < w->joint.n; i++)
        if (is_stop(w->s, w->joint.v[i].id) && ft_tokenizer_is_special(w->s->tokenizer, w->joint.v[i].id)) {
            *id = w->joint.v[i].id;
            return w->joint.v[i].end;
        }
    return SIZE_MAX;
}

static void count_terminator(struct ft_worker *w, int32_t id)
{
    struct ft_sample_counts *c = &w->counts;
    c->terminated++;
    for (size_t i = 0; i < FT_MAX_STOPS; i++)
        if (!c->terminator_n[i] || c->terminator_ids[i] == id) {
            c->terminator_ids[i] = id, c->terminator_n[i]++;
            return;
        }
}

static bool encode_joint(struct ft_worker *w, struct ft_line_fault *f)
{
    const struct ft_encode_how how = {.plain = w->plain, .n_plain = w->n_plain};
    struct ft_err err = {0};
    w->joint.n = 0;
    return ft_encode(w->encoder, ft_buf_str(&w->text), w->text.n, &how, &w->joint, &err) == FT_OK ||
           bad(f, FT_KIND_UTF8, "%s", err.text);
}

static void add_stretch(struct ft_worker *w, struct stretch x)
{
    ft_grow(&w->stretches, &w->stretches_cap, w->n_stretches + 1, sizeof *w->stretches);
    w->stretches[w->n_stretches++] = x;
}

/* Puts `name` into the text at byte `at`; everything known that lies behind moves. */
static void insert(struct ft_worker *w, size_t at, const char *name, size_t n)
{
    struct ft_buf text = {0};
    ft_buf_add(&text, w->text.data, at);
    ft_buf_add(&text, name, n);
    ft_buf_add(&text, w->text.data + at, w->text.n - at);
    ft_buf_fini(&w->text);
    w->text = text;
    for (size_t i = 0; i < w->n_plain; i++) {
        if (w->plain[i].begin >= at) w->plain[i].begin += n;
        if (w->plain[i].end > at) w->plain[i].end += n;
    }
    for (size_t i = 0; i < w->spans.n; i++) {
        struct ft_span *x = &w->spans.v[i];
        if (x->begin >= at) x->begin += n;
        if (x->content_begin >= at) x->content_begin += n;
        if (x->content_end > at) x->content_end += n;
        if (x->end > at) x->end += n;
    }
}

/* `terminator = TOKEN` behind an answer that has none. */
static bool append_terminator(struct ft_worker *w, size_t at, size_t *end, struct ft_line_fault *f)
{
    size_t n;
    const char *name = ft_tokenizer_token(w->s->tokenizer, w->s->terminator, &n);
    insert(w, at, name, n);
    *end = at + n;
    w->counts.appended++;
    return encode_joint(w, f);
}

/* The trained range of one answer. */
static bool end_of_span(struct ft_worker *w, size_t index, bool trained, struct ft_line_fault *f)
{
    const struct ft_span *x = &w->spans.v[index];
    int32_t id = -1;
    size_t end = SIZE_MAX, content_end = x->has_content ? x->content_end : x->has_end ? x->end : x->begin;
    if (x->how == FT_SPAN_START) end = first_stop(w, x->begin, &id);
    else if (!x->has_content) end = terminator_inside(w, x->begin, x->end, &id);
    if (end == SIZE_MAX && x->how != FT_SPAN_START) end = terminator_behind(w, content_end, &id);
    if (end != SIZE_MAX && w->s->terminator >= 0 && id != w->s->terminator && !is_stop(w->s, id)) end = SIZE_MAX;
    if (!trained) {
        if (end != SIZE_MAX) add_stretch(w, (struct stretch){{x->begin, end}, content_end, x->message});
        return true;
    }
    w->counts.answers++;
    if (end != SIZE_MAX) {
        count_terminator(w, id);
    } else if (w->s->terminator >= 0 && x->how != FT_SPAN_START) {
        if (!append_terminator(w, content_end, &end, f)) return false;
        count_terminator(w, w->s->terminator);
    } else if (ft_str_eq(w->s->fields->terminator, "none") && x->how != FT_SPAN_START) {
        end = content_end;
        w->counts.unterminated++;
    } else {
        return bad(f, FT_KIND_NO_TERMINATOR,
                   "no special token follows the answer of message %zu: the model would never learn to stop", x->message);
    }
    add_stretch(w, (struct stretch){{x->begin, end}, content_end, x->message});
    return true;
}

/* ---- the text of a record ---- */

static bool render_chat(struct ft_worker *w, struct ft_convo *c, struct ft_line_fault *f)
{
    const struct ft_sampler *s = w->s;
    const struct ft_template *t = c->tools.type == FT_V_LIST && s->source.tools ? s->source.tools : s->source.plain;
    const size_t n_vars = variables(w, c);
    struct ft_render *r = &c->render;
    if (!ft_spans_find(t, w->vars, n_vars, s->fields->template_date, r, &w->spans))
        return bad(f, FT_KIND_TEMPLATE, "the template refuses this conversation: %s (line %d)", r->error, r->error_line);
    if (!check_contents(w, t, c, n_vars, f)) return false;
    ft_buf_clear(&w->text);
    ft_buf_add(&w->text, ft_buf_str(&w->spans.text), w->spans.text.n);
    return true;
}

/* Without a template: prompt + response + eos. */
static bool concatenate(struct ft_worker *w, struct ft_convo *c, struct ft_line_fault *f)
{
    size_t n = 0;
    const char *eos = w->s->eos >= 0 ? ft_tokenizer_token(w->s->tokenizer, w->s->eos, &n) : NULL;
    w->spans.n = 0, w->n_plain = 0;
    ft_buf_clear(&w->text);
    for (size_t i = 0; i < c->n; i++) {
        const struct ft_jval m = c->messages.u.list->v[i];
        const bool answer = ft_message_is(m, "assistant");
        struct ft_jval text;
        size_t at = 0;
        if (!ft_message_text(&c->render.heap, m, &text))
            return bad(f, FT_KIND_TEMPLATE, "message %zu has no text, and there is no chat template", i);
        const size_t begin = w->text.n;
        ft_buf_add(&w->text, text.u.s, text.n);
        if (ft_tokenizer_find_special(w->s->tokenizer, text.u.s, text.n, &at) >= 0) {
            w->counts.special_in_content++;
            if (w->s->fields->special == FT_SPECIAL_TEXT) {
                ft_grow(&w->plain, &w->plain_cap, w->n_plain + 1, sizeof *w->plain);
                w->plain[w->n_plain++] = (struct ft_byte_range){begin, w->text.n};
            }
        }
        if (!answer) continue;
        ft_grow(&w->spans.v, &w->spans.cap, w->spans.n + 1, sizeof *w->spans.v);
        w->spans.v[w->spans.n++] = (struct ft_span){.message = i,
                                                    .how = FT_SPAN_OUTER,
                                                    .begin = begin,
                                                    .has_content = true,
                                                    .content_begin = begin,
                                                    .content_end = w->text.n};
        if (eos) ft_buf_add(&w->text, eos, n);
    }
    return true;
}

/* Cuts what the template leaves behind the last terminator, unless it is blank. */
static void cut_tail(struct ft_worker *w)
{
    size_t end = 0;
    for (size_t i = 0; i < w->n_stretches; i++)
        if (w->stretches[i].range.end > end) end = w->stretches[i].range.end;
    if (!end || is_space_only(ft_buf_str(&w->text) + end, w->text.n - end)) return;
    w->counts.cut_tail++;
    w->text.n = end;
    w->text.data[end] = 0;
    while (w->joint.n && w->joint.v[w->joint.n - 1].end > end) w->joint.n--;
}

/* ---- tokens and labels ---- */

static bool encode_split(struct ft_worker *w, struct ft_line_fault *f)
{
    size_t at = 0;
    w->split.n = 0;
    for (size_t i = 0; i <= w->n_stretches; i++) {
        const size_t end = i < w->n_stretches ? w->stretches[i].range.begin : w->text.n;
        if (end <= at && i < w->n_stretches) continue;
        const struct ft_encode_how how = {
            .flags = at ? FT_ENCODE_NO_PREFIX : 0, .plain = w->plain, .n_plain = w->n_plain, .base = at};
        struct ft_err err = {0};
        if (ft_encode(w->encoder, ft_buf_str(&w->text) + at, end - at, &how, &w->split, &err) != FT_OK)
            return bad(f, FT_KIND_UTF8, "%s", err.text);
        at = end;
    }
    return true;
}

/* Answers whose first token differs between the two ways. */
static void count_boundaries(struct ft_worker *w)
{
    for (size_t i = 0; i < w->n_trained; i++) {
        const size_t at = w->trained[i].begin, k = first_token_at(&w->joint, at);
        w->counts.boundary_differs += at > 0 && (k >= w->joint.n || w->joint.v[k].begin != at) && k > 0 &&
                                      w->joint.v[k - 1].end > at;
    }
}

/* Exactly one BOS in front of a model that uses one. */
static void settle_bos(struct ft_worker *w, struct ft_ids *out, size_t *removed, size_t *added)
{
    const int32_t bos = w->s->bos;
    size_t n = 0;
    *removed = *added = 0;
    if (bos < 0) return;
    while (n < out->n && out->ids[n] == bos) n++;
    if (n > 1) {
        *removed = n - 1;
        memmove(out->ids, out->ids + n - 1, (out->n - n + 1) * sizeof *out->ids);
        memmove(out->labels, out->labels + n - 1, (out->n - n + 1) * sizeof *out->labels);
        out->n -= n - 1;
        w->counts.bos_removed++;
    } else if (!n && w->s->wants_bos) {
        ft_ids_add(out, 0, FT_NOT_TRAINED);
        memmove(out->ids + 1, out->ids, (out->n - 1) * sizeof *out->ids);
        memmove(out->labels + 1, out->labels, (out->n - 1) * sizeof *out->labels);
        out->ids[0] = bos, out->labels[0] = FT_NOT_TRAINED;
        *added = 1;
        w->counts.bos_added++;
    } else if (n) {
        w->counts.bos_there++;
    }
}

/* Labels of tokens whose bytes meet a trained range; a zero-width token goes with the next. */
static void label(struct ft_worker *w, const struct ft_tokens *t, struct ft_ids *out, bool all)
{
    size_t k = 0;
    for (size_t i = 0; i < t->n; i++) {
        const size_t begin = t->v[i].begin, end = t->v[i].end > begin ? t->v[i].end : begin + 1;
        while (k < w->n_trained && w->trained[k].end <= begin) k++;
        const bool trained = all || (k < w->n_trained && w->trained[k].begin < end);
        ft_ids_add(out, t->v[i].id, trained ? t->v[i].id : FT_NOT_TRAINED);
    }
}

static bool check_ids(const struct ft_worker *w, const struct ft_ids *out, struct ft_line_fault *f)
{
    for (size_t i = 0; w->s->vocab_rows > 0 && i < out->n; i++)
        if (out->ids[i] >= w->s->vocab_rows)
            return bad(f, FT_KIND_BAD_ID, "token id %" PRId32 " is not below the %" PRId64 " rows of the model's embedding",
                       out->ids[i], w->s->vocab_rows);
    return true;
}

/* Every trained answer has trained tokens, and they reach from its first to its last byte. */
static bool check_trained(const struct ft_worker *w, const struct ft_tokens *t, struct ft_line_fault *f)
{
    for (size_t i = 0; i < w->n_trained; i++) {
        const struct ft_byte_range r = w->trained[i];
        size_t a = first_token_at(t, r.begin), b = first_token_at(t, r.end);
        if (a > 0 && t->v[a - 1].end > r.begin) a--;
        if (a >= b || t->v[a].begin > r.begin || t->v[b - 1].end < r.end)
            return bad(f, FT_KIND_NO_SPAN, "the tokens of an answer (bytes %zu to %zu of the text) do not cover it", r.begin,
                       r.end);
    }
    return true;
}

static void show(struct ft_worker *w, const struct ft_tokens *t, size_t removed, size_t added, struct ft_sample_view *view)
{
    if (!view) return;
    *view = (struct ft_sample_view){.text = ft_buf_str(&w->text), .n = w->text.n, .trained = w->trained, .n_trained = w->n_trained};
    /* One range per id: those of a removed BOS go, an added one has no width. */
    struct ft_tokens *own = t == &w->split ? &w->joint : &w->split;
    own->n = 0;
    for (size_t i = 0; i < t->n + added - removed; i++) {
        ft_grow(&own->v, &own->cap, own->n + 1, sizeof *own->v);
        own->v[own->n++] = added && !i ? (struct ft_token){w->s->bos, 0, 0} : t->v[i + removed - added];
    }
    view->tokens = own->v;
}

static bool sample_text(struct ft_worker *w, const struct ft_convo *c, struct ft_ids *out, struct ft_sample_view *view,
                        struct ft_line_fault *f)
{
    const struct ft_encode_how how = {.flags = FT_ENCODE_POST};
    struct ft_err err = {0};
    size_t removed, added;
    w->joint.n = 0, w->n_trained = 0;
    ft_buf_clear(&w->text);
    ft_buf_add(&w->text, c->text, c->text_n);
    if (ft_encode(w->encoder, c->text, c->text_n, &how, &w->joint, &err) != FT_OK) return bad(f, FT_KIND_UTF8, "%s", err.text);
    ft_grow(&w->trained, &w->trained_cap, 1, sizeof *w->trained);
    w->trained[0] = (struct ft_byte_range){0, c->text_n}, w->n_trained = 1;
    label(w, &w->joint, out, true);
    settle_bos(w, out, &removed, &added);
    if (out->n) out->labels[0] = out->ids[0];
    show(w, &w->joint, removed, added, view);
    return check_ids(w, out, f);
}

/* Which answers carry loss. */
static bool wants_loss(const struct ft_worker *w, const struct ft_convo *c, size_t message)
{
    if (!c->trained[message]) return false;
    return w->s->fields->train_on != FT_TRAIN_ON_LAST || message == c->n - 1;
}

static bool find_stretches(struct ft_worker *w, struct ft_convo *c, struct ft_line_fault *f)
{
    w->n_stretches = w->n_trained = 0;
    for (size_t i = 0; i < w->spans.n; i++) {
        const struct ft_span *x = &w->spans.v[i];
        const bool trained = wants_loss(w, c, x->message);
        if (x->how == FT_SPAN_NONE) {
            if (!trained) continue;
            return bad(f, x->dropped ? FT_KIND_DROPPED_CONTENT : FT_KIND_NO_SPAN, "the answer of message %zu: %s (template %s)",
                       x->message, x->why, w->s->source.origin ? w->s->source.origin : "none");
        }
        const size_t before = w->n_stretches;
        if (!end_of_span(w, i, trained, f)) return false;
        if (!trained) continue;
        w->counts.rewritten += x->rewritten, w->counts.prompt_differs += x->prompt_differs;
        if (w->n_stretches == before) continue;
        ft_grow(&w->trained, &w->trained_cap, w->n_trained + 1, sizeof *w->trained);
        w->trained[w->n_trained++] = w->stretches[w->n_stretches - 1].range;
    }
    return w->n_trained > 0 || bad(f, FT_KIND_NO_TRAINED_TURN, "no turn is trained");
}

bool ft_sample(struct ft_worker *w, struct ft_convo *c, const struct ft_line *line, struct ft_ids *out, struct ft_sample_view *view,
               struct ft_line_fault *f)
{
    const bool all = w->s->fields->train_on == FT_TRAIN_ON_ALL;
    size_t removed, added;
    (void)line;
    out->n = 0;
    if (c->format == FT_FORMAT_TEXT) return sample_text(w, c, out, view, f);
    if (!(w->s->source.plain ? render_chat(w, c, f) : concatenate(w, c, f))) return false;
    if (!encode_joint(w, f) || !find_stretches(w, c, f)) return false;
    cut_tail(w);
    if (!encode_split(w, f)) return false;
    count_boundaries(w);
    const struct ft_tokens *t = w->s->split ? &w->split : &w->joint;
    label(w, t, out, all);
    if (!check_trained(w, t, f)) return false;
    settle_bos(w, out, &removed, &added);
    show(w, t, removed, added, view);
    return check_ids(w, out, f);
}
