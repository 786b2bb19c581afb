/* Lines of ssh_config judged for one host, as OpenSSH's readconf.c and ssh.c do it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "launcher/ssh_lines.h"
#include "launcher/ssh_match.h"

struct judge {
    const struct ft_ssh_conf *conf;
    const struct ft_ssh_query *q;
    struct ft_arena *arena;
    struct ft_ssh_settings *s;
    bool final;
    struct ft_err *err;
};

static enum ft_code bad_value(struct judge *j, struct ft_source at, const char *text, const char *why)
{
    ft_fail(j->err, FT_CONFIG, "'%s' %s", text, why);
    return at.file ? ft_at(j->err, "%s:%d", at.file, at.line) : FT_CONFIG;
}

/* ---- tokens ---- */

static const char *token(struct judge *j, char c, const char *allowed)
{
    const struct ft_ssh_me *me = j->conf->me;
    const struct ft_ssh_settings *s = j->s;
    if (c == '%') return "%";
    if (!strchr(allowed, c)) return NULL;
    switch (c) {
    case 'd': return me->home;
    case 'h': return s->hostname.text && allowed[1] ? s->hostname.text : j->q->host; /* in HostName itself: the name as given */
    case 'i': return ft_arena_printf(j->arena, "%u", me->uid);
    case 'k': return s->host_key_alias.text ? s->host_key_alias.text : j->q->host;
    case 'l': return me->host;
    case 'L': return ft_arena_strndup(j->arena, me->host, strcspn(me->host, "."));
    case 'n': return j->q->host;
    case 'p': return s->port.text ? s->port.text : "22";
    case 'r': return s->user.text ? s->user.text : me->user;
    case 'u': return me->user;
    default: return NULL;
    }
}

/* Replaces %-tokens and, when env, ${NAME}. */
static enum ft_code expand(struct judge *j, struct ft_source at, const char *raw, const char *allowed, bool env, const char **out)
{
    struct ft_buf b = {0};
    enum ft_code c = FT_OK;
    for (const char *p = raw; *p && c == FT_OK; p++) {
        if (*p == '%') {
            const char *t = p[1] ? token(j, p[1], allowed) : NULL;
            if (t) {
                ft_buf_adds(&b, t);
                p++;
            } else c = bad_value(j, at, raw, "has a %-token that is not known here");
        } else if (env && p[0] == '$' && p[1] == '{') {
            const char *end = strchr(p, '}');
            const char *name = end ? ft_arena_strndup(j->arena, p + 2, (size_t)(end - p - 2)) : NULL;
            const char *value = name && *name ? getenv(name) : NULL;
            if (value) {
                ft_buf_adds(&b, value);
                p = end;
            } else c = bad_value(j, at, raw, "names an environment variable that is not set");
        } else ft_buf_addc(&b, *p);
    }
    if (c == FT_OK) *out = ft_arena_strdup(j->arena, ft_buf_str(&b));
    ft_buf_fini(&b);
    return c;
}

static enum ft_code expand_path(struct judge *j, struct ft_ssh_value *v)
{
    static const char all[] = "dhiklLnpru";
    const char *path = v->raw;
    if (path[0] == '~' && (path[1] == '/' || !path[1])) path = ft_arena_printf(j->arena, "%s%s", j->conf->me->home, path + 1);
    return expand(j, v->at, path, all, true, &v->text);
}

/* HostName, expanded; an address with a zone that came with the question ("fe80::1%eth0") has no tokens. */
static enum ft_code expand_hostname(struct judge *j, const char **out)
{
    const struct ft_ssh_value *h = &j->s->hostname;
    if (h->at.file || !strchr(h->raw, ':')) return expand(j, h->at, h->raw, "h", false, out);
    *out = h->raw;
    return FT_OK;
}

/* ---- which lines apply ---- */

static bool host_applies(const struct ft_ssh_line *l, const char *host)
{
    bool yes = false;
    for (size_t i = 0; i < l->argc; i++) {
        const bool negated = *l->argv[i] == '!';
        if (!ft_ssh_glob(host, l->argv[i] + negated)) continue;
        if (negated) return false;
        yes = true;
    }
    return yes;
}

static enum ft_code match_applies(struct judge *j, const struct ft_ssh_line *l, bool *out)
{
    const struct ft_ssh_settings *s = j->s;
    const char *host = j->q->host, *user = s->user.text ? s->user.text : j->conf->me->user;
    if (s->hostname.text) {
        host = s->hostname.text;
        if (!j->final) {
            const enum ft_code c = expand_hostname(j, &host);
            if (c != FT_OK) return c;
        }
    }
    bool yes = true;
    for (size_t i = 0; i < l->n_match; i++) {
        const struct ft_ssh_match *m = &l->match[i];
        bool one = false;
        switch (m->what) {
        case FT_SM_ALL: one = true; break;
        case FT_SM_HOST: one = ft_ssh_match_list(host, m->arg, true) == FT_MATCH_YES; break;
        case FT_SM_ORIGINALHOST: one = ft_ssh_match_list(j->q->host, m->arg, true) == FT_MATCH_YES; break;
        case FT_SM_USER: one = ft_ssh_match_list(user, m->arg, false) == FT_MATCH_YES; break;
        case FT_SM_LOCALUSER: one = ft_ssh_match_list(j->conf->me->user, m->arg, false) == FT_MATCH_YES; break;
        case FT_SM_FINAL:
        case FT_SM_CANONICAL: one = j->final; break;
        case FT_SM_NEVER: *out = false; return FT_OK;
        }
        if (one == m->negated) yes = false;
    }
    *out = yes;
    return FT_OK;
}

/* ---- values ---- */

static void first(struct ft_ssh_value *v, const struct ft_ssh_line *l, const char *text)
{
    if (v->raw) return;
    *v = (struct ft_ssh_value){text, text, l->at};
}

static void add(struct judge *j, struct ft_ssh_values *list, struct ft_source at, const char *text, bool unique)
{
    for (size_t i = 0; unique && i < list->n; i++)
        if (strcmp(list->v[i].raw, text) == 0) return;
    struct ft_ssh_value *v = ft_ssh_push(j->arena, &list->v, &list->n, &list->cap, sizeof *list->v);
    *v = (struct ft_ssh_value){text, text, at};
}

static void take(struct judge *j, const struct ft_ssh_line *l)
{
    struct ft_ssh_settings *s = j->s;
    const char *arg = l->argc ? l->argv[0] : "";
    switch (l->key) {
    case FT_SK_HOSTNAME: first(&s->hostname, l, arg); break;
    case FT_SK_PORT: first(&s->port, l, arg); break;
    case FT_SK_USER: first(&s->user, l, arg); break;
    case FT_SK_IDENTITY: add(j, &s->identity, l->at, arg, true); break;
    case FT_SK_IDENTITIES_ONLY: first(&s->identities_only, l, arg); break;
    case FT_SK_IDENTITY_AGENT: first(&s->identity_agent, l, arg); break;
    case FT_SK_CERTIFICATE: add(j, &s->certificate, l->at, arg, true); break;
    case FT_SK_PROXY_JUMP:
        if (!s->proxy_command.raw) first(&s->proxy_jump, l, l->rest);
        break;
    case FT_SK_PROXY_COMMAND:
        if (!s->proxy_jump.raw) first(&s->proxy_command, l, l->rest);
        break;
    case FT_SK_HOST_KEY_ALIAS: first(&s->host_key_alias, l, arg); break;
    case FT_SK_STRICT: first(&s->strict, l, arg); break;
    case FT_SK_KEX: first(&s->kex, l, arg); break;
    case FT_SK_CIPHERS: first(&s->ciphers, l, arg); break;
    case FT_SK_HOST_KEY_ALGORITHMS: first(&s->host_key_algorithms, l, arg); break;
    case FT_SK_USER_HOSTS:
    case FT_SK_GLOBAL_HOSTS: {
        struct ft_ssh_values *list = l->key == FT_SK_USER_HOSTS ? &s->user_known_hosts : &s->global_known_hosts;
        for (size_t i = 0, had = list->n; i < l->argc && !had; i++) add(j, list, l->at, l->argv[i], false);
        break;
    }
    case FT_SK_OTHER:
    case FT_SK_FILE:
    case FT_SK_PUSH:
    case FT_SK_POP:
    case FT_SK_HOST:
    case FT_SK_MATCH:
    case FT_SK_INCLUDE: break;
    }
}

/* Included files begin with the state of the including block and cannot change it; in a block that does not apply nothing
 * inside them can apply. */
static enum ft_code one_reading(struct judge *j)
{
    enum { DEEP = 32 };
    struct {
        bool active, never;
    } stack[DEEP];
    size_t depth = 0;
    bool active = true, never = false;
    for (size_t i = 0; i < j->conf->n; i++) {
        const struct ft_ssh_line *l = &j->conf->v[i];
        if (l->key == FT_SK_FILE) {
            active = true;
            never = false;
            depth = 0;
        } else if (l->key == FT_SK_PUSH) {
            FT_ASSERT(depth < DEEP);
            stack[depth].active = active;
            stack[depth++].never = never;
            if (!active) never = true;
        } else if (l->key == FT_SK_POP) {
            active = stack[--depth].active;
            never = stack[depth].never;
        } else if (l->key == FT_SK_HOST) active = !never && host_applies(l, j->q->host);
        else if (l->key == FT_SK_MATCH) {
            bool yes = false;
            const enum ft_code c = match_applies(j, l, &yes);
            if (c != FT_OK) return c;
            active = !never && yes;
        } else if (active) take(j, l);
    }
    return FT_OK;
}

static bool is_address(const char *host) { return strchr(host, ':') || strspn(host, "0123456789.") == strlen(host); }

static enum ft_code settle_hostname(struct judge *j)
{
    struct ft_ssh_value *h = &j->s->hostname;
    if (!h->raw) h->raw = h->text = j->q->host;
    else if (!j->final) {
        const char *text;
        const enum ft_code c = expand_hostname(j, &text);
        if (c != FT_OK) return c;
        h->text = text;
    }
    if (!is_address(h->text)) {
        char *low = ft_arena_strdup(j->arena, h->text);
        for (char *p = low; *p; p++)
            if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
        h->text = low;
    }
    return FT_OK;
}

static enum ft_code settle_paths(struct judge *j)
{
    struct ft_ssh_settings *s = j->s;
    static const char *const user_files[] = {"~/.ssh/known_hosts", "~/.ssh/known_hosts2"};
    static const char *const global_files[] = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
    const bool no_user = !s->user_known_hosts.n, no_global = !s->global_known_hosts.n;
    for (size_t i = 0; i < 2; i++) {
        if (no_user) add(j, &s->user_known_hosts, (struct ft_source){0}, user_files[i], false);
        if (no_global) add(j, &s->global_known_hosts, (struct ft_source){0}, global_files[i], false);
    }
    struct ft_ssh_values *lists[] = {&s->identity, &s->certificate, &s->user_known_hosts, &s->global_known_hosts};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < lists[k]->n; i++) {
            const enum ft_code c = expand_path(j, &lists[k]->v[i]);
            if (c != FT_OK) return c;
        }
    if (s->identity_agent.raw) return expand_path(j, &s->identity_agent);
    return FT_OK;
}

static bool one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (ft_str_case_eq(word, *words)) return true;
    return false;
}

static enum ft_code check_words(struct judge *j)
{
    static const char *const flags[] = {"yes", "no", "true", "false", NULL};
    static const char *const strict[] = {"yes", "no", "true", "false", "ask", "off", "accept-new", NULL};
    const struct ft_ssh_settings *s = j->s;
    int64_t port;
    if (!ft_parse_i64(s->port.text, 1, 65535, &port)) return bad_value(j, s->port.at, s->port.text, "is no port (1..65535)");
    if (s->identities_only.raw && !one_of(s->identities_only.raw, flags))
        return bad_value(j, s->identities_only.at, s->identities_only.raw, "is neither yes nor no (IdentitiesOnly)");
    if (s->strict.raw && !one_of(s->strict.raw, strict))
        return bad_value(j, s->strict.at, s->strict.raw, "is none of yes, no, ask, off, accept-new (StrictHostKeyChecking)");
    return FT_OK;
}

enum ft_code ft_ssh_conf_lookup(const struct ft_ssh_conf *conf, const struct ft_ssh_query *q, struct ft_arena *arena,
                                struct ft_ssh_settings *out, struct ft_err *err)
{
    struct ft_ssh_settings s = {
        .hostname = {q->hostname, q->hostname, {0}}, .user = {q->user, q->user, {0}}, .port = {q->port, q->port, {0}}};
    struct judge j = {.conf = conf, .q = q, .arena = arena, .s = &s, .err = err};
    enum ft_code c = one_reading(&j);
    if (c == FT_OK) c = settle_hostname(&j);
    if (c == FT_OK && conf->wants_final) {
        j.final = true;
        s.hostname.raw = s.hostname.text;
        c = one_reading(&j);
        if (c == FT_OK) c = settle_hostname(&j);
    }
    if (!s.user.raw) s.user.raw = s.user.text = conf->me->user;
    if (!s.port.raw) s.port.raw = s.port.text = "22";
    if (c == FT_OK) c = settle_paths(&j);
    if (c == FT_OK) c = check_words(&j);
    if (c != FT_OK) {
        ft_wrap(err, "reading the configuration of ssh for '%s'", q->host);
        return c;
    }
    *out = s;
    return FT_OK;
}

/* ---- hops ---- */

static enum ft_code one_hop(const char *text, struct ft_arena *arena, struct ft_ssh_hop *out, struct ft_err *err)
{
    *out = (struct ft_ssh_hop){0};
    char *s = ft_arena_strdup(arena, text);
    if (strncasecmp(s, "ssh://", 6) == 0) {
        s += 6;
        const size_t n = strlen(s);
        if (n && s[n - 1] == '/') s[n - 1] = 0;
    }
    char *at = strrchr(s, '@');
    if (at) {
        *at = 0;
        out->user = s;
        s = at + 1;
    }
    char *colon = NULL;
    if (*s == '[') {
        char *end = strchr(s, ']');
        if (!end || (end[1] && end[1] != ':'))
            return ft_fail(err, FT_CONFIG, "'%s' is no jump host: the bracket is not closed", text);
        *end = 0;
        colon = end[1] ? end + 1 : NULL;
        s++;
    } else if ((colon = strchr(s, ':')) && strchr(colon + 1, ':')) colon = NULL; /* a bare IPv6 address */
    if (colon) {
        int64_t port;
        *colon = 0;
        out->port = colon + 1;
        if (!ft_parse_i64(out->port, 1, 65535, &port))
            return ft_fail(err, FT_CONFIG, "'%s': '%s' is no port (1..65535)", text, out->port);
    }
    out->host = s;
    if (!*s || *s == '-' || (out->user && (!*out->user || *out->user == '-')) || strpbrk(s, " \t'\"`$\\;&<>|(){}"))
        return ft_fail(err, FT_CONFIG, "'%s' is no jump host", text);
    return FT_OK;
}

enum ft_code ft_ssh_hops(const char *text, struct ft_arena *arena, struct ft_ssh_hop **out_hops, size_t *out_n, struct ft_err *err)
{
    struct ft_ssh_hop *v = NULL;
    size_t n = 0, cap = 0;
    if (*text && !ft_str_case_eq(text, "none"))
        for (const char *p = text;; p++) {
            const char *end = strchrnul(p, ',');
            size_t from = strspn(p, " \t"), len = (size_t)(end - p);
            while (len > from && strchr(" \t", p[len - 1])) len--;
            struct ft_ssh_hop hop;
            const enum ft_code c = one_hop(from < len ? ft_arena_strndup(arena, p + from, len - from) : "", arena, &hop, err);
            if (c != FT_OK) return c;
            *(struct ft_ssh_hop *)ft_ssh_push(arena, &v, &n, &cap, sizeof *v) = hop;
            if (!*end) break;
            p = end;
        }
    *out_hops = v;
    *out_n = n;
    return FT_OK;
}
