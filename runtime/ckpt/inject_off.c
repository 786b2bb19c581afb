/* Builds without fault injection. */
#include "runtime/ckpt/fio.h"

enum ft_code ft_fio_parse(struct ft_fio *f, const char *text, int rank, struct ft_err *err)
{
    (void)f;
    (void)rank;
    ft_fail(err, FT_UNSUPPORTED, "FT_FAULT=%s: this build has no fault injection", text);
    return ft_fix(err, "unset FT_FAULT, or configure with -DFT_FAULT_INJECTION=ON");
}

struct ft_fio_rule ft_fio_next(struct ft_fio *f, enum ft_fio_site site)
{
    (void)f;
    return (struct ft_fio_rule){.site = site};
}
