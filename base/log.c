#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

/* The project's only mutable global. Set at the start of main, before threads. */
static struct ft_log_sink g_sink = {.fd = 2, .level = FT_LOG_WARN, .json = false, .prog = "ftlaunch", .also_fd = -1};

void ft_log_set(struct ft_log_sink sink) { g_sink = sink; }
struct ft_log_sink ft_log_get(void) { return g_sink; }

static const char *const names[] = {"error", "warning", "info", "debug", "trace"};

static size_t json_string(char *out, size_t cap, const char *s)
{
    size_t n = 0;
    for (; *s && n + 8 < cap; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            out[n++] = '\\';
            out[n++] = (char)c;
        } else if (c < 0x20) {
            n += (size_t)snprintf(out + n, cap - n, "\\u%04x", c);
        } else {
            out[n++] = (char)c;
        }
    }
    out[n] = 0;
    return n;
}

/* Lines of a log are read on terminals too. What does not fit any more is cut. */
static void make_visible(char *text, size_t cap)
{
    char out[3000], one[8];
    size_t n = 0;
    for (size_t at = 0, len = strlen(text); at < len;) {
        at += ft_visible_next(text + at, len - at, one);
        const size_t k = strlen(one);
        if (n + k >= cap || n + k >= sizeof out) break;
        memcpy(out + n, one, k);
        n += k;
    }
    memcpy(text, out, n);
    text[n] = 0;
}

static void emit(int fd, const char *line, size_t n)
{
    while (n) {
        const ssize_t w = write(fd, line, n);
        if (w <= 0) return; /* a log that cannot be written ends nothing */
        line += w;
        n -= (size_t)w;
    }
}

void ft_log(enum ft_level level, const char *tag, const char *fmt, ...)
{
    const struct ft_log_sink s = g_sink;
    const bool main_wants = s.fd >= 0 && level <= s.level, also_wants = s.also_fd >= 0 && level <= FT_LOG_DEBUG;
    if (!main_wants && !also_wants) return;
    char text[3000], line[6400], when[32];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!s.json) make_visible(text, sizeof text);
    ft_wall_iso(ft_wall_ns(), when);
    if (main_wants) {
        int n;
        if (s.json) {
            char quoted[6000];
            json_string(quoted, sizeof quoted, text);
            n = snprintf(line, sizeof line, "{\"t\":\"%s\",\"level\":\"%s\",\"tag\":\"%s\",\"text\":\"%s\"}\n", when, names[level],
                         tag ? tag : "", quoted);
        } else {
            n = snprintf(line, sizeof line, "%s: %s%s%s\n", s.prog, level <= FT_LOG_WARN ? names[level] : "",
                         level <= FT_LOG_WARN ? ": " : "", text);
        }
        emit(s.fd, line, (size_t)n);
    }
    if (also_wants) {
        const int n = snprintf(line, sizeof line, "%s %-7s %s%s%s\n", when, names[level], tag ? tag : "", tag ? ": " : "", text);
        emit(s.also_fd, line, (size_t)n);
    }
}
