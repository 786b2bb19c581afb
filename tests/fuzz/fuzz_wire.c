/* Frames in both directions: byte 0 chooses who we are and how the stream is cut; the rest is the stream. Whatever is decoded is
 * encoded again and must give the bytes it came from. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    struct ft_wire in, back;
    ft_wire_init(&in, data[0] & 1 ? FT_WIRE_HEAD : FT_WIRE_AGENT);
    ft_wire_init(&back, data[0] & 1 ? FT_WIRE_AGENT : FT_WIRE_HEAD);
    size_t step = (data[0] >> 1) + 1u;
    struct ft_buf shown = {0};
    for (size_t at = 1; at < n; at += step) {
        ft_wire_feed(&in, data + at, n - at < step ? n - at : step);
        struct ft_msg m;
        int r;
        while ((r = ft_wire_next(&in, &m)) == 1) {
            ft_buf_clear(&shown);
            ft_msg_print(&m, &shown);
            char text[64];
            for (unsigned f = 0; f < FT_WIRE_FIELDS; f++) ft_msg_copy_text(&m, f, text, sizeof text);
            ft_wire_send(&back, &m);
        }
        if (r < 0) {
            if (!in.why[0]) abort(); /* a broken stream says why */
            break;
        }
    }
    if (!in.broken && in.have_magic) { /* every byte behind the noise was understood, but for the unfinished frame at the end */
        size_t used = n - 1 - (in.in.n - in.in_at);
        if (used < back.out.n || memcmp(data + 1 + used - back.out.n, back.out.data, back.out.n) != 0) abort();
    }
    ft_buf_fini(&shown);
    ft_wire_fini(&in);
    ft_wire_fini(&back);
    return 0;
}
