#include <string.h>

#include "base/str.h"
#include "runtime/coll/inside.h"
#include "topology/place.h"

/* Names that can be given, as far as they are built. */
static void list_built(struct ft_buf *b)
{
    ft_buf_adds(b, "auto");
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++)
        if (e->ops && strcmp(e->name, "self") != 0) ft_buf_addf(b, ", %s", e->name);
}

static enum ft_code not_known(const char *name, struct ft_err *err)
{
    struct ft_buf built = {0};
    list_built(&built);
    ft_fail(err, FT_CONFIG, "collectives = %s is not known; this build has %s", name, ft_buf_str(&built));
    ft_buf_fini(&built);
    return FT_CONFIG;
}

enum ft_code ft_coll_built(const char *name, struct ft_err *err)
{
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++) {
        if (strcmp(e->name, name) != 0) continue;
        if (e->ops) return FT_OK;
        ft_fail(err, FT_UNSUPPORTED, "collectives = %s is %s", name, e->hint ? "not in this build" : "not built yet");
        if (e->hint) return ft_fix(err, "%s, or set collectives = tcp", e->hint);
        return ft_fix(err, "set collectives = tcp");
    }
    return strcmp(name, "auto") != 0 ? not_known(name, err) : FT_OK;
}

/* What the ranks' launcher makes possible; else the engine that always is. */
static const char *automatic(const struct ft_place *place)
{
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++)
        if (e->ops && e->ops->suits && !e->ops->suits(place, NULL)) return e->name;
    return "tcp";
}

enum ft_code ft_coll_choose(const char *wanted, const struct ft_place *place, const struct ft_coll_ops **out, struct ft_err *err)
{
    enum ft_code rc = wanted ? ft_coll_built(wanted, err) : FT_OK;
    if (rc) return rc;
    if (place->world > 1 && wanted && !strcmp(wanted, "self"))
        return ft_fail(err, FT_CONFIG, "collectives = self is for one rank, this run has %d", place->world);
    const char *name = place->world == 1 ? "self" : !wanted || !strcmp(wanted, "auto") ? automatic(place) : wanted;
    for (const struct ft_coll_entry *e = ft_coll_table; e->name; e++) {
        if (strcmp(e->name, name) != 0) continue;
        if (e->ops->suits && (rc = e->ops->suits(place, err)) != FT_OK) return rc;
        *out = e->ops;
        return FT_OK;
    }
    return not_known(name, err);
}
