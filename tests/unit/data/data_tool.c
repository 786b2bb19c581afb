/* `fttrain data` alone, for tests of its words before and beside the whole program. */
#include "runtime/data/data_cmd.h"

int main(int argc, char **argv)
{
    /* data_tool [data] WORD … */
    if (argc > 1 && argv[1][0] == 'd' && argv[1][1] == 'a' && argv[1][2] == 't' && argv[1][3] == 'a' && !argv[1][4]) argv++, argc--;
    return ft_data_main(argc, argv);
}
