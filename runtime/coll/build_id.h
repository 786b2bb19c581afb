/* Which build this program is: the linker's build id of the main program, so that ranks of different builds are told apart. */
#ifndef FT_RUNTIME_COLL_BUILD_ID_H
#define FT_RUNTIME_COLL_BUILD_ID_H

enum { FT_BUILD_ID_TEXT = 2 * 32 + 1 };

void ft_build_id(char out[FT_BUILD_ID_TEXT]); /* hex; "none" when the linker wrote none */

#endif
