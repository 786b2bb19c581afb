/* The matrix product of one instruction set, in parts (Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008; BLIS, Van Zee and van de Geijn, 2015). C (m,n) = from + alpha op(A) op(B):
 *
 *  1. sg_k_block(k)     k is cut into blocks of one length; it depends on k alone
 *  2. sg_pack_b()       (kc, n) of op(B) as panels: SG_NR columns wide (the last two may share), element (k,j) of a panel at
 *                       [k*width + j], columns past n are zero; a panel that begins at column j begins at dst + j*kc
 *  3. sg_pack_a()       (m, kc) of op(A): rows of kc floats, or panels of SG_MR rows with element (i,k) at [k*SG_MR + i] when A is
 *                       stored transposed; A may also be used where it lies (sg_a)
 *  4. sg_block()        C from one block of k
 *
 * Bits: an element is ((from + alpha s1) + alpha s2) + ..., s_b the sum of block b, one multiply-add after the other in ascending k from
 * zero. Every kernel, of whatever height and width, packed or not, transposed or not, runs this sequence; so an element's bits
 * depend on its own row of A, its column of B and k, never on m, n, neighbours, tiles or threads.
 *
 * Compute-bound; a kernel keeps SG_MR x SG_NV vectors of C in registers and needs, per step of k, SG_NV loads and SG_MR broadcasts
 * for SG_MR*SG_NV multiply-adds. Nothing outside the matrices is read or written. */
#ifndef FT_KERNELS_CPU_SGEMM_H
#define FT_KERNELS_CPU_SGEMM_H

#include "kernels/cpu/ops.h"

#if FT_VBYTES == 64
enum { SG_MR = 8, SG_NV = 3 }; /* 24 sums, 3 of B, 32 registers */
#elif FT_VBYTES == 32
enum { SG_MR = 6, SG_NV = 2 }; /* 12 sums, 2 of B, 16 registers */
#else
enum { SG_MR = 4, SG_NV = 2 };
#endif
enum { SG_NR = SG_NV * LANES };
/* Rows and columns of C that one piece of work computes with one block of A (SG_MC*SG_KC floats, for the second-level cache);
 * multiples of every SG_MR and SG_NR. SG_PAD: between panels of A, so that they do not begin in one set of the first-level cache. */
enum { SG_PAD = 16, SG_KC = 384, SG_MC = 144, SG_NC = 288 };

/* op(A) (m,kc): packed 0: element (i,k) at p[i*ld + k]; 1: panels of SG_MR rows, panel q at p + q*panel, (i,k) of it at p[k*ld + i]. */
struct sg_a {
    const float *p;
    int64_t ld, panel;
    bool columns; /* the second form */
};
/* op(B) (kc,n): ld 0: panels of sg_pack_b; else element (k,j) at p[k*ld + j], and n is a multiple of LANES. */
struct sg_b {
    const float *p;
    int64_t ld;
};
/* Element (i,j) at c[i*ld + j], or c[j*ld + i] when `turned`; from likewise with ld_from (0: one row for all, a bias); NULL: zero.
 * from may be c. */
struct sg_c {
    float *c;
    const float *from;
    int64_t ld, ld_from;
    float alpha;
    bool turned;
};

static inline int64_t round_up(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
static inline int64_t sg_k_block(int64_t k) { return k <= SG_KC ? max64(k, 1) : round_up(ceil_div(k, ceil_div(k, SG_KC)), 16); }
/* Vectors of the panel that begins when `left` are left: no last panel of one vector, its kernel would wait for itself. */
static inline int64_t sg_panel(int64_t left)
{
    if (SG_NV == 3 && left == 4) return 2;
    return min64(left, SG_NV);
}
static inline int64_t sg_b_floats(int64_t kc, int64_t n) { return kc * round_up(n, LANES); }

/* b: element (0,0) of this part of B as stored, (n,k) when trans, else (k,n). */
void ISA(sg_pack_b)(enum ft_dtype t, bool trans, int64_t kc, int64_t n, const void *b, int64_t ldb, float *dst);
/* a: element (0,0) of this part of A as stored, (k,m) when trans, else (m,k). */
struct sg_a ISA(sg_pack_a)(enum ft_dtype t, bool trans, int64_t m, int64_t kc, const void *a, int64_t lda, float *dst);
/* A where it lies, fp32. */
static inline struct sg_a sg_a_direct(bool trans, const float *a, int64_t lda)
{
    const struct sg_a v = {a, lda, trans ? SG_MR : SG_MR * lda, trans};
    return v;
}
void ISA(sg_block)(int64_t m, int64_t n, int64_t kc, struct sg_a a, struct sg_b b, struct sg_c c);

/* One product of fp32 or bf16 operands with an fp32 result; kernels/cpu/matmul.c is the life of a big one. */
struct sg_product {
    enum ft_dtype t;
    bool ta, tb;
    int64_t m, n, k;
    const void *a, *b; /* as stored */
    int64_t lda, ldb;
    struct sg_c c;
    bool b_direct; /* B is used where it lies */
};
/* The product as it is best made: perhaps the transposed one (few rows: then their k columns are packed, not B), perhaps with B
 * unpacked. */
struct sg_product ISA(sg_plan)(struct sg_product p);
/* Rows [k0,k1) of columns [j0,j0+n) of op(B) into dst, sg_b_floats(k1-k0, n), one block of k after the other. k0 begins a block; n <=
 * SG_NC. */
void ISA(sg_pack_part)(const struct sg_product *p, int64_t j0, int64_t n, int64_t k0, int64_t k1, float *dst);
/* C's rows [i0,i0+m), columns [j0,j0+n) get the blocks of [k0,k1); b: what sg_pack_part made of this range (b_direct: not used).
 * m <= SG_MC, n <= SG_NC. space: SG_SPACE floats. */
enum { SG_SPACE = SG_KC * (SG_MC + LANES) + SG_MC / SG_MR * SG_PAD };
void ISA(sg_piece)(const struct sg_product *p, int64_t i0, int64_t m, int64_t j0, int64_t n, int64_t k0, int64_t k1, const float *b,
                   float *space);

#endif
