/* One self-contained HTML page about runs: what ran, how it ended, curves of metrics.jsonl with restarts on the axis, ranks,
 * nodes, events. Readable without script. Several runs: their curves share the axes, the rest follows one after another.
 *   report.c  sections and tables      curves.c  metrics.jsonl to SVG */
#ifndef FT_LAUNCHER_REPORT_REPORT_H
#define FT_LAUNCHER_REPORT_REPORT_H

#include "launcher/runs.h"

void ft_report_page(const struct ft_run_info *runs, size_t n, struct ft_arena *arena, struct ft_buf *out);

/* Text as HTML: & < > " escaped, control bytes and bytes that are not UTF-8 as U+FFFD. */
void ft_html(const char *s, size_t n, struct ft_buf *out);

/* The curves of all runs (nothing when there are no metrics). */
void ft_report_curves(const struct ft_run_info *runs, size_t n, struct ft_arena *arena, struct ft_buf *out);

extern const char ft_report_report[]; /* templates/report/report.html.in */

#endif
