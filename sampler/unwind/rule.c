#include "sampler/unwind/rule.h"

#include <string.h>

#include "sampler/unwind/cfi.h"

const uint8_t clp_save_register[CLP_SAVE_COUNT] = CLP_SAVE_REGISTERS;

#define BIT(reg) (1u << (reg))

bool clp_stack_u64(const struct clp_stack_view *s, uint64_t address, uint64_t *ret)
{
    if (address < s->low || address >= s->high || s->high - address < sizeof(*ret))
        return false;
    memcpy(ret, s->bytes + (address - s->low), sizeof(*ret));
    return true;
}

static const uint8_t *pool_expr(const struct clp_native_table *t, uint32_t at, size_t *ret_len)
{
    uint16_t len;
    memcpy(&len, t->pool + at, sizeof(len));
    *ret_len = len;
    return t->pool + at + sizeof(len);
}

static bool eval_pooled(const struct clp_native_table *t, uint32_t at, const uint64_t *initial,
                        const struct clp_stack_view *stack, const struct clp_regs *regs,
                        uint64_t *ret)
{
    size_t len;
    const uint8_t *expr = pool_expr(t, at, &len);
    return clp_expr_eval(expr, len, initial, stack, regs, ret);
}

bool clp_rule_cfa(const struct clp_native_table *t, const struct clp_rule *rule,
                  const struct clp_stack_view *stack, const struct clp_regs *regs, uint64_t *ret)
{
    if (rule->cfa_reg == CLP_CFA_EXPR)
        return eval_pooled(t, (uint32_t)rule->cfa_off, NULL, stack, regs, ret);
    if (rule->cfa_reg >= CLP_REG_COUNT || (regs->unknown & BIT(rule->cfa_reg)))
        return false;
    *ret = regs->r[rule->cfa_reg] + (uint64_t)(int64_t)rule->cfa_off;
    return true;
}

/* The value of one register by its extra, from the callee's registers `now`. */
static bool extra_value(const struct clp_native_table *t, const struct clp_rule_extra *e,
                        uint64_t cfa, const struct clp_stack_view *stack,
                        const struct clp_regs *now, uint64_t *ret)
{
    uint64_t at;
    switch (e->kind) {
    case CLP_PLACE_OFFSET:
        return clp_stack_u64(stack, cfa + (uint64_t)(int64_t)e->value, ret);
    case CLP_PLACE_VAL_OFFSET:
        *ret = cfa + (uint64_t)(int64_t)e->value;
        return true;
    case CLP_PLACE_REGISTER:
        *ret = now->r[e->other];
        return !(now->unknown & BIT(e->other));
    case CLP_PLACE_EXPR:
        return eval_pooled(t, e->expr, &cfa, stack, now, &at) && clp_stack_u64(stack, at, ret);
    case CLP_PLACE_VAL_EXPR:
        return eval_pooled(t, e->expr, &cfa, stack, now, ret);
    default:
        return false;
    }
}

static void assign(struct clp_regs *regs, uint8_t reg, bool known, uint64_t value)
{
    regs->r[reg] = known ? value : 0;
    regs->unknown = known ? regs->unknown & ~BIT(reg) : regs->unknown | BIT(reg);
}

static void restore_saved(const struct clp_rule *rule, uint64_t cfa, uint64_t rsp,
                          const struct clp_stack_view *stack, struct clp_regs *to)
{
    for (unsigned i = 0; i < CLP_SAVE_COUNT; i++) {
        uint64_t value = 0;
        uint8_t slot = rule->saved[i];
        uint64_t at = cfa - 8ull * slot;
        if (slot == CLP_SLOT_SAME || slot == CLP_SLOT_EXTRA)
            continue;
        if (slot <= CLP_SLOT_MAX && at < rsp)
            continue; /* popped already: compilers do not note it, the register has the value */
        bool known = slot <= CLP_SLOT_MAX && clp_stack_u64(stack, at, &value);
        assign(to, clp_save_register[i], known, value);
    }
}

enum clp_step clp_rule_apply(const struct clp_native_table *t, const struct clp_rule *rule,
                             const struct clp_stack_view *stack, struct clp_regs *regs)
{
    uint64_t cfa;
    if (rule->cfa_reg == CLP_CFA_NONE)
        return CLP_STEP_NO_RULE;
    if (rule->saved[CLP_SAVE_RA] == CLP_SLOT_UNDEFINED)
        return CLP_STEP_ROOT;
    if (!clp_rule_cfa(t, rule, stack, regs, &cfa))
        return CLP_STEP_BAD;
    struct clp_regs to = *regs;
    uint64_t rsp = regs->unknown & BIT(CLP_REG_SP) ? 0 : regs->r[CLP_REG_SP];
    to.unknown |= CLP_REGS_VOLATILE;
    assign(&to, CLP_REG_SP, true, cfa);
    restore_saved(rule, cfa, rsp, stack, &to);
    for (unsigned i = 0; i < rule->extra_count; i++) {
        const struct clp_rule_extra *e = &t->extra[rule->extra_first + i];
        uint64_t value = 0;
        bool known = extra_value(t, e, cfa, stack, regs, &value);
        assign(&to, e->reg, known, value);
    }
    if (to.unknown & (BIT(CLP_REG_RA) | BIT(CLP_REG_SP)))
        return CLP_STEP_BAD;
    clp_regs_return(&to, rule->flags != 0);
    *regs = to;
    if (to.r[CLP_REG_PC] == 0)
        return CLP_STEP_ROOT;
    return rule->flags ? CLP_STEP_SIGNAL : CLP_STEP_OK;
}
