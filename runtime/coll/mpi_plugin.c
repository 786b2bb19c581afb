#include "runtime/coll/mpi_plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/place.h"

struct mpi {
    MPI_Comm comm; /* errors come back as codes */
};

_Static_assert(sizeof(MPI_Request) <= sizeof(struct ft_mpi_request), "an MPI_Request does not fit");

static MPI_Request get(const struct ft_mpi_request *r)
{
    MPI_Request m;
    memcpy(&m, &r->opaque, sizeof m);
    return m;
}

static void put(struct ft_mpi_request *r, MPI_Request m) { memcpy(&r->opaque, &m, sizeof m); }

static void library(char *out, size_t n)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(text, &length)) text[0] = '\0';
    snprintf(out, n, "%.*s", (int)strcspn(text, ",\n"), text);
}

static unsigned pmis(void)
{
    char text[256];
    library(text, sizeof text);
    return strstr(text, "Open MPI") ? FT_PMI_OPENMPI | FT_PMI_PMIX : FT_PMI_1;
}

static int init(void **self, int *rank, int *world)
{
    int provided = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
    struct mpi *m = code ? NULL : calloc(1, sizeof *m);
    if (!m) return code ? code : MPI_ERR_NO_MEM;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &m->comm);
    if (!code) code = MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_rank(m->comm, rank);
    if (!code) code = MPI_Comm_size(m->comm, world);
    if (code) {
        free(m);
        return code;
    }
    *self = m;
    return 0;
}

static int send_message(void *self, int peer, int tag, const void *p, int bytes, struct ft_mpi_request *r)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(p, bytes, MPI_BYTE, peer, tag, ((struct mpi *)self)->comm, &request);
    put(r, request);
    return code;
}

static int recv_message(void *self, int peer, int tag, void *p, int bytes, struct ft_mpi_request *r)
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Irecv(p, bytes, MPI_BYTE, peer, tag, ((struct mpi *)self)->comm, &request);
    put(r, request);
    return code;
}

static int test(void *self, struct ft_mpi_request *r, bool *done, int *bytes)
{
    (void)self;
    MPI_Request request = get(r);
    MPI_Status status;
    int flag = 0, code = MPI_Test(&request, &flag, &status);
    put(r, request);
    *done = flag != 0;
    if (!code && flag && bytes) code = MPI_Get_count(&status, MPI_BYTE, bytes);
    return code;
}

static void cancel(void *self, struct ft_mpi_request *r)
{
    (void)self;
    MPI_Request request = get(r);
    if (!MPI_Cancel(&request)) (void)MPI_Wait(&request, MPI_STATUS_IGNORE);
    put(r, request);
}

static void drop(void *self) { free(self); }

static void finish(void *self)
{
    if (!self) return;
    (void)MPI_Comm_free(&((struct mpi *)self)->comm);
    (void)MPI_Finalize();
    free(self);
}

static void error_text(int code, char *out, size_t n)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length)) text[0] = '\0';
    snprintf(out, n, "%s", text[0] ? text : "unknown error");
}

__attribute__((visibility("default"))) const void *ft_mpi_plugin(void)
{
    static const struct ft_mpi_ops ops = {.head = {.abi = FT_MPI_ABI, .bytes = sizeof ops, .version = FT_VERSION},
                                          .library = library,
                                          .pmis = pmis,
                                          .init = init,
                                          .send = send_message,
                                          .recv = recv_message,
                                          .test = test,
                                          .cancel = cancel,
                                          .finish = finish,
                                          .drop = drop,
                                          .error_text = error_text};
    return &ops;
}
