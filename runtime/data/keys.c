#include "runtime/data/keys.h"

#include <string.h>

#include "runtime/data/samples.h"
#include "runtime/token/unicode.h"

static void normalise(const char *s, size_t n, struct ft_buf *out)
{
    struct ft_buf nfc = {0};
    bool space = false;
    ft_nfc(s, n, &nfc);
    ft_buf_clear(out);
    for (size_t i = 0, k; i < nfc.n; i += k) {
        uint32_t cp, low[3];
        char u[4];
        k = (size_t)ft_utf8_decode(nfc.data + i, nfc.n - i, &cp);
        if (ft_is_space(cp)) {
            space = out->n > 0;
            continue;
        }
        if (space) ft_buf_addc(out, ' ');
        space = false;
        const int m = ft_to_lower(cp, low);
        for (int c = 0; c < m; c++) ft_buf_add(out, u, (size_t)ft_utf8_encode(low[c], u));
    }
    ft_buf_fini(&nfc);
}

static struct ft_hash128 add_message(struct ft_hash128 h, struct ft_convo *c, struct ft_jval m, struct ft_buf *scratch)
{
    struct ft_jval text, role, calls;
    const struct ft_dumps how = {.indent = -1};
    const char *why;
    if (ft_v_get_str(m, "role", 4, &role)) h = ft_hash_chain(h, role.u.s, role.n);
    if (ft_message_text(&c->render.heap, m, &text)) {
        normalise(text.u.s, text.n, scratch);
        h = ft_hash_chain(h, ft_buf_str(scratch), scratch->n);
    }
    if (ft_message_calls(m) && ft_v_get_str(m, "tool_calls", 10, &calls)) {
        ft_buf_clear(scratch);
        if (ft_v_dumps(calls, &how, scratch, &why)) h = ft_hash_chain(h, ft_buf_str(scratch), scratch->n);
    }
    return h;
}

struct ft_record_keys ft_record_keys(struct ft_convo *c)
{
    struct ft_record_keys k = {{0, 0}, {0, 0}};
    struct ft_buf scratch = {0};
    if (c->format == FT_FORMAT_TEXT) {
        normalise(c->text, c->text_n, &scratch);
        k.record = k.prompt = ft_hash_chain(k.record, ft_buf_str(&scratch), scratch.n);
    }
    bool answered = false;
    for (size_t i = 0; i < c->n; i++) {
        const struct ft_jval m = c->messages.u.list->v[i];
        if (!answered && ft_message_is(m, "assistant") && c->trained[i]) answered = true, k.prompt = k.record;
        k.record = add_message(k.record, c, m, &scratch);
    }
    if (c->n && !answered) k.prompt = k.record;
    ft_buf_fini(&scratch);
    return k;
}
