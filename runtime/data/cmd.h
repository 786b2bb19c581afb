/* The words of `data`: one ft_command each (only for files of this folder). */
#ifndef FT_RUNTIME_DATA_CMD_H
#define FT_RUNTIME_DATA_CMD_H

#include "base/argv.h"

extern const struct ft_command ft_cmd_check, ft_cmd_show, ft_cmd_prepare, ft_cmd_encode, ft_cmd_decode, ft_cmd_render;

int ft_cmd_usage(const struct ft_command *self, const struct ft_err *err); /* prints the error; 2 */
int ft_cmd_help(const struct ft_command *self);                            /* prints the help; 0 */

/* Ends a JSON line that begins at out->data + from: what other programs take for a line end inside a string (U+0085, U+2028,
 * U+2029) is escaped, then a newline is added. */
void ft_cmd_end_line(struct ft_buf *out, size_t from);

#endif
