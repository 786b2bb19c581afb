/* The resolved job: one INI file that plans the same when it is read again. */
#include <string.h>

#include "launcher/plan.h"
#include "launcher/plan_env.h"
#include "topology/hostlist.h"
#include "topology/sections.h"

struct writing {
    const struct ft_plan *p;
    const char *workdir;
    const struct ft_json *resolved;
    struct ft_buf *out;
};

/* What a launcher's key has in the resolved job; NULL: it is left out. */
static const char *value_of(const struct writing *x, const char *section, const char *key, const char *text, struct ft_buf *scratch)
{
    if (!strcmp(section, "cluster") && !strcmp(key, "name")) return x->p->name;
    if (!strcmp(section, "cluster") && !strcmp(key, "hostfile")) return NULL; /* its nodes stand in [nodes] */
    if (!strcmp(section, "launch") && !strcmp(key, "workdir") && !text) return x->workdir;
    if (!strcmp(section, "parallel") && !strcmp(key, "data") && x->p->world_given) {
        ft_buf_clear(scratch);
        ft_buf_addf(scratch, "%d", x->p->mesh.size[FT_AXIS_DP]); /* -n is not in the file */
        return scratch->data;
    }
    if (!strcmp(section, "parallel") && !strcmp(key, "pipeline")) { /* a run on fewer nodes may have changed it */
        ft_buf_clear(scratch);
        ft_buf_addf(scratch, "%d", x->p->mesh.size[FT_AXIS_PP]);
        return scratch->data;
    }
    return text;
}

static void write_section(const struct writing *x, size_t s)
{
    const struct ft_section *section = ft_launcher_sections[s];
    struct ft_buf scratch = {0};
    ft_buf_addf(x->out, "\n[%s]\n", section->name);
    for (size_t i = 0; i < section->n_fields; i++) {
        const char *value = value_of(x, section->name, section->fields[i].name, x->p->config->values[s][i].text, &scratch);
        if (value) ft_buf_addf(x->out, "%s = %s\n", section->fields[i].name, value);
    }
    ft_buf_fini(&scratch);
}

/* Nodes one after another with equal words, which become one line: every node gets this file. */
struct run_of_nodes {
    const char **names; /* room for all */
    size_t n;
    struct ft_buf words, next, set;
};

static void end_run(const struct writing *x, struct run_of_nodes *r)
{
    const struct ft_names names = {r->names, r->n};
    ft_buf_clear(&r->set);
    if (r->n) ft_hostlist_fold(&names, &r->set);
    if (r->n && r->set.data[0] != '[') ft_buf_addf(x->out, "%s = %s\n", r->set.data, ft_buf_str(&r->words));
    else /* that would be a header */
        for (size_t i = 0; i < r->n; i++) ft_buf_addf(x->out, "%s = %s\n", r->names[i], ft_buf_str(&r->words));
    r->n = 0;
}

static void write_node(const struct writing *x, const struct ft_plan_node *n, struct run_of_nodes *r)
{
    ft_buf_clear(&r->next);
    ft_plan_node_words(n, true, &r->next);
    if (r->n && strcmp(ft_buf_str(&r->next), ft_buf_str(&r->words)) != 0) end_run(x, r);
    ft_buf_clear(&r->words);
    ft_buf_adds(&r->words, ft_buf_str(&r->next));
    r->names[r->n++] = n->name;
}

/* All nodes that were named, also those that exclude takes away. */
static void write_named(const struct writing *x, struct run_of_nodes *r, struct ft_arena *arena)
{
    const struct ft_launcher_config *c = x->p->config;
    for (size_t i = 0; i < c->n_nodes; i++) {
        const struct ft_node_conf *n = &c->nodes[i];
        struct ft_plan_node node = {.name = n->name,
                                    .slots = n->slots           ? n->slots
                                             : c->cluster.slots ? (int)c->cluster.slots
                                                                : 1,
                                    .conf = n,
                                    .from = n->from};
        struct ft_node_conf named = *n;
        if (strchr(n->name, ':')) { /* an address of a host list is no name here */
            node.name = ft_arena_printf(arena, "address-%zu", i);
            named.host = n->name;
            node.conf = &named;
        }
        write_node(x, &node, r);
    }
}

/* Those that were named; those of an allocation as they were planned. */
static void write_nodes(const struct writing *x)
{
    const struct ft_launcher_config *c = x->p->config;
    const struct ft_plan *p = x->p;
    bool planned = !c->n_nodes || c->cluster.transport == FT_TRANSPORT_SLURM;
    if (planned && p->nodes[0].from && !strcmp(p->nodes[0].from, "[slurm] nodes")) return;
    struct ft_arena *arena = ft_arena_create();
    struct run_of_nodes r = {.n = 0};
    r.names = ft_arena_array(arena, c->n_nodes + p->n_nodes + p->n_unused + p->n_spares + 1, sizeof *r.names);
    ft_buf_adds(x->out, "\n[nodes]\n");
    if (!planned) write_named(x, &r, arena);
    for (size_t i = 0; planned && i < p->n_nodes; i++) write_node(x, &p->nodes[i], &r);
    for (size_t i = 0; planned && i < p->n_unused; i++) write_node(x, &p->unused[i], &r);
    for (size_t i = 0; planned && i < p->n_spares; i++) write_node(x, &p->spares[i], &r);
    end_run(x, &r);
    ft_buf_fini(&r.words);
    ft_buf_fini(&r.next);
    ft_buf_fini(&r.set);
    ft_arena_destroy(arena);
}

/* Can the value stand on a line as it is? */
static bool fits_line(const char *value)
{
    size_t n = strlen(value);
    if (!n) return true;
    return !strpbrk(value, "\r\n") && !strchr(" \t", value[0]) && !strchr(" \t", value[n - 1]);
}

static void write_env(const struct writing *x, const struct ft_env_list *env)
{
    for (size_t i = 0; i < env->n; i++) {
        const struct ft_env *e = &env->v[i];
        bool taken = strstr(e->raw, "${") != NULL;                       /* or a literal $${, which reads back the same */
        ft_buf_addf(x->out, *e->name == '[' ? "%s=" : "%s = ", e->name); /* "[x] = 1" would be a header */
        if ((e->secret && taken) || !fits_line(e->value)) {
            ft_buf_adds(x->out, e->raw);
        } else {
            for (const char *v = e->value; *v; v++) {
                if (v[0] == '$' && v[1] == '{') ft_buf_addc(x->out, '$');
                ft_buf_addc(x->out, *v);
            }
        }
        ft_buf_addc(x->out, '\n');
    }
}

/* Keys of one section of fttrain: what fttrain resolved, else what the files say. */
static void write_foreign(const struct writing *x, const char *section)
{
    const struct ft_ini *ini = x->p->config->ini;
    size_t begin = x->out->n, n = strlen(section);
    ft_buf_addf(x->out, "\n[%s]\n", section);
    size_t head = x->out->n;
    for (void *it = x->resolved ? ft_json_iter(x->resolved) : NULL; it; it = ft_json_iter_next(x->resolved, it)) {
        const char *key = ft_json_iter_key(it), *value = ft_json_str(ft_json_get(ft_json_iter_value(it), "value"));
        if (!strncmp(key, section, n) && key[n] == '.' && value && !strpbrk(value, "\r\n"))
            ft_buf_addf(x->out, "%s = %s\n", key + n + 1, value);
    }
    for (size_t i = 0; i < ini->n; i++) {
        const struct ft_ini_entry *e = &ini->v[i];
        if (strcmp(e->section, section) != 0 || ft_ini_find(ini, section, e->key) != e) continue;
        struct ft_buf path = {0};
        ft_buf_addf(&path, "%s.%s", section, e->key);
        if (!ft_json_get(x->resolved, path.data)) ft_buf_addf(x->out, "%s = %s\n", e->key, e->value);
        ft_buf_fini(&path);
    }
    if (x->out->n == head) { /* nothing of this section */
        x->out->n = begin;
        x->out->data[begin] = '\0';
    }
}

void ft_plan_write_job(const struct ft_plan *p, const char *workdir, const struct ft_json *resolved, struct ft_buf *out)
{
    const struct writing x = {p, workdir, resolved, out};
    const struct ft_launcher_config *c = p->config;
    ft_buf_adds(out, "; The job as it was resolved, defaults included.\n");
    for (size_t s = 0; ft_launcher_sections[s]; s++) {
        write_section(&x, s);
        if (s == 0) write_nodes(&x);
    }
    if (c->env.n) {
        ft_buf_adds(out, "\n[env]\n");
        write_env(&x, &c->env);
    }
    for (size_t r = 0; r < c->n_env_ranges; r++) {
        ft_buf_addf(out, "\n[env %s]\n", c->env_ranges[r].range);
        write_env(&x, &c->env_ranges[r].env);
    }
    for (size_t i = 0; ft_section_names[i].name; i++)
        if (ft_section_names[i].owner == FT_OWNER_TRAIN) write_foreign(&x, ft_section_names[i].name);
}
