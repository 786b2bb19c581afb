/* Properties of single code points, for rooms beside the tokenizer (utf8proc itself stays in unicode.c). */
#ifndef FT_RUNTIME_TOKEN_UNICODE_H
#define FT_RUNTIME_TOKEN_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

bool ft_is_space(uint32_t cp);       /* White_Space */
bool ft_is_numeric(uint32_t cp);     /* N* */
bool ft_is_word(uint32_t cp);        /* \w of the reference: letters, marks, decimal digits, connectors */
bool ft_is_mark(uint32_t cp);        /* M* */
bool ft_is_accent(uint32_t cp);      /* what StripAccents takes away: the marks of Unicode 9 */
bool ft_is_punctuation(uint32_t cp); /* ASCII punctuation or P* */
bool ft_is_cased(uint32_t cp);       /* Lu, Ll, Lt */
bool ft_is_printable(
    uint32_t cp); /* as Python's str.isprintable: no control, format, surrogate, private, unassigned, separator but the blank */
/* Full, locale-free case mapping of one code point; the number of code points written. */
int ft_to_lower(uint32_t cp, uint32_t out[3]);
int ft_to_upper(uint32_t cp, uint32_t out[3]);
int ft_to_title(uint32_t cp, uint32_t out[3]);
/* Appends the NFC form of s. */
void ft_nfc(const char *s, size_t n, struct ft_buf *out);

#endif
