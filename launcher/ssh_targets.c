#include "launcher/ssh_targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/hash.h"
#include "launcher/ssh_memory.h"
#include "launcher/ssh_proxy.h"

enum { MAX_AGENT = 64 << 20, MAX_CHAIN = 8 };

struct maker {
    struct ft_ssh_targets *t;
    const struct ft_launcher_config *c;
    const char *mode_hint;
    bool explain;
    struct ft_err *err;
};

/* ---- what may be wrong with our own ~/.ssh (homes are often shared) ---- */

static const char *check_modes(const struct ft_ssh_me *me, struct ft_arena *arena)
{
    static const char *const parts[] = {"", "/.ssh", "/.ssh/authorized_keys"};
    for (size_t i = 0; i < 3; i++) {
        const char *path = ft_arena_printf(arena, "%s%s", me->home, parts[i]);
        struct stat st;
        if (stat(path, &st) == 0 && (st.st_mode & 022))
            return ft_arena_printf(arena, "likely: '%s' can be written by others (mode %03o), sshd ignores keys then", path,
                                   (unsigned)st.st_mode & 0777);
    }
    return "";
}

/* ---- one target ---- */

static bool says_yes(const char *s) { return s && (ft_str_case_eq(s, "yes") || ft_str_case_eq(s, "true")); }

/* StrictHostKeyChecking may only raise what [ssh] host_keys says. */
static enum ft_ssh_policy policy_of(const struct ft_launcher_config *c, const struct ft_ssh_settings *s)
{
    enum ft_ssh_policy p = c->ssh.host_keys == FT_HOST_KEYS_OFF          ? FT_POLICY_OFF
                           : c->ssh.host_keys == FT_HOST_KEYS_ACCEPT_NEW ? FT_POLICY_ACCEPT_NEW
                                                                         : FT_POLICY_STRICT;
    if (says_yes(s->strict.raw)) p = FT_POLICY_STRICT;
    if (p == FT_POLICY_OFF && s->strict.raw && ft_str_case_eq(s->strict.raw, "accept-new")) p = FT_POLICY_ACCEPT_NEW;
    return p;
}

static enum ft_code known_files(struct maker *m, const struct ft_ssh_settings *s, struct ft_ssh_target *out)
{
    struct ft_arena *a = m->t->arena;
    const size_t max = s->user_known_hosts.n + s->global_known_hosts.n;
    const char **files = ft_arena_array(a, max + 1, sizeof *files);
    size_t n = 0;
    if (m->c->ssh.known_hosts) files[n++] = m->c->ssh.known_hosts;
    for (size_t i = 0; i < max && !m->c->ssh.known_hosts; i++) {
        const char *path = i < s->user_known_hosts.n ? s->user_known_hosts.v[i].text
                                                     : s->global_known_hosts.v[i - s->user_known_hosts.n].text;
        if (!ft_str_case_eq(path, "none")) files[n++] = path;
    }
    for (size_t i = 0; i < n; i++) {
        const enum ft_code c = ft_ssh_hosts_read(m->t->hosts, files[i], m->err);
        if (c != FT_OK) return c;
    }
    out->who = (struct ft_ssh_who){.name = s->host_key_alias.text ? s->host_key_alias.text : out->host,
                                   .port = s->host_key_alias.text ? 0 : out->port,
                                   .files = files,
                                   .n_files = n};
    out->append = n ? files[0] : ft_arena_printf(a, "%s/.ssh/known_hosts", m->t->me.home);
    if (!n) { /* every file is "none": nothing is known */
        files[0] = "none";
        out->who.n_files = 1;
    }
    return FT_OK;
}

static enum ft_code use_proxy(struct maker *m, const struct ft_ssh_settings *s, struct ft_ssh_target *out)
{
    const enum ft_code c = ft_ssh_proxy_words(s->proxy_command.raw, out->name, s, &m->t->me, m->t->arena, &out->proxy, m->err);
    return c == FT_OK ? c : ft_at(m->err, "%s:%d", s->proxy_command.at.file, s->proxy_command.at.line);
}

/* Everything but commands and chain. identity: of the node or NULL. */
static enum ft_code fill(struct maker *m, const struct ft_ssh_query *q, const char *identity, struct ft_ssh_settings *s,
                         struct ft_ssh_target *out)
{
    struct ft_arena *a = m->t->arena;
    enum ft_code c = ft_ssh_conf_lookup(m->t->conf, q, a, s, m->err);
    if (c != FT_OK) return c;
    int64_t port = 22;
    (void)ft_parse_i64(s->port.text, 1, 65535, &port);
    *out = (struct ft_ssh_target){.name = q->host,
                                  .host = s->hostname.text,
                                  .user = s->user.text,
                                  .port = (int)port,
                                  .kex = s->kex.raw,
                                  .ciphers = s->ciphers.raw,
                                  .host_key_algorithms = s->host_key_algorithms.raw,
                                  .hosts = m->t->hosts,
                                  .policy = policy_of(m->c, s),
                                  .mode_hint = m->mode_hint};
    c = known_files(m, s, out);
    if (c != FT_OK) return c;
    const char *one = NULL;
    if (identity) {
        struct ft_buf b = {0};
        (void)ft_expand_home(identity, &b, NULL); /* nodes.c has refused what has no home */
        one = ft_arena_strdup(a, ft_buf_str(&b));
        ft_buf_fini(&b);
    }
    ft_ssh_offers_make(m->t->keys, one ? &one : m->c->ssh.identity.v, one ? 1 : m->c->ssh.identity.n, s, &out->offers);
    return FT_OK;
}

/* ---- chains ---- */

static bool is_none(const char *s) { return !s || !*s || ft_str_case_eq(s, "none"); }

static bool same_bastion(const struct ft_ssh_bastion *b, const struct ft_ssh_target *t, int through)
{
    return b->through == through && b->target.port == t->port && ft_str_eq(b->target.host, t->host) &&
           ft_str_eq(b->target.user, t->user);
}

static int bastion_of(struct ft_ssh_targets *t, const struct ft_ssh_target *target, int through)
{
    for (size_t i = 0; i < t->n_bastions; i++)
        if (same_bastion(t->bastions[i], target, through)) return (int)i;
    struct ft_ssh_bastion *b = ft_arena_alloc(t->arena, sizeof *b);
    *b = (struct ft_ssh_bastion){*target, through};
    ft_grow(&t->bastions, &t->bastions_cap, t->n_bastions + 1, sizeof *t->bastions);
    t->bastions[t->n_bastions] = b;
    return (int)t->n_bastions++;
}

/* text: "A,B". The first hop may have a ProxyJump of its own in ssh_config. *out: the last bastion. */
static enum ft_code chain(struct maker *m, const char *text, const char *inner, int depth, int *out)
{
    struct ft_ssh_hop *hops;
    size_t n;
    enum ft_code c = ft_ssh_hops(text, m->t->arena, &hops, &n, m->err);
    if (c != FT_OK) return c;
    if (depth > MAX_CHAIN) return ft_fail(m->err, FT_CONFIG, "the jump hosts of '%s' go round in a circle ('%s')", inner, text);
    int through = -1;
    for (size_t i = 0; i < n; i++) {
        const struct ft_ssh_query q = {.host = hops[i].host, .user = hops[i].user, .port = hops[i].port};
        struct ft_ssh_settings s;
        struct ft_ssh_target target;
        c = fill(m, &q, NULL, &s, &target);
        if (c != FT_OK) return ft_wrap(m->err, "reading the jump host '%s'", hops[i].host);
        if (i == 0 && !is_none(s.proxy_command.raw)) c = use_proxy(m, &s, &target);
        if (c != FT_OK) return ft_wrap(m->err, "reading the jump host '%s'", hops[i].host);
        /* "Host *" with a ProxyJump means the bastion itself too; it cannot be reached through itself */
        if (i == 0 && !is_none(s.proxy_jump.raw) && strcmp(s.proxy_jump.raw, text) != 0 &&
            strcmp(s.proxy_jump.raw, hops[i].host) != 0) {
            c = chain(m, s.proxy_jump.raw, inner, depth + 1, &through);
            if (c != FT_OK) return c;
        }
        through = bastion_of(m->t, &target, through);
    }
    *out = through;
    return FT_OK;
}

static enum ft_code way_to(struct maker *m, const struct ft_plan_node *n, const struct ft_ssh_settings *s, struct ft_ssh_node *node)
{
    int *out = &node->through;
    *out = -1;
    const bool in_section = ft_config_at(m->c, "ssh", "jump").file != NULL;
    if (n->conf && n->conf->jump) return is_none(n->conf->jump) ? FT_OK : chain(m, n->conf->jump, n->name, 0, out);
    if (in_section) return is_none(m->c->ssh.jump) ? FT_OK : chain(m, m->c->ssh.jump, n->name, 0, out);
    if (!is_none(s->proxy_command.raw)) return use_proxy(m, s, &node->target);
    return is_none(s->proxy_jump.raw) ? FT_OK : chain(m, s->proxy_jump.raw, n->name, 0, out);
}

/* ---- the agent ---- */

static enum ft_code read_agent(struct ft_ssh_targets *t, const char *program_dir, struct ft_err *err)
{
    const char *path = ft_arena_printf(t->arena, "%s/ftlaunch-agent", program_dir);
    const enum ft_code c = ft_read_file(path, MAX_AGENT, &t->agent_bytes, err);
    if (c != FT_OK) {
        ft_wrap(err, "reading our own agent");
        return ft_fix(err, "install ftlaunch-agent beside ftlaunch");
    }
    snprintf(t->build, sizeof t->build, "%016llx", (unsigned long long)ft_xxh3_64(t->agent_bytes.data, t->agent_bytes.n));
    t->agent = (struct ft_ssh_file){t->agent_bytes.data, t->agent_bytes.n,
                                    ft_arena_printf(t->arena, "ftlaunch-agent-%s", t->build)};
    return FT_OK;
}

static void commands(struct maker *m, struct ft_ssh_target *out)
{
    const char **v = ft_arena_array(m->t->arena, 2, sizeof *v);
    const bool given = !ft_str_eq(m->c->ssh.agent, "auto");
    out->build = m->t->build;
    out->commands = v;
    if (given) {
        v[out->n_commands++] = m->c->ssh.agent;
        return;
    }
    const char *last = ft_ssh_memory_get(&m->t->memory, out->user, out->host, out->port);
    if (last) v[out->n_commands++] = last;
    if (!last || !ft_str_eq(last, "ftlaunch-agent")) v[out->n_commands++] = "ftlaunch-agent";
    if (m->c->launch.stage) out->file = &m->t->agent;
}

/* ---- what set what (check -v) ---- */

static void add_origin(struct ft_buf *b, struct ft_arena *a, const char *key, const char *value, const char *node_from,
                       struct ft_source section, struct ft_source file)
{
    if (!value) return;
    const char *from = node_from ? node_from : ft_source_text(section.file ? section : file, a);
    ft_buf_addf(b, "%s%s %s (%s)", b->n ? ", " : "", key, value, from);
}

static const char *origin_of(const struct maker *m, const struct ft_plan_node *n, const struct ft_ssh_settings *s,
                             const struct ft_ssh_target *target)
{
    static const struct ft_ssh_value none;
    static const struct ft_source nowhere;
    static const struct ft_node_conf no_conf;
    const struct ft_node_conf *c = n->conf ? n->conf : &no_conf;
    struct ft_arena *a = m->t->arena;
    const struct ft_ssh_value *identity = s->identity.n ? &s->identity.v[0] : &none;
    const struct ft_ssh_value *known = s->user_known_hosts.n ? &s->user_known_hosts.v[0] : &none;
    const struct ft_source jump = ft_config_at(m->c, "ssh", "jump");
    struct ft_buf b = {0};
    if (!ft_str_eq(target->host, n->name))
        add_origin(&b, a, "host", target->host, c->host ? n->from : NULL, nowhere, s->hostname.at);
    add_origin(&b, a, "port", ft_arena_printf(a, "%d", target->port), c->port ? n->from : NULL, ft_config_at(m->c, "ssh", "port"),
               s->port.at);
    add_origin(&b, a, "user", target->user, c->user ? n->from : NULL, ft_config_at(m->c, "ssh", "user"), s->user.at);
    add_origin(&b, a, "identity",
               c->identity            ? c->identity
               : m->c->ssh.identity.n ? m->c->ssh.identity.v[0]
                                      : identity->text,
               c->identity ? n->from : NULL, ft_config_at(m->c, "ssh", "identity"), identity->at);
    add_origin(&b, a, "jump",
               c->jump     ? c->jump
               : jump.file ? m->c->ssh.jump
                           : s->proxy_jump.raw,
               c->jump ? n->from : NULL, jump, s->proxy_jump.at);
    add_origin(&b, a, "ProxyCommand", target->proxy ? s->proxy_command.raw : NULL, NULL, nowhere, s->proxy_command.at);
    add_origin(&b, a, "known_hosts", m->c->ssh.known_hosts ? m->c->ssh.known_hosts : known->text, NULL,
               ft_config_at(m->c, "ssh", "known_hosts"), known->at);
    add_origin(&b, a, "HostKeyAlias", s->host_key_alias.raw, NULL, nowhere, s->host_key_alias.at);
    add_origin(&b, a, "StrictHostKeyChecking", s->strict.raw, NULL, nowhere, s->strict.at);
    add_origin(&b, a, "KexAlgorithms", s->kex.raw, NULL, nowhere, s->kex.at);
    add_origin(&b, a, "Ciphers", s->ciphers.raw, NULL, nowhere, s->ciphers.at);
    add_origin(&b, a, "HostKeyAlgorithms", s->host_key_algorithms.raw, NULL, nowhere, s->host_key_algorithms.at);
    const char *text = ft_arena_strdup(a, ft_buf_str(&b));
    ft_buf_fini(&b);
    return text;
}

static enum ft_code make_node(struct maker *m, const struct ft_plan_node *n, struct ft_ssh_node *out)
{
    struct ft_arena *a = m->t->arena;
    const struct ft_ssh_fields *f = &m->c->ssh;
    const bool other_host = n->host && !ft_str_eq(n->host, n->name);
    const struct ft_ssh_query q = {.host = n->name,
                                   .hostname = other_host ? n->host : NULL,
                                   .user = n->user ? n->user : f->user,
                                   .port = n->port   ? ft_arena_printf(a, "%d", n->port)
                                           : f->port ? ft_arena_printf(a, "%d", (int)f->port)
                                                     : NULL};
    struct ft_ssh_settings s;
    enum ft_code c = fill(m, &q, n->conf ? n->conf->identity : NULL, &s, &out->target);
    if (c == FT_OK) c = way_to(m, n, &s, out);
    if (c == FT_OK) commands(m, &out->target);
    if (c == FT_OK && m->explain) out->origin = origin_of(m, n, &s, &out->target);
    return c;
}

enum ft_code ft_ssh_targets_make(const struct ft_ssh_request *q, struct ft_ssh_targets *t, struct ft_err *err)
{
    *t = (struct ft_ssh_targets){.arena = ft_arena_create(), .hosts = ft_ssh_hosts_create()};
    t->me = ft_ssh_me(t->arena);
    t->keys = ft_ssh_keyring_create(&t->me);
    t->notes.arena = t->arena;
    const struct ft_ssh_fields *f = &q->config->ssh;
    if (!ft_str_eq(f->agent, "auto") && !ft_ssh_plain_word(f->agent)) {
        ft_fail(err, FT_CONFIG, "[ssh] agent = '%s' is no path that every login shell takes as it is (letters, digits and _./+-)",
                f->agent);
        return FT_CONFIG;
    }
    enum ft_code c = read_agent(t, q->program_dir, err);
    if (c == FT_OK) c = ft_ssh_conf_read(f->config, &t->me, t->arena, &t->notes, &t->conf, err);
    if (c != FT_OK) return c;
    ft_ssh_memory_read(&t->memory, &t->me, t->build, t->arena);
    struct maker m = {.t = t, .c = q->config, .explain = q->explain, .mode_hint = check_modes(&t->me, t->arena), .err = err};
    t->n_nodes = q->n_nodes;
    t->nodes = ft_arena_array(t->arena, q->n_nodes, sizeof *t->nodes);
    for (size_t i = 0; i < q->n_nodes && c == FT_OK; i++) c = make_node(&m, q->nodes[i], &t->nodes[i]);
    return c;
}

void ft_ssh_targets_fini(struct ft_ssh_targets *t)
{
    ft_ssh_keyring_destroy(t->keys);
    ft_ssh_hosts_destroy(t->hosts);
    ft_buf_fini(&t->agent_bytes);
    free(t->bastions);
    ft_arena_destroy(t->arena);
    *t = (struct ft_ssh_targets){0};
}
