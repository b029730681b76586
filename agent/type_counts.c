#include "agent/type_counts.h"

#include "base/core/text.h"

#include <string.h>

void clp_type_counts_add(struct clp_type_counts *c, const char *name, double n)
{
    char cut[CLP_TYPE_COUNTS_NAME_BYTES];
    struct clp_text t = clp_text_in(cut, sizeof(cut));
    size_t i = 0;
    clp_text_utf8_clean(&t, name, strlen(name));
    while (*cut && i < c->count && strcmp(c->of[i].name, cut) != 0)
        i++;
    if (!*cut || i == CLP_TYPE_COUNTS_MAX) {
        c->others += n;
        return;
    }
    if (i == c->count) {
        memcpy(c->of[i].name, cut, sizeof(cut));
        c->of[i].n = 0;
        c->count++;
    }
    c->of[i].n += n;
}

void clp_type_counts_add_all(struct clp_type_counts *c, const struct clp_type_counts *more)
{
    for (size_t i = 0; i < more->count; i++)
        clp_type_counts_add(c, more->of[i].name, more->of[i].n);
    c->others += more->others;
}
