/* The engine that lets MPI move the bytes: where a cluster's fast network is known to its MPI only. A channel is a chain of MPI
 * messages of at most slot_bytes: the sender fills slots and posts them when they are full or flushed, the receiver keeps
 * receives for all its slots posted. MPI keeps the order of messages of one pair and tag, so the chain is the byte channel.
 *
 * libft_mpi.so (mpi_plugin.h) is opened here. MPI has no descriptor to sleep on: wait() looks again at growing distances up to
 * LOOK_MAX_NS while it sleeps on the store, which tells of ended ranks. A rank that ends after a failure leaves MPI_Finalize
 * out, which would wait for the dead. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/clock.h"
#include "runtime/coll/engine.h"
#include "runtime/coll/mpi_plugin.h"
#include "runtime/coll/net.h"
#include "runtime/coll/store.h"
#include "topology/place.h"

/* SLOTS messages each way of a pair are under way at most; all slots of a rank together stay below SLOTS_TOTAL. */
enum { SLOTS = 4, SLOT_MIN = 16 << 10, SLOT_MAX = 64 << 10, SLOTS_TOTAL = 256 << 20, TAG_BYTES = 1, TAG_TELL = 2 };
#define LOOK_MIN_NS (10 * FT_MS / 1000)
#define LOOK_MAX_NS (FT_MS / 2)
/* What a rank sent before its orderly end is on its way for at most this long; so is the store's word about one that failed. */
#define CAUSE_NS FT_SEC

struct out {
    unsigned char *bytes; /* SLOTS * slot_bytes; NULL: nothing was ever sent there */
    struct ft_mpi_request request[SLOTS];
    bool busy[SLOTS]; /* posted, not yet seen to be through */
    int at;           /* slot that is filled */
    size_t fill;      /* bytes in it */
    bool listed;      /* in filling */
};

struct in {
    unsigned char *bytes; /* SLOTS * slot_bytes, all posted; NULL: nobody ever looked */
    struct ft_mpi_request request[SLOTS];
    int have[SLOTS]; /* bytes of a message that came; -1: under way */
    int at;          /* slot that is read */
    size_t used;     /* bytes of it that were consumed */
};

struct mpi {
    const struct ft_mpi_ops *ops;
    void *lib; /* NULL: MPI was not started */
    struct ft_store *store;
    int rank, world, spins, n_filling;
    size_t slot_bytes;
    int *filling; /* world: peers that may have a slot that is not posted */
    struct out *out;
    struct in *in;
    bool clean;      /* all ended orderly: MPI can be ended */
    int code;        /* first error of the library; 0: none */
    int64_t gone_at; /* when wait() saw that a rank it waits for is gone; 0: not */
};

/* --- before the meeting ------------------------------------------------------------------------------------------------- */

static const char *starter(enum ft_pmi pmi)
{
    switch (pmi) {
    case FT_PMI_OPENMPI: return "Open MPI's mpirun";
    case FT_PMI_PMIX: return "srun --mpi=pmix";
    case FT_PMI_1: return "a PMI-1 launcher (Hydra, srun --mpi=pmi2)";
    case FT_PMI_NONE: break;
    }
    return "nothing that MPI knows";
}

static enum ft_code open_plugin(const struct ft_mpi_ops **ops, struct ft_err *err)
{
    const struct ft_plugin_head want = {.abi = FT_MPI_ABI, .bytes = sizeof **ops, .version = FT_VERSION};
    const void *table;
    const enum ft_code rc = ft_plugin_open(FT_MPI_PLUGIN, FT_MPI_FUNCTION, &want, FT_PLUGIN_GLOBAL, &table, err);
    if (rc) return rc;
    *ops = table;
    return FT_OK;
}

static enum ft_code suits(const struct ft_place *place, struct ft_err *err)
{
    const struct ft_mpi_ops *ops;
    char library[128];
    if (place->pmi == FT_PMI_NONE) {
        ft_fail(err, FT_CONFIG,
                "collectives = mpi, but rank %d of %d was not started by mpirun or srun --mpi: MPI would take each "
                "rank for a world of its own, they cannot meet",
                place->rank, place->world);
        return ft_fix(err, "start fttrain with mpirun -n %d, or set collectives = auto", place->world);
    }
    if (open_plugin(&ops, err)) {
        ft_wrap(err, "opening the plugin for collectives = mpi on the node of rank %d", place->rank);
        if (err && !err->fix[0]) ft_fix(err, "install Open MPI's library (libopenmpi3) on this node, or set collectives = tcp");
        return FT_UNSUPPORTED;
    }
    if (ops->pmis() & (unsigned)place->pmi) return FT_OK;
    ops->library(library, sizeof library);
    ft_fail(err, FT_CONFIG,
            "collectives = mpi: this build's MPI is %s, but %s started rank %d: its ranks would not find each other", library,
            starter(place->pmi), place->rank);
    return ft_fix(err, "start the ranks with the mpirun of that MPI, or set collectives = tcp");
}

/* Looking again costs a core: worth it only where each rank of the node has one. */
static int spin_count(int n_local)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < n_local) return 0;
    return 500;
}

static enum ft_code mpi_failed(const struct mpi *m, const char *what, int code, struct ft_err *err)
{
    char text[256];
    m->ops->error_text(code, text, sizeof text);
    return ft_fail(err, FT_NET, "%s: %s", what, text);
}

static enum ft_code prepare(const struct ft_coll_env *env, void **self, struct ft_err *err)
{
    const struct ft_place *place = env->place;
    char library[128];
    struct mpi *m = ft_xcalloc(1, sizeof *m);
    *self = m;
    int rank = -1, world = 0;
    if (open_plugin(&m->ops, err)) return err ? err->code : FT_UNSUPPORTED;
    const int code = m->ops->init(&m->lib, &rank, &world);
    if (code) return mpi_failed(m, "MPI_Init", code, err);
    m->rank = place->rank;
    m->world = place->world;
    if (rank == place->rank && world == place->world) return FT_OK;
    m->ops->library(library, sizeof library);
    ft_fail(err, FT_CONFIG, "this is rank %d of %d, but %s says rank %d of %d", place->rank, place->world, library, rank, world);
    return ft_fix(err, "start the ranks with the mpirun of %s, or set collectives = tcp", library);
}

/* Until done or the deadline. */
static enum ft_code finish_request(struct mpi *m, struct ft_mpi_request *r, int64_t deadline, struct ft_err *err)
{
    for (int64_t pause = LOOK_MIN_NS;;) {
        bool done = false;
        const int code = m->ops->test(m->lib, r, &done, NULL);
        if (code) return mpi_failed(m, "MPI_Test", code, err);
        if (done) return FT_OK;
        if (ft_net_now() >= deadline) return ft_fail(err, FT_TIMEOUT, "rank 0's address did not come through MPI in time");
        const struct timespec t = {.tv_nsec = pause};
        (void)ppoll(NULL, 0, &t, NULL);
        if (pause < LOOK_MAX_NS) pause *= 2;
    }
}

static enum ft_code tell(void *self, void *p, size_t n, int64_t deadline, struct ft_err *err)
{
    struct mpi *m = self;
    struct ft_mpi_request r;
    const int first = m->rank == 0 ? 1 : 0, last = m->rank == 0 ? m->world : 1;
    for (int peer = first; peer < last; peer++) {
        const int code = m->rank == 0 ? m->ops->send(m->lib, peer, TAG_TELL, p, (int)n, &r)
                                      : m->ops->recv(m->lib, peer, TAG_TELL, p, (int)n, &r);
        if (code) return mpi_failed(m, "telling rank 0's address", code, err);
        const enum ft_code rc = finish_request(m, &r, deadline, err);
        if (rc) return rc;
    }
    return FT_OK;
}

static enum ft_code open_mpi(const struct ft_coll_env *env, void **self, struct ft_err *err)
{
    (void)err;
    struct mpi *m = *self;
    const size_t world = (size_t)m->world;
    m->store = env->store;
    m->slot_bytes = SLOT_MAX;
    while (m->slot_bytes > SLOT_MIN && world * 2 * SLOTS * m->slot_bytes > SLOTS_TOTAL) m->slot_bytes /= 2;
    m->spins = spin_count(env->place->local_world);
    m->filling = ft_xcalloc(world, sizeof *m->filling);
    m->out = ft_xcalloc(world, sizeof *m->out);
    m->in = ft_xcalloc(world, sizeof *m->in);
    return FT_OK;
}

/* --- channels ----------------------------------------------------------------------------------------------------------- */

/* Not from the heap: when MPI is not finalized the library may use slots until the process ends, so they stay. */
static unsigned char *make_slots(const struct mpi *m)
{
    const size_t bytes = SLOTS * m->slot_bytes;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) ft_die_nomem(bytes);
    return p;
}

/* After an error nothing moves any more; wait() reports it. */
static bool fine(struct mpi *m, int code)
{
    if (code && !m->code) m->code = code;
    return !m->code;
}

static bool slot_free(struct mpi *m, struct out *o)
{
    bool done = false;
    if (!o->busy[o->at]) return true;
    if (!fine(m, m->ops->test(m->lib, &o->request[o->at], &done, NULL)) || !done) return false;
    o->busy[o->at] = false;
    return true;
}

static void post(struct mpi *m, int peer)
{
    struct out *o = &m->out[peer];
    const unsigned char *p = o->bytes + (size_t)o->at * m->slot_bytes;
    if (!fine(m, m->ops->send(m->lib, peer, TAG_BYTES, p, (int)o->fill, &o->request[o->at]))) return;
    o->busy[o->at] = true;
    o->at = (o->at + 1) % SLOTS;
    o->fill = 0;
}

static size_t push(void *self, int peer, const void *p, size_t n)
{
    struct mpi *m = self;
    struct out *o = &m->out[peer];
    size_t sent = 0;
    if (!o->bytes) o->bytes = make_slots(m);
    if (!o->listed) m->filling[m->n_filling++] = peer;
    o->listed = true;
    while (sent < n && !m->code && (o->fill || slot_free(m, o))) {
        size_t k = m->slot_bytes - o->fill;
        if (k > n - sent) k = n - sent;
        memcpy(o->bytes + (size_t)o->at * m->slot_bytes + o->fill, (const char *)p + sent, k);
        o->fill += k;
        sent += k;
        if (o->fill == m->slot_bytes) post(m, peer);
    }
    return sent;
}

static void flush(void *self)
{
    struct mpi *m = self;
    for (int i = 0; i < m->n_filling; i++) {
        struct out *o = &m->out[m->filling[i]];
        if (o->fill) post(m, m->filling[i]);
        o->listed = false;
    }
    m->n_filling = 0;
}

static void post_receive(struct mpi *m, int peer, int slot)
{
    struct in *in = &m->in[peer];
    unsigned char *p = in->bytes + (size_t)slot * m->slot_bytes;
    in->have[slot] = -1;
    (void)fine(m, m->ops->recv(m->lib, peer, TAG_BYTES, p, (int)m->slot_bytes, &in->request[slot]));
}

static size_t peek(void *self, int peer, const void **p)
{
    struct mpi *m = self;
    struct in *in = &m->in[peer];
    if (!in->bytes) {
        in->bytes = make_slots(m);
        for (int i = 0; i < SLOTS; i++) post_receive(m, peer, i);
    }
    *p = in->bytes + (size_t)in->at * m->slot_bytes + in->used;
    if (in->have[in->at] < 0) {
        bool done = false;
        int bytes = 0;
        if (m->code || !fine(m, m->ops->test(m->lib, &in->request[in->at], &done, &bytes)) || !done) return 0;
        in->have[in->at] = bytes;
    }
    return (size_t)in->have[in->at] - in->used;
}

static void consume(void *self, int peer, size_t n)
{
    struct mpi *m = self;
    struct in *in = &m->in[peer];
    if (!n) return;
    in->used += n;
    if (in->used < (size_t)in->have[in->at]) return;
    post_receive(m, peer, in->at);
    in->at = (in->at + 1) % SLOTS;
    in->used = 0;
}

static int spins(const void *self) { return ((const struct mpi *)self)->spins; }

/* --- waiting ------------------------------------------------------------------------------------------------------------ */

static bool ready(struct mpi *m, const struct ft_coll_want *w)
{
    const void *p;
    return (w->in && peek(m, w->peer, &p) > w->have) || (w->out && slot_free(m, &m->out[w->peer]));
}

/* A rank that failed ends the wait at once; of one that ended orderly something may still be on its way. */
static enum ft_code check_ends(struct mpi *m, const struct ft_coll_want *wants, size_t n, struct ft_err *err)
{
    ft_store_pump(m->store);
    if (ft_store_check(m->store, err)) return FT_COLL;
    int gone = -1;
    for (size_t i = 0; i < n && gone < 0; i++)
        if (ft_store_peer(m->store, wants[i].peer)->gone != FT_GONE_NO) gone = wants[i].peer;
    if (gone < 0 && !m->code) m->gone_at = 0;
    else if (!m->gone_at) m->gone_at = ft_net_now();
    else if (ft_net_now() - m->gone_at > CAUSE_NS)
        return gone >= 0 ? ft_store_ended(m->store, gone, err) : mpi_failed(m, "MPI", m->code, err);
    return FT_OK;
}

static enum ft_code wait_mpi(void *self, const struct ft_coll_want *wants, size_t n, int64_t deadline, struct ft_err *err)
{
    struct mpi *m = self;
    m->gone_at = 0;
    for (int64_t pause = LOOK_MIN_NS;;) {
        for (size_t i = 0; i < n; i++)
            if (ready(m, &wants[i])) return FT_OK;
        const enum ft_code rc = check_ends(m, wants, n, err);
        if (rc) return rc;
        const int64_t left = deadline - ft_net_now(), ns = pause < left ? pause : left;
        if (left <= 0) return ft_fail(err, FT_TIMEOUT, "no progress");
        struct pollfd p = {.fd = ft_store_fd(m->store), .events = POLLIN};
        const struct timespec t = {.tv_nsec = ns};
        if (ppoll(&p, 1, &t, NULL) < 0 && errno != EINTR) return ft_fail(err, FT_NET, "poll: %s", strerror(errno));
        if (pause < LOOK_MAX_NS) pause *= 2;
    }
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

/* Looks at what is still under way, which is what makes MPI go on with it. How many messages that are. */
static int progress(struct mpi *m)
{
    int n = 0;
    for (int peer = 0; peer < m->world; peer++)
        for (int i = 0; i < SLOTS; i++) {
            struct out *o = &m->out[peer];
            bool done = false;
            if (o->busy[i] && fine(m, m->ops->test(m->lib, &o->request[i], &done, NULL)) && done) o->busy[i] = false;
            n += o->busy[i];
        }
    return n;
}

/* Counter in the store of the ranks that end orderly. A rank that failed leaves too, but does not come to MPI_Finalize. */
static const char ending[] = "mpi/ending";

/* MPI_Finalize waits for all ranks, without a deadline: it is called when all have said that they come. */
static void end_mpi(void *self, int64_t deadline)
{
    struct mpi *m = self;
    int64_t come = 0;
    if (ft_store_add(m->store, ending, 1, &come, NULL)) return;
    ft_store_bye(m->store);
    for (int64_t pause = LOOK_MIN_NS;;) {
        int left = 1;
        const int under_way = progress(m);
        ft_store_pump(m->store);
        for (int r = 0; r < m->world; r++) left += r != m->rank && ft_store_peer(m->store, r)->gone == FT_GONE_LEFT;
        if (left == m->world && !under_way) break;
        if (m->code || ft_store_check(m->store, NULL) || ft_net_now() >= deadline) return;
        struct pollfd p = {.fd = ft_store_fd(m->store), .events = POLLIN};
        const struct timespec t = {.tv_nsec = pause};
        (void)ppoll(&p, 1, &t, NULL);
        if (pause < LOOK_MAX_NS) pause *= 2;
    }
    m->clean = !ft_store_add(m->store, ending, 0, &come, NULL) && come == m->world && !m->code;
}

static void finish(struct mpi *m)
{
    const size_t bytes = SLOTS * m->slot_bytes;
    for (int peer = 0; peer < m->world; peer++)
        for (int i = 0; i < SLOTS && m->in[peer].bytes; i++)
            if (m->in[peer].have[i] < 0) m->ops->cancel(m->lib, &m->in[peer].request[i]);
    m->ops->finish(m->lib);
    for (int peer = 0; peer < m->world; peer++) {
        if (m->out[peer].bytes) (void)munmap(m->out[peer].bytes, bytes);
        if (m->in[peer].bytes) (void)munmap(m->in[peer].bytes, bytes);
    }
}

static void close_mpi(void *self)
{
    struct mpi *m = self;
    if (!m) return;
    if (m->clean) finish(m);
    else if (m->lib) m->ops->drop(m->lib);
    free(m->filling);
    free(m->out);
    free(m->in);
    free(m);
}

extern const struct ft_coll_ops ft_coll_mpi;
const struct ft_coll_ops ft_coll_mpi = {.name = "mpi",
                                        .suits = suits,
                                        .prepare = prepare,
                                        .tell = tell,
                                        .open = open_mpi,
                                        .push = push,
                                        .flush = flush,
                                        .peek = peek,
                                        .consume = consume,
                                        .spins = spins,
                                        .wait = wait_mpi,
                                        .end = end_mpi,
                                        .close = close_mpi};
