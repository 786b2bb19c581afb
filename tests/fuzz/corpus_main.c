/* The corpus of a fuzz target as a plain test: every file of the folder, whole and cut at many places. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int main(int argc, char **argv)
{
    struct dirent **names;
    size_t n_files = 0, n_runs = 0;
    int n = argc == 2 ? scandir(argv[1], &names, NULL, by_name) : -1;
    if (n < 0) {
        fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        struct ft_buf path = {0}, text = {0};
        struct ft_err err;
        ft_buf_addf(&path, "%s/%s", argv[1], names[i]->d_name);
        free(names[i]);
        if (ft_is_file(path.data) && !ft_read_file(path.data, 1 << 20, &text, &err)) {
            size_t step = text.n / 64 + 1;
            n_files++;
            for (size_t cut = 0; cut <= text.n; cut += cut + step > text.n && cut < text.n ? text.n - cut : step, n_runs++) {
                uint8_t *exact = malloc(cut ? cut : 1); /* of this size, so that a read behind it is seen */
                if (!exact) return 1;
                if (cut) memcpy(exact, text.data, cut);
                (void)LLVMFuzzerTestOneInput(exact, cut);
                free(exact);
            }
        }
        ft_buf_fini(&path);
        ft_buf_fini(&text);
    }
    free(names);
    printf("%zu files, %zu runs\n", n_files, n_runs);
    return n_files ? 0 : 1; /* an empty corpus is no test */
}
