#include "sampler/unwind/managed.h"

#include <string.h>

/* Saved registers lie below `above` bytes under the CFA, in the compiler's order. */
static void place_saved(uint8_t saved, uint8_t above_slots, struct clp_rule *r)
{
    static const struct {
        uint8_t bit, index;
    } order[] = {{CLP_SAVED_R15, CLP_SAVE_R15},
                 {CLP_SAVED_R14, CLP_SAVE_R14},
                 {CLP_SAVED_R13, CLP_SAVE_R13},
                 {CLP_SAVED_R12, CLP_SAVE_R12},
                 {CLP_SAVED_RBX, CLP_SAVE_RBX}};
    uint8_t slot = above_slots;
    for (size_t i = 0; i < CLP_ARRAY_LEN(order); i++) {
        if (saved & CLP_SAVED_OTHER)
            r->saved[order[i].index] = CLP_SLOT_UNDEFINED;
        else if (saved & order[i].bit)
            r->saved[order[i].index] = ++slot;
    }
}

/* The order is only known when each push is told by its register. */
static uint8_t told_saves(const struct clp_managed_frame *f)
{
    unsigned others = f->push_count - (f->base == CLP_BASE_RBP && !f->osr ? 1u : 0u);
    bool told = f->osr || (unsigned)__builtin_popcount(f->saved) == others;
    return f->exact && !f->funclet && told ? f->saved : CLP_SAVED_OTHER;
}

void clp_managed_body_rule(const struct clp_managed_frame *f, struct clp_rule *ret)
{
    struct clp_rule r = {.saved[CLP_SAVE_RIP] = 1};
    if (f->base == CLP_BASE_RBP || f->funclet) {
        r.cfa_reg = CLP_REG_RBP;
        r.cfa_off = 16;
        r.saved[CLP_SAVE_RBP] = 2;
        /* A funclet stands on its parent's frame: which registers that saved is not told here. */
        place_saved(told_saves(f), 2, &r);
    } else {
        r.cfa_reg = CLP_REG_RSP;
        r.cfa_off = (int32_t)f->frame_bytes + 8;
        place_saved(told_saves(f), 1, &r);
    }
    *ret = r;
}

bool clp_managed_prologue_rule(const struct clp_managed_frame *f, const uint8_t *code, size_t len,
                               uint32_t offset, struct clp_rule *ret)
{
    struct clp_prologue_state s;
    clp_prologue_run(code, len, offset, &s);
    if (s.rbp_set)
        return false;
    if (f->osr) { /* rbp is still the Tier-0 frame's */
        *ret = (struct clp_rule){.cfa_reg = CLP_REG_RBP,
                                 .cfa_off = 16,
                                 .saved = {[CLP_SAVE_RBP] = 2, [CLP_SAVE_RIP] = 1}};
        return true;
    }
    if (s.at < offset && f->base == CLP_BASE_RSP)
        return false; /* the body has begun */
    /* An rbp frame that does not stand yet, be it that an unknown instruction came between: every
     * known push and allocation before it counts. */
    *ret = (struct clp_rule){
        .cfa_reg = CLP_REG_RSP, .cfa_off = (int32_t)s.below + 8, .saved = {[CLP_SAVE_RIP] = 1}};
    return true;
}
