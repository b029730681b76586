#include "sampler/inproc/event_sized.h"

#define FEW 12u /* with so many, a bias of about 1 % is left in the worst case that was tried */

void clp_event_sized_init(struct clp_event_sized *s, enum clp_sample_kind kind, uint32_t target,
                          bool pools)
{
    if (s->kind)
        return;
    clp_threshold_init(&s->threshold, s->strata, CLP_EVENT_STRATA, target);
    s->pools = pools;
    s->kind = kind;
}

struct clp_threshold_member clp_event_sized_offer(struct clp_event_sized *s,
                                                  const struct clp_event_here *h, uint64_t key,
                                                  uint64_t count, uint64_t size)
{
    double random = h->thread ? clp_event_random(h->thread) : 0;
    return clp_threshold_offer(&s->threshold, key, count, size, clp_event_ring_pressure(), random);
}

/* The last stratum is nobody's. */
void clp_event_sized_name(struct clp_event_sized *s, const struct clp_threshold_member *m,
                          uint64_t key, const struct clp_event_words *text, uint16_t detail)
{
    struct clp_stratum *of = &s->strata[m->stratum];
    if (m->stratum != CLP_EVENT_STRATA - 1)
        clp_event_name_keep((struct clp_event_named){&of->key, &of->name}, key, text, detail);
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

void clp_event_sized_follow(struct clp_event_sized *s, double share)
{
    if (s->kind)
        clp_threshold_follow(&s->threshold, share);
}

void clp_event_sized_turn(struct clp_event_sized *s)
{
    clp_threshold_turn(&s->threshold);
}

static void add_member(struct clp_event_scale *s, const struct clp_event_member *m, double value)
{
    if (m->certain)
        s->certain += value;
    else
        clp_threshold_ratio_add(&s->other, value, m->chance);
}

static void add_up(struct clp_event_sized *s)
{
    uint64_t members = 0, lost = atomic_load(&s->lost);
    for (const struct clp_event_member *m = s->members; m; m = m->next) {
        struct clp_event_stratum *of = &s->of[m->stratum];
        add_member(&of->count, m, m->value);
        add_member(&of->sum, m, m->value2);
        of->uncertain += !m->certain;
        members++;
    }
    s->each = members ? 1 + (double)(lost - s->lost_before) / (double)members : 1;
    s->lost_before = lost;
}

/* `factor` is what the epoch's totals are multiplied by; `carried` has been before. Gives what
 * nobody stands for; a rest that is smaller than what rounding makes of it is none. */
static double find_factors(struct clp_event_scale *s, double total, double carried, double factor)
{
    struct clp_threshold_factors f =
        clp_threshold_scale(total + carried / factor, s->certain, s->other.sum);
    f.certain *= factor;
    f.other *= factor;
    f.rest *= factor;
    s->factors = f;
    return f.rest > 1e-3 ? f.rest : 0;
}

/* Those of which all were kept change nothing for the others. */
static struct clp_event_stratum *scale_of(struct clp_event_sized *s, struct clp_event_stratum *of)
{
    return s->pools && of->uncertain < FEW ? &s->pool : of;
}

static void join_scale(struct clp_event_scale *pool, const struct clp_event_scale *of)
{
    pool->certain += of->certain;
    pool->other.sum += of->other.sum;
    pool->other.spread += of->other.spread;
}

static void join_pool(struct clp_event_stratum *pool, const struct clp_event_stratum *of,
                      const struct clp_threshold_totals *t)
{
    join_scale(&pool->count, &of->count);
    join_scale(&pool->sum, &of->sum);
    pool->carried_count += t->count;
    pool->carried_sum += t->sum;
}

static double scaled(const struct clp_event_scale *s, const struct clp_event_member *m,
                     double value)
{
    if (m->certain)
        return value * s->factors.certain;
    return value * s->factors.other * clp_threshold_ratio_correction(&s->other, value, m->chance);
}

static void write_member(struct clp_event_sized *s, const struct clp_event_member *m,
                         const struct clp_events_sink *sink)
{
    const struct clp_event_stratum *of = scale_of(s, &s->of[m->stratum]);
    double count = scaled(&of->count, m, m->value);
    double sum = scaled(&of->sum, m, m->value2);
    clp_event_member_write(m, s->kind, count, sum, sink);
    s->accounted_count += count;
    s->accounted_sum += sum;
}

static void write_unsampled(struct clp_event_sized *s, const struct clp_event_name *name,
                            double count, double sum, uint64_t now_ns,
                            const struct clp_events_sink *sink)
{
    if (count <= 0 && sum <= 0)
        return;
    clp_event_write_unsampled(s->kind, name, count, sum, now_ns, sink);
    s->accounted_count += count;
    s->accounted_sum += sum;
}

/* What no stack stands for: each class by its name, all that have none together. */
static void write_carried(struct clp_event_sized *s, uint64_t now_ns,
                          const struct clp_events_sink *sink)
{
    double count = s->pool.carried_count, sum = s->pool.carried_sum + clp_control_rest(&s->control);
    s->pool.carried_count = s->pool.carried_sum = 0;
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++) {
        struct clp_event_stratum *of = &s->of[i];
        if (of->carried_count <= 0 && of->carried_sum <= 0)
            continue;
        const struct clp_event_name *name =
            clp_event_name_find(&s->strata[i].name, atomic_load(&s->strata[i].key));
        if (name) {
            write_unsampled(s, name, of->carried_count, of->carried_sum, now_ns, sink);
        } else {
            count += of->carried_count;
            sum += of->carried_sum;
        }
        of->carried_count = of->carried_sum = 0;
    }
    write_unsampled(s, NULL, count, sum, now_ns, sink);
}

/* Pages that no stratum uses stay untouched. */
static void forget(struct clp_event_stratum *of)
{
    if (of->count.certain > 0 || of->sum.certain > 0 || of->count.other.sum > 0 ||
        of->sum.other.sum > 0)
        of->count = of->sum = (struct clp_event_scale){0};
    if (of->uncertain > 0)
        of->uncertain = 0;
}

static void fit_to(struct clp_event_sized *s, const struct clp_control_total *total)
{
    clp_control_begin(&s->control);
    for (uint32_t i = 0; total && i < CLP_EVENT_STRATA; i++) {
        struct clp_threshold_totals t = clp_threshold_peek(&s->threshold, i);
        if (t.members > 0)
            clp_control_add(&s->control, &t);
    }
    clp_control_fit(&s->control, total);
}

void clp_event_sized_settle(struct clp_event_sized *s, uint64_t now_ns, double share, bool flush,
                            const struct clp_control_total *total,
                            const struct clp_events_sink *sink)
{
    struct clp_threshold_totals all = {0};
    uint32_t strata = 0;
    if (!s->kind)
        return; /* no session of it was ever asked for */
    add_up(s);
    s->pool.count = s->pool.sum = (struct clp_event_scale){0};
    fit_to(s, total);
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++) {
        struct clp_threshold_totals t = clp_threshold_take(&s->threshold, i);
        struct clp_event_stratum *of = &s->of[i];
        all.count += t.count;
        all.sum += t.sum;
        all.members += t.members;
        strata += t.members > 0;
        bool used = t.members > 0 || of->sum.certain > 0 || of->sum.other.sum > 0;
        if (used && scale_of(s, of) == &s->pool) {
            join_pool(&s->pool, of, &t);
        } else if (used) {
            double f = clp_control_factor(&s->control, &t);
            of->carried_count = find_factors(&of->count, t.count, of->carried_count, f);
            of->carried_sum = find_factors(&of->sum, t.sum, of->carried_sum, f);
        } else if (of->carried_count <= 0 && of->carried_sum <= 0) {
            clp_threshold_forget_idle(&s->threshold, i);
        }
    }
    s->pool.carried_count = find_factors(&s->pool.count, 0, s->pool.carried_count, 1);
    s->pool.carried_sum = find_factors(&s->pool.sum, 0, s->pool.carried_sum, 1);
    for (const struct clp_event_member *m = s->members; m; m = m->next)
        write_member(s, m, sink);
    for (uint32_t i = 0; i < CLP_EVENT_STRATA; i++)
        forget(&s->of[i]);
    clp_threshold_adapt(&s->threshold, &all, strata, share);
    s->members = NULL;
    s->epoch++;
    if (flush)
        write_carried(s, now_ns, sink);
}
