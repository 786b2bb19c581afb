/* Questions to the job's fttrain on a node, and what its check found there. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/ini.h"
#include "launcher/ask.h"
#include "launcher/head.h"

enum { ASK_MS = 120 * 1000, FIRST_ID = 1 << 20 /* meetings count from 1 */, MAX_ANSWER = 32 << 20 };

struct ft_head_ask {
    uint32_t id;
    int node;
    struct ft_buf text;
    ft_head_answered *done;
    struct ft_head_ask *next;
};

void ft_head_probe(struct ft_head *h, int node, enum ft_probe kind, uint64_t number, const char *text, size_t n,
                   ft_head_answered *done)
{
    struct ft_head_ask *a = ft_xcalloc(1, sizeof *a);
    *a = (struct ft_head_ask){.id = FIRST_ID + h->ask_id++, .node = node, .done = done, .next = h->asks};
    h->asks = a;
    struct ft_msg m = ft_msg_make(FT_MSG_PROBE, FT_WIRE_NODE);
    ft_msg_u(&m, 0, a->id);
    ft_msg_u(&m, 1, kind);
    ft_msg_u(&m, 2, number);
    ft_msg_bytes(&m, 4, text, n);
    ft_head_send(h, node, &m);
}

void ft_head_ask(struct ft_head *h, int node, const char *const *words, size_t n, ft_head_answered *done)
{
    struct ft_buf b = {0};
    for (size_t i = 0; i < n; i++) ft_buf_add(&b, words[i], strlen(words[i]) + 1);
    ft_head_probe(h, node, FT_PROBE_ASK, ASK_MS, b.data, b.n, done);
    ft_buf_fini(&b);
}

/* Takes it out of the list; the answer is told once. */
static void answered(struct ft_head *h, struct ft_head_ask *a, bool ok, int status)
{
    for (struct ft_head_ask **p = &h->asks; *p; p = &(*p)->next)
        if (*p == a) {
            *p = a->next;
            break;
        }
    const struct ft_head_answer answer = {ok, status, ft_buf_str(&a->text), a->text.n};
    a->done(h, a->node, &answer);
    ft_buf_fini(&a->text);
    free(a);
}

bool ft_head_ask_result(struct ft_head *h, int node, const struct ft_msg *m)
{
    for (struct ft_head_ask *a = h->asks; a; a = a->next) {
        if (a->id != (uint32_t)m->f[0].u || a->node != node) continue;
        if (m->f[3].n && a->text.n < MAX_ANSWER) ft_buf_add(&a->text, m->f[3].p, m->f[3].n);
        if (!(m->flags & FT_WIRE_MORE)) answered(h, a, m->f[1].u != 0, (int)m->f[2].u);
        return true;
    }
    return m->f[0].u >= FIRST_ID; /* of a question that nobody waits for any more */
}

void ft_head_ask_lost(struct ft_head *h, int node)
{
    for (struct ft_head_ask *a = h->asks, *next; a; a = next) {
        next = a->next;
        if (a->node != node) continue;
        ft_buf_clear(&a->text);
        ft_buf_adds(&a->text, "the node was lost");
        answered(h, a, false, 0);
        next = h->asks; /* the answer may have changed the list */
    }
}

void ft_head_ask_end(struct ft_head *h)
{
    for (struct ft_head_ask *a = h->asks, *next; a; a = next) {
        next = a->next;
        ft_buf_fini(&a->text);
        free(a);
    }
    h->asks = NULL;
}

/* ---- check ---- */

void ft_head_choose_asked(struct ft_head *h, const int *nodes, int n)
{
    static const char *const kind[] = {"arch", "memory", "gpus", "driver", "cores"};
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) {
            bool same = true;
            for (size_t f = 0; f < sizeof kind / sizeof *kind; f++)
                same = same && !strcmp(ft_head_fact(&h->nodes[nodes[i]], kind[f]), ft_head_fact(&h->nodes[nodes[k]], kind[f]));
            seen = same;
        }
        h->nodes[nodes[i]].asked = !seen;
    }
}

void ft_head_ask_check(struct ft_head *h, int node, ft_head_answered *done)
{
    char data[64];
    snprintf(data, sizeof data, "parallel.data=%d", h->plan->mesh.size[FT_AXIS_DP]);
    const char *const words[] = {"check", "--json", "/dev/stdin", "--set", data};
    ft_head_ask(h, node, words, sizeof words / sizeof *words, done);
}

/* Where the job's own files say it; the file that the node read is a copy. */
static struct ft_source place_of(const struct ft_head *h, const char *section, const char *key)
{
    const struct ft_ini *ini = h->config->ini;
    const struct ft_ini_entry *e = ini && section && key ? ft_ini_find(ini, section, key) : NULL;
    return e ? e->value_at : (struct ft_source){0};
}

void ft_head_take_check(struct ft_head *h, int node, const struct ft_head_answer *a, struct ft_faults *faults)
{
    struct ft_json *v = NULL;
    struct ft_err err;
    if (!a->ok || ft_json_parse(a->text, a->n, 0, &v, NULL, &err) || ft_json_int(ft_json_get(v, "schema"), 0) != 1) {
        ft_faults_add(faults, FT_SEV_ERROR, h->nodes[node].conf->at, "nodes", NULL, "fttrain check: %s",
                      a->ok ? "its answer has no schema 1: it is another build" : a->text);
        ft_json_destroy(v);
        return;
    }
    struct ft_faults found = {.arena = h->arena};
    ft_ask_take_faults(v, &found);
    for (size_t i = 0; i < found.n; i++) {
        const struct ft_fault *f = &found.v[i];
        ft_faults_add(faults, f->severity, place_of(h, f->section, f->key), f->section, f->key, "%s", f->text);
        if (f->fix) ft_fault_fix(faults, "%s", f->fix);
    }
    if (!found.n_errors && a->status)
        ft_faults_add(faults, FT_SEV_ERROR, h->nodes[node].conf->at, "nodes", NULL, "'fttrain check' ended with status %d",
                      a->status);
    ft_json_destroy(v);
}
