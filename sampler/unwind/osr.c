/* On-stack replacement: a loop of an unoptimised (Tier-0) body goes on in an optimised one, on top
 * of the Tier-0 frame.  The new body's prologue pushes a copy of the saved rbp and points rbp at it
 * (A), so [A] is the true caller's rbp but [A+8] the stale return address of the patchpoint call
 * inside the Tier-0 body.  The frame to return from is the Tier-0 one: T = A + 16 + N0, N0 =
 * displacement of the Tier-0 body's `lea rbp,[rsp+N0]` and [T] == [A] proves it. */
#include "sampler/unwind/walker.h"

static bool proves(struct clp_walker *w, uint64_t a, uint64_t t)
{
    uint64_t copy, original;
    return t > a && clp_stack_u64(&w->in->stack, a, &copy) &&
           clp_stack_u64(&w->in->stack, t, &original) && copy == original;
}

static bool by_tier0_body(struct clp_walker *w, uint64_t a, uint64_t *ret)
{
    uint64_t stale;
    struct clp_code tier0 = {0};
    if (!clp_stack_u64(&w->in->stack, a + 8, &stale) || stale == 0)
        return false;
    w->source->find(w->source->user, stale - 1, w->in->time_ns, &tier0);
    if (tier0.kind != CLP_CODE_MANAGED || tier0.method_key != w->code.method_key ||
        tier0.frame.osr || tier0.frame.base != CLP_BASE_RBP)
        return false;
    *ret = a + 16 + tier0.frame.lea_disp;
    return proves(w, a, *ret);
}

bool clp_walker_osr_rbp(struct clp_walker *w)
{
    uint64_t a = w->regs.r[CLP_REG_RBP];
    uint64_t t = 0;
    if (!by_tier0_body(w, a, &t)) {
        t = a + w->code.frame.osr_above;
        if (w->code.frame.osr_above == 0 || !proves(w, a, t))
            return false;
    }
    w->regs.r[CLP_REG_RBP] = t;
    w->flags |= CLP_WALK_OSR;
    return true;
}
