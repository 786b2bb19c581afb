/* Unicode properties and normal forms through utf8proc. Categories follow Unicode 16 (newer letters and digits than the library's
 * come from a table); normal forms follow Unicode 9, as the reference does: newer code points are inert. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/arena.h"
#include "runtime/token/tok.h"

static const struct {
    uint32_t first, last;
    char category[3];
} newer[] = {
#include "runtime/token/unicode16.inc"
};

/* Ranges newer than Unicode 9 that decompose, compose or reorder in the library's tables. */
static const struct range {
    uint32_t first, last;
} inert[] = {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
             {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
             {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
             {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
             {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
             {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
             {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D},
             {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C},
             {0x1FBF0, 0x1FBF9}};

static bool in_ranges(const struct range *v, size_t n, uint32_t cp)
{
    if (cp < v[0].first) return false;
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (cp > v[mid].last) lo = mid + 1;
        else hi = mid;
    }
    return lo < n && cp >= v[lo].first;
}

static bool is_inert(uint32_t cp) { return in_ranges(inert, sizeof inert / sizeof *inert, cp); }

static utf8proc_category_t category(uint32_t cp)
{
    static const char names[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo"; /* utf8proc's order */
    if (cp > 0x10FFFF) return UTF8PROC_CATEGORY_CN;
    if (cp >= newer[0].first) {
        size_t lo = 0, hi = sizeof newer / sizeof *newer;
        while (lo < hi) {
            const size_t mid = (lo + hi) / 2;
            if (cp > newer[mid].last) lo = mid + 1;
            else hi = mid;
        }
        if (lo < sizeof newer / sizeof *newer && cp >= newer[lo].first)
            for (size_t i = 0; names[i]; i += 2)
                if (names[i] == newer[lo].category[0] && names[i + 1] == newer[lo].category[1]) return (utf8proc_category_t)(i / 2);
    }
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool ft_is_space(uint32_t cp)
{
    if (cp <= 0x20) return cp == 0x20 || (cp >= 9 && cp <= 13);
    if (cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A)) return true;
    return cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool ft_is_numeric(uint32_t cp)
{
    if (cp < 128) return cp >= '0' && cp <= '9';
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool ft_is_mark(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool ft_is_accent(uint32_t cp)
{
    static const struct range kept[] = {
#include "runtime/token/unicode9_marks.inc"
    };
    if (cp == 0x1CF2 || cp == 0x1CF3) return true; /* marks in Unicode 9, letters since 12 */
    return ft_is_mark(cp) && !in_ranges(kept, sizeof kept / sizeof *kept, cp);
}

bool ft_is_word(uint32_t cp)
{
    if (cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9)) return true; /* joiners; circled letters are alphabetic */
    const utf8proc_category_t c = category(cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ME) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
           c == UTF8PROC_CATEGORY_PC;
}

bool ft_is_punctuation(uint32_t cp)
{
    if (cp < 128) return (cp >= 33 && cp <= 47) || (cp >= 58 && cp <= 64) || (cp >= 91 && cp <= 96) || (cp >= 123 && cp <= 126);
    const utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool ft_is_cased(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

bool ft_is_printable(uint32_t cp)
{
    if (cp == ' ') return true;
    const utf8proc_category_t c = category(cp);
    return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

int ft_to_lower(uint32_t cp, uint32_t out[3])
{
    if (cp == 0x130) {
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    static const struct {
        uint32_t first, last;
        int32_t by;
    } late[] = {/* Unicode 16 and 17, which the library does not know */
                {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
                {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
                {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}};
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    for (size_t i = 0; i < sizeof late / sizeof *late && cp >= late[0].first; i++)
        if (cp >= late[i].first && cp <= late[i].last) out[0] = (uint32_t)((int32_t)cp + late[i].by);
    return 1;
}

/* The letters whose upper case is several letters (SpecialCasing.txt, unconditional, those in use). */
static int special_upper(uint32_t cp, bool title, uint32_t out[3])
{
    static const struct {
        uint32_t cp, upper[3], title[3];
        int n;
    } rows[] = {
        {0xDF, {'S', 'S'}, {'S', 's'}, 2},
        {0x149, {0x2BC, 'N'}, {0x2BC, 'N'}, 2},
        {0x1F0, {'J', 0x30C}, {'J', 0x30C}, 2},
        {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}, 3},
        {0x3B0, {0x3A5, 0x308, 0x301}, {0x3A5, 0x308, 0x301}, 3},
        {0x587, {0x535, 0x552}, {0x535, 0x582}, 2},
        {0x1E96, {'H', 0x331}, {'H', 0x331}, 2},
        {0x1E97, {'T', 0x308}, {'T', 0x308}, 2},
        {0x1E98, {'W', 0x30A}, {'W', 0x30A}, 2},
        {0x1E99, {'Y', 0x30A}, {'Y', 0x30A}, 2},
        {0x1E9A, {'A', 0x2BE}, {'A', 0x2BE}, 2},
        {0xFB00, {'F', 'F'}, {'F', 'f'}, 2},
        {0xFB01, {'F', 'I'}, {'F', 'i'}, 2},
        {0xFB02, {'F', 'L'}, {'F', 'l'}, 2},
        {0xFB03, {'F', 'F', 'I'}, {'F', 'f', 'i'}, 3},
        {0xFB04, {'F', 'F', 'L'}, {'F', 'f', 'l'}, 3},
        {0xFB05, {'S', 'T'}, {'S', 't'}, 2},
        {0xFB06, {'S', 'T'}, {'S', 't'}, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].cp == cp) {
            memcpy(out, title ? rows[i].title : rows[i].upper, sizeof rows[i].upper);
            return rows[i].n;
        }
    return 0;
}

int ft_to_upper(uint32_t cp, uint32_t out[3])
{
    const int n = special_upper(cp, false, out);
    if (n) return n;
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

int ft_to_title(uint32_t cp, uint32_t out[3])
{
    const int n = special_upper(cp, true, out);
    if (n) return n;
    out[0] = (uint32_t)utf8proc_totitle((utf8proc_int32_t)cp);
    return 1;
}

/* ---- normal forms ---- */

struct unit {
    uint32_t cp, from, to;
    uint8_t ccc;
};
struct units {
    struct unit *v;
    size_t n, cap;
};

static uint8_t class_of(uint32_t cp)
{
    return is_inert(cp) ? 0 : (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

static void add_unit(struct units *u, uint32_t cp, uint32_t from, uint32_t to)
{
    ft_grow(&u->v, &u->cap, u->n + 1, sizeof *u->v);
    u->v[u->n++] = (struct unit){cp, from, to, class_of(cp)};
}

/* Canonical order: each run of marks by class, stable. */
static void reorder(struct units *u)
{
    struct unit *copy = NULL;
    for (size_t i = 0, end; i < u->n; i = end) {
        size_t count[257] = {0};
        bool sorted = true;
        end = i + 1;
        if (!u->v[i].ccc) continue;
        for (; end < u->n && u->v[end].ccc; end++) sorted = sorted && u->v[end - 1].ccc <= u->v[end].ccc;
        if (sorted) continue;
        if (!copy) copy = ft_xcalloc(u->n, sizeof *copy);
        for (size_t k = i; k < end; k++) count[u->v[k].ccc + 1]++;
        for (size_t c = 1; c < 257; c++) count[c] += count[c - 1];
        for (size_t k = i; k < end; k++) copy[i + count[u->v[k].ccc]++] = u->v[k];
        memcpy(u->v + i, copy + i, (end - i) * sizeof *copy);
    }
    free(copy);
}

static void decompose(struct units *u, uint32_t cp, bool compat, uint32_t from, uint32_t to)
{
    utf8proc_int32_t d[32];
    int boundary = 0;
    if (!is_inert(cp)) {
        const int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
        const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, d, 32, (utf8proc_option_t)options, &boundary);
        if (n > 0 && n <= 32) {
            for (utf8proc_ssize_t i = 0; i < n; i++) add_unit(u, (uint32_t)d[i], from, to);
            return;
        }
    }
    add_unit(u, cp, from, to);
}

/* The composition of a starter and a following code point, 0: none (two decomposed code points normalised together). */
static uint32_t pair_of(uint32_t a, uint32_t b)
{
    if (is_inert(a) || is_inert(b)) return 0;
    const utf8proc_property_t *pa = utf8proc_get_property((utf8proc_int32_t)a), *pb = utf8proc_get_property((utf8proc_int32_t)b);
    const bool hangul = (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176) ||
                        (a >= 0xAC00 && a < 0xD7A4 && b > 0x11A7 && b < 0x11C3);
    if (!hangul && (pa->comb_index == UINT16_MAX || pb->comb_index == UINT16_MAX)) return 0;
    utf8proc_int32_t two[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(two, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n == 1 && !is_inert((uint32_t)two[0]) ? (uint32_t)two[0] : 0;
}

static void compose(struct units *u)
{
    size_t out = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < u->n; i++) {
        const struct unit x = u->v[i];
        if (starter != SIZE_MAX) {
            const bool adjacent = out == starter + 1, blocked = !adjacent && u->v[out - 1].ccc >= x.ccc;
            const uint32_t both = blocked ? 0 : pair_of(u->v[starter].cp, x.cp);
            if (both) {
                struct unit *s = &u->v[starter];
                s->cp = both;
                if (x.from < s->from) s->from = x.from;
                if (x.to > s->to) s->to = x.to;
                continue;
            }
        }
        if (!x.ccc) starter = out;
        u->v[out++] = x;
    }
    u->n = out;
}

/* No character of s can change under NFC. False also for some that would not: then the slow way finds out. */
static bool surely_nfc(const char *p, size_t n)
{
    const unsigned char *s = (const unsigned char *)p;
    for (size_t i = 0; i < n;) {
        const unsigned c = s[i];
        if (c < 0x80) i++;
        else if (c < 0xCC) i += 2;                                            /* below U+0300 */
        else if (c >= 0xE4 && c <= 0xE9) i += 3;                              /* U+4000..9FFF: ideographs */
        else if (c == 0xE2 && s[i + 1] == 0x80 && s[i + 2] >= 0x82) i += 3;   /* dashes, quotes */
        else if (c == 0xE3 && s[i + 1] == 0x80 && s[i + 2] <= 0xA9) i += 3;   /* CJK punctuation */
        else if (c == 0xEF && (s[i + 1] == 0xBC || s[i + 1] == 0xBD)) i += 3; /* full-width */
        else if (c == 0xF0 && s[i + 1] == 0x9F) i += 4;                       /* pictographs */
        else return false;
    }
    return true;
}

static void flush(struct units *u, bool composed, struct ft_text *out)
{
    if (u->n > 1) reorder(u);
    if (composed && u->n > 1) compose(u);
    for (size_t i = 0; i < u->n; i++) {
        char s[4];
        ft_text_put(out, s, (size_t)ft_utf8_encode(u->v[i].cp, s), u->v[i].from, u->v[i].to);
    }
    u->n = 0;
}

bool ft_normal_form(enum ft_nf form, const struct ft_text *in, struct ft_text *out)
{
    const bool composed = form == FT_NFC || form == FT_NFKC, compat = form == FT_NFKC || form == FT_NFKD;
    if (form == FT_NFC && surely_nfc(in->s, in->n)) return false;
    struct units u = {0};
    ft_text_clear(out);
    for (size_t i = 0; i < in->n;) {
        uint32_t cp;
        const size_t k = (size_t)ft_utf8_decode(in->s + i, in->n - i, &cp);
        /* A starter below U+0300 takes part in nothing before it. */
        if (cp < 0x300 && u.n) flush(&u, composed, out);
        decompose(&u, cp, compat, ft_text_from(in, i), ft_text_to(in, i + k - 1));
        i += k;
    }
    flush(&u, composed, out);
    free(u.v);
    return true;
}

void ft_nfc(const char *s, size_t n, struct ft_buf *out)
{
    struct ft_text in = {0}, to = {0};
    ft_text_borrow(&in, s, n, 0);
    const bool changed = ft_normal_form(FT_NFC, &in, &to);
    ft_buf_add(out, changed ? to.s : s, changed ? to.n : n);
    ft_text_fini(&to);
}
