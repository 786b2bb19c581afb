#include "base/str.h"
#include "launcher/transport/transport.h"

enum ft_code ft_transport_find(const char *name, const struct ft_transport_ops **out, struct ft_err *err)
{
    for (const struct ft_transport_entry *e = ft_transport_table; e->name; e++) {
        if (!ft_str_eq(e->name, name)) continue;
        if (!e->ops) {
            ft_fail(err, FT_UNSUPPORTED, "transport = %s is not in this build yet", name);
            return ft_fix(err, "set transport = local");
        }
        *out = e->ops;
        return FT_OK;
    }
    return ft_fail(err, FT_CONFIG, "there is no transport '%s'", name);
}
