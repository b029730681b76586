#include "sampler/inproc/event_sized.h"

void clp_event_sized_init(struct clp_event_sized *s, enum clp_sample_kind kind, uint32_t target)
{
    if (s->kind)
        return;
    clp_threshold_init(&s->threshold, s->strata, CLP_EVENT_STRATA, target);
    s->kind = kind;
}

struct clp_threshold_member clp_event_sized_offer(struct clp_event_sized *s,
                                                  const struct clp_event_here *h, uint64_t key,
                                                  uint64_t count, uint64_t size)
{
    double random = h->thread ? clp_event_random(h->thread) : 0;
    return clp_threshold_offer(&s->threshold, key, count, size, clp_event_ring_pressure(), random);
}

bool clp_event_sized_is_early(const struct clp_event_sized *s, const struct clp_event *e)
{
    return (int32_t)(e->epoch - s->epoch) > 0;
}

/* One that was so late that others stand for it already is lost. */
struct clp_event_member *clp_event_sized_take(struct clp_event_sized *s, struct clp_event *e,
                                              uint64_t pass, const struct clp_events_sink *sink)
{
    struct clp_event_member *m = NULL;
    if (e->epoch == s->epoch && e->stratum < CLP_EVENT_STRATA)
        m = clp_event_member_make(e, pass, sink);
    if (!m) {
        atomic_fetch_add(&s->lost, 1);
        return NULL;
    }
    m->next = s->members;
    s->members = m;
    return m;
}

void clp_event_sized_turn(struct clp_event_sized *s)
{
    clp_threshold_turn(&s->threshold);
}

static void add_up(struct clp_event_sized *s)
{
    uint64_t members = 0, lost = atomic_load(&s->lost);
    for (const struct clp_event_member *m = s->members; m; m = m->next) {
        struct clp_event_stratum *of = &s->of[m->stratum];
        *(m->certain ? &of->certain_count : &of->count) += m->value;
        *(m->certain ? &of->certain_sum : &of->sum) += m->value2;
        members++;
    }
    s->each = members ? 1 + (double)(lost - s->lost_before) / (double)members : 1;
    s->lost_before = lost;
}

/* A rest that is smaller than what rounding makes of it is none. */
static double rest_of(double rest)
{
    return rest > 1e-3 ? rest : 0;
}

/* Turns the sums of its members into what they are multiplied by. */
static void find_factors(struct clp_event_stratum *of, const struct clp_threshold_totals *t)
{
    struct clp_threshold_factors count =
        clp_threshold_scale(t->count + of->carried_count, of->certain_count, of->count);
    struct clp_threshold_factors sum =
        clp_threshold_scale(t->sum + of->carried_sum, of->certain_sum, of->sum);
    *of = (struct clp_event_stratum){.certain_count = count.certain,
                                     .certain_sum = sum.certain,
                                     .count = count.other,
                                     .sum = sum.other,
                                     .carried_count = rest_of(count.rest),
                                     .carried_sum = rest_of(sum.rest)};
}

static void write_member(struct clp_event_sized *s, const struct clp_event_member *m,
                         const struct clp_events_sink *sink)
{
    const struct clp_event_stratum *of = &s->of[m->stratum];
    double count = m->value * (m->certain ? of->certain_count : of->count);
    double sum = m->value2 * (m->certain ? of->certain_sum : of->sum);
    clp_event_member_write(m, s->kind, count, sum, sink);
    s->accounted_count += count;
    s->accounted_sum += sum;
}

/* What no stack stands for, all strata together. */
static void write_carried(struct clp_event_sized *s, uint64_t now_ns,
                          const struct clp_events_sink *sink)
{
    double count = 0, sum = 0;
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++) {
        struct clp_event_stratum *of = &s->of[i];
        if (of->carried_count <= 0 && of->carried_sum <= 0)
            continue;
        count += of->carried_count;
        sum += of->carried_sum;
        of->carried_count = of->carried_sum = 0;
    }
    if (count <= 0 && sum <= 0)
        return;
    clp_event_write_unsampled(s->kind, count, sum, now_ns, sink);
    s->accounted_count += count;
    s->accounted_sum += sum;
}

/* Pages that no stratum uses stay untouched. */
static void forget_factors(struct clp_event_stratum *of)
{
    if (of->certain_count > 0 || of->count > 0)
        of->certain_count = of->certain_sum = of->count = of->sum = 0;
}

void clp_event_sized_settle(struct clp_event_sized *s, uint64_t now_ns, double share, bool flush,
                            const struct clp_events_sink *sink)
{
    struct clp_threshold_totals all = {0};
    uint32_t strata = 0;
    if (!s->kind)
        return; /* no session of it was ever asked for */
    add_up(s);
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++) {
        struct clp_threshold_totals t = clp_threshold_take(&s->threshold, i);
        struct clp_event_stratum *of = &s->of[i];
        all.count += t.count;
        all.sum += t.sum;
        all.members += t.members;
        strata += t.members > 0;
        if (t.members > 0 || of->certain_sum > 0 || of->sum > 0)
            find_factors(of, &t);
    }
    for (const struct clp_event_member *m = s->members; m; m = m->next)
        write_member(s, m, sink);
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++)
        forget_factors(&s->of[i]);
    clp_threshold_adapt(&s->threshold, &all, strata, share);
    s->members = NULL;
    s->epoch++;
    if (flush)
        write_carried(s, now_ns, sink);
}
