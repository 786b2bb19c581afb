/* Facts that a node told about itself. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "launcher/head.h"

enum { MAX_FACTS = 64 };

void ft_head_take_fact(struct ft_head_node *n, const struct ft_msg *m)
{
    char name[64], value[512];
    ft_msg_copy_text(m, 0, name, sizeof name);
    ft_msg_copy_text(m, 1, value, sizeof value);
    for (size_t i = 0; i < n->n_facts; i++) {
        if (strcmp(n->facts[i].name, name) != 0) continue;
        free(n->facts[i].value);
        n->facts[i].value = ft_xstrdup(value);
        return;
    }
    if (n->n_facts == MAX_FACTS) return;
    ft_grow(&n->facts, &n->facts_cap, n->n_facts + 1, sizeof *n->facts);
    n->facts[n->n_facts++] = (struct ft_head_fact){ft_xstrdup(name), ft_xstrdup(value)};
}

void ft_head_drop_facts(struct ft_head_node *n)
{
    for (size_t i = 0; i < n->n_facts; i++) {
        free(n->facts[i].name);
        free(n->facts[i].value);
    }
    free(n->facts);
    n->facts = NULL;
    n->n_facts = n->facts_cap = 0;
}

const char *ft_head_fact(const struct ft_head_node *n, const char *name)
{
    for (size_t i = 0; i < n->n_facts; i++)
        if (!strcmp(n->facts[i].name, name)) return n->facts[i].value;
    return "";
}
