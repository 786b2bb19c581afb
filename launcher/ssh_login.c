#include "launcher/ssh_login.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/ssh_begin.h"
#include "launcher/ssh_proxy.h"

const char *ft_ssh_phase_name(enum ft_ssh_phase p)
{
    static const char *const names[] = {"resolve", "tcp", "banner", "kex", "hostkey", "auth", "channel", "agent"};
    return names[p];
}

void ft_ssh_login_fini(struct ft_ssh_login *l)
{
    ft_ssh_channel_destroy(l->channel);
    ft_ssh_destroy(l->ssh);
    l->channel = NULL;
    l->ssh = NULL;
    ft_buf_fini(&l->bytes);
    ft_buf_fini(&l->said);
}

static int64_t now_ns(void) { return ft_clock_now(ft_clock_real()); }

bool ft_ssh_login_fail(struct ft_ssh_login *out, enum ft_ssh_fate fate, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(out->reason, sizeof out->reason, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof out->reason) memcpy(out->reason + sizeof out->reason - 4, "...", 4);
    out->fate = fate;
    return false;
}

bool ft_ssh_login_pause(struct ft_ssh_trial *t, int64_t until_ns, const char *late)
{
    const int yes = 1;
    short revents;
    const int fd = ft_ssh_fd(t->out->ssh);
    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes); /* it is forgotten after each packet */
    const enum ft_ssh_fate fate = ft_ssh_poll(fd, ft_ssh_events(t->out->ssh), t->limits, until_ns, &revents);
    if (fate == FT_FATE_UP) return true;
    return ft_ssh_login_fail(t->out, fate == FT_FATE_CANCELLED ? fate : FT_FATE_NO_ANSWER, "%s",
                             fate == FT_FATE_CANCELLED ? "interrupted" : late);
}

static void begin_phase(struct ft_ssh_trial *t, enum ft_ssh_phase p)
{
    const int64_t now = now_ns();
    t->out->ns[t->out->phase] += now - t->phase_at;
    t->phase_at = now;
    t->out->phase = p;
    t->at(t->self, p);
}

struct dialling {
    struct ft_ssh_trial *trial;
    const struct ft_ssh_login_how *how;
};

static bool on_resolved(void *self)
{
    const struct dialling *d = self;
    if (!d->how->resolved(d->how->self)) return false;
    begin_phase(d->trial, FT_PHASE_TCP);
    return true;
}

static bool dial(struct ft_ssh_trial *t, const struct ft_ssh_login_how *how, int *fd)
{
    struct dialling self = {t, how};
    const struct ft_ssh_dialer d = {t->target->host, t->target->port, how->limits, on_resolved, &self};
    const char *phase = "resolve";
    char reason[FT_SSH_REASON] = "";
    const enum ft_ssh_fate fate = ft_ssh_dial(&d, fd, &phase, reason, sizeof reason);
    if (fate == FT_FATE_UP) return true;
    if (fate == FT_FATE_CANCELLED) {
        t->out->fate = fate;
        return false;
    }
    t->out->phase = strcmp(phase, "tcp") == 0 ? FT_PHASE_TCP : FT_PHASE_RESOLVE;
    return ft_ssh_login_fail(t->out, fate, "%s", reason);
}

static bool start_proxy(struct ft_ssh_trial *t, const struct ft_ssh_login_how *how, struct ft_ssh_proxy *proxy, int *fd)
{
    struct ft_err err = {0};
    if (!how->resolved(how->self)) {
        t->out->fate = FT_FATE_CANCELLED;
        return false;
    }
    begin_phase(t, FT_PHASE_TCP);
    return ft_ssh_proxy_start(t->target->proxy, proxy, fd, &err) == FT_OK ||
           ft_ssh_login_fail(t->out, FT_FATE_FINAL, "ProxyCommand: %s", err.text);
}

/* What a proxy says explains best why there is no connection. */
static bool add_words_of_proxy(struct ft_ssh_login *out)
{
    char said[200];
    ft_ssh_proxy_words_of(out->ssh, said, sizeof said);
    const size_t n = strlen(out->reason);
    if (*said) snprintf(out->reason + n, sizeof out->reason - n, "; ProxyCommand says: %s", said);
    return false;
}

static bool exchange_keys(struct ft_ssh_trial *t)
{
    struct ft_ssh_login *out = t->out;
    enum ft_ssh_rc rc;
    while ((rc = ft_ssh_connect(out->ssh)) == FT_SSH_AGAIN) {
        if (out->phase == FT_PHASE_BANNER && ft_ssh_greeted(out->ssh)) begin_phase(t, FT_PHASE_KEX);
        if (!ft_ssh_login_pause(t, INT64_MAX,
                                out->phase == FT_PHASE_BANNER ? "no banner: something accepts the connection and says nothing"
                                                              : "key exchange does not end"))
            return false;
    }
    if (ft_ssh_greeted(out->ssh) && out->phase == FT_PHASE_BANNER) begin_phase(t, FT_PHASE_KEX);
    if (rc == FT_SSH_OK) return true;
    char text[300];
    ft_ssh_why(out->ssh, text, sizeof text);
    if (ft_ssh_no_common(out->ssh)) return ft_ssh_login_fail(out, FT_FATE_FINAL, "no common algorithm: %s", text);
    if (out->phase == FT_PHASE_BANNER && strstr(text, "anner"))
        return ft_ssh_login_fail(out, FT_FATE_FINAL, "no ssh server: %s", text);
    return ft_ssh_login_fail(out, FT_FATE_DROPPED, "closed %s (%s)",
                             out->phase == FT_PHASE_BANNER ? "before its banner" : "during key exchange", text);
}

/* ---- host key ---- */

static bool judge_key(struct ft_ssh_trial *t)
{
    const struct ft_ssh_target *target = t->target;
    struct ft_ssh_login *out = t->out;
    struct ft_ssh_host_key key;
    struct ft_err err = {0};
    struct ft_source at;
    if (ft_ssh_host_key(out->ssh, &key, &err) != FT_OK) return ft_ssh_login_fail(out, FT_FATE_FINAL, "%s", err.text);
    switch (ft_ssh_hosts_judge(target->hosts, &target->who, key.type, key.key64, &at)) {
    case FT_KNOWN_YES: return true;
    case FT_KNOWN_CHANGED:
        return ft_ssh_login_fail(out, FT_FATE_FINAL,
                                 "the host key has CHANGED: now %s %s, another one is in %s:%d. If that is right, remove the line "
                                 "with: ssh-keygen -R '%s'",
                                 key.type, key.fingerprint, at.file, at.line, target->who.name);
    case FT_KNOWN_REVOKED:
        return ft_ssh_login_fail(out, FT_FATE_FINAL, "the host key %s is REVOKED (%s:%d)", key.fingerprint, at.file, at.line);
    case FT_KNOWN_BY_CA:
        if (target->policy != FT_POLICY_OFF)
            return ft_ssh_login_fail(
                out, FT_FATE_FINAL,
                "unknown host key %s %s; host certificates (@cert-authority, %s:%d) are not built: add the key itself", key.type,
                key.fingerprint, at.file, at.line);
        return true;
    case FT_KNOWN_NO: break;
    }
    if (target->policy == FT_POLICY_STRICT)
        return ft_ssh_login_fail(
            out, FT_FATE_FINAL,
            "unknown host key %s %s; compare it, then add it to known_hosts or set [ssh] host_keys = accept-new", key.type,
            key.fingerprint);
    if (target->policy == FT_POLICY_OFF) return true;
    if (ft_ssh_hosts_append(target->hosts, target->append, &target->who, key.type, key.key64, &err) != FT_OK)
        return ft_ssh_login_fail(out, FT_FATE_FINAL, "the host key %s cannot be kept: %s", key.fingerprint, err.text);
    return true;
}

/* ---- authentication ---- */

static enum ft_ssh_rc until_decided(struct ft_ssh_trial *t, const struct ft_ssh_offer *o)
{
    struct ft_ssh_login *out = t->out;
    struct ft_ssh_agent_door door = {.path = o ? o->agent : NULL, .key = o ? o->key : NULL, .limits = *t->limits};
    struct ft_err err = {0};
    int agent_fd = -1;
    if (door.path && ft_ssh_agent_begin(&door, &agent_fd, &err) != FT_OK) {
        (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "%s", err.text);
        return FT_SSH_ERROR;
    }
    enum ft_ssh_rc rc;
    for (;;) {
        rc = !o          ? ft_ssh_auth_none(out->ssh)
             : door.path ? ft_ssh_auth_agent(out->ssh, agent_fd)
                         : ft_ssh_auth_key(out->ssh, o->pair);
        agent_fd = -1;
        if (rc != FT_SSH_AGAIN) break;
        if (!ft_ssh_login_pause(t, INT64_MAX, "authentication does not end")) {
            rc = FT_SSH_ERROR;
            break;
        }
    }
    if (door.path) ft_ssh_agent_end(&door);
    if (rc == FT_SSH_ERROR && !*out->reason) {
        char text[300];
        ft_ssh_why(out->ssh, text, sizeof text);
        (void)ft_ssh_login_fail(out, FT_FATE_FINAL, "%s", *text ? text : "the server ended the connection");
    }
    return rc;
}

static bool refused(struct ft_ssh_trial *t, const struct ft_buf *tried, bool more)
{
    const struct ft_ssh_target *target = t->target;
    char methods[128], before[FT_SSH_REASON];
    memcpy(before, t->out->reason, sizeof before);
    ft_ssh_methods(t->out->ssh, methods, sizeof methods);
    return ft_ssh_login_fail(t->out, FT_FATE_FINAL, "%s%suser %s; server offers: %s%s; keys tried: %s%s%s%s%s", before,
                             *before ? "; " : "", target->user, methods, more ? " (a key alone is not enough)" : "",
                             tried->n ? tried->data : "none", *target->offers.skipped ? "; not tried: " : "",
                             target->offers.skipped, *target->mode_hint ? "; " : "", target->mode_hint);
}

static bool authenticate(struct ft_ssh_trial *t)
{
    const struct ft_ssh_offers *offers = &t->target->offers;
    struct ft_buf tried = {0};
    bool more = false;
    enum ft_ssh_rc rc = until_decided(t, NULL);
    if (rc == FT_SSH_DENIED || rc == FT_SSH_PARTIAL)
        for (size_t i = 0; i < offers->n && ft_ssh_offers_keys(t->out->ssh); i++) {
            rc = until_decided(t, &offers->v[i]);
            ft_buf_addf(&tried, "%s%s", tried.n ? ", " : "", offers->v[i].name);
            more |= rc == FT_SSH_PARTIAL;
            if (rc == FT_SSH_OK || rc == FT_SSH_ERROR) break;
        }
    bool ok = rc == FT_SSH_OK;
    if (!ok && (rc != FT_SSH_ERROR || t->out->fate == FT_FATE_FINAL)) ok = refused(t, &tried, more);
    ft_buf_fini(&tried);
    return ok;
}

/* ---- all of it ---- */

static bool make_session(struct ft_ssh_trial *t, int fd, const struct ft_ssh_proxy *proxy)
{
    const struct ft_ssh_target *target = t->target;
    struct ft_buf types = {0};
    struct ft_err err = {0};
    ft_ssh_hosts_types(target->hosts, &target->who, &types);
    const struct ft_ssh_spec spec = {.user = target->user,
                                     .fd = fd,
                                     .proxy = proxy,
                                     .known_types = ft_buf_str(&types),
                                     .host_key_algorithms = target->host_key_algorithms,
                                     .kex = target->kex,
                                     .ciphers = target->ciphers};
    const enum ft_code c = ft_ssh_create(&spec, &t->out->ssh, &err);
    ft_buf_fini(&types);
    return c == FT_OK || ft_ssh_login_fail(t->out, FT_FATE_FINAL, "%s", err.text);
}

static bool whole_login(struct ft_ssh_trial *t, const struct ft_ssh_login_how *how)
{
    int fd = how->fd;
    struct ft_ssh_proxy proxy;
    const bool by_proxy = fd < 0 && t->target->proxy;
    if (by_proxy && !start_proxy(t, how, &proxy, &fd)) return false;
    if (fd < 0 && !dial(t, how, &fd)) return false;
    begin_phase(t, FT_PHASE_BANNER);
    if (!make_session(t, fd, by_proxy ? &proxy : NULL)) return false;
    if (!exchange_keys(t)) return add_words_of_proxy(t->out);
    begin_phase(t, FT_PHASE_HOSTKEY);
    if (!judge_key(t)) return false;
    begin_phase(t, FT_PHASE_AUTH);
    if (!authenticate(t)) return false;
    begin_phase(t, FT_PHASE_CHANNEL);
    if (t->target->n_commands || t->target->file) {
        begin_phase(t, FT_PHASE_AGENT);
        if (!ft_ssh_begin_agent(t)) return false;
    }
    begin_phase(t, FT_PHASE_AGENT);
    t->out->fate = FT_FATE_UP;
    return true;
}

void ft_ssh_login(const struct ft_ssh_target *target, const struct ft_ssh_login_how *how, struct ft_ssh_login *out)
{
    *out = (struct ft_ssh_login){.phase = FT_PHASE_RESOLVE};
    struct ft_ssh_trial t = {
        .target = target, .limits = &how->limits, .out = out, .phase_at = now_ns(), .at = how->at, .self = how->self};
    if (!whole_login(&t, how)) ft_ssh_login_fini(out);
}
