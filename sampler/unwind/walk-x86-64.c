/* Return addresses of x86-64, and the way to a caller by a rule. */
#include "sampler/unwind/walker.h"

#define CALL_BYTES_MAX 8

enum call { CALL_DIRECT = 1, CALL_INDIRECT = 2, CALL_NONE = 3 };

/* ---- return addresses ---------------------------------------------------------------------- */

/* call rel32, or FF /2 in its lengths of 2 to 7 bytes with an optional prefix. `end` is past the
 * last of `n` bytes. */
static enum call call_before(const uint8_t *end, size_t n)
{
    for (size_t len = 2; len <= 7 && len <= n; len++) {
        const uint8_t *p = end - len;
        uint8_t mod = p[1] >> 6, rm = p[1] & 7;
        if (p[0] != 0xff || ((p[1] >> 3) & 7) != 2)
            continue;
        size_t want = 2;
        bool sib = mod != 3 && rm == 4;
        if (sib)
            want++;
        if (mod == 1)
            want += 1;
        else if (mod == 2 || (mod == 0 && rm == 5) ||
                 (mod == 0 && sib && len > 2 && (p[2] & 7) == 5))
            want += 4;
        if (want == len)
            return CALL_INDIRECT;
    }
    return n >= 5 && end[-5] == 0xe8 ? CALL_DIRECT : CALL_NONE;
}

static enum call call_at(struct clp_walker *w, uint64_t address)
{
    uint8_t bytes[CALL_BYTES_MAX];
    int64_t n = clp_walker_read(w, address - sizeof(bytes), bytes, sizeof(bytes));
    if (n != (int64_t)sizeof(bytes))
        return CALL_NONE;
    return call_before(bytes + sizeof(bytes), sizeof(bytes));
}

static enum call call_that_returns_to(struct clp_walker *w, uint64_t address,
                                      enum clp_code_kind *ret_kind)
{
    struct clp_code code = {0};
    if (address < 4096)
        return CALL_NONE;
    w->source->find(w->source->user, address - 1, w->in->time_ns, &code);
    *ret_kind = code.kind;
    if (code.kind != CLP_CODE_MANAGED && code.kind != CLP_CODE_NATIVE)
        return CALL_NONE;
    size_t slots = CLP_ARRAY_LEN(w->state->calls);
    struct clp_walk_cached_call *e = &w->state->calls[(address ^ (address >> 9)) % slots];
    if (e->answer == 0 || e->address != address || e->id != code.id) {
        e->address = address;
        e->id = code.id;
        e->answer = call_at(w, address);
    }
    return e->answer;
}

bool clp_walker_is_return(struct clp_walker *w, uint64_t address)
{
    enum clp_code_kind kind = CLP_CODE_UNKNOWN;
    return call_that_returns_to(w, address, &kind) != CALL_NONE;
}

bool clp_walker_is_indirect_return(struct clp_walker *w, uint64_t address)
{
    enum clp_code_kind kind = CLP_CODE_UNKNOWN;
    return call_that_returns_to(w, address, &kind) == CALL_INDIRECT && kind == CLP_CODE_NATIVE;
}

/* ---- going to the caller ------------------------------------------------------------------- */

static enum clp_next lost(struct clp_walker *w, uint64_t needed)
{
    const struct clp_walk_input *in = w->in;
    bool cut =
        in->stack_top > in->stack.high && needed >= in->stack.high - 8 && needed < in->stack_top;
    w->flags |= cut ? CLP_WALK_TRUNCATED : CLP_WALK_INCOMPLETE;
    return CLP_NEXT_LOST;
}

bool clp_walker_grew(const struct clp_walker *w, uint64_t before)
{
    uint64_t rsp = w->regs.r[CLP_REG_RSP];
    return rsp > before && rsp % 8 == 0 && rsp <= w->in->stack.high;
}

enum clp_next clp_walker_apply(struct clp_walker *w, const struct clp_native_table *t,
                               const struct clp_rule *rule)
{
    uint64_t before = w->regs.r[CLP_REG_RSP];
    uint64_t cfa = 0;
    enum clp_step s = clp_rule_apply(t, rule, &w->in->stack, &w->regs);
    if (s == CLP_STEP_ROOT)
        return CLP_NEXT_ROOT;
    if (s != CLP_STEP_OK && s != CLP_STEP_SIGNAL) {
        bool told = clp_rule_cfa(t, rule, &w->in->stack, &w->regs, &cfa);
        return lost(w, told ? cfa - 8 : 0);
    }
    w->exact = s == CLP_STEP_SIGNAL;
    if (!clp_walker_grew(w, before))
        return lost(w, 0);
    return w->exact ? CLP_NEXT : clp_walker_unhijack(w, w->regs.r[CLP_REG_RSP] - 8);
}

enum clp_next clp_walker_by_rbp(struct clp_walker *w)
{
    static const struct clp_rule frame = {.cfa_reg = CLP_REG_RBP,
                                          .cfa_off = 16,
                                          .saved = {[CLP_SAVE_RBP] = 2,
                                                    [CLP_SAVE_RBX] = CLP_SLOT_UNDEFINED,
                                                    [CLP_SAVE_R12] = CLP_SLOT_UNDEFINED,
                                                    [CLP_SAVE_R13] = CLP_SLOT_UNDEFINED,
                                                    [CLP_SAVE_R14] = CLP_SLOT_UNDEFINED,
                                                    [CLP_SAVE_R15] = CLP_SLOT_UNDEFINED,
                                                    [CLP_SAVE_RIP] = 1}};
    uint64_t rbp = w->regs.r[CLP_REG_RBP];
    uint64_t address;
    if (w->regs.unknown & (1u << CLP_REG_RBP))
        return lost(w, 0);
    if (!clp_stack_u64(&w->in->stack, rbp + 8, &address))
        return lost(w, rbp + 8);
    if (address != w->state->hijack_stub && !clp_walker_is_return(w, address))
        return lost(w, 0);
    return clp_walker_apply(w, NULL, &frame);
}
