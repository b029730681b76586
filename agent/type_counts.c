#include "agent/type_counts.h"

#include "base/core/text.h"

#include <string.h>

/* A map's value is a number of 64 bits: here those of a double. */
static double get(const union clp_map_value *v)
{
    double n;
    memcpy(&n, &v->u64, sizeof(n));
    return n;
}

static union clp_map_value put(double n)
{
    union clp_map_value v;
    memcpy(&v.u64, &n, sizeof(n));
    return v;
}

void clp_type_counts_done(struct clp_type_counts *c)
{
    clp_map_done(&c->by_name);
    c->others = 0;
}

void clp_type_counts_set_share(struct clp_type_counts *c, unsigned share)
{
    if (!c->by_name.ceiling)
        clp_map_init(&c->by_name, CLP_TYPE_COUNTS_MAX);
    c->by_name.ceiling = CLP_MAX(CLP_TYPE_COUNTS_MAX / share, CLP_TYPE_COUNTS_SHOWN);
}

void clp_type_counts_add(struct clp_type_counts *c, const char *name, double n)
{
    char cut[CLP_TYPE_COUNTS_NAME_BYTES];
    struct clp_text t = clp_text_in(cut, sizeof(cut));
    clp_text_utf8_clean(&t, name, strlen(name));
    if (!c->by_name.ceiling)
        clp_map_init(&c->by_name, CLP_TYPE_COUNTS_MAX);
    /* With its NUL, so that a key is a text. */
    union clp_map_value *v = clp_map_get(&c->by_name, cut, t.len + 1);
    if (v)
        *v = put(get(v) + n);
    else if (t.len == 0 || clp_map_put(&c->by_name, cut, t.len + 1, put(n)) < 0)
        c->others += n;
}

void clp_type_counts_add_all(struct clp_type_counts *c, const struct clp_type_counts *more)
{
    struct clp_map_item item;
    for (uint32_t at = clp_map_begin(&more->by_name); clp_map_next(&more->by_name, &at, &item);)
        clp_type_counts_add(c, item.key, get(item.value));
    c->others += more->others;
}

/* Before the first that is lighter; what falls off the end is one of the others. */
static void enter(struct clp_type_counts_top *top, const char *name, double n)
{
    size_t i = top->count;
    while (i > 0 && (n > top->of[i - 1].n ||
                     (n == top->of[i - 1].n && strcmp(name, top->of[i - 1].name) < 0)))
        i--;
    if (top->count == CLP_TYPE_COUNTS_SHOWN)
        top->others += i < top->count ? top->of[top->count - 1].n : n;
    else
        top->count++;
    if (i == CLP_TYPE_COUNTS_SHOWN)
        return;
    memmove(&top->of[i + 1], &top->of[i], (top->count - 1 - i) * sizeof(top->of[0]));
    top->of[i].name = name;
    top->of[i].n = n;
}

void clp_type_counts_top(const struct clp_type_counts *c, struct clp_type_counts_top *ret)
{
    struct clp_map_item item;
    *ret = (struct clp_type_counts_top){.others = c->others};
    for (uint32_t at = clp_map_begin(&c->by_name); clp_map_next(&c->by_name, &at, &item);)
        enter(ret, item.key, get(item.value));
}
