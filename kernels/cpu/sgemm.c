/* Pieces of a product, and a whole one in the calling thread for ops that make many small ones (attention). */
#include "kernels/cpu/sgemm.h"

/* Up to SG_FEW rows B is cheaper read twice than packed; a product of fewer multiply-adds per result than SG_DEEP is not turned,
 * because a turned tile leaves through memory. */
enum { SG_FEW = 2 * SG_MR, SG_DEEP = 192 };

struct sg_product ISA(sg_plan)(struct sg_product p)
{
    if (p.t != FT_F32) return p;
    if (p.tb && p.m <= LANES && p.m < p.n && p.k >= SG_DEEP) {
        const struct sg_product r = {p.t, !p.tb, !p.ta, p.n, p.m, p.k, p.b, p.a, p.ldb, p.lda, p.c, false};
        p = r;
        p.c.turned = !p.c.turned;
    }
    p.b_direct = !p.tb && p.m <= SG_FEW;
    return p;
}

static const void *at(enum ft_dtype t, const void *x, int64_t i) { return (const char *)x + (size_t)i * ft_dtype_bytes(t); }

void ISA(sg_pack_part)(const struct sg_product *p, int64_t j0, int64_t n, int64_t k0, int64_t k1, float *dst)
{
    const int64_t kb = sg_k_block(p->k);
    for (int64_t k = k0; k < k1; k += kb) {
        const int64_t kc = min64(kb, k1 - k), first = p->tb ? j0 * p->ldb + k : k * p->ldb + j0;
        ISA(sg_pack_b)(p->t, p->tb, kc, n, at(p->t, p->b, first), p->ldb, dst + sg_b_floats(k - k0, n));
    }
}

static void move(struct sg_c *c, int64_t i, int64_t j)
{
    c->c += c->turned ? j * c->ld + i : i * c->ld + j;
    if (c->from) c->from += c->turned ? j * c->ld_from + i : i * c->ld_from + j;
}

static void direct_block(const struct sg_product *p, int64_t m, int64_t j0, int64_t n, int64_t k, int64_t kc, struct sg_a a,
                         struct sg_c c, float *space)
{
    const int64_t whole = n / LANES * LANES;
    const float *b = (const float *)p->b + k * p->ldb + j0;
    const struct sg_b bv = {b, p->ldb};
    if (whole > 0) ISA(sg_block)(m, whole, kc, a, bv, c);
    if (whole == n) return;
    ISA(sg_pack_b)(p->t, false, kc, n - whole, b + whole, p->ldb, space);
    const struct sg_b rest = {space, 0};
    move(&c, 0, whole);
    ISA(sg_block)(m, n - whole, kc, a, rest, c);
}

void ISA(sg_piece)(const struct sg_product *p, int64_t i0, int64_t m, int64_t j0, int64_t n, int64_t k0, int64_t k1, const float *b,
                   float *space)
{
    const int64_t kb = sg_k_block(p->k);
    const bool pack_a = p->t != FT_F32 || (p->ta && n > 2 * SG_NR);
    struct sg_c c = p->c;
    move(&c, i0, j0);
    int64_t k = k0;
    do { /* a sum of nothing is one empty block */
        const int64_t kc = min64(kb, k1 - k);
        const void *pa = at(p->t, p->a, p->ta ? k * p->lda + i0 : i0 * p->lda + k);
        const struct sg_a a = pack_a ? ISA(sg_pack_a)(p->t, p->ta, m, kc, pa, p->lda, space) : sg_a_direct(p->ta, pa, p->lda);
        if (k > 0) {
            c.from = c.c;
            c.ld_from = c.ld;
        }
        const struct sg_b bv = {b + sg_b_floats(k - k0, n), 0};
        if (p->b_direct) direct_block(p, m, j0, n, k, kc, a, c, space + SG_SPACE - SG_KC * LANES);
        else ISA(sg_block)(m, n, kc, a, bv, c);
        k += kb;
    } while (k < k1);
}

void ISA(sgemm)(struct ft_kctx *k, bool ta, bool tb, int64_t m, int64_t n, int64_t kk, float alpha, const float *a, int64_t lda,
                const float *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    if (m <= 0 || n <= 0 || (kk <= 0 && add)) return;
    const struct sg_product given = {
        FT_F32, ta, tb, m, n, max64(kk, 0), a, b, lda, ldb, {c, add ? c : NULL, ldc, ldc, alpha, false}, false};
    const struct sg_product p = ISA(sg_plan)(given);
    const int64_t kb = sg_k_block(p.k);
    float *space = ft_cpu_worker_space(k, (SG_SPACE + sg_b_floats(SG_KC, SG_NC)) * (int64_t)sizeof(float)),
          *packed = space + SG_SPACE;
    for (int64_t j0 = 0; j0 < p.n; j0 += SG_NC) {
        const int64_t cols = min64(SG_NC, p.n - j0);
        for (int64_t k0 = 0; k0 < max64(p.k, 1); k0 += kb) {
            const int64_t k1 = min64(k0 + kb, p.k);
            if (!p.b_direct) ISA(sg_pack_part)(&p, j0, cols, k0, k1, packed);
            for (int64_t i0 = 0; i0 < p.m; i0 += SG_MC)
                ISA(sg_piece)(&p, i0, min64(SG_MC, p.m - i0), j0, cols, k0, k1, packed, space);
        }
    }
}
