/* Who sits where: spares, nodes to blame, fewer nodes, nodes that come back. The head is a value here: nothing is sent, and the events
 * that the job machine would get are not taken (finished); seats, plan and the line of events.jsonl are what is looked at. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/ini.h"
#include "launcher/head.h"

struct bed {
    struct ft_arena *arena;
    struct ft_head h;
    struct ft_head_request q;
    struct ft_plan_request planning;
    int n_kept; /* plans that were kept in the run's folder */
    char events[32];
};

static enum ft_code keep_plan(void *self, const struct ft_plan *plan, struct ft_err *err)
{
    struct bed *b = self;
    (void)err;
    b->n_kept += plan != NULL;
    return FT_OK;
}

static void open_head(struct bed *b)
{
    static const struct ft_transport_ops ops = {.name = "none", .same_machine = true};
    struct ft_head *h = &b->h;
    const struct ft_plan *p = b->q.plan;
    *h = (struct ft_head){.q = &b->q, .plan = p, .config = p->config, .arena = b->arena, .ops = &ops, .finished = true};
    ft_console_open(&h->console, &h->loop, NULL, NULL);
    h->console.off = true;
    h->events.fd = mkstemp(b->events);
    assert_true(h->events.fd >= 0);
    h->n_nodes = (int)(p->n_nodes + p->n_spares);
    h->nodes = ft_xcalloc((size_t)h->n_nodes, sizeof *h->nodes);
    for (int n = 0; n < h->n_nodes; n++) {
        const struct ft_plan_node *conf = n < (int)p->n_nodes ? &p->nodes[n] : &p->spares[n - (int)p->n_nodes];
        h->nodes[n] = (struct ft_head_node){.index = n, .name = conf->name, .conf = conf, .seat = -1, .open = true};
    }
    ft_head_seat_first(h);
    const struct ft_job_config c = {
        .n_nodes = h->n_nodes, .n_seats = (int)p->n_nodes, .n_ranks = p->world, .rank_node = h->rank_node};
    ft_job_init(&h->job, &c);
    h->job.best_step = 40;
    for (int n = 0; n < h->n_nodes; n++) h->job.nodes[n].state = FT_NODE_UP;
    h->ranks = ft_xcalloc((size_t)p->world, sizeof *h->ranks);
    ft_mux_open(&h->mux, p->world);
    h->mux.console = &h->console;
}

static struct bed *open_bed(const char *text)
{
    static char word[] = "true", *program[] = {word, NULL};
    struct bed *b = ft_xcalloc(1, sizeof *b);
    b->arena = ft_arena_create();
    struct ft_faults faults = {.arena = b->arena};
    struct ft_ini *ini = ft_ini_create(b->arena);
    ft_ini_read_text(ini, "job.ini", text, strlen(text), &faults);
    const struct ft_launcher_config *c = ft_config_read(ini, NULL, b->arena, &faults);
    assert_non_null(c);
    b->planning = (struct ft_plan_request){.config = c, .program = program, .n_program = 1, .job_name = "seats"};
    memcpy(b->events, "/tmp/ftseats-XXXXXX", sizeof "/tmp/ftseats-XXXXXX");
    b->q = (struct ft_head_request){.plan = ft_plan_make(&b->planning, b->arena, &faults),
                                    .argv = program,
                                    .planning = &b->planning,
                                    .keep_plan = keep_plan,
                                    .self = b};
    assert_non_null(b->q.plan);
    open_head(b);
    return b;
}

static void close_bed(struct bed *b)
{
    struct ft_head *h = &b->h;
    ft_head_seating_end(h);
    ft_events_close(&h->events);
    unlink(b->events);
    ft_mux_close(&h->mux);
    ft_console_close(&h->console);
    ft_loop_fini(&h->loop);
    ft_job_fini(&h->job);
    free(h->why_no_seats);
    for (int n = 0; n < h->n_nodes; n++) free(h->nodes[n].fail_reason);
    free(h->nodes);
    free(h->ranks);
    free(h->actions.v);
    ft_arena_destroy(b->arena);
    free(b);
}

static void lose(struct bed *b, int node)
{
    b->h.nodes[node].open = false;
    b->h.job.nodes[node].state = FT_NODE_DARK;
}

static void come_back(struct bed *b, int node)
{
    b->h.nodes[node].open = true;
    b->h.job.nodes[node].state = FT_NODE_UP;
}

/* "a b c": who sits on the seats in force. Node, seat and rank agree about it. */
static const char *seats(const struct bed *b)
{
    const struct ft_head *h = &b->h;
    struct ft_buf s = {0};
    int seated = 0;
    for (size_t i = 0; i < h->plan->n_nodes; i++) {
        const struct ft_head_node *n = &h->nodes[h->seats[i]];
        ft_buf_addf(&s, "%s%s", i ? " " : "", n->name);
        assert_int_equal(n->seat, i);
        assert_string_equal(h->plan->nodes[i].name, n->name);
        assert_ptr_equal(ft_head_seat(h, n->index), &h->plan->nodes[i]);
        for (int k = 0; k < h->plan->nodes[i].n_ranks; k++) {
            const int rank = h->plan->nodes[i].first_rank + k;
            assert_int_equal(h->rank_node[rank], n->index);
            assert_string_equal(h->mux.ranks[rank].node, h->mux.ranks[rank].node[0] ? n->name : "");
        }
    }
    for (int n = 0; n < h->n_nodes; n++) seated += h->nodes[n].seat >= 0;
    assert_int_equal(seated, h->plan->n_nodes);
    assert_int_equal(h->mux.n_ranks, h->plan->world);
    const char *text = ft_arena_strdup(b->arena, ft_buf_str(&s));
    ft_buf_fini(&s);
    return text;
}

/* The reason of the last replan; "": there was none. */
static const char *reason(const struct bed *b)
{
    struct ft_buf text = {0};
    struct ft_json *v = NULL;
    struct ft_err err;
    assert_int_equal(ft_read_file(b->events, 1 << 20, &text, &err), FT_OK);
    const char *last = ft_buf_str(&text), *out = "";
    for (const char *nl; (nl = strchr(last, '\n')) && nl[1];) last = nl + 1;
    if (*last) {
        assert_int_equal(ft_json_parse(last, strlen(last), 0, &v, NULL, &err), FT_OK);
        assert_string_equal(ft_json_str(ft_json_get(v, "ev")), "replan");
        assert_int_equal(ft_json_int(ft_json_get(v, "step"), -1), 40);
        assert_int_equal(ft_json_count(ft_json_get(v, "nodes")), b->h.plan->n_nodes);
        out = ft_arena_strdup(b->arena, ft_json_str(ft_json_get(v, "reason")));
    }
    ft_json_destroy(v);
    ft_buf_fini(&text);
    return out;
}

#define SPARES "[cluster]\ntransport = ssh\n[nodes]\na,b,c = slots=2\ntiny = slots=1 tags=spare\ns1,s2 = slots=2 tags=spare\n"

static void a_spare_takes_the_place(void **state)
{
    (void)state;
    struct bed *b = open_bed(SPARES);
    assert_string_equal(seats(b), "a b c");
    lose(b, 1);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a s1 c"); /* not tiny: the seat has two ranks */
    assert_string_equal(reason(b), "s1 takes the place of b (node 1)");
    assert_int_equal(b->h.plan->nodes[1].first_rank, 2);
    assert_int_equal(b->h.plan->world, 6);
    assert_int_equal(b->n_kept, 1);
    assert_int_equal(b->h.plan->n_spares, 3); /* tiny, s2 and b wait */
    come_back(b, 1);
    lose(b, 0);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "s2 s1 c"); /* who sits stays; spares come before b */
    lose(b, 2);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "s2 s1 b");
    assert_string_equal(reason(b), "b takes the place of c (node 2)");
    assert_null(b->h.why_no_seats);
    close_bed(b);
}

static void who_is_to_blame_gives_way(void **state)
{
    (void)state;
    struct bed *b = open_bed(SPARES);
    b->h.job.nodes[0].faulty = true;
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "s1 b c");
    b->h.job.nodes[4].faulty = b->h.job.nodes[5].faulty = true; /* s1, s2: now nobody is without blame */
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a b c"); /* then the one that was planned there */
    b->h.job.nodes[1].faulty = b->h.job.nodes[2].faulty = true;
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a b c");
    assert_string_equal(reason(b), "nobody waits for the seats of nodes that failed");
    close_bed(b);
}

#define FEWER "[cluster]\ntransport = ssh\n[nodes]\na,b,c = slots=2\n[parallel]\ndata = auto\n[launch]\nmin_nodes = 2\n"

static void fewer_nodes_go_on_and_grow_again(void **state)
{
    (void)state;
    struct bed *b = open_bed(FEWER);
    lose(b, 0);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "b c");
    assert_int_equal(b->h.plan->world, 4);
    assert_string_equal(reason(b), "2 of 3 nodes are left: tensor = 1, pipeline = 1, data = 4");
    come_back(b, 0);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a b c");
    assert_int_equal(b->h.plan->world, 6);
    assert_non_null(strstr(reason(b), "all 3 nodes are there again"));
    lose(b, 0);
    lose(b, 2);
    b->h.job.began = true;
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a b c"); /* nothing was changed */
    assert_int_equal(b->n_kept, 2);
    assert_non_null(strstr(b->h.why_no_seats, "1 nodes are there, min_nodes = 2"));
    close_bed(b);
}

static void a_fixed_layout_does_not_shrink(void **state)
{
    (void)state;
    struct bed *b = open_bed(
        "[cluster]\ntransport = ssh\n[nodes]\na,b,c = slots=2\n[parallel]\ndata = 6\n[launch]\nmin_nodes = 1\n");
    lose(b, 2);
    b->h.job.began = true;
    ft_head_seat_all(&b->h);
    assert_non_null(strstr(b->h.why_no_seats, "only data = auto without -n can shrink"));
    assert_int_equal(b->n_kept, 0);
    close_bed(b);
    b = open_bed("[cluster]\ntransport = ssh\n[nodes]\na,b = slots=2\n"); /* no min_nodes: before the start, who was not reached */
    lose(b, 1);
    b->h.nodes[1].fail_phase = "tcp";
    b->h.nodes[1].fail_reason = ft_xstrdup("refused");
    ft_head_seat_all(&b->h);
    assert_non_null(b->h.why_no_seats);
    assert_string_equal(seats(b), "a b");
    b->h.job.began = true;
    ft_head_seat_all(&b->h);
    assert_non_null(strstr(b->h.why_no_seats, "1 of 2 nodes not reached"));
    assert_non_null(strstr(b->h.why_no_seats, "refused"));
    close_bed(b);
}

static void tensor_groups_stay_whole(void **state)
{
    (void)state;
    struct bed *b = open_bed("[cluster]\ntransport = ssh\n[nodes]\na,b,c = slots=4\n[parallel]\ntensor = 2\ndata = auto\n"
                             "[launch]\nmin_nodes = 1\n");
    assert_int_equal(b->h.plan->world, 12);
    lose(b, 1);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "a c");
    assert_string_equal(reason(b), "2 of 3 nodes are left: tensor = 2, pipeline = 1, data = 4");
    lose(b, 0);
    ft_head_seat_all(&b->h);
    assert_string_equal(seats(b), "c");
    assert_int_equal(b->h.plan->world, 4);
    close_bed(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spare_takes_the_place),          cmocka_unit_test(who_is_to_blame_gives_way),
        cmocka_unit_test(fewer_nodes_go_on_and_grow_again), cmocka_unit_test(a_fixed_layout_does_not_shrink),
        cmocka_unit_test(tensor_groups_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
