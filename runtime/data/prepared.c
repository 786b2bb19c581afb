#include "runtime/data/prepared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runtime/data/files.h"

enum { BLOCK = 1 << 20, WAIT_MS = 100 };
#define WAIT_LIMIT (6 * 3600 * FT_SEC)

/* ---- key ---- */

static enum ft_code add_file(struct ft_hash128 *h, const char *path, bool must, struct ft_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && !must && errno == ENOENT) {
        *h = ft_hash_chain(*h, "-", 1);
        return FT_OK;
    }
    if (fd < 0) return ft_fail(err, FT_IO, "cannot open '%s': %s", path, strerror(errno));
    char *block = ft_xcalloc(1, BLOCK);
    enum ft_code rc = FT_OK;
    for (ssize_t n; rc == FT_OK; *h = ft_hash_chain(*h, block, (size_t)n)) {
        size_t got = 0;
        do {
            n = read(fd, block + got, BLOCK - got);
            if (n > 0) got += (size_t)n;
        } while ((n > 0 && got < BLOCK) || (n < 0 && errno == EINTR));
        if (n < 0) rc = ft_fail(err, FT_IO, "cannot read '%s': %s", path, strerror(errno));
        n = (ssize_t)got;
        if (!got) break;
    }
    free(block);
    ft_close(&fd);
    return rc;
}

static enum ft_code add_files(struct ft_hash128 *h, const struct ft_list *list, const char *name, struct ft_err *err)
{
    struct ft_files f = {0};
    enum ft_code rc = list->n ? ft_files_find(list, name, &f, err) : FT_OK;
    for (size_t i = 0; i < f.n && rc == FT_OK; i++) {
        const char *slash = strrchr(f.v[i], '/'), *base = slash ? slash + 1 : f.v[i];
        *h = ft_hash_chain(*h, base, strlen(base)); /* it stands in reports */
        rc = add_file(h, f.v[i], true, err);
    }
    ft_files_fini(&f);
    return rc;
}

static void add_text(struct ft_hash128 *h, const char *s) { *h = ft_hash_chain(*h, s ? s : "", s ? strlen(s) : 0); }

static void add_list(struct ft_hash128 *h, const struct ft_list *l)
{
    for (size_t i = 0; i < l->n; i++) add_text(h, l->v[i]);
    *h = ft_hash_chain(*h, &l->n, sizeof l->n);
}

static enum ft_code add_model(struct ft_hash128 *h, const struct ft_dataset_options *o, struct ft_err *err)
{
    static const char *const files[] = {
        "tokenizer.json",         "tokenizer_config.json", "special_tokens_map.json", "config.json",
        "generation_config.json", "chat_template.jinja",   "chat_template.json",      "additional_chat_templates/tool_use.jinja"};
    enum ft_code rc = FT_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && rc == FT_OK; i++) {
        struct ft_buf path = {0};
        ft_buf_addf(&path, "%s/%s", o->model_dir ? o->model_dir : ".", files[i]);
        rc = add_file(h, path.data, false, err);
        ft_buf_fini(&path);
    }
    const char *want = o->fields->template_;
    if (rc == FT_OK && want && !ft_str_eq(want, "auto") && !ft_str_eq(want, "none")) rc = add_file(h, want, false, err);
    return rc;
}

enum ft_code ft_prepared_key(const struct ft_dataset_options *o, enum ft_split split, char key[33], struct ft_err *err)
{
    const struct ft_data_fields *f = o->fields;
    const int64_t numbers[] = {FT_PREPARED_VERSION, split,      f->format,     f->train_on,
                               f->boundary,         f->special, f->overlong,   f->dedupe,
                               f->overlap,          o->seq_len, o->vocab_rows, f->packing == FT_PACKING_SPLIT,
                               ft_data_skip(f)};
    const char *texts[] = {f->template_, f->template_date, f->terminator};
    struct ft_hash128 h = {0, 0};
    h = ft_hash_chain(h, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) add_text(&h, texts[i]);
    add_list(&h, &f->columns);
    add_list(&h, &f->template_vars);
    add_list(&h, &f->valid);
    enum ft_code rc = f->format == FT_FORMAT_TOKENS ? FT_OK : add_model(&h, o, err);
    if (rc == FT_OK) rc = add_files(&h, &f->train, "train", err); /* of valid and general too: the overlap */
    const bool share = ft_data_valid_share(f) > 0;
    if (rc == FT_OK && split == FT_SPLIT_VALID && !share) rc = add_files(&h, &f->valid, "valid", err);
    if (rc == FT_OK && split == FT_SPLIT_GENERAL) rc = add_files(&h, &f->general, "general", err);
    const uint64_t be[2] = {__builtin_bswap64(h.hi), __builtin_bswap64(h.lo)};
    if (rc == FT_OK) ft_hex(be, sizeof be, key);
    return rc;
}

/* ---- header ---- */

#define FACTS(X)                                                                                                                   \
    X(records)                                                                                                                     \
    X(kept)                                                                                                                        \
    X(faulty)                                                                                                                      \
    X(duplicates)                                                                                                                  \
    X(overlong) X(truncated) X(tokens_lost) X(untrained) X(blank) X(samples) X(rows) X(tokens) X(trained_tokens) X(longest)

static void hash_text(uint64_t hi, uint64_t lo, char out[33]) { snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, hi, lo); }

static enum ft_code write_header(const struct ft_loaded *l, const char *dir, const char *key, int width, struct ft_err *err)
{
    struct ft_buf text = {0};
    struct ft_jw w = ft_jw_begin(&text);
    char hash[33];
    ft_jw_object(&w);
    ft_jw_kint(&w, "version", FT_PREPARED_VERSION);
    ft_jw_kstr(&w, "key", key);
    ft_jw_kint(&w, "width", width);
#define X(name) ft_jw_kint(&w, #name, l->facts.name);
    FACTS(X)
#undef X
    hash_text(l->facts.fingerprint_hi, l->facts.fingerprint_lo, hash);
    ft_jw_kstr(&w, "fingerprint", hash);
    ft_jw_kint(&w, "terminator_id", l->facts.terminator_id);
    ft_jw_kstr(&w, "terminator", l->facts.terminator);
    ft_jw_kstr(&w, "template", l->template_origin);
    ft_jw_kstr(&w, "template_sha256", l->template_sha);
    ft_jw_key(&w, "files");
    ft_jw_array(&w);
    for (size_t i = 0; i < l->n_files; i++) ft_jw_str(&w, l->paths[i]);
    ft_jw_end(&w);
    ft_jw_key(&w, "names");
    ft_jw_array(&w);
    for (size_t i = 0; i < l->n_files; i++) ft_jw_str(&w, l->names[i]);
    ft_jw_end(&w);
    ft_jw_key(&w, "notes");
    ft_jw_array(&w);
    for (size_t i = 0; i < l->n_notes; i++) ft_jw_str(&w, l->notes[i]);
    ft_jw_end(&w);
    ft_jw_end(&w);
    ft_buf_addc(&text, '\n');
    struct ft_buf path = {0};
    ft_buf_addf(&path, "%s/header.json", dir);
    const enum ft_code rc = ft_write_file(path.data, text.data, text.n, 0644, err);
    ft_buf_fini(&path);
    ft_buf_fini(&text);
    return rc;
}

static const char **texts_of(struct ft_arena *a, const struct ft_json *v, size_t *n)
{
    *n = ft_json_count(v);
    const char **out = ft_arena_array(a, *n + 1, sizeof *out);
    for (size_t i = 0; i < *n; i++) out[i] = ft_arena_strdup(a, ft_json_str(ft_json_at(v, i)) ? ft_json_str(ft_json_at(v, i)) : "");
    return out;
}

static void read_header(const struct ft_json *v, struct ft_loaded *l)
{
    const char *fingerprint = ft_json_str(ft_json_get(v, "fingerprint")), *terminator = ft_json_str(ft_json_get(v, "terminator"));
    size_t n;
#define X(name) l->facts.name = ft_json_int(ft_json_get(v, #name), 0);
    FACTS(X)
#undef X
    if (fingerprint && strlen(fingerprint) == 32) {
        char half[17] = "";
        memcpy(half, fingerprint, 16);
        l->facts.fingerprint_hi = strtoull(half, NULL, 16), l->facts.fingerprint_lo = strtoull(fingerprint + 16, NULL, 16);
    }
    l->facts.terminator_id = (int)ft_json_int(ft_json_get(v, "terminator_id"), -1);
    snprintf(l->facts.terminator, sizeof l->facts.terminator, "%s", terminator ? terminator : "");
    l->paths = texts_of(l->arena, ft_json_get(v, "files"), &l->n_files);
    l->names = texts_of(l->arena, ft_json_get(v, "names"), &n);
    const char **notes = texts_of(l->arena, ft_json_get(v, "notes"), &l->n_notes);
    l->notes = ft_xcalloc(l->n_notes + 1, sizeof *l->notes);
    memcpy(l->notes, notes, l->n_notes * sizeof *l->notes);
    l->samples.n = (size_t)l->facts.samples, l->samples.n_tokens = (size_t)l->facts.tokens;
    l->samples.trained = l->facts.trained_tokens, l->samples.longest = l->facts.longest;
}

/* *found false: no prepared data with this key. Damaged data is an error (it names the folder to remove). */
static enum ft_code open_prepared(const char *dir, const char *key, struct ft_loaded *out, bool *found, struct ft_err *err)
{
    struct ft_buf path = {0};
    struct ft_json *v = NULL;
    enum ft_code rc = FT_OK;
    ft_buf_addf(&path, "%s/header.json", dir);
    *found = ft_is_file(path.data);
    if (*found) rc = ft_json_read_file(path.data, 0, &v, err);
    ft_buf_fini(&path);
    if (rc == FT_OK && *found) {
        memset(out, 0, sizeof *out);
        out->arena = ft_arena_create();
        const int64_t width = ft_json_int(ft_json_get(v, "width"), 0);
        read_header(v, out);
        if (!ft_str_eq(ft_json_str(ft_json_get(v, "key")), key) || (width != 2 && width != 4) || out->facts.samples < 0 ||
            out->facts.tokens < 0)
            rc = ft_fail(err, FT_DATA, "'%s/header.json' does not fit its folder", dir);
        if (rc == FT_OK) rc = ft_samples_map(&out->samples, dir, (int)width, err);
        if (rc != FT_OK) {
            ft_loaded_fini(out);
            (void)ft_fix(err, "remove the folder '%s': it is made again", dir);
        }
    }
    ft_json_destroy(v);
    return rc;
}

/* ---- building ---- */

static void remove_folder(const char *dir)
{
    static const char *const files[] = {"header.json", "tokens.bin", "spans.bin", "index.bin"};
    for (size_t i = 0; i < 4; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* Is the file under `path` the one that fd holds? */
static bool is_still(int fd, const char *path, bool *again)
{
    struct stat mine, there;
    *again = fstat(fd, &mine) || stat(path, &there) || mine.st_ino != there.st_ino || mine.st_dev != there.st_dev;
    return !*again;
}

/* Takes the lock file of the key; another process that builds is waited for (its lock dies with it). */
static enum ft_code lock_key(const char *path, int *fd, struct ft_err *err)
{
    const struct ft_clock clock = ft_clock_real();
    const int64_t end = ft_clock_now(clock) + WAIT_LIMIT;
    bool said = false, again = false;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return ft_fail(err, FT_IO, "cannot write '%s': %s", path, strerror(errno));
    while (flock(*fd, LOCK_EX | LOCK_NB) || !is_still(*fd, path, &again)) {
        if (again) { /* its owner has removed it: a lock on a file that nobody else finds */
            ft_close(fd);
            *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
            if (*fd < 0) return ft_fail(err, FT_IO, "cannot write '%s': %s", path, strerror(errno));
            again = false;
            continue;
        }
        char owner[128] = "";
        if (errno != EWOULDBLOCK && errno != EINTR) {
            const int e = errno;
            ft_close(fd);
            return ft_fail(err, FT_IO, "cannot lock '%s': %s", path, strerror(e));
        }
        if (ft_clock_now(clock) > end) {
            ft_close(fd);
            return ft_fail(err, FT_TIMEOUT, "another process has been preparing '%s' for six hours", path);
        }
        if (!said && pread(*fd, owner, sizeof owner - 1, 0) > 0)
            ft_log(FT_LOG_WARN, "prepared", "waiting for prepared data (written by %s)", owner);
        said = true;
        (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    }
    char text[128], host[64] = "";
    (void)gethostname(host, sizeof host - 1);
    const int n = snprintf(text, sizeof text, "%s, process %ld", host, (long)getpid());
    if (!ftruncate(*fd, 0)) (void)!pwrite(*fd, text, (size_t)n, 0);
    return FT_OK;
}

static enum ft_code build(const struct ft_load_how *how, const char *temporary, const char *dir, const char *key, bool *named,
                          struct ft_err *err)
{
    struct ft_load_how to = *how;
    struct ft_loaded l;
    to.files_dir = temporary;
    remove_folder(temporary); /* what a killed process left */
    enum ft_code rc = ft_mkdirs(temporary, 0755, err);
    if (rc != FT_OK) return rc;
    rc = ft_load(&to, named, &l, err);
    if (rc == FT_OK && *named) {
        rc = write_header(&l, temporary, key, to.width_used ? *to.width_used : 4, err);
        if (rc == FT_OK && rename(temporary, dir)) rc = ft_fail(err, FT_IO, "cannot rename '%s': %s", temporary, strerror(errno));
        ft_loaded_fini(&l);
    }
    if (rc != FT_OK || !*named) remove_folder(temporary);
    return rc;
}

enum ft_code ft_prepared_load(const struct ft_load_how *how, const char *cache, bool *named, struct ft_loaded *out, bool *built,
                              struct ft_err *err)
{
    char key[33];
    struct ft_buf dir = {0}, temporary = {0}, lock = {0};
    struct ft_load_how mine = *how;
    int fd = -1, width = 4;
    bool found = false;
    if (built) *built = false;
    enum ft_code rc = ft_prepared_key(how->o, how->split, key, err);
    if (rc == FT_OK) rc = ft_mkdirs(cache, 0755, err);
    ft_buf_addf(&dir, "%s/%s", cache, key);
    ft_buf_addf(&temporary, "%s/%s.part", cache, key);
    ft_buf_addf(&lock, "%s/%s.lock", cache, key);
    mine.width_used = &width;
    *named = true;
    if (rc == FT_OK) rc = open_prepared(dir.data, key, out, &found, err);
    if (rc == FT_OK && !found) {
        rc = lock_key(lock.data, &fd, err);
        if (rc == FT_OK) rc = open_prepared(dir.data, key, out, &found, err); /* another process may have made it meanwhile */
        if (rc == FT_OK && !found) {
            rc = build(&mine, temporary.data, dir.data, key, named, err);
            if (rc == FT_OK && *named) rc = open_prepared(dir.data, key, out, &found, err);
            if (built) *built = rc == FT_OK && *named;
        }
        if (fd >= 0) unlink(lock.data);
        ft_close(&fd);
    }
    ft_buf_fini(&dir);
    ft_buf_fini(&temporary);
    ft_buf_fini(&lock);
    return rc;
}
