/* What a stranger may send to the store of a run: greeting, then frames. Readers stay inside their bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/frame.h"
#include "runtime/coll/proof.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ft_buf b = {0};
    if (n >= FT_PROOF_HELLO + FT_PROOF_LAST) {
        struct ft_proof p = {0};
        memcpy(p.hello, data, FT_PROOF_HELLO);
        if (ft_proof_answer(&p, "secret") == FT_PROOF_OK)
            FT_ASSERT(ft_proof_check_last(&p, data + FT_PROOF_HELLO) == FT_PROOF_WRONG); /* the nonce of the answer is fresh */
    }
    ft_buf_add(&b, data, n);
    enum ft_frame type;
    struct ft_frame_reader r;
    size_t whole;
    while (ft_frame_parse(&b, &type, &r, &whole) == 1) {
        const size_t payload = r.n;
        size_t taken = 0, k;
        FT_ASSERT(whole == FT_FRAME_HEAD + payload && whole <= b.n);
        ft_frame_get_u32(&r);
        for (int i = 0; i < 4 && !r.bad; i++) {
            char *text = ft_frame_get_text(&r);
            taken += strlen(text);
            free(text);
        }
        ft_frame_get_bytes(&r, &k);
        ft_frame_get_u64(&r);
        FT_ASSERT(taken <= payload && r.n <= payload);
        ft_buf_drop(&b, whole);
    }
    ft_buf_fini(&b);
    return 0;
}
