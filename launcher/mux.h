/* Output of all ranks: files by rank (every byte, in order of arrival) and whole prefixed lines for the console.
 *
 *   1. ft_mux_open; ft_mux_bytes for every OUT frame; ft_mux_end when a rank has ended
 *   2. ft_mux_tick at mux.tick_at: shows what has waited long enough for its end of line
 *   3. ft_mux_close
 * A line of up to 64 KiB is never torn; longer ones come in pieces that do not cut a UTF-8 sequence, continuations begin with
 * "[RANK NODE]+". Incomplete lines are held 2.2 s. A progress bar ("\r") is shown once a second.
 * Memory: one piece per rank and stream at most, and only while a line is incomplete. */
#ifndef FT_LAUNCHER_MUX_H
#define FT_LAUNCHER_MUX_H

#include "launcher/console.h"

enum { FT_MUX_LINE = 65536 };

struct ft_mux_line {
    struct ft_buf b;      /* the incomplete line */
    bool continued;       /* a part of it has been shown */
    bool bar;             /* it has been shown as a bar */
    int64_t since, shown; /* when it began; when a bar was last shown */
};
struct ft_mux_rank {
    int rank;
    const char *node;
    int fd;           /* -1: not open now */
    uint64_t used;    /* for closing the least used */
    uint64_t bytes;   /* written by this head */
    uint64_t dropped; /* bytes of lines that the console did not get */
    struct ft_mux_line line[2];
};
struct ft_mux {
    struct ft_console *console;
    const char *folder; /* of the files; NULL: none */
    bool show;          /* lines go to the console */
    bool drop;          /* slow_output = drop */
    struct ft_mux_rank *ranks;
    int n_ranks;
    int n_open, max_open; /* files; max_open 0: as many as the process may have */
    uint64_t clock;
    int64_t tick_at, ticked_at; /* tick_at INT64_MAX: nothing waits */
    bool file_failed;           /* a write error was met (said once by the head): errno in file_errno */
    int file_errno;
    char file_name[512];
    uint64_t n_dropped; /* lines */
};
void ft_mux_open(struct ft_mux *m, int n_ranks);
void ft_mux_resize(struct ft_mux *m, int n_ranks); /* between attempts; files of ranks that stay go on */
void ft_mux_close(struct ft_mux *m);
void ft_mux_bytes(struct ft_mux *m, int rank, int stream, const char *p, size_t n, int64_t now);
void ft_mux_end(struct ft_mux *m, int rank); /* the last line without newline gets one */
void ft_mux_tick(struct ft_mux *m, int64_t now);
int64_t ft_mux_offset(struct ft_mux *m, int rank); /* present size of the rank's file */

#endif
