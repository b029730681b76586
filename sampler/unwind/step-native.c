/* One step from a frame of native code, or from a piece of generated code that has no tables. */
#include <string.h>

#include "sampler/unwind/walker.h"

/* Offsets in the kernel's signal frame, from the ucontext that rsp points at inside the restorer
 * (struct rt_sigframe, arch/x86/include/uapi/asm/sigcontext.h). */
#define UCONTEXT_REGS 40
#define UCONTEXT_SIGINFO 304
#define FIRST_REALTIME_SIGNAL 32

static const struct clp_rule *native_rule(struct clp_walker *w)
{
    size_t slots = CLP_ARRAY_LEN(w->state->rules);
    struct clp_walk_cached_rule *e = &w->state->rules[(w->lookup ^ (w->lookup >> 11)) % slots];
    if (e->address != w->lookup || e->table != w->code.native) {
        e->address = w->lookup;
        e->table = w->code.native;
        e->rule = clp_native_rule(w->code.native, w->lookup - w->code.start);
    }
    return e->rule;
}

/* The runtime stops a thread at a fully interruptible point by its real-time activation signal, and
 * waits for the collection in the handler. */
static void note_activation(struct clp_walker *w, uint64_t ucontext)
{
    uint64_t info;
    if (clp_stack_u64(&w->in->stack, ucontext + UCONTEXT_SIGINFO, &info) &&
        (int32_t)info >= FIRST_REALTIME_SIGNAL)
        w->flags |= CLP_WALK_GC_WAIT;
}

static bool at_restorer(struct clp_walker *w)
{
    static const uint8_t restorer[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    uint8_t code[sizeof(restorer)];
    return clp_walker_read(w, w->regs.r[CLP_REG_RIP], code, sizeof(code)) ==
               (int64_t)sizeof(code) &&
           memcmp(code, restorer, sizeof(code)) == 0;
}

/* A C library without unwind tables for its signal trampoline. */
static enum clp_next step_restorer(struct clp_walker *w)
{
    static const uint8_t order[] = {CLP_REG_R8,  CLP_REG_R9,  CLP_REG_R10, CLP_REG_R11, CLP_REG_R12,
                                    CLP_REG_R13, CLP_REG_R14, CLP_REG_R15, CLP_REG_RDI, CLP_REG_RSI,
                                    CLP_REG_RBP, CLP_REG_RBX, CLP_REG_RDX, CLP_REG_RAX, CLP_REG_RCX,
                                    CLP_REG_RSP, CLP_REG_RIP};
    uint64_t ucontext = w->regs.r[CLP_REG_RSP];
    struct clp_regs to = {0};
    for (size_t i = 0; i < CLP_ARRAY_LEN(order); i++) {
        if (!clp_stack_u64(&w->in->stack, ucontext + UCONTEXT_REGS + i * 8, &to.r[order[i]])) {
            w->flags |= CLP_WALK_INCOMPLETE;
            return CLP_NEXT_LOST;
        }
    }
    note_activation(w, ucontext);
    w->regs = to;
    w->exact = true;
    if (!clp_walker_grew(w, ucontext)) { /* another stack, or no signal frame */
        w->flags |= CLP_WALK_INCOMPLETE;
        return CLP_NEXT_LOST;
    }
    return CLP_NEXT;
}

/* A return address below the frame pointer: hand-written tables of code that loads a whole context
 * say so while rbp is being replaced. */
static bool is_doubtful(const struct clp_rule *rule)
{
    return rule->cfa_reg == CLP_REG_RBP && rule->cfa_off < 16;
}

/* A thread's first instructions, between the system call that made it and the function whose tables
 * say that nothing called it. */
static bool is_before_root(const struct clp_walker *w)
{
    const struct clp_native_table *t = w->code.native;
    uint64_t ahead = w->lookup - w->code.start + 8;
    return t && w->exact && clp_native_rule(t, ahead)->saved[CLP_SAVE_RIP] == CLP_SLOT_UNDEFINED;
}

/* A C library without tables, or an image whose tables miss this place. */
static enum clp_next step_without_row(struct clp_walker *w)
{
    if (at_restorer(w))
        return step_restorer(w);
    if (is_before_root(w))
        return CLP_NEXT_ROOT;
    uint32_t flags = w->flags;
    struct clp_regs regs = w->regs;
    bool exact = w->exact;
    enum clp_next n = clp_walker_step_forward(w);
    if (n != CLP_NEXT_LOST)
        return n;
    w->flags = flags;
    w->regs = regs;
    w->exact = exact;
    return clp_walker_step_thunk(w);
}

enum clp_next clp_walker_step_native(struct clp_walker *w)
{
    if (!w->code.native)
        return step_without_row(w);
    clp_walker_learn_stub(w, &w->code);
    const struct clp_rule *rule = native_rule(w);
    if (clp_walker_in_stub(w))
        return clp_walker_step_stub(w, rule);
    if (rule->cfa_reg == CLP_CFA_NONE)
        return step_without_row(w);
    if (rule->flags & CLP_RULE_SIGNAL)
        note_activation(w, w->regs.r[CLP_REG_RSP]);
    (void)clp_walker_recover_native(w, rule);
    enum clp_next n = clp_walker_apply(w, w->code.native, rule);
    if (n == CLP_NEXT && is_doubtful(rule) && !clp_walker_is_return(w, w->regs.r[CLP_REG_RIP])) {
        w->flags |= CLP_WALK_INCOMPLETE;
        return CLP_NEXT_LOST;
    }
    return n;
}

static enum clp_next return_at(struct clp_walker *w, uint64_t slot)
{
    static const struct clp_rule call = {.cfa_reg = CLP_REG_RSP, .saved[CLP_SAVE_RIP] = 1};
    struct clp_rule rule = call;
    rule.cfa_off = (int32_t)(slot + 8 - w->regs.r[CLP_REG_RSP]);
    return clp_walker_apply(w, NULL, &rule);
}

/* What a stub may push before it jumps on: a register that it needs (dispatch), or an index and a
 * module (delay-load thunks of R2R images). */
#define STUB_PUSHES_MAX 2

/* Stubs, thunks and copied write barriers have no frame: the return address is at rsp, or right
 * above what the stub has pushed. Anything else only by the frame pointer. */
enum clp_next clp_walker_step_thunk(struct clp_walker *w)
{
    uint64_t rsp = w->regs.r[CLP_REG_RSP];
    for (uint64_t slot = rsp; w->exact && slot <= rsp + 8 * STUB_PUSHES_MAX; slot += 8) {
        uint64_t value;
        if (!clp_stack_u64(&w->in->stack, slot, &value))
            break;
        if (clp_walker_is_return(w, value) || (value != 0 && value == w->state->hijack_stub))
            return return_at(w, slot);
    }
    if (is_before_root(w))
        return CLP_NEXT_ROOT;
    w->flags |= CLP_WALK_INCOMPLETE;
    return clp_walker_by_rbp(w);
}
