#include "sampler/inproc/live_table.h"

#include "base/core/random.h"

#define RAISE 1.25
#define ROOMY 2u /* below one part in so many the threshold is lowered */

/* What is left of an entry's chance at a threshold, as a share of it. */
static double share_at(const struct clp_live_entry *e, double threshold)
{
    double chance = e->bytes >= threshold ? 1 : e->bytes / threshold;
    return chance < e->chance ? chance / e->chance : 1;
}

static bool stays(struct clp_live_table *t, struct clp_live_entry *e)
{
    double share = share_at(e, t->threshold);
    if (share < 1 && clp_random_unit(&t->random) >= share)
        return false;
    e->chance *= share;
    return true;
}

void clp_live_table_add(struct clp_live_table *t, const struct clp_live_entry *e)
{
    struct clp_live_entry n = *e;
    n.fresh = true;
    if (t->count < t->max && stays(t, &n))
        t->entries[t->count++] = n;
    else
        t->leave(t->user, &n);
}

static double expected(const struct clp_live_table *t, double threshold)
{
    double sum = 0;
    for (uint32_t i = 0; i < t->count; i++)
        sum += share_at(&t->entries[i], threshold);
    return sum;
}

static double smallest(const struct clp_live_table *t)
{
    double least = t->entries[0].bytes;
    for (uint32_t i = 1; i < t->count; i++)
        least = CLP_MIN(least, t->entries[i].bytes);
    return least;
}

static void draw_all(struct clp_live_table *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        struct clp_live_entry e = t->entries[i];
        if (stays(t, &e))
            t->entries[kept++] = e;
        else
            t->leave(t->user, &e);
    }
    t->count = kept;
}

void clp_live_table_thin(struct clp_live_table *t, uint32_t most)
{
    while (t->count > most) {
        /* Below the smallest size nothing would change. */
        double least = smallest(t), threshold = CLP_MAX(t->threshold, least);
        while (expected(t, threshold) > most)
            threshold *= RAISE;
        t->threshold = CLP_MAX(threshold, t->threshold * RAISE);
        draw_all(t);
    }
}

uint32_t clp_live_table_sweep(struct clp_live_table *t,
                              bool (*dead)(void *user, const struct clp_live_entry *e))
{
    uint32_t kept = 0, was = t->count;
    for (uint32_t i = 0; i < was; i++) {
        struct clp_live_entry e = t->entries[i];
        if (dead(t->user, &e))
            t->leave(t->user, &e);
        else
            t->entries[kept++] = e;
    }
    t->count = kept;
    return was - kept;
}

void clp_live_table_epoch(struct clp_live_table *t, double each)
{
    for (uint32_t i = 0; i < t->count; i++) {
        struct clp_live_entry *e = &t->entries[i];
        if (e->fresh && each > 1)
            e->chance /= each;
        e->fresh = false;
    }
    if (t->count < t->max / ROOMY && t->threshold > 0)
        t->threshold = t->threshold > 1 ? t->threshold / 2 : 0;
}
