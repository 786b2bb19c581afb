#include "launcher/wire.h"

#include <string.h>

#define U8(n)                                                                                                                      \
    {                                                                                                                              \
        n, FT_WIRE_U8                                                                                                              \
    }
#define U32(n)                                                                                                                     \
    {                                                                                                                              \
        n, FT_WIRE_U32                                                                                                             \
    }
#define U64(n)                                                                                                                     \
    {                                                                                                                              \
        n, FT_WIRE_U64                                                                                                             \
    }
#define I64(n)                                                                                                                     \
    {                                                                                                                              \
        n, FT_WIRE_I64                                                                                                             \
    }
#define TEXT(n)                                                                                                                    \
    {                                                                                                                              \
        n, FT_WIRE_TEXT                                                                                                            \
    }

const struct ft_wire_row ft_wire_rows[] = {
    {FT_MSG_HELLO,
     true,
     "HELLO",
     {TEXT("version"), U32("wire"), TEXT("build"), TEXT("hostname"), TEXT("boot"), U64("netns"), U32("uid"), U32("cores"),
      I64("time"), TEXT("nonce")}},
    {FT_MSG_PROOF, true, "PROOF", {TEXT("proof")}},
    {FT_MSG_FACT, true, "FACT", {TEXT("name"), TEXT("value")}},
    {FT_MSG_RESULT, true, "RESULT", {U32("id"), U8("ok"), U64("number"), TEXT("text")}},
    {FT_MSG_READY, true, "READY", {U32("code"), TEXT("text"), U32("job")}},
    {FT_MSG_STARTED, true, "STARTED", {U32("pid"), I64("time")}},
    {FT_MSG_EXECFAIL, true, "EXECFAIL", {U32("step"), U32("errno"), TEXT("text")}},
    {FT_MSG_OUT, true, "OUT", {U8("stream"), TEXT("bytes")}},
    {FT_MSG_EXIT,
     true,
     "EXIT",
     {U32("status"), U32("signal"), U32("marks"), I64("time"), U64("order"), TEXT("evidence"), TEXT("last")}},
    {FT_MSG_PROGRESS, true, "PROGRESS", {I64("step"), I64("saved"), I64("time")}},
    {FT_MSG_STACK, true, "STACK", {TEXT("state"), TEXT("text")}},
    {FT_MSG_NOTE, true, "NOTE", {U8("level"), TEXT("text")}},
    {FT_MSG_LEFT, true, "LEFT", {U32("pid"), U8("what"), TEXT("run"), TEXT("command")}},
    {FT_MSG_STOPPED, true, "STOPPED", {U32("signalled")}},
    {FT_MSG_TAKEN, true, "TAKEN", {U32("bytes")}},
    {FT_MSG_GONE, true, "GONE", {U32("killed")}},
    {FT_MSG_PONG, true, "PONG", {I64("t1"), I64("t2"), I64("t3")}},
    {FT_MSG_WELCOME,
     false,
     "WELCOME",
     {TEXT("run"), U32("node"), TEXT("name"), U32("lease_ms"), U32("beat_ms"), U8("level"), TEXT("nonce"), TEXT("proof")}},
    {FT_MSG_PROBE, false, "PROBE", {U32("id"), U8("kind"), U64("number"), U64("start"), TEXT("text")}},
    {FT_MSG_JOB, false, "JOB", {U8("part"), TEXT("bytes"), U64("hash")}},
    {FT_MSG_GO, false, "GO", {{0, FT_WIRE_END}}},
    {FT_MSG_SIGNAL, false, "SIGNAL", {U32("number")}},
    {FT_MSG_STOP, false, "STOP", {U64("grace_ms")}},
    {FT_MSG_KILL, false, "KILL", {{0, FT_WIRE_END}}},
    {FT_MSG_SWEEP, false, "SWEEP", {TEXT("run")}},
    {FT_MSG_CREDIT, false, "CREDIT", {U64("bytes")}},
    {FT_MSG_STDIN, false, "STDIN", {TEXT("bytes"), U8("end")}},
    {FT_MSG_STACKS, false, "STACKS", {U32("limit_ms")}},
    {FT_MSG_PAUSE, false, "PAUSE", {{0, FT_WIRE_END}}},
    {FT_MSG_RESUME, false, "RESUME", {{0, FT_WIRE_END}}},
    {FT_MSG_PING, false, "PING", {I64("t1")}},
    {FT_MSG_BYE, false, "BYE", {{0, FT_WIRE_END}}},
};
const size_t ft_wire_n_rows = sizeof ft_wire_rows / sizeof ft_wire_rows[0];

static const unsigned char magic[FT_WIRE_MAGIC] = {0x00, 0xFF,           'f', 't', 'w', 'i', 'r', 'e', 0x0D, 0x0A, 0x1A,
                                                   0x0A, FT_WIRE_NUMBER, 0,   0,   0};

const struct ft_wire_row *ft_wire_row(unsigned type)
{
    for (size_t i = 0; i < ft_wire_n_rows; i++)
        if (ft_wire_rows[i].type == type) return &ft_wire_rows[i];
    return NULL;
}

struct ft_msg ft_msg_make(enum ft_msg_type type, unsigned slot)
{
    struct ft_msg m = {.type = (uint8_t)type, .slot = (uint16_t)slot};
    return m;
}

void ft_msg_u(struct ft_msg *m, unsigned field, uint64_t x) { m->f[field].u = x; }
void ft_msg_bytes(struct ft_msg *m, unsigned field, const void *p, size_t n)
{
    m->f[field].p = p;
    m->f[field].n = n;
}
void ft_msg_text(struct ft_msg *m, unsigned field, const char *s) { ft_msg_bytes(m, field, s, s ? strlen(s) : 0); }
int64_t ft_msg_i64(const struct ft_msg *m, unsigned field) { return (int64_t)m->f[field].u; }

void ft_msg_copy_text(const struct ft_msg *m, unsigned field, char *out, size_t cap)
{
    size_t n = m->f[field].n < cap - 1 ? m->f[field].n : cap - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)m->f[field].p[i];
        out[i] = c < 0x20 || c == 0x7F ? (c == '\n' || c == '\t' ? ' ' : '?') : (char)c;
    }
    out[n] = 0;
}

static size_t kind_bytes(enum ft_wire_kind k)
{
    switch (k) {
    case FT_WIRE_U8: return 1;
    case FT_WIRE_U16: return 2;
    case FT_WIRE_U32: return 4;
    case FT_WIRE_U64:
    case FT_WIRE_I64: return 8;
    case FT_WIRE_TEXT: return 4;
    case FT_WIRE_END: break;
    }
    return 0;
}

static void put_le(struct ft_buf *b, uint64_t x, size_t n)
{
    unsigned char v[8];
    for (size_t i = 0; i < n; i++) v[i] = (unsigned char)(x >> (8 * i));
    ft_buf_add(b, v, n);
}

static uint64_t get_le(const char *p, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return x;
}

void ft_wire_init(struct ft_wire *w, enum ft_wire_end end)
{
    memset(w, 0, sizeof *w);
    w->end = end;
    ft_buf_add(&w->out, magic, sizeof magic);
}

void ft_wire_fini(struct ft_wire *w)
{
    ft_buf_fini(&w->in);
    ft_buf_fini(&w->out);
    ft_buf_fini(&w->noise);
}

void ft_wire_send(struct ft_wire *w, const struct ft_msg *m)
{
    const struct ft_wire_row *row = ft_wire_row(m->type);
    FT_ASSERT(row && row->to_head == (w->end == FT_WIRE_AGENT));
    size_t n = 0;
    for (const struct ft_wire_field *f = row->fields; f->kind != FT_WIRE_END; f++)
        n += kind_bytes(f->kind) + (f->kind == FT_WIRE_TEXT ? m->f[f - row->fields].n : 0);
    FT_ASSERT(n <= FT_WIRE_MAX);
    ft_buf_reserve(&w->out, FT_WIRE_HEADER + n);
    put_le(&w->out, n, 4);
    put_le(&w->out, m->type, 1);
    put_le(&w->out, m->flags, 1);
    put_le(&w->out, m->slot, 2);
    put_le(&w->out, w->seq_out++, 8);
    for (const struct ft_wire_field *f = row->fields; f->kind != FT_WIRE_END; f++) {
        const struct ft_wire_value *v = &m->f[f - row->fields];
        if (f->kind == FT_WIRE_TEXT) {
            put_le(&w->out, v->n, 4);
            if (v->n) ft_buf_add(&w->out, v->p, v->n);
        } else put_le(&w->out, v->u, kind_bytes(f->kind));
    }
}

void ft_wire_send_pieces(struct ft_wire *w, struct ft_msg m, unsigned field, const void *p, size_t n)
{
    size_t at = 0;
    do {
        size_t k = n - at < FT_WIRE_CHUNK ? n - at : FT_WIRE_CHUNK;
        ft_msg_bytes(&m, field, (const char *)p + at, k);
        at += k;
        m.flags = at < n ? FT_WIRE_MORE : 0;
        ft_wire_send(w, &m);
    } while (at < n);
}

static int broken(struct ft_wire *w, const char *fmt, ...) FT_PRINTF(2, 3);
static int broken(struct ft_wire *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->why, sizeof w->why, fmt, ap);
    va_end(ap);
    w->broken = true;
    return -1;
}

void ft_wire_feed(struct ft_wire *w, const void *p, size_t n)
{
    if (w->broken) return;
    if (w->in_at) {
        ft_buf_drop(&w->in, w->in_at);
        w->in_at = 0;
    }
    ft_buf_add(&w->in, p, n);
}

/* Skips what a login says before the magic; it is kept for messages. */
static int find_magic(struct ft_wire *w)
{
    const char *p = w->in.data + w->in_at;
    size_t n = w->in.n - w->in_at, i = 0;
    const size_t fixed = FT_WIRE_MAGIC - 4;
    while (i < n) {
        const char *z = memchr(p + i, magic[0], n - i);
        i = z ? (size_t)(z - p) : n;
        size_t have = n - i < fixed ? n - i : fixed;
        if (i < n && memcmp(p + i, magic, have) == 0) break;
        if (i < n) i++;
    }
    if (i && w->noise.n < FT_WIRE_NOISE) ft_buf_add(&w->noise, p, i < FT_WIRE_NOISE - w->noise.n ? i : FT_WIRE_NOISE - w->noise.n);
    w->in_at += i;
    if (n - i < FT_WIRE_MAGIC) return 0;
    unsigned number = (unsigned)get_le(p + i + fixed, 2);
    if (number != FT_WIRE_NUMBER)
        return broken(w, "the other end speaks wire number %u, this build speaks %d", number, FT_WIRE_NUMBER);
    if (get_le(p + i + fixed + 2, 2)) return broken(w, "the bytes behind the wire number are not zero");
    w->in_at += FT_WIRE_MAGIC;
    w->have_magic = true;
    return 1;
}

static int decode(struct ft_wire *w, const struct ft_wire_row *row, const char *p, size_t n, struct ft_msg *m)
{
    size_t at = 0;
    for (const struct ft_wire_field *f = row->fields; f->kind != FT_WIRE_END; f++) {
        struct ft_wire_value *v = &m->f[f - row->fields];
        size_t k = kind_bytes(f->kind);
        if (n - at < k) return broken(w, "%s: field '%s' is cut", row->name, f->name);
        v->u = get_le(p + at, k);
        at += k;
        if (f->kind != FT_WIRE_TEXT) continue;
        if (n - at < v->u)
            return broken(w, "%s: field '%s' has %llu bytes, %zu are there", row->name, f->name, (unsigned long long)v->u, n - at);
        v->p = p + at;
        v->n = (size_t)v->u;
        at += v->n;
    }
    if (at != n) return broken(w, "%s: %zu bytes behind the last field", row->name, n - at);
    return 1;
}

int ft_wire_next(struct ft_wire *w, struct ft_msg *m)
{
    if (w->broken) return -1;
    if (!w->have_magic) {
        int r = w->in.n > w->in_at ? find_magic(w) : 0;
        if (r <= 0) return r;
    }
    size_t have = w->in.n - w->in_at;
    if (have < FT_WIRE_HEADER) return 0;
    const char *p = w->in.data + w->in_at;
    size_t n = (size_t)get_le(p, 4);
    memset(m, 0, sizeof *m);
    m->type = (uint8_t)p[4];
    m->flags = (uint8_t)p[5];
    m->slot = (uint16_t)get_le(p + 6, 2);
    m->seq = get_le(p + 8, 8);
    if (n > FT_WIRE_MAX) return broken(w, "a frame of %zu bytes (at most %d)", n, FT_WIRE_MAX);
    const struct ft_wire_row *row = ft_wire_row(m->type);
    if (!row) return broken(w, "unknown message %u", m->type);
    if (row->to_head != (w->end == FT_WIRE_HEAD)) return broken(w, "%s in the wrong direction", row->name);
    if (m->flags & ~FT_WIRE_MORE) return broken(w, "%s: unknown flags 0x%02x", row->name, m->flags);
    if (m->seq != w->seq_in)
        return broken(w, "%s: number %llu where %llu was due", row->name, (unsigned long long)m->seq,
                      (unsigned long long)w->seq_in);
    if (have < FT_WIRE_HEADER + n) return 0;
    if (decode(w, row, p + FT_WIRE_HEADER, n, m) < 0) return -1;
    w->in_at += FT_WIRE_HEADER + n;
    w->seq_in++;
    return 1;
}

void ft_msg_print(const struct ft_msg *m, struct ft_buf *out)
{
    const struct ft_wire_row *row = ft_wire_row(m->type);
    if (!row) {
        ft_buf_addf(out, "?%u", m->type);
        return;
    }
    ft_buf_adds(out, row->name);
    if (m->slot != FT_WIRE_NODE) ft_buf_addf(out, " slot %u", m->slot);
    for (const struct ft_wire_field *f = row->fields; f->kind != FT_WIRE_END; f++) {
        const struct ft_wire_value *v = &m->f[f - row->fields];
        if (f->kind == FT_WIRE_I64) ft_buf_addf(out, " %s=%lld", f->name, (long long)v->u);
        else if (f->kind != FT_WIRE_TEXT) ft_buf_addf(out, " %s=%llu", f->name, (unsigned long long)v->u);
        else if (m->type == FT_MSG_JOB || m->type == FT_MSG_STDIN || m->type == FT_MSG_WELCOME || m->type == FT_MSG_PROOF)
            ft_buf_addf(out, " %s=(%zu bytes)", f->name, v->n); /* may hold secrets */
        else {
            ft_buf_addf(out, " %s=(%zu)\"", f->name, v->n);
            for (size_t i = 0; i < v->n && i < 40; i++)
                ft_buf_addc(out, (unsigned char)v->p[i] < 0x20 || v->p[i] == 0x7F ? '.' : v->p[i]);
            ft_buf_addc(out, '"');
        }
    }
    if (m->flags & FT_WIRE_MORE) ft_buf_adds(out, " …");
}
