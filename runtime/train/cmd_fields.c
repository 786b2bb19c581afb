#include "runtime/train/cli.h"

/* [parallel] is the launcher's and topology's; it has it already. */
int ft_fields_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_cli cli;
    const int status = ft_cli_parse(self, argc, argv, arena, &cli);
    if (status < 0) {
        struct ft_buf out = {0};
        struct ft_jw w = ft_jw_begin(&out);
        if (cli.json) {
            ft_jw_object(&w);
            ft_jw_kint(&w, "schema", 1);
            ft_jw_key(&w, "sections");
            ft_jw_array(&w);
        }
        for (int i = FT_JOB_MODEL; i < FT_JOB_N_PARTS; i++) {
            const struct ft_section *s = ft_job_section((enum ft_job_part)i);
            if (cli.json) ft_section_write_json(s, &w);
            else ft_section_write_ini(s, &out);
        }
        if (cli.json) {
            ft_jw_end(&w);
            ft_jw_end(&w);
            ft_buf_addc(&out, '\n');
        }
        ft_cli_print(&out);
        ft_buf_fini(&out);
    }
    ft_arena_destroy(arena);
    return status < 0 ? FT_EXIT_DONE : status;
}
