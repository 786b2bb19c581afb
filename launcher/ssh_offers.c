#include "launcher/ssh_offers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

#define AGENT_LIMIT (2 * FT_SEC)

/* A file of a key, read once. */
struct file {
    const char *path, *cert; /* cert: the certificate to go with it, or NULL */
    const char *public64;
    enum ft_ssh_pair_state state;
    struct ft_ssh_pair *pair;
    const char *why; /* not used because */
};
struct agent {
    const char *path;
    struct ft_ssh_agent_keys keys;
    const char *why; /* it cannot be used */
};
struct ft_ssh_keyring {
    struct ft_arena *arena;
    const struct ft_ssh_me *me;
    struct file *files;
    size_t n_files, files_cap;
    struct agent **agents;
    size_t n_agents, agents_cap;
};

struct ft_ssh_keyring *ft_ssh_keyring_create(const struct ft_ssh_me *me)
{
    struct ft_ssh_keyring *k = ft_xcalloc(1, sizeof *k);
    k->arena = ft_arena_create();
    k->me = me;
    return k;
}

void ft_ssh_keyring_destroy(struct ft_ssh_keyring *k)
{
    if (!k) return;
    for (size_t i = 0; i < k->n_files; i++) ft_ssh_pair_destroy(k->files[i].pair);
    free(k->files);
    free(k->agents);
    ft_arena_destroy(k->arena);
    free(k);
}

static void load(struct ft_ssh_keyring *k, struct file *f)
{
    struct stat st;
    f->public64 = ft_ssh_public64(f->path, k->arena); /* the private half may be in ssh-agent only */
    if (stat(f->path, &st)) {
        f->state = FT_PAIR_MISSING;
        f->why = strerror(errno);
        return;
    }
    if (st.st_uid == k->me->uid && (st.st_mode & 077)) {
        f->state = FT_PAIR_UNREADABLE;
        f->why = ft_arena_printf(k->arena, "others can read it (mode %03o; chmod 600)", (unsigned)st.st_mode & 0777);
        return;
    }
    f->state = ft_ssh_pair_load(f->path, f->cert, &f->pair);
    if (f->state == FT_PAIR_PASSPHRASE) f->why = "needs a passphrase and ssh-agent does not hold it";
    else if (f->state != FT_PAIR_OK) f->why = access(f->path, R_OK) ? strerror(errno) : "is no private key that can be read";
}

static const struct file *file_of(struct ft_ssh_keyring *k, const char *path, const char *cert)
{
    for (size_t i = 0; i < k->n_files; i++)
        if (strcmp(k->files[i].path, path) == 0 && ft_str_eq(k->files[i].cert, cert)) return &k->files[i];
    ft_grow(&k->files, &k->files_cap, k->n_files + 1, sizeof *k->files);
    struct file *f = &k->files[k->n_files++];
    *f = (struct file){.path = ft_arena_strdup(k->arena, path), .cert = cert ? ft_arena_strdup(k->arena, cert) : NULL};
    load(k, f);
    return f;
}

static const struct agent *agent_of(struct ft_ssh_keyring *k, const struct ft_ssh_settings *s)
{
    const char *path = s->identity_agent.text, *env = "SSH_AUTH_SOCK";
    if (path && ft_str_case_eq(path, "none")) return NULL;
    if (path && path[0] == '$' && path[1] != '{') env = path + 1;
    if (!path || path[0] == '$' || strcmp(path, "SSH_AUTH_SOCK") == 0) path = getenv(env);
    if (!path || !*path) return NULL;
    for (size_t i = 0; i < k->n_agents; i++)
        if (strcmp(k->agents[i]->path, path) == 0) return k->agents[i];
    struct agent *a = ft_arena_alloc(k->arena, sizeof *a);
    struct ft_err err = {0};
    a->path = ft_arena_strdup(k->arena, path);
    if (ft_ssh_agent_list(path, AGENT_LIMIT, k->arena, &a->keys, &err) != FT_OK) a->why = ft_arena_strdup(k->arena, err.text);
    ft_grow(&k->agents, &k->agents_cap, k->n_agents + 1, sizeof *k->agents);
    k->agents[k->n_agents++] = a;
    return a;
}

static const struct ft_ssh_agent_key *held(const struct agent *a, const char *public64)
{
    for (size_t i = 0; a && public64 && i < a->keys.n; i++)
        if (strcmp(a->keys.v[i].key64, public64) == 0) return &a->keys.v[i];
    return NULL;
}

static void skip(struct ft_buf *b, const char *name, const char *why) { ft_buf_addf(b, "%s%s %s", b->n ? "; " : "", name, why); }

static void offer(struct ft_ssh_offers *out, struct ft_buf *skipped, struct ft_ssh_offer o)
{
    if (out->n < FT_SSH_MAX_OFFERS) out->v[out->n++] = o;
    else skip(skipped, o.name, "is one key too many for a server");
}

static void offer_agent(struct ft_ssh_keyring *k, struct ft_ssh_offers *out, struct ft_buf *skipped, const struct agent *a,
                        const struct ft_ssh_agent_key *key, const char *name)
{
    const char *text = name ? ft_arena_printf(k->arena, "%s (ssh-agent)", name)
                            : ft_arena_printf(k->arena, "ssh-agent: %s", *key->comment ? key->comment : key->type);
    offer(out, skipped, (struct ft_ssh_offer){.name = text, .agent = a->path, .key = key});
}

enum how {
    NAMED,     /* by a person */
    USUAL,     /* may be missing; what ssh-agent holds has been offered already */
    USUAL_ONLY /* may be missing; ssh-agent signs for it (IdentitiesOnly) */
};

static void offer_file(struct ft_ssh_keyring *k, struct ft_ssh_offers *out, struct ft_buf *skipped, const struct agent *a,
                       const char *path, const struct ft_ssh_settings *s, enum how how)
{
    const struct file *f = file_of(k, path, NULL);
    const struct ft_ssh_agent_key *key = held(a, f->public64);
    if (key) {
        if (how != USUAL) offer_agent(k, out, skipped, a, key, path);
        return;
    }
    if (f->state == FT_PAIR_MISSING && how != NAMED) return;
    if (f->state != FT_PAIR_OK) {
        skip(skipped, path, f->why);
        out->passphrase |= f->state == FT_PAIR_PASSPHRASE;
        return;
    }
    const struct ft_ssh_pair *plain = f->pair; /* f moves when another file is read */
    const char *beside = ft_arena_printf(k->arena, "%s-cert.pub", path);
    for (size_t i = 0; i <= s->certificate.n; i++) {
        const char *cert = i == 0 ? beside : s->certificate.v[i - 1].text;
        if (access(cert, R_OK)) continue;
        const struct file *c = file_of(k, path, cert);
        if (c->state == FT_PAIR_OK)
            offer(out, skipped, (struct ft_ssh_offer){.name = ft_arena_strdup(k->arena, cert), .pair = c->pair});
    }
    offer(out, skipped, (struct ft_ssh_offer){.name = ft_arena_strdup(k->arena, path), .pair = plain});
}

static bool says_yes(const char *s) { return s && (ft_str_case_eq(s, "yes") || ft_str_case_eq(s, "true")); }

void ft_ssh_offers_make(struct ft_ssh_keyring *k, const char *const *identities, size_t n, const struct ft_ssh_settings *settings,
                        struct ft_ssh_offers *out)
{
    static const char *const usual[] = {"id_ed25519", "id_ecdsa", "id_rsa"};
    struct ft_buf skipped = {0};
    const struct agent *a = agent_of(k, settings);
    *out = (struct ft_ssh_offers){0};
    if (a && a->why) skip(&skipped, a->why, "");
    for (size_t i = 0; i < n; i++) offer_file(k, out, &skipped, a, identities[i], settings, NAMED);
    for (size_t i = 0; !n && i < settings->identity.n; i++)
        if (!ft_str_case_eq(settings->identity.v[i].raw, "none"))
            offer_file(k, out, &skipped, a, settings->identity.v[i].text, settings, NAMED);
    if (!n && !settings->identity.n) {
        const bool only = says_yes(settings->identities_only.raw);
        for (size_t i = 0; a && !only && i < a->keys.n; i++) offer_agent(k, out, &skipped, a, &a->keys.v[i], NULL);
        for (size_t i = 0; i < 3; i++)
            offer_file(k, out, &skipped, a, ft_arena_printf(k->arena, "%s/.ssh/%s", k->me->home, usual[i]), settings,
                       only ? USUAL_ONLY : USUAL);
    }
    out->skipped = ft_arena_strdup(k->arena, ft_buf_str(&skipped));
    ft_buf_fini(&skipped);
}
