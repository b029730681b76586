#include "sampler/unwind/hijack.h"

#include <string.h>

#include "sampler/unwind/walker.h"

#define STUB_BYTES_MAX 256u

unsigned clp_hijack_pushes(unsigned before, uint64_t offset, const struct clp_place *cfa)
{
    static const uint8_t at[CLP_HIJACK_PUSHES] = {0, 1, 2, 3, 5, 7, 9, 11};
    bool matches = before < CLP_HIJACK_PUSHES && offset == at[before] &&
                   cfa->kind == CLP_PLACE_VAL_OFFSET && cfa->reg == CLP_REG_RSP &&
                   cfa->value == 8 * ((int32_t)before + 1);
    return matches ? before + 1 : CLP_HIJACK_PUSHES + 1;
}

bool clp_hijack_prefix(const uint8_t code[CLP_HIJACK_PREFIX_BYTES])
{
    return memcmp(code, "\x50\x55\x53\x41\x57\x41\x56\x41\x55\x41\x54", CLP_HIJACK_PREFIX_BYTES) ==
           0;
}

void clp_walker_learn_stub(struct clp_walker *w, const struct clp_code *code)
{
    uint8_t bytes[CLP_HIJACK_PREFIX_BYTES];
    if (w->state->hijack_stub || !code->native)
        return;
    for (unsigned i = 0; i < CLP_TRIPS_MAX && code->native->trip[i]; i++) {
        uint64_t at = code->native->trip[i] + code->start;
        if (clp_walker_read(w, at, bytes, sizeof(bytes)) != (int64_t)sizeof(bytes) ||
            !clp_hijack_prefix(bytes))
            continue;
        w->state->hijack_stub = at;
        return;
    }
}

/* The caller of a hijacked method is not known: pass over it by its frame pointer, which neither
 * the stub nor the hijack touches. */
static enum clp_next pass_over(struct clp_walker *w)
{
    enum clp_next n = clp_walker_by_rbp(w);
    return n == CLP_NEXT ? CLP_NEXT_HIJACKED : n;
}

/* A return address that is the first byte of a function, with no call before it, was put there. It
 * is the stub, also where the stub has not been recognised by its code. */
static bool is_function_start(struct clp_walker *w, uint64_t address)
{
    struct clp_code code = {0};
    uint64_t start, end;
    w->source->find(w->source->user, address, w->in->time_ns, &code);
    if (code.kind != CLP_CODE_NATIVE || !code.native)
        return false;
    clp_walker_learn_stub(w, &code);
    if (clp_native_function(code.native, address - code.start, &start, &end) < 0)
        return false;
    return start + code.start == address && !clp_walker_is_return(w, address);
}

static bool is_hijacked(struct clp_walker *w, uint64_t slot)
{
    uint64_t address = w->regs.r[CLP_REG_RIP];
    if (w->state->hijack_stub)
        return address == w->state->hijack_stub;
    bool suspect = w->code.kind != CLP_CODE_NATIVE || w->in->hijacked_slot == slot;
    return suspect && is_function_start(w, address);
}

enum clp_next clp_walker_unhijack(struct clp_walker *w, uint64_t slot)
{
    if (!is_hijacked(w, slot))
        return CLP_NEXT;
    w->flags |= CLP_WALK_REPAIRED;
    if (w->in->hijacked_slot != slot || w->in->hijacked_return == 0)
        return pass_over(w);
    w->regs.r[CLP_REG_RIP] = w->in->hijacked_return;
    return CLP_NEXT;
}

bool clp_walker_in_stub(const struct clp_walker *w)
{
    uint64_t stub = w->state->hijack_stub;
    uint64_t start, end;
    if (!stub || w->lookup < stub || w->lookup - stub >= STUB_BYTES_MAX)
        return false;
    return clp_native_function(w->code.native, w->lookup - w->code.start, &start, &end) == 0 &&
           start + w->code.start == stub;
}

/* The stub was returned into, not called: its tables are off by the slot that the return took away.
 * Its `push rax` made that slot again, and its worker writes the true return address there. */
enum clp_next clp_walker_step_stub(struct clp_walker *w, const struct clp_rule *rule)
{
    struct clp_rule without_ra = *rule;
    uint64_t before = w->regs.r[CLP_REG_RSP];
    uint64_t cfa, address = 0;
    /* At its first byte the stub has not moved rsp: that leaf alone does not grow. */
    uint64_t least = w->exact ? before - 8 : before;
    if (!clp_rule_cfa(w->code.native, rule, &w->in->stack, &w->regs, &cfa)) {
        w->flags |= CLP_WALK_INCOMPLETE;
        return CLP_NEXT_LOST;
    }
    w->flags |= CLP_WALK_GC_WAIT | CLP_WALK_REPAIRED;
    without_ra.saved[CLP_SAVE_RIP] = CLP_SLOT_SAME;
    (void)clp_rule_apply(w->code.native, &without_ra, &w->in->stack, &w->regs);
    w->regs.r[CLP_REG_RSP] = cfa - 8;
    w->exact = false;
    if (!clp_walker_grew(w, least)) {
        w->flags |= CLP_WALK_INCOMPLETE;
        return CLP_NEXT_LOST;
    }
    if (w->in->hijacked_slot == cfa - 16 && w->in->hijacked_return)
        address = w->in->hijacked_return;
    else if (!clp_stack_u64(&w->in->stack, cfa - 16, &address) || !clp_walker_is_return(w, address))
        return pass_over(w);
    w->regs.r[CLP_REG_RIP] = address;
    return CLP_NEXT;
}
