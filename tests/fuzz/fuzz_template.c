/* A chat template, and behind a byte FF a JSON record that it renders: text, answers, contents. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/chat/spans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void render(const struct ft_template *t, const struct ft_json *record)
{
    struct ft_render r;
    struct ft_spans s = {0};
    struct ft_var vars[20];
    size_t n = 0, missing, first;
    ft_render_begin(&r);
    vars[n++] = (struct ft_var){"tools", ft_v_none()};
    vars[n++] = (struct ft_var){"bos_token", ft_v_cstr("<s>")};
    for (void *it = ft_json_iter(record); it && n < 20; it = ft_json_iter_next(record, it))
        vars[n++] = (struct ft_var){ft_json_iter_key(it), ft_v_json(&r.heap, ft_json_iter_value(it))};
    if (ft_template_render(t, vars, n, "2026-11-30", &r) && ft_utf8_valid(ft_buf_str(&r.out), r.out.n) != r.out.n) abort();
    if (ft_spans_find(t, vars, n, "2026-11-30", &r, &s)) {
        struct ft_content *c = calloc(ft_json_count(ft_json_get(record, "messages")) + 1, sizeof *c);
        if (c) (void)ft_contents_find(t, vars, n, "2026-11-30", &r, &s.text, c, &missing, &first);
        free(c);
    }
    ft_spans_fini(&s);
    ft_render_end(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char usual[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\" Yes "
                                "</think> no \"}],\"x\":[1,{\"a\":null}]}";
    const uint8_t *cut = n ? memchr(data, 0xFF, n) : NULL;
    struct ft_template *t = NULL;
    struct ft_json *v = NULL;
    struct ft_err err = {0};
    if (ft_template_compile("fuzz", (const char *)data, cut ? (size_t)(cut - data) : n, &t, &err) != FT_OK) return 0;
    const char *json = cut ? (const char *)cut + 1 : usual;
    const size_t json_n = cut ? n - (size_t)(cut + 1 - data) : sizeof usual - 1;
    if (ft_json_parse(json, json_n, 0, &v, NULL, &err) == FT_OK && ft_json_is(v, FT_JSON_OBJECT)) render(t, v);
    ft_json_destroy(v);
    ft_template_destroy(t);
    return 0;
}
