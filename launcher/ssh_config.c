/* Files of ssh_config into lines. The grammar is that of OpenSSH's readconf.c and misc.c (strdelim, argv_split). */
#include "launcher/ssh_config.h"

#include <errno.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "launcher/ssh_lines.h"

enum { MAX_DEPTH = 16, MAX_BYTES = 16 << 20, MAX_LINES = 1000000 };
#define BLANKS " \t\r\n"

static const struct {
    const char *name;
    enum ft_ssh_key key;
    bool one; /* takes exactly one argument */
} keys[] = {
    {"host", FT_SK_HOST, false},
    {"match", FT_SK_MATCH, false},
    {"include", FT_SK_INCLUDE, false},
    {"hostname", FT_SK_HOSTNAME, true},
    {"port", FT_SK_PORT, true},
    {"user", FT_SK_USER, true},
    {"identityfile", FT_SK_IDENTITY, true},
    {"identityfile2", FT_SK_IDENTITY, true},
    {"identitiesonly", FT_SK_IDENTITIES_ONLY, true},
    {"identityagent", FT_SK_IDENTITY_AGENT, true},
    {"certificatefile", FT_SK_CERTIFICATE, true},
    {"proxyjump", FT_SK_PROXY_JUMP, false},
    {"proxycommand", FT_SK_PROXY_COMMAND, false},
    {"userknownhostsfile", FT_SK_USER_HOSTS, false},
    {"userknownhostsfile2", FT_SK_OTHER, false},
    {"globalknownhostsfile", FT_SK_GLOBAL_HOSTS, false},
    {"hostkeyalias", FT_SK_HOST_KEY_ALIAS, true},
    {"stricthostkeychecking", FT_SK_STRICT, true},
    {"kexalgorithms", FT_SK_KEX, true},
    {"ciphers", FT_SK_CIPHERS, true},
    {"hostkeyalgorithms", FT_SK_HOST_KEY_ALGORITHMS, true},
};

static const struct {
    const char *name;
    enum ft_ssh_criterion what;
    bool has_arg;
} criteria[] = {
    {"all", FT_SM_ALL, false},
    {"host", FT_SM_HOST, true},
    {"originalhost", FT_SM_ORIGINALHOST, true},
    {"user", FT_SM_USER, true},
    {"localuser", FT_SM_LOCALUSER, true},
    {"final", FT_SM_FINAL, false},
    {"canonical", FT_SM_CANONICAL, false},
    {"exec", FT_SM_NEVER, true},
};

struct reader {
    struct ft_ssh_conf *conf;
    struct ft_faults *notes;
    bool user_conf, no_include;
    struct ft_err *err;
};

void *ft_ssh_push(struct ft_arena *arena, void *array, size_t *n, size_t *cap, size_t size)
{
    void *old; /* array is the address of a pointer of any type */
    memcpy(&old, array, sizeof old);
    if (*n == *cap) {
        const size_t more = *cap ? *cap * 2 : 8;
        void *fresh = ft_arena_array(arena, more, size);
        if (*n) memcpy(fresh, old, *n * size);
        memcpy(array, &fresh, sizeof fresh);
        *cap = more;
        old = fresh;
    }
    return (char *)old + (*n)++ * size;
}

struct ft_ssh_me ft_ssh_me(struct ft_arena *arena)
{
    struct ft_ssh_me me = {.uid = getuid()};
    const struct passwd *pw = getpwuid(getuid());
    const char *home = getenv("HOME");
    me.home = ft_arena_strdup(arena, pw && pw->pw_dir && *pw->pw_dir ? pw->pw_dir : home ? home : "/");
    me.user = pw ? ft_arena_strdup(arena, pw->pw_name) : ft_arena_printf(arena, "%u", me.uid);
    char host[256] = "";
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    me.host = ft_arena_strdup(arena, host);
    return me;
}

static enum ft_code bad(const struct reader *r, struct ft_source at, const char *fmt, ...) FT_PRINTF(3, 4);
static enum ft_code bad(const struct reader *r, struct ft_source at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = ft_arena_vprintf(r->conf->arena, fmt, ap);
    va_end(ap);
    ft_fail(r->err, FT_CONFIG, "%s", text);
    return ft_at(r->err, "%s:%d", at.file, at.line);
}

/* One word and what ends it: blanks, at most one '='. A quote begins or ends a word. NULL: a quote is not closed. */
static char *next_word(char **s)
{
    char *old = *s;
    if (!old) return NULL;
    *s = strpbrk(old, BLANKS "\"=");
    if (!*s) return old;
    if (**s == '"') {
        memmove(*s, *s + 1, strlen(*s));
        *s = strchr(*s, '"');
        if (!*s) return NULL;
        **s = 0;
        *s += strspn(*s + 1, BLANKS) + 1;
        return old;
    }
    const bool equals = **s == '=';
    **s = 0;
    *s += strspn(*s + 1, BLANKS) + 1;
    if (**s == '=' && !equals) *s += strspn(*s + 1, BLANKS) + 1;
    return old;
}

/* Words of the rest of a line with quotes and backslashes; an unquoted '#' that begins a word ends them. */
static bool split(struct reader *r, const char *s, struct ft_ssh_line *l)
{
    struct ft_arena *a = r->conf->arena;
    size_t cap = 0;
    for (; *s; s++) {
        if (*s == ' ' || *s == '\t') continue;
        if (*s == '#') break;
        char *word = ft_arena_alloc(a, strlen(s) + 1), quote = 0;
        *(char **)ft_ssh_push(a, &l->argv, &l->argc, &cap, sizeof *l->argv) = word;
        for (; *s; s++) {
            if (*s == '\\' && (s[1] == '\'' || s[1] == '"' || s[1] == '\\' || (!quote && s[1] == ' '))) *word++ = *++s;
            else if (!quote && (*s == ' ' || *s == '\t')) break;
            else if (!quote && (*s == '"' || *s == '\'')) quote = *s;
            else if (quote && *s == quote) quote = 0;
            else *word++ = *s;
        }
        if (quote) return false;
        if (!*s) break;
    }
    return true;
}

static enum ft_code read_match(struct reader *r, struct ft_ssh_line *l, char *s)
{
    struct ft_arena *a = r->conf->arena;
    size_t cap = 0;
    for (char *word; (word = next_word(&s)) && *word;) {
        if (*word == '#') break;
        const bool negated = *word == '!';
        const char *name = word + negated;
        size_t k = 0;
        const size_t n = sizeof criteria / sizeof criteria[0];
        while (k < n && !ft_str_case_eq(criteria[k].name, name)) k++;
        struct ft_ssh_match *m = ft_ssh_push(a, &l->match, &l->n_match, &cap, sizeof *m);
        *m = (struct ft_ssh_match){.what = k < n ? criteria[k].what : FT_SM_NEVER, .negated = negated};
        if (m->what == FT_SM_FINAL) r->conf->wants_final = true;
        if (m->what == FT_SM_ALL) {
            char *more = next_word(&s);
            if (l->n_match > 2 || (more && *more && *more != '#'))
                return bad(r, l->at, "'Match all' cannot be combined with other words");
            break;
        }
        if (k < n && !criteria[k].has_arg) continue;
        char *arg = next_word(&s);
        if (!arg || !*arg || *arg == '#') return bad(r, l->at, "'Match %s' needs a value", name);
        m->arg = ft_arena_strdup(a, arg);
        if (m->what == FT_SM_NEVER)
            ft_faults_add(r->notes, FT_SEV_WARNING, l->at, NULL, NULL,
                          "'Match %s' is not evaluated: the lines below it do not apply", name);
    }
    if (!l->n_match) return bad(r, l->at, "'Match' needs a word (all, host, user, …)");
    return FT_OK;
}

static enum ft_code read_file(struct reader *r, const char *path, bool check, int depth, int *out_errno);

static enum ft_code read_include(struct reader *r, const struct ft_ssh_line *l, int depth)
{
    for (size_t i = 0; i < l->argc && !r->no_include; i++) {
        const char *word = l->argv[i];
        if (!*word) return bad(r, l->at, "'Include' of an empty name");
        if (*word == '~' && !r->user_conf) return bad(r, l->at, "'Include %s': '~' is for files of a user", word);
        if (*word != '/' && *word != '~')
            word = ft_arena_printf(r->conf->arena, "%s/%s", r->user_conf ? "~/.ssh" : "/etc/ssh", word);
        glob_t g;
        memset(&g, 0, sizeof g);
        const int rc = glob(word, GLOB_TILDE, NULL, &g);
        if (rc == GLOB_NOMATCH) continue;
        if (rc) return bad(r, l->at, "'Include %s' cannot be expanded", word);
        enum ft_code c = FT_OK;
        for (size_t k = 0; k < g.gl_pathc && c == FT_OK; k++) {
            int error = 0;
            if (depth + 1 > MAX_DEPTH) c = bad(r, l->at, "Include goes deeper than %d files", MAX_DEPTH);
            else c = read_file(r, ft_arena_strdup(r->conf->arena, g.gl_pathv[k]), true, depth + 1, &error);
            if (c == FT_OK && error && error != ENOENT) c = bad(r, l->at, "cannot open '%s': %s", g.gl_pathv[k], strerror(error));
        }
        globfree(&g);
        if (c != FT_OK) return c;
    }
    return FT_OK;
}

static struct ft_ssh_line *push(struct reader *r, enum ft_ssh_key key, struct ft_source at)
{
    struct ft_ssh_line *l = ft_ssh_push(r->conf->arena, &r->conf->v, &r->conf->n, &r->conf->cap, sizeof *l);
    *l = (struct ft_ssh_line){.key = key, .at = at};
    return l;
}

static enum ft_code read_line(struct reader *r, char *line, struct ft_source at, int depth)
{
    for (size_t n = strlen(line); n > 1 && strchr(BLANKS "\f", line[n - 1]); n--) line[n - 1] = 0;
    char *s = line, *key = next_word(&s);
    if (key && !*key) key = next_word(&s);
    if (!key || !*key || *key == '#' || *key == '\n' || *key == '\r') return FT_OK;
    size_t k = 0;
    const size_t n = sizeof keys / sizeof keys[0];
    while (k < n && !ft_str_case_eq(keys[k].name, key)) k++;
    if (k == n) return FT_OK;
    if (s) s += strspn(s, BLANKS);
    if (!s || !*s) return bad(r, at, "'%s' has no value", key);
    if (r->conf->n >= MAX_LINES) return bad(r, at, "more than %d lines", MAX_LINES);
    struct ft_ssh_line l = {.key = keys[k].key, .at = at};
    l.rest = ft_arena_strdup(r->conf->arena, s);
    if (!split(r, s, &l)) return bad(r, at, "'%s': a quote is not closed", key);
    if (l.key == FT_SK_MATCH) {
        const enum ft_code c = read_match(r, &l, s);
        if (c != FT_OK) return c;
    } else if (!l.argc || !*l.argv[0]) return bad(r, at, "'%s' has no value", key);
    if (keys[k].one && l.argc > 1) return bad(r, at, "'%s': '%s' is left over at the end of the line", key, l.argv[1]);
    for (size_t i = 0; l.key == FT_SK_HOST && i < l.argc; i++)
        if (!*l.argv[i]) return bad(r, at, "'Host' with an empty name");
    if (l.key == FT_SK_INCLUDE) return read_include(r, &l, depth);
    *push(r, l.key, at) = l;
    return FT_OK;
}

static enum ft_code read_text(struct reader *r, const char *name, char *text, size_t n, int depth)
{
    const struct ft_source top = {.file = name, .line = 0};
    push(r, depth ? FT_SK_PUSH : FT_SK_FILE, top);
    struct ft_source at = top;
    for (char *p = text, *end = text + n; p < end;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        if (nl) *nl = 0;
        at.line++;
        const enum ft_code c = read_line(r, p, at, depth);
        if (c != FT_OK) return c;
        p = nl ? nl + 1 : end;
    }
    if (depth) push(r, FT_SK_POP, at);
    return FT_OK;
}

/* A file that cannot be opened is *out_errno, not an error. */
static enum ft_code read_file(struct reader *r, const char *path, bool check, int depth, int *out_errno)
{
    struct stat st;
    if (stat(path, &st) || access(path, R_OK)) {
        *out_errno = errno;
        return FT_OK;
    }
    if (check && ((st.st_uid != 0 && st.st_uid != r->conf->me->uid) || (st.st_mode & 022))) {
        ft_fail(r->err, FT_CONFIG, "'%s' belongs to someone else or others may write it (mode %03o)", path,
                (unsigned)st.st_mode & 0777);
        return ft_fix(r->err, "chmod go-w '%s'", path);
    }
    struct ft_buf b = {0};
    enum ft_code c = ft_read_file(path, MAX_BYTES, &b, r->err);
    if (c == FT_OK && b.n) c = read_text(r, path, b.data, b.n, depth);
    ft_buf_fini(&b);
    return c;
}

static struct ft_ssh_conf *make(const struct ft_ssh_me *me, struct ft_arena *arena)
{
    struct ft_ssh_conf *conf = ft_arena_alloc(arena, sizeof *conf);
    conf->arena = arena;
    conf->me = me;
    return conf;
}

enum ft_code ft_ssh_conf_read(const char *config, const struct ft_ssh_me *me, struct ft_arena *arena, struct ft_faults *notes,
                              struct ft_ssh_conf **out_conf, struct ft_err *err)
{
    struct reader r = {.conf = make(me, arena), .notes = notes, .user_conf = true, .err = err};
    enum ft_code c = FT_OK;
    int error = 0;
    if (config && !ft_str_case_eq(config, "none")) {
        c = read_file(&r, config, false, 0, &error);
        if (c == FT_OK && error) c = ft_fail(err, FT_CONFIG, "cannot open '%s': %s", config, strerror(error));
    } else if (!config) {
        c = read_file(&r, ft_arena_printf(arena, "%s/.ssh/config", me->home), true, 0, &error);
        r.user_conf = false;
        if (c == FT_OK) c = read_file(&r, "/etc/ssh/ssh_config", false, 0, &error);
    }
    if (c != FT_OK) {
        ft_wrap(err, "reading the configuration of ssh");
        return c;
    }
    *out_conf = r.conf;
    return FT_OK;
}

enum ft_code ft_ssh_conf_read_text(const char *name, const char *text, size_t n, bool no_include, const struct ft_ssh_me *me,
                                   struct ft_arena *arena, struct ft_faults *notes, struct ft_ssh_conf **out_conf,
                                   struct ft_err *err)
{
    struct reader r = {.conf = make(me, arena), .notes = notes, .user_conf = true, .no_include = no_include, .err = err};
    char *copy = ft_arena_strndup(arena, text, n);
    const enum ft_code c = read_text(&r, ft_arena_strdup(arena, name), copy, n, 0);
    if (c == FT_OK) *out_conf = r.conf;
    return c;
}
