#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "runtime/ckpt/export.h"
#include "runtime/train/cli.h"
#include "runtime/train/trainer.h"

extern char **environ;

static const int64_t join_ns = 120000000000; /* who has not come after two minutes is named */

/* One rank from its command line to its end. */
struct rank {
    struct ft_cli cli;
    struct ft_place place;
    struct ft_job_config job;
    struct ft_faults faults;
    struct ft_job_layout layout;
    struct ft_setup setup;
    bool has_setup;
    struct ft_comm *comm;
    struct ft_device *device;
    struct ft_trainer *trainer;
    int term_fd;
};

/* Faults that every rank of a machine finds alike: the first of them speaks, the others are its victims. */
static int refuse_faults(struct rank *r)
{
    if (r->place.local_rank == 0) ft_cli_print_faults(&r->faults);
    else
        fprintf(stderr, "fttrain: rank %d ends because a peer ended: the first rank of this machine is refused too and says why\n",
                r->place.rank);
    return r->place.local_rank == 0 ? FT_EXIT_REFUSED : FT_EXIT_PEER;
}

static int exit_of(const struct rank *r, enum ft_code code, enum ft_train_end end)
{
    if (code == FT_OK) return end == FT_END_TERMINATED ? FT_EXIT_TERM : FT_EXIT_DONE;
    if (code == FT_COLL || code == FT_RANK_FAILED) return FT_EXIT_PEER;
    if (end == FT_END_WATCH) return FT_EXIT_WATCH;
    return r->trainer && ft_trainer_step(r->trainer) > 0 ? FT_EXIT_FAILED : FT_EXIT_REFUSED;
}

/* The error of this rank, and a word to the others why it ends. Every rank that knows the cause says it: the launcher shows the last
 * words of the rank that ends first, and ends the others. */
static int fail(struct rank *r, const struct ft_err *err, enum ft_train_end end)
{
    const int status = exit_of(r, err->code, end);
    if (err->text[0] && status == FT_EXIT_PEER)
        fprintf(stderr, "fttrain: rank %d ends because a peer ended: %s\n", r->place.rank, err->text);
    else if (err->text[0]) ft_err_print(stderr, "fttrain", err);
    if (r->comm && status != FT_EXIT_PEER) ft_comm_abort(r->comm, err->text[0] ? err->text : "refused");
    return status;
}

/* Lines "NAME=VALUE" that must be equal on all ranks. */
static void fingerprint(const struct rank *r, struct ft_buf *out)
{
    struct ft_buf path = {0}, config = {0};
    unsigned char sum[32];
    char hex[65];
    ft_buf_addf(out, "fttrain=%s\n", FT_VERSION);
    for (int p = 0; p < FT_JOB_N_PARTS; p++) {
        const struct ft_section *s = ft_job_section((enum ft_job_part)p);
        for (size_t i = 0; i < s->n_fields; i++) {
            const char *text = r->job.values[p][i].text;
            if (text) ft_buf_addf(out, "[%s] %s=%s\n", s->name, s->fields[i].name, text);
        }
    }
    ft_buf_addf(&path, "%s/config.json", r->job.model.path);
    if (!ft_read_file(path.data, 1 << 26, &config, NULL)) {
        ft_sha256(config.data, config.n, sum);
        ft_hex(sum, sizeof sum, hex);
        ft_buf_addf(out, "config.json=%s\n", hex);
    }
    ft_buf_fini(&path);
    ft_buf_fini(&config);
}

static enum ft_code meet(struct rank *r, struct ft_err *err)
{
    struct ft_buf text = {0};
    fingerprint(r, &text);
    const struct ft_comm_options o = {.engine = ft_train_collectives[r->job.train.collectives],
                                      .timeout_ns = r->job.train.collective_timeout,
                                      .join_ns = join_ns,
                                      .fingerprint = ft_buf_str(&text)};
    enum ft_code code = ft_comm_open(&r->place, r->layout.mesh, &o, &r->comm, err);
    ft_buf_fini(&text);
    return code;
}

/* SIGTERM is read from a descriptor between updates; until the first update its default action is right. */
static enum ft_code watch_term(struct rank *r, struct ft_err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || (r->term_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return ft_fail(err, FT_IO, "cannot watch SIGTERM: %s", strerror(errno));
    return FT_OK;
}

/* Every rank read its own copy of the data: it must be the same. */
static enum ft_code same_data(struct rank *r, struct ft_err *err)
{
    const struct ft_dataset_facts f = ft_dataset_facts(r->setup.train);
    int64_t least[4] = {f.rows, f.tokens, (int64_t)(f.fingerprint_hi >> 1), (int64_t)(f.fingerprint_lo >> 1)}, most[4];
    memcpy(most, least, sizeof most);
    enum ft_code code = ft_comm_all_reduce(r->comm, FT_GROUP_WORLD, least, 4, FT_I64, FT_MIN, err);
    if (!code) code = ft_comm_all_reduce(r->comm, FT_GROUP_WORLD, most, 4, FT_I64, FT_MAX, err);
    if (code || !memcmp(least, most, sizeof most)) return code;
    return ft_fail(err, FT_DATA, "[data] train is not the same on all ranks: %lld to %lld rows, %lld to %lld tokens",
                   (long long)least[0], (long long)most[0], (long long)least[1], (long long)most[1]);
}

static void say_start(const struct rank *r)
{
    const struct ft_setup *s = &r->setup;
    if (r->place.rank != 0 || r->cli.quiet) return;
    const struct ft_dataset_facts f = ft_dataset_facts(s->train);
    printf("model %s, %lld parameters; %lld rows, %lld tokens, %lld trained\n", s->config.model_type, (long long)s->n_parameters,
           (long long)f.rows, (long long)f.tokens, (long long)f.trained_tokens);
    printf("%lld updates; global batch %lld = micro %lld × accumulation %lld × dp %lld; warm-up %lld; collectives %s\n",
           (long long)s->n_updates, (long long)s->layout.deal.global_batch, (long long)s->layout.deal.micro,
           (long long)s->layout.accumulation, (long long)s->layout.deal.data, (long long)s->schedule.warmup,
           ft_comm_engine(r->comm));
    fflush(stdout);
}

/* Model folder, data, export target: all faults of this rank at once, then all ranks agree. */
static enum ft_code open_all(struct rank *r, struct ft_err *err)
{
    struct ft_setup *s = &r->setup;
    struct ft_err why;
    ft_setup_weights(s, &r->faults);
    ft_setup_data(s, &r->faults);
    ft_setup_warn(s, &r->faults);
    ft_setup_check_memory(s, &s->memory, ft_memory_available() / (r->place.local_world > 0 ? r->place.local_world : 1), &r->faults);
    if (r->place.rank == 0 && r->job.export.what != FT_EXPORT_NONE &&
        ft_export_check(ft_setup_export_dir(s, r->place.run_dir), &why)) {
        ft_job_fault(&r->job, &r->faults, FT_SEV_ERROR, FT_JOB_EXPORT, "dir", "%s", why.text);
        if (why.fix[0]) ft_fault_fix(&r->faults, "%s", why.fix);
    }
    const bool bad = r->faults.n_errors > 0;
    if (bad) ft_fail(err, FT_CONFIG, "%s", ""); /* the faults say it */
    enum ft_code code = ft_agree(r->comm, bad ? FT_CONFIG : FT_OK, err);
    if (bad ? code != FT_RANK_FAILED : r->place.rank == 0 && !r->cli.quiet) ft_cli_print_faults(&r->faults);
    return code;
}

/* The device's workers must not take SIGTERM: they inherit the mask of the moment. */
static enum ft_code open_device(struct rank *r, struct ft_err *err)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    const int local = r->place.local_world > 0 ? r->place.local_world : 1;
    (void)pthread_sigmask(SIG_BLOCK, &set, &old);
    enum ft_code code = ft_device_open(names[r->job.train.device], r->place.local_rank,
                                       ft_device_threads(getenv("OMP_NUM_THREADS"), local), &r->device, err);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code;
}

static enum ft_code start(struct rank *r, struct ft_err *err)
{
    enum ft_code code = meet(r, err);
    if (code) return code;
    code = open_device(r, err);
    code = ft_agree(r->comm, code, err);
    if (!code) code = open_all(r, err);
    if (!code) code = same_data(r, err);
    if (code) return code;
    say_start(r);
    code = watch_term(r, err);
    if (code) return code;
    const struct ft_trainer_options o = {
        .setup = &r->setup, .place = &r->place, .comm = r->comm, .device = r->device, .term_fd = r->term_fd, .quiet = r->cli.quiet};
    return ft_trainer_create(&o, &r->trainer, err);
}

static int train(struct rank *r)
{
    struct ft_err err = {0};
    ft_job_layout(&r->job, r->place.world, &r->layout, &r->faults);
    ft_setup_init(&r->setup, &r->job, &r->layout, r->place.rank);
    r->has_setup = true;
    ft_setup_model(&r->setup, &r->faults);
    if (r->faults.n_errors) return refuse_faults(r);
    enum ft_train_end end = FT_END_DONE;
    enum ft_code code = start(r, &err);
    if (!code) code = ft_trainer_run(r->trainer, &end, &err);
    if (!code) return exit_of(r, code, end);
    return fail(r, &err, end);
}

static void cleanup(struct rank *r)
{
    ft_trainer_destroy(r->trainer);
    ft_comm_close(r->comm);
    ft_device_close(r->device);
    if (r->has_setup) ft_setup_fini(&r->setup);
    ft_close(&r->term_fd);
    ft_job_fini(&r->job);
}

int ft_train_rank(const struct ft_cli *cli, const struct ft_place *place)
{
    struct rank r = {.cli = *cli, .place = *place, .term_fd = -1};
    struct ft_err err;
    ft_job_init(&r.job, &r.faults);
    int status;
    if (ft_cli_job(&r.cli, &r.place, &r.job, &r.faults, &err)) {
        ft_err_print(stderr, "fttrain", &err);
        status = FT_EXIT_REFUSED;
    } else {
        status = train(&r);
    }
    cleanup(&r);
    return status;
}

int ft_train_main(const struct ft_command *self, int argc, char **argv)
{
    struct ft_arena *arena = ft_arena_create();
    struct ft_cli cli;
    struct ft_place place;
    struct ft_err err;
    int status = ft_cli_parse(self, argc, argv, arena, &cli);
    (void)signal(SIGPIPE, SIG_IGN); /* whoever reads our output or progress may go first */
    if (status < 0 && ft_place_from_env(environ, arena, &place, &err)) {
        ft_err_print(stderr, "fttrain", &err);
        status = FT_EXIT_REFUSED;
    }
    if (status < 0) status = ft_train_rank(&cli, &place);
    ft_arena_destroy(arena);
    return status;
}
