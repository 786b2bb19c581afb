/* Log lines: level x tag, text or JSON, one line each. The sink is the project's only mutable global. */
#ifndef FT_BASE_LOG_H
#define FT_BASE_LOG_H

#include <stdbool.h>

#include "base/err.h"

enum ft_level { FT_LOG_ERROR, FT_LOG_WARN, FT_LOG_INFO, FT_LOG_DEBUG, FT_LOG_TRACE };

struct ft_log_sink {
    int fd;              /* where lines go (default 2); -1: nowhere */
    enum ft_level level; /* lines above it are dropped (default FT_LOG_WARN) */
    bool json;           /* {"t":…,"level":…,"tag":…,"text":…} instead of "PROG: text" */
    const char *prog;    /* printed in front of text lines; static storage */
    int also_fd;         /* a second file that gets every line up to FT_LOG_DEBUG (launch.log); -1: none */
};
void ft_log_set(struct ft_log_sink sink);
struct ft_log_sink ft_log_get(void);

/* One line, one write(2); safe between threads. tag: the file's name, or NULL. */
void ft_log(enum ft_level level, const char *tag, const char *fmt, ...) FT_PRINTF(3, 4);

#endif
