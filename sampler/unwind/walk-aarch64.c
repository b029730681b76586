/* The stack walk on aarch64: rows of .eh_frame for native code, prologue and epilogue for managed
 * code, the frame record {fp, lr} for what has neither. */
#include "sampler/unwind/walk.h"

#include <string.h>

#include "sampler/unwind/frame-aarch64.h"
#include "sampler/unwind/hijack.h"

#define CODE_BYTES_MAX 256u
/* struct rt_sigframe, arch/arm64/kernel/signal.c: siginfo, then ucontext with sigcontext at 176. */
#define SIGFRAME_REGS (128 + 176 + 8)

struct walker {
    const struct clp_code_source *source;
    const struct clp_walk_input *in;
    struct clp_regs regs;
    struct clp_code code;
    uint64_t lookup;
    bool exact; /* pc is the next instruction to run, not a return address */
    uint32_t flags;
};

enum next { NEXT, ROOT, LOST };

/* The runtime's hijack stub of this processor is not looked for yet: a hijacked return address
 * leads to no call, so such a walk ends, and says so. */
unsigned clp_hijack_pushes(unsigned before, uint64_t offset, const struct clp_place *cfa)
{
    (void)before;
    (void)offset;
    (void)cfa;
    return 0;
}

static void find(struct walker *w, uint64_t address, struct clp_code *ret)
{
    *ret = (struct clp_code){0};
    w->source->find(w->source->user, address, w->in->time_ns, ret);
}

static size_t read_code(struct walker *w, uint64_t address, void *buf, size_t len)
{
    int64_t n = w->source->read(w->source->user, address, buf, len);
    return n > 0 ? (size_t)n : 0;
}

static bool is_return(struct walker *w, uint64_t address)
{
    struct clp_code code;
    uint32_t before;
    if (address < 4096 || address % 4)
        return false;
    find(w, address - 4, &code);
    return (code.kind == CLP_CODE_MANAGED || code.kind == CLP_CODE_NATIVE) &&
           read_code(w, address - 4, &before, sizeof(before)) == sizeof(before) &&
           clp_aarch64_is_call(before);
}

static enum next lost(struct walker *w)
{
    w->flags |= CLP_WALK_INCOMPLETE;
    return LOST;
}

/* Callers lie above; only a leaf may have taken no room. */
static bool grew(const struct walker *w, uint64_t before, bool leaf)
{
    uint64_t sp = w->regs.r[CLP_REG_SP];
    return (sp > before || (leaf && sp == before)) && sp % 16 == 0 && sp <= w->in->stack_top;
}

static enum next apply(struct walker *w, const struct clp_native_table *t,
                       const struct clp_rule *rule)
{
    uint64_t before = w->regs.r[CLP_REG_SP];
    bool leaf = w->exact;
    enum clp_step s = clp_rule_apply(t, rule, &w->in->stack, &w->regs);
    if (s == CLP_STEP_ROOT)
        return ROOT;
    if (s != CLP_STEP_OK && s != CLP_STEP_SIGNAL)
        return lost(w);
    w->exact = s == CLP_STEP_SIGNAL;
    return grew(w, before, leaf) ? NEXT : lost(w);
}

/* mov x8,#139; svc #0 */
static bool at_restorer(struct walker *w)
{
    static const uint32_t restorer[2] = {0xd2801168, 0xd4000001};
    uint32_t code[2];
    return read_code(w, w->regs.r[CLP_REG_PC], code, sizeof(code)) == sizeof(code) &&
           memcmp(code, restorer, sizeof(code)) == 0;
}

static enum next step_restorer(struct walker *w)
{
    struct clp_regs to = {0};
    uint64_t before = w->regs.r[CLP_REG_SP];
    for (unsigned i = 0; i < CLP_REG_SLOTS; i++)
        if (!clp_stack_u64(&w->in->stack, before + SIGFRAME_REGS + 8 * i, &to.r[i]))
            return lost(w);
    w->regs = to;
    w->exact = true;
    return grew(w, before, false) ? NEXT : lost(w);
}

/* The frame record that fp points at; sp of the caller is at least what lies behind it. */
static enum next by_record(struct walker *w)
{
    static const struct clp_rule record = {
        .cfa_reg = CLP_REG_FP, .cfa_off = 16, .saved = {[CLP_SAVE_FP] = 2, [CLP_SAVE_LR] = 1}};
    uint64_t lr, fp = w->regs.r[CLP_REG_FP];
    w->flags |= CLP_WALK_INCOMPLETE;
    if (w->regs.unknown & 1u << CLP_REG_FP || !clp_stack_u64(&w->in->stack, fp + 8, &lr) ||
        !is_return(w, lr & CLP_REGS_ADDRESS_MASK))
        return LOST;
    return apply(w, NULL, &record);
}

/* Stubs and thunks have no frame: the return address is in lr. */
static enum next step_thunk(struct walker *w)
{
    static const struct clp_rule leaf = {.cfa_reg = CLP_REG_SP};
    bool known = !(w->regs.unknown & 1u << CLP_REG_LR);
    if (w->exact && known && is_return(w, w->regs.r[CLP_REG_LR] & CLP_REGS_ADDRESS_MASK))
        return apply(w, NULL, &leaf);
    return by_record(w);
}

static enum next step_native(struct walker *w)
{
    const struct clp_rule *rule =
        w->code.native ? clp_native_rule(w->code.native, w->lookup - w->code.start) : NULL;
    if (at_restorer(w)) /* the kernel's own rows tell no registers but fp and lr */
        return step_restorer(w);
    if (!rule || rule->cfa_reg == CLP_CFA_NONE)
        return step_thunk(w);
    return apply(w, w->code.native, rule);
}

static enum next step_managed(struct walker *w)
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

static enum next step(struct walker *w)
{
    switch (w->code.kind) {
    case CLP_CODE_MANAGED:
        return step_managed(w);
    case CLP_CODE_NATIVE:
        return step_native(w);
    default:
        return step_thunk(w);
    }
}

static struct clp_walk_frame describe(const struct walker *w)
{
    static const uint8_t kind[] = {[CLP_CODE_UNKNOWN] = CLP_WALK_UNKNOWN,
                                   [CLP_CODE_MANAGED] = CLP_WALK_MANAGED,
                                   [CLP_CODE_NATIVE] = CLP_WALK_NATIVE,
                                   [CLP_CODE_STUB] = CLP_WALK_STUB};
    return (struct clp_walk_frame){.address = w->lookup,
                                   .id = w->code.id,
                                   .kind = kind[w->code.kind & 3],
                                   .base = w->code.start};
}

void clp_walk(const struct clp_code_source *code, struct clp_walk_state *state,
              const struct clp_walk_input *in, struct clp_walk_frame *frames, uint32_t cap,
              struct clp_walk_result *ret)
{
    struct walker w = {.source = code, .in = in, .regs = in->regs, .exact = !in->leaf_is_caller};
    uint32_t count = 0;
    enum next n = NEXT;
    (void)state; /* nothing is remembered yet */
    while (n == NEXT) {
        uint64_t pc = w.regs.r[CLP_REG_PC];
        w.lookup = w.exact ? pc : pc - 4;
        find(&w, w.lookup, &w.code);
        if (w.code.kind == CLP_CODE_UNKNOWN && count > 0) {
            w.flags |= CLP_WALK_INCOMPLETE;
            break;
        }
        if (count == cap) {
            w.flags |= CLP_WALK_TRUNCATED;
            break;
        }
        frames[count++] = describe(&w);
        n = step(&w);
        if (n == NEXT)
            frames[count - 1].cfa = w.regs.r[CLP_REG_SP];
    }
    *ret = (struct clp_walk_result){.count = count, .flags = w.flags};
}
