/* The judging side: walks each capture as a sample is walked, and compares its managed frames with
 * what the runtime told of the same moment.
 *
 * Adjacent frames of one method count once on both sides (a funclet and its parent, the two halves
 * of an OSR method); the runtime's own exception dispatch in managed code is left out, and so are
 * methods without metadata, which the runtime does not tell of. */
#include "tests/snapshot/judge.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/collect.h"
#include "sampler/inproc/hooks.h"
#include "tests/snapshot/compare.h"
#include "tests/snapshot/methods.h"
#include "tests/snapshot/report.h"
#include "tests/snapshot/take.h"

#include <stdlib.h>
#include <string.h>

static struct clp_snapshot_totals totals;

clr_function_id clp_judge_function(uint32_t body_id)
{
    clr_function_id function = 0;
    clp_code_lock();
    uint32_t body = clp_code_table_body_of_wire_locked(body_id);
    if (body)
        function = clp_code_table_method_locked(clp_code_table_body_locked(body)->method)->function;
    clp_code_unlock();
    return function;
}

/* A frame that both sides can have. */
static bool is_compared(uint32_t method)
{
    const struct clp_snapshot_method *m = clp_snapshot_method(method);
    return !m->dynamic && !m->dispatch;
}

static uint32_t list_of_truth(const struct clp_snapshot *s, uint32_t *ret)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t method = clp_snapshot_method_of(s->functions[i]);
        totals.truth_dynamic += clp_snapshot_method(method)->dynamic;
        if (is_compared(method))
            ret[n++] = method;
    }
    return n;
}

static uint32_t list_of_walk(const struct clp_walk_frame *frames, uint32_t count, uint32_t *ret)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (frames[i].kind != CLP_WALK_MANAGED)
            continue;
        uint32_t method = clp_snapshot_method_of(clp_judge_function(frames[i].id));
        totals.our_dynamic += clp_snapshot_method(method)->dynamic;
        if (is_compared(method))
            ret[n++] = method;
    }
    return n;
}

/* In how many stacks each method was compared. */
static void count_methods(const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct clp_snapshot_method *m = clp_snapshot_method(list[i]);
        m->stacks += m->seen != totals.compared;
        m->seen = totals.compared;
    }
}

static void judge(struct clp_snapshot *s, uint64_t pass)
{
    static uint32_t truth[CLP_SNAPSHOT_FRAMES_MAX], ours[CLP_WALK_FRAMES_MAX];
    struct clp_walk_result walk;
    const struct clp_walk_frame *frames = clp_collect_walk(&s->capture, pass, &walk);
    uint32_t n = list_of_truth(s, truth), m = list_of_walk(frames, walk.count, ours);
    totals.exact += n == m && memcmp(truth, ours, n * sizeof(*truth)) == 0;
    n = clp_compare_fold(truth, n);
    m = clp_compare_fold(ours, m);
    struct clp_comparison c = clp_compare(truth, n, ours, m);
    totals.compared++;
    totals.frames += n;
    totals.missing += c.missing;
    totals.invented += c.invented;
    totals.equal += c.missing + c.invented == 0;
    totals.incomplete += (walk.flags & (CLP_WALK_INCOMPLETE | CLP_WALK_TRUNCATED)) != 0;
    totals.repaired += (walk.flags & CLP_WALK_REPAIRED) != 0;
    count_methods(truth, n);
    if (c.missing + c.invented)
        clp_snapshot_report_difference(s, c, &walk, frames);
}

void clp_hooks_drained(uint64_t pass)
{
    for (struct clp_snapshot *s; (s = clp_snapshot_next()); free(s)) {
        if (CLR_OK(s->result) && s->count && !s->cut)
            judge(s, pass);
        else
            totals.refused++;
    }
    totals.skipped = clp_snapshot_skipped();
    clp_snapshot_report_totals(&totals, clp_clock_monotonic_ns());
}
