/* One step from a frame of compiled managed code. */
#include "sampler/unwind/managed.h"
#include "sampler/unwind/walker.h"

#define EPILOGUE_BYTES 96u
#define BEFORE_BYTES 2u

enum answer {
    ANSWER_BODY = 1,    /* the frame stands: body rule */
    ANSWER_RULE = 2,    /* the rule in the entry */
    ANSWER_ADD_RBP = 3, /* body rule, rbp + the rule's cfa_off */
    ANSWER_BLIND = 4,   /* the code could not be read */
};

static bool prologue_answer(struct clp_walker *w, uint64_t ip, struct clp_walk_cached_leaf *e)
{
    uint8_t code[UINT8_MAX];
    const struct clp_managed_frame *f = &w->code.frame;
    uint64_t offset = ip - w->code.start;
    if (f->funclet || offset >= f->prologue_bytes)
        return false;
    int64_t n = offset ? clp_walker_read(w, w->code.start, code, offset) : 0;
    if (n != (int64_t)offset) {
        e->answer = ANSWER_BLIND;
        return true;
    }
    if (!clp_managed_prologue_rule(f, code, offset, (uint32_t)offset, &e->rule))
        return false;
    e->answer = ANSWER_RULE;
    return true;
}

/* Reads what it can of [ip - BEFORE, ip + EPILOGUE). */
static bool read_window(struct clp_walker *w, uint64_t ip, uint8_t *buf,
                        struct clp_code_window *ret)
{
    size_t before = CLP_MIN(ip - w->code.start, (uint64_t)BEFORE_BYTES);
    int64_t n = clp_walker_read(w, ip - before, buf, before + EPILOGUE_BYTES);
    if (n <= (int64_t)before)
        return false;
    *ret = (struct clp_code_window){.bytes = buf,
                                    .len = (size_t)n,
                                    .before = before,
                                    .address = ip,
                                    .start = w->code.start,
                                    .end = w->code.end};
    return true;
}

static void examine_leaf(struct clp_walker *w, uint64_t ip, struct clp_walk_cached_leaf *e)
{
    uint8_t buf[BEFORE_BYTES + EPILOGUE_BYTES];
    struct clp_code_window window;
    const struct clp_managed_frame *f = &w->code.frame;
    int32_t disp;
    *e = (struct clp_walk_cached_leaf){.address = ip, .id = w->code.id};
    if (prologue_answer(w, ip, e))
        return;
    if (!read_window(w, ip, buf, &window)) {
        e->answer = ANSWER_BLIND;
    } else if (clp_managed_epilogue_rule(f, &window, &e->rule)) {
        e->answer = ANSWER_RULE;
    } else if ((f->funclet || f->base == CLP_BASE_RBP) && clp_funclet_pending_rbp(&window, &disp)) {
        e->answer = ANSWER_ADD_RBP;
        e->rule.cfa_off = disp;
    } else {
        e->answer = ANSWER_BODY;
    }
}

static const struct clp_walk_cached_leaf *leaf_at(struct clp_walker *w, uint64_t ip)
{
    size_t slots = CLP_ARRAY_LEN(w->state->leaves);
    struct clp_walk_cached_leaf *e = &w->state->leaves[(ip ^ (ip >> 12)) % slots];
    if (e->answer == 0 || e->address != ip || e->id != w->code.id)
        examine_leaf(w, ip, e);
    return e;
}

static enum clp_next step_body(struct clp_walker *w)
{
    struct clp_rule rule;
    struct clp_managed_frame f = w->code.frame;
    (void)clp_walker_recover_managed(w);
    if (clp_walker_in_filter(w)) {
        if (clp_walker_leave_filter(w))
            return CLP_NEXT;
        w->flags |= CLP_WALK_INCOMPLETE;
    }
    if (f.osr && !clp_walker_osr_rbp(w)) {
        /* The copied rbp is the caller's own frame: pass over the stale address. */
        uint64_t caller;
        w->flags |= CLP_WALK_INCOMPLETE;
        if (!clp_stack_u64(&w->in->stack, w->regs.r[CLP_REG_RBP], &caller))
            return CLP_NEXT_LOST;
        w->regs.r[CLP_REG_RBP] = caller;
        return clp_walker_by_rbp(w);
    }
    if (!f.exact && !f.funclet) {
        w->flags |= CLP_WALK_INCOMPLETE;
        return clp_walker_by_rbp(w);
    }
    clp_managed_body_rule(&f, &rule);
    return clp_walker_apply(w, NULL, &rule);
}

/* A call inside a prologue (the probe of a large frame): its return address lies before the frame
 * stands. */
static bool called_from_prologue(const struct clp_walker *w)
{
    return !w->code.frame.funclet &&
           w->regs.r[CLP_REG_RIP] - w->code.start < w->code.frame.prologue_bytes;
}

enum clp_next clp_walker_step_managed(struct clp_walker *w)
{
    if (!w->exact && !called_from_prologue(w))
        return step_body(w);
    const struct clp_walk_cached_leaf *e = leaf_at(w, w->regs.r[CLP_REG_RIP]);
    switch (e->answer) {
    case ANSWER_RULE:
        return clp_walker_apply(w, NULL, &e->rule);
    case ANSWER_ADD_RBP:
        w->regs.r[CLP_REG_RBP] += (uint64_t)(int64_t)e->rule.cfa_off;
        break;
    case ANSWER_BLIND:
        w->flags |= CLP_WALK_INCOMPLETE;
        break;
    default:
        break;
    }
    return step_body(w);
}
