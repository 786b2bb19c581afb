/* Files of records: every line, in every format, through the rules and keys. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/data/keys.h"
#include "runtime/data/record_tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    struct ft_jsonl *j = NULL;
    struct ft_err err = {0};
    struct ft_line line;
    struct ft_convo c = {0};
    struct ft_ids ids = {0};
    const struct ft_list no_columns = {NULL, 0};
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ft_jsonl_open(path, &j, &err) == FT_OK) {
        while (ft_jsonl_next(j, &line, &err)) {
            struct ft_json *v = NULL;
            struct ft_line_fault f;
            if (!ft_line_parse(&line, &v, &f)) continue;
            (void)ft_record_shape(v, &no_columns);
            (void)ft_record_tokens(&line, v, 1000, true, &ids, &f);
            for (int k = FT_FORMAT_MESSAGES; k <= FT_FORMAT_TEXT; k++)
                if (ft_record_read((enum ft_data_format)k, &no_columns, &line, v, &c, &f)) (void)ft_record_keys(&c);
            ft_json_destroy(v);
        }
        ft_jsonl_close(j);
    }
    ft_convo_fini(&c);
    ft_ids_fini(&ids);
    close(fd);
    return 0;
}
