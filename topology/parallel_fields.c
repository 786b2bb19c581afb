#include "topology/parallel_fields.h"

#include <stddef.h>

#include "topology/mesh.h"

enum { MAX_SIZE = 1 << 20 };

static bool check_order(const char *value, struct ft_buf *why)
{
    struct ft_mesh mesh = ft_mesh_make(1, 1, 1, 1);
    struct ft_err err;
    if (!ft_mesh_parse_order(value, &mesh, &err)) return true;
    ft_buf_addf(why, "%s; %s", err.text, err.fix);
    return false;
}

static const char *const autos[] = {"auto", NULL};
#define AT(m) .at = offsetof(struct ft_parallel_fields, m)
static const struct ft_field rows[] = {
    {.name = "tensor",
     .type = FT_F_INT,
     .unit = "ranks",
     .def = "1",
     .min = 1,
     .max = MAX_SIZE,
     AT(tensor),
     .help = "ranks that share each layer; they must lie inside one node"},
    {.name = "pipeline",
     .type = FT_F_INT,
     .unit = "stages",
     .def = "1",
     .min = 1,
     .max = MAX_SIZE,
     AT(pipeline),
     .help = "stages that the layers are divided into"},
    {.name = "data",
     .type = FT_F_INT,
     .unit = "replicas",
     .def = "auto",
     .values = autos,
     .word_value = 0,
     .min = 1,
     .max = MAX_SIZE,
     AT(data),
     .help = "replicas that share the batch; auto: as many as the ranks allow"},
    {.name = "sequence",
     .type = FT_F_BOOL,
     .def = "no",
     AT(sequence),
     .help = "split the tokens over the tensor ranks outside the linears: less memory, the same updates"},
    {.name = "virtual_pipeline",
     .type = FT_F_INT,
     .unit = "chunks",
     .def = "1",
     .min = 1,
     .max = MAX_SIZE,
     AT(virtual_pipeline),
     .help = "interleaved chunks of layers on each stage"},
    {.name = "order",
     .type = FT_F_TEXT,
     .def = "tp-dp-pp",
     AT(order),
     .check = check_order,
     .help = "axes of the rank number, left-most fastest"},
};
const struct ft_section ft_parallel_section = {"parallel", "how ranks divide the work", rows, sizeof rows / sizeof *rows,
                                               sizeof(struct ft_parallel_fields)};
