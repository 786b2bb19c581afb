#include "runtime/coll/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

/* The notes of one segment: name size, descriptor size, type, name, descriptor, each padded to 4. */
static int find_note(const unsigned char *p, size_t n, char *out)
{
    while (n >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        memcpy(&h, p, sizeof h);
        const size_t name = (h.n_namesz + 3u) & ~3u, desc = (h.n_descsz + 3u) & ~3u;
        if (sizeof h + name + desc > n) return 0;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(p + sizeof h, "GNU", 4) && h.n_descsz && h.n_descsz <= 32) {
            ft_hex(p + sizeof h + name, h.n_descsz, out);
            return 1;
        }
        p += sizeof h + name + desc;
        n -= sizeof h + name + desc;
    }
    return 0;
}

/* The first object is the main program. */
static int look(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_NOTE && find_note((const unsigned char *)(info->dlpi_addr + h->p_vaddr), h->p_memsz, out))
            break; // NOLINT
    }
    return 1;
}

void ft_build_id(char out[FT_BUILD_ID_TEXT])
{
    snprintf(out, FT_BUILD_ID_TEXT, "none");
    dl_iterate_phdr(look, out);
}
