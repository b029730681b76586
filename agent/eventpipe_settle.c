/* Values of samples, once all of a stretch of time is there: see the estimators in
 * eventpipe_build.h. */
#include "agent/eventpipe_parts.h"

#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

#define GAP_NS 1600000.0 /* usual time between two samples, for a thread with a single one */

static int compare_samples(const void *x, const void *y, void *context)
{
    const struct clp_epb *b = context;
    uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
    const struct clp_epb_sample *s = &b->samples[i], *t = &b->samples[k];
    if (s->tid != t->tid)
        return s->tid < t->tid ? -1 : 1;
    if (s->ticks != t->ticks)
        return s->ticks < t->ticks ? -1 : 1;
    return i < k ? -1 : i > k;
}

static int compare_clocks(const void *x, const void *y)
{
    const struct clp_epb_clock *c = x, *d = y;
    if (c->tid != d->tid)
        return c->tid < d->tid ? -1 : 1;
    return c->to < d->to ? -1 : c->to > d->to;
}

/* ---- wall ---------------------------------------------------------------------------------- */

/* The burst that a moment is in: the last one that began before it. NULL without any. */
static struct clp_epb_burst *burst_of(const struct clp_epb *b, uint64_t ticks)
{
    uint32_t low = 0, high = b->burst_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->bursts[middle].from <= ticks)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &b->bursts[low - 1] : NULL;
}

/* When the sampler really ran: some time passes between asking for it and its first look. */
static void measure_bursts(struct clp_epb *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t ticks = b->samples[b->sorted[i]].ticks;
        struct clp_epb_burst *burst = burst_of(b, ticks);
        if (!burst)
            continue;
        burst->first = burst->first ? CLP_MIN(burst->first, ticks) : ticks;
        burst->last = CLP_MAX(burst->last, ticks);
    }
}

/* One thread's samples of one burst. The first has no sample before it and is worth as much as the
 * others are in the mean. A thread that was there all the time gets the whole period. */
static void weigh(struct clp_epb *b, const uint32_t *at, uint32_t count,
                  const struct clp_epb_burst *burst)
{
    uint64_t first = b->samples[at[0]].ticks, last = b->samples[at[count - 1]].ticks;
    double mean = count > 1 ? (double)(last - first) / (count - 1) : GAP_NS;
    double factor =
        burst ? (double)burst->period / ((double)(burst->last - burst->first) + mean) : 1;
    for (uint32_t i = 0; i < count; i++) {
        double gap = i > 0 ? (double)(b->samples[at[i]].ticks - b->samples[at[i - 1]].ticks) : mean;
        b->samples[at[i]].values[1] = gap * factor;
    }
}

static void weigh_thread(struct clp_epb *b, const uint32_t *at, uint32_t count)
{
    uint32_t begin = 0;
    const struct clp_epb_burst *burst = burst_of(b, b->samples[at[0]].ticks);
    for (uint32_t i = 1; i <= count; i++) {
        const struct clp_epb_burst *next = i < count ? burst_of(b, b->samples[at[i]].ticks) : NULL;
        if (i < count && next == burst)
            continue;
        weigh(b, at + begin, i - begin, burst);
        begin = i;
        burst = next;
    }
}

/* ---- CPU ----------------------------------------------------------------------------------- */

static void share(struct clp_epb *b, const uint32_t *at, uint32_t count, double cpu_ns)
{
    double whole = 0;
    for (uint32_t i = 0; i < count; i++)
        whole += b->samples[at[i]].values[1];
    for (uint32_t i = 0; i < count; i++) {
        double part = whole > 0 ? b->samples[at[i]].values[1] / whole : 1.0 / count;
        b->samples[at[i]].values[0] += cpu_ns * part;
    }
}

/* What no stretch with samples has: in proportion to what the samples have got, or, where none has
 * got anything, by their time. */
static void share_rest(struct clp_epb *b, const uint32_t *at, uint32_t count, double rest)
{
    double given = 0;
    for (uint32_t i = 0; i < count; i++)
        given += b->samples[at[i]].values[0];
    if (given <= 0) {
        share(b, at, count, rest);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        b->samples[at[i]].values[0] *= 1 + rest / given;
}

/* Each stretch of the clock goes to the samples in it; those between bursts have none. */
static void charge_thread(struct clp_epb *b, const uint32_t *at, uint32_t count,
                          const struct clp_epb_clock *clocks, uint32_t clock_count,
                          struct clp_epb_thread *t)
{
    uint32_t begin = 0;
    double rest = t->carry_ns;
    for (uint32_t k = 0; k < clock_count; k++) {
        uint32_t end = begin;
        while (begin < count && b->samples[at[begin]].ticks <= clocks[k].from)
            begin++;
        end = CLP_MAX(begin, end);
        while (end < count && b->samples[at[end]].ticks <= clocks[k].to)
            end++;
        if (end > begin)
            share(b, at + begin, end - begin, (double)clocks[k].cpu_ns);
        else
            rest += (double)clocks[k].cpu_ns;
        begin = end;
    }
    if (rest > 0)
        share_rest(b, at, count, rest);
    t->carry_ns = 0;
}

/* The clocks of the thread `tid` behind *at in the sorted array: from where, and how many. */
static uint32_t clocks_of(const struct clp_epb *b, uint64_t tid, uint32_t count, uint32_t *at)
{
    uint32_t n = 0;
    while (*at + n < count && b->clocks[*at + n].tid == tid)
        n++;
    return n;
}

/* Threads that have clocks but no samples keep what they used for later. */
static void carry(struct clp_epb *b, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        struct clp_epb_thread *t = clp_epb_thread_of(b, b->clocks[i].tid);
        if (t)
            t->carry_ns += (double)b->clocks[i].cpu_ns;
    }
}

static void charge(struct clp_epb *b, uint32_t sample_count, uint32_t clock_count)
{
    uint32_t begin = 0, clock = 0;
    while (begin < sample_count) {
        uint64_t tid = b->samples[b->sorted[begin]].tid;
        uint32_t end = begin, before = clock;
        while (end < sample_count && b->samples[b->sorted[end]].tid == tid)
            end++;
        weigh_thread(b, b->sorted + begin, end - begin);
        while (clock < clock_count && b->clocks[clock].tid < tid)
            clock++;
        carry(b, before, clock);
        uint32_t n = clocks_of(b, tid, clock_count, &clock);
        struct clp_epb_thread *t = clp_epb_thread_of(b, tid);
        if (t)
            charge_thread(b, b->sorted + begin, end - begin, b->clocks + clock, n, t);
        clock += n;
        begin = end;
    }
    carry(b, clock, clock_count);
}

/* ---- a stretch of time --------------------------------------------------------------------- */

/* Those that are over come first, by thread; how many. */
static uint32_t take_clocks(struct clp_epb *b, uint64_t until)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->clock_count; i++)
        if (b->clocks[i].to <= until) {
            struct clp_epb_clock c = b->clocks[i];
            b->clocks[i] = b->clocks[n];
            b->clocks[n++] = c;
        }
    if (n > 1)
        qsort(b->clocks, n, sizeof(*b->clocks), compare_clocks);
    return n;
}

void clp_epb_settle_values(struct clp_epb *b, uint64_t until)
{
    uint32_t count = 0;
    if (CLP_VEC_GROW(b->sorted, b->sorted_cap, b->sample_count, CLP_EPB_SAMPLES_MAX) < 0)
        return;
    for (uint32_t i = 0; i < b->sample_count; i++)
        if (!b->samples[i].settled && b->samples[i].ticks < until)
            b->sorted[count++] = i;
    if (count > 1)
        qsort_r(b->sorted, count, sizeof(*b->sorted), compare_samples, b);
    measure_bursts(b, count);
    uint32_t clocks = take_clocks(b, until);
    charge(b, count, clocks);
    for (uint32_t i = 0; i < count; i++)
        b->samples[b->sorted[i]].settled = true;
    if (clocks > 0 && clocks < b->clock_count)
        memmove(b->clocks, b->clocks + clocks, (b->clock_count - clocks) * sizeof(*b->clocks));
    b->clock_count -= clocks;
}
