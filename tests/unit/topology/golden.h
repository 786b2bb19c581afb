/* Lines of a golden .jsonl file, one parsed object each. Used by the tests of this room. */
#ifndef FT_TESTS_TOPOLOGY_GOLDEN_H
#define FT_TESTS_TOPOLOGY_GOLDEN_H

#include <string.h>

#include "base/fd.h"
#include "base/json.h"

typedef void golden_case(const struct ft_json *v, const char *name);

/* Calls each() for every line; returns the number of lines. */
static inline size_t golden_each(const char *path, golden_case *each)
{
    struct ft_buf text = {0};
    struct ft_err err;
    size_t n = 0;
    if (ft_read_file(path, 64u << 20, &text, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 0;
    }
    for (char *p = text.data, *end = p + text.n; p < end;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = nl ? (size_t)(nl - p) : (size_t)(end - p);
        struct ft_json *v = NULL;
        if (ft_json_parse(p, len, 0, &v, NULL, &err)) {
            fprintf(stderr, "%s line %zu: %s\n", path, n + 1, err.text);
            n = 0;
            break;
        }
        each(v, ft_json_str(ft_json_get(v, "name")));
        ft_json_destroy(v);
        n++;
        p += len + 1;
    }
    ft_buf_fini(&text);
    return n;
}

#endif
