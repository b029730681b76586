/* The way to a caller on aarch64: rows of .eh_frame for native code, prologue and epilogue for
 * managed code, the frame record {fp, lr} for what has neither. */
#include <string.h>

#include "sampler/unwind/frame-aarch64.h"
#include "sampler/unwind/hijack.h"
#include "sampler/unwind/walker.h"

#define CODE_BYTES_MAX 256u
/* struct rt_sigframe, arch/arm64/kernel/signal.c: siginfo, then ucontext with sigcontext at 176. */
#define SIGFRAME_REGS (128 + 176 + 8)

/* The runtime's hijack stub of this processor is not looked for yet: a hijacked return address
 * leads to no call, so such a walk ends, and says so. */
unsigned clp_hijack_pushes(unsigned before, uint64_t offset, const struct clp_place *cfa)
{
    (void)before;
    (void)offset;
    (void)cfa;
    return 0;
}

static size_t read_code(struct clp_walker *w, uint64_t address, void *buf, size_t len)
{
    int64_t n = clp_walker_read(w, address, buf, len);
    return n > 0 ? (size_t)n : 0;
}

static bool is_return(struct clp_walker *w, uint64_t address)
{
    struct clp_code code = {0};
    uint32_t before;
    if (address < 4096 || address % 4)
        return false;
    w->source->find(w->source->user, address - 4, w->in->time_ns, &code);
    return (code.kind == CLP_CODE_MANAGED || code.kind == CLP_CODE_NATIVE) &&
           read_code(w, address - 4, &before, sizeof(before)) == sizeof(before) &&
           clp_aarch64_is_call(before);
}

static enum clp_next lost(struct clp_walker *w)
{
    w->flags |= CLP_WALK_INCOMPLETE;
    return CLP_NEXT_LOST;
}

/* Callers lie above; only a leaf may have taken no room. */
static bool grew(const struct clp_walker *w, uint64_t before, bool leaf)
{
    uint64_t sp = w->regs.r[CLP_REG_SP];
    return (sp > before || (leaf && sp == before)) && sp % 16 == 0 && sp <= w->in->stack_top;
}

static enum clp_next apply(struct clp_walker *w, const struct clp_native_table *t,
                           const struct clp_rule *rule)
{
    uint64_t before = w->regs.r[CLP_REG_SP];
    bool leaf = w->exact;
    enum clp_step s = clp_rule_apply(t, rule, &w->in->stack, &w->regs);
    if (s == CLP_STEP_ROOT)
        return CLP_NEXT_ROOT;
    if (s != CLP_STEP_OK && s != CLP_STEP_SIGNAL)
        return lost(w);
    w->exact = s == CLP_STEP_SIGNAL;
    return grew(w, before, leaf) ? CLP_NEXT : lost(w);
}

/* mov x8,#139; svc #0 */
static bool at_restorer(struct clp_walker *w)
{
    static const uint32_t restorer[2] = {0xd2801168, 0xd4000001};
    uint32_t code[2];
    return read_code(w, w->regs.r[CLP_REG_PC], code, sizeof(code)) == sizeof(code) &&
           memcmp(code, restorer, sizeof(code)) == 0;
}

static enum clp_next step_restorer(struct clp_walker *w)
{
    struct clp_regs to = {0};
    uint64_t before = w->regs.r[CLP_REG_SP];
    for (unsigned i = 0; i < CLP_REG_SLOTS; i++)
        if (!clp_stack_u64(&w->in->stack, before + SIGFRAME_REGS + 8 * i, &to.r[i]))
            return lost(w);
    w->regs = to;
    w->exact = true;
    return grew(w, before, false) ? CLP_NEXT : lost(w);
}

/* The frame record that fp points at; sp of the caller is at least what lies behind it. */
static enum clp_next by_record(struct clp_walker *w)
{
    static const struct clp_rule record = {
        .cfa_reg = CLP_REG_FP, .cfa_off = 16, .saved = {[CLP_SAVE_FP] = 2, [CLP_SAVE_LR] = 1}};
    uint64_t lr, fp = w->regs.r[CLP_REG_FP];
    w->flags |= CLP_WALK_INCOMPLETE;
    if (w->regs.unknown & 1u << CLP_REG_FP || !clp_stack_u64(&w->in->stack, fp + 8, &lr) ||
        !is_return(w, lr & CLP_REGS_ADDRESS_MASK))
        return CLP_NEXT_LOST;
    return apply(w, NULL, &record);
}

/* Stubs and thunks have no frame: the return address is in lr. */
enum clp_next clp_walker_step_thunk(struct clp_walker *w)
{
    static const struct clp_rule leaf = {.cfa_reg = CLP_REG_SP};
    bool known = !(w->regs.unknown & 1u << CLP_REG_LR);
    if (w->exact && known && is_return(w, w->regs.r[CLP_REG_LR] & CLP_REGS_ADDRESS_MASK))
        return apply(w, NULL, &leaf);
    return by_record(w);
}

enum clp_next clp_walker_step_native(struct clp_walker *w)
{
    const struct clp_rule *rule =
        w->code.native ? clp_native_rule(w->code.native, w->lookup - w->code.start) : NULL;
    if (at_restorer(w)) /* the kernel's own rows tell no registers but fp and lr */
        return step_restorer(w);
    if (!rule || rule->cfa_reg == CLP_CFA_NONE)
        return clp_walker_step_thunk(w);
    return apply(w, w->code.native, rule);
}

enum clp_next clp_walker_step_managed(struct clp_walker *w)
{
    uint8_t code[CODE_BYTES_MAX];
    struct clp_rule rule;
    uint64_t pc = w->regs.r[CLP_REG_PC];
    size_t n = read_code(w, pc, code, CLP_MIN(w->code.end - pc, (uint64_t)sizeof(code)));
    if (w->exact && clp_aarch64_epilogue_rule(code, n, &rule))
        return apply(w, NULL, &rule);
    uint64_t before = pc - w->code.start;
    n = read_code(w, w->code.start, code, CLP_MIN(before, (uint64_t)sizeof(code)));
    if (n < CLP_MIN(before, (uint64_t)sizeof(code)) || !clp_aarch64_prologue_rule(code, n, &rule))
        return by_record(w);
    return apply(w, NULL, &rule);
}
