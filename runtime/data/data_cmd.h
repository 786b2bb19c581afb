/* `fttrain data check|show|prepare|encode|decode|render`: what stands behind [data], on the command line. */
#ifndef FT_RUNTIME_DATA_DATA_CMD_H
#define FT_RUNTIME_DATA_DATA_CMD_H

#include <stddef.h>

#include "base/argv.h"

/* argv[0] is "data", argv[1] the verb. Prints results to stdout, everything else to stderr; returns the exit status: 0 done,
 * 2 faults or a wrong command line. */
int ft_data_main(int argc, char **argv);

/* The words with their options (man pages, completion). */
const struct ft_command *const *ft_data_commands(size_t *n);

#endif
