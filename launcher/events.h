/* events.jsonl: one object a line, flushed; t (UTC, ms), ev, attempt first.
 *     struct ft_jw *w = ft_events_begin(&ev, "rank_exit");  ft_jw_kint(w, "rank", 3);  ft_events_end(&ev); */
#ifndef FT_LAUNCHER_EVENTS_H
#define FT_LAUNCHER_EVENTS_H

#include "base/json.h"

struct ft_events {
    int fd; /* -1: nowhere */
    int attempt;
    bool failed; /* a write error was said */
    struct ft_buf line;
    struct ft_jw w;
};
/* Takes the lock that says: this run lives. */
enum ft_code ft_events_open(struct ft_events *e, const char *path, int attempt, struct ft_err *err) FT_MUST_CHECK;
void ft_events_close(struct ft_events *e);
struct ft_jw *ft_events_begin(struct ft_events *e, const char *ev);
/* false once: the line could not be written (errno tells why); the run goes on. */
bool ft_events_end(struct ft_events *e);

#endif
