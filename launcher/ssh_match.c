#include "launcher/ssh_match.h"

#include <stddef.h>
#include <string.h>

static char lower(char c, bool fold) { return fold && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* The last star is the only one that ever has to give bytes back. */
static bool glob_n(const char *t, const char *p, const char *p_end, bool fold)
{
    const char *star = NULL, *back = NULL;
    while (*t) {
        if (p < p_end && *p == '*') {
            star = p++;
            back = t;
        } else if (p < p_end && (*p == '?' || lower(*p, fold) == lower(*t, fold))) {
            p++;
            t++;
        } else if (star) {
            p = star + 1;
            t = ++back;
        } else return false;
    }
    while (p < p_end && *p == '*') p++;
    return p == p_end;
}

bool ft_ssh_glob(const char *text, const char *pattern) { return glob_n(text, pattern, pattern + strlen(pattern), false); }

enum ft_match ft_ssh_match_list(const char *text, const char *list, bool fold)
{
    bool found = false;
    for (const char *p = list;; p++) {
        bool negated = *p == '!';
        if (negated) p++;
        const char *end = strchrnul(p, ',');
        if (glob_n(text, p, end, fold)) {
            if (negated) return FT_MATCH_NEGATED;
            found = true;
        }
        if (!*end) break;
        p = end;
    }
    return found ? FT_MATCH_YES : FT_MATCH_NO;
}
