#include "sampler/inproc/event_sized.h"

void clp_event_sized_init(struct clp_event_sized *s, enum clp_sample_kind kind, uint32_t target,
                          bool counts_follow)
{
    if (s->kind)
        return;
    clp_threshold_init(&s->threshold, target);
    s->kind = kind;
    s->counts_follow = counts_follow;
}

struct clp_event_member *clp_event_sized_take(struct clp_event_sized *s, struct clp_event *e,
                                              uint64_t pass, const struct clp_events_sink *sink)
{
    struct clp_event_member *m = clp_event_member_make(e, pass, sink);
    if (!m) {
        atomic_fetch_add(&s->lost, 1);
        return NULL;
    }
    m->next = s->members;
    s->members = m;
    return m;
}

struct sums {
    double members, certain_count, certain_sum, count, sum;
};

static struct sums add_up(const struct clp_event_member *m)
{
    struct sums s = {0};
    for (; m; m = m->next) {
        s.members++;
        *(m->certain ? &s.certain_count : &s.count) += m->value;
        *(m->certain ? &s.certain_sum : &s.sum) += m->value2;
    }
    return s;
}

/* A rest that is smaller than what rounding makes of it is none. */
static double rest_of(double rest, double total)
{
    return rest > total * 1e-9 + 1e-3 ? rest : 0;
}

/* Factors of the members' values: of those that were certain, and of the others. */
struct factors {
    double certain, other;
};

/* Members that found no room were like those that did: who was certain stands for its share of
 * them, or, where all were certain, for all. */
static struct factors factors_of(double total, double certain, double uncertain, double lost_share,
                                 double *ret_rest)
{
    struct factors f = {.certain = lost_share, .other = 1};
    if (uncertain <= 0 && certain > 0 && lost_share > 1)
        f.certain = total / certain;
    f.other = clp_threshold_scale(total, certain * f.certain, uncertain, ret_rest);
    return f;
}

void clp_event_sized_settle(struct clp_event_sized *s, uint64_t now_ns, double share, bool flush,
                            const struct clp_events_sink *sink)
{
    struct clp_threshold_totals t = clp_threshold_end(&s->threshold, share);
    double count = t.count + s->carried_count, sum = t.sum + s->carried_sum;
    struct sums of = add_up(s->members);
    double lost = atomic_exchange(&s->lost, 0);
    double each = of.members > 0 ? (of.members + lost) / of.members : 1;
    s->each = each;
    struct factors sums = factors_of(sum, of.certain_sum, of.sum, each, &s->carried_sum);
    struct factors counts = factors_of(count, of.certain_count, of.count, each, &s->carried_count);
    if (s->counts_follow && (of.sum > 0 || of.certain_sum > 0))
        counts = sums;
    for (const struct clp_event_member *m = s->members; m; m = m->next) {
        double c = m->value * (m->certain ? counts.certain : counts.other);
        double v = m->value2 * (m->certain ? sums.certain : sums.other);
        clp_event_member_write(m, s->kind, c, v, sink);
        s->accounted_count += c;
        s->accounted_sum += v;
    }
    s->members = NULL;
    s->carried_count = rest_of(s->carried_count, count);
    s->carried_sum = rest_of(s->carried_sum, sum);
    if (!flush || (s->carried_count == 0 && s->carried_sum == 0))
        return;
    clp_event_write_unsampled(s->kind, s->carried_count, s->carried_sum, now_ns, sink);
    s->accounted_count += s->carried_count;
    s->accounted_sum += s->carried_sum;
    s->carried_count = s->carried_sum = 0;
}
