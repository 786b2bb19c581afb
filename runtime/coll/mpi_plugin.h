/* What the engine `mpi` (mpi.c) needs of an MPI library: libft_mpi.so gives this table, so that fttrain itself needs no libmpi. The
 * plugin knows no channels, stores or deadlines: it starts MPI, moves single messages without blocking, ends MPI.
 *
 * Functions that return int: 0, or an MPI error code, whose text error_text() gives. One thread at a time. */
#ifndef FT_RUNTIME_COLL_MPI_PLUGIN_H
#define FT_RUNTIME_COLL_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/plugin.h"

enum { FT_MPI_ABI = 1 };

/* An MPI_Request of any MPI. */
struct ft_mpi_request {
    uint64_t opaque;
};

struct ft_mpi_ops {
    struct ft_plugin_head head;
    void (*library)(char *out, size_t n); /* "Open MPI v4.1.4"; works before init */
    unsigned (*pmis)(void);               /* bits of enum ft_pmi: started so, ranks of this library find each other */
    /* MPI_Init, waits for all ranks; a communicator of our own. Once per process. */
    int (*init)(void **self, int *rank, int *world);
    int (*send)(void *self, int peer, int tag, const void *p, int bytes, struct ft_mpi_request *r);
    int (*recv)(void *self, int peer, int tag, void *p, int bytes, struct ft_mpi_request *r);
    int (*test)(void *self, struct ft_mpi_request *r, bool *done, int *bytes); /* bytes: of a receive that is done */
    void (*cancel)(void *self, struct ft_mpi_request *r);                      /* of a receive that nobody will send to */
    void (*finish)(void *self); /* MPI_Finalize, waits for all ranks; frees. NULL is fine */
    void (*drop)(void *self);   /* frees without ending MPI: when a peer is dead that would never return. NULL is fine */
    void (*error_text)(int code, char *out, size_t n);
};

/* The one function that libft_mpi.so exports. */
#define FT_MPI_PLUGIN   "libft_mpi.so"
#define FT_MPI_FUNCTION "ft_mpi_plugin"
const void *ft_mpi_plugin(void);

#endif
