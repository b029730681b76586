/* Native code without unwind tables (musl's libc has none): its caller, told by the code itself.
 *
 * From the point where the frame stands the code is followed forward, as the processor would run
 * it, to where it returns: pushes, pops and changes of rsp are summed up, direct jumps are taken,
 * conditional ones both ways, calls give rsp back as it was. A call that never comes back leads
 * such a walk into whatever lies behind it, so several answers may come out: only one that finds an
 * address that a call returns to is believed, and only if no other does.
 *
 * Close to the top of the stack there is a second way: all callers' return addresses lie above rsp.
 * Where the rest of the stack holds exactly one, that is it; where it holds none, this is the root.
 */
#include <string.h>

#include "sampler/unwind/walker.h"
#include "sampler/unwind/x86.h"

#define WINDOW_BYTES 256u
#define INSTRUCTIONS_MAX 300u /* followed for one answer; kept by address afterwards */
#define BRANCHES_MAX 48u
#define SEEN_MAX 256u              /* jump targets that need not be followed again */
#define SCAN_BYTES_MAX (16u << 10) /* from rsp to the top of the stack */

/* One way through the code: where it is, and what it has done to the stack. */
struct way {
    uint64_t at;
    int64_t rsp;                   /* relative to rsp at the start */
    int64_t place[CLP_SAVE_COUNT]; /* where a register was popped from last */
    bool popped[CLP_SAVE_COUNT];
};

struct search {
    struct clp_walker *w;
    struct clp_walk_cached_forward *found;
    uint64_t window_at;
    size_t window_len;
    uint8_t window[WINDOW_BYTES];
    struct way branch[BRANCHES_MAX];
    size_t branches;
    struct {
        uint64_t at;
        int64_t rsp;
    } seen[SEEN_MAX];
    size_t seen_count;
    unsigned left; /* instructions */
};

enum flow { NEXT, GONE };

/* Up to CLP_X86_MAX bytes of code at `address`. */
static const uint8_t *code_at(struct search *s, uint64_t address, size_t *ret_len)
{
    if (address < s->window_at || address + CLP_X86_MAX > s->window_at + s->window_len) {
        int64_t n = clp_walker_read(s->w, address, s->window, sizeof(s->window));
        s->window_at = address;
        s->window_len = n > 0 ? (size_t)n : 0;
    }
    *ret_len = s->window_at + s->window_len - address;
    return s->window + (address - s->window_at);
}

/* True the first time that a jump leads to this place at this height. */
static bool is_new(struct search *s, uint64_t at, int64_t rsp)
{
    for (size_t i = 0; i < s->seen_count; i++)
        if (s->seen[i].at == at && s->seen[i].rsp == rsp)
            return false;
    if (s->seen_count == SEEN_MAX)
        return false;
    s->seen[s->seen_count].at = at;
    s->seen[s->seen_count++].rsp = rsp;
    return true;
}

/* Everything relative to the CFA, 8 above the return address. */
static bool to_rule(const struct way *y, struct clp_rule *ret)
{
    int64_t cfa = y->rsp + 8;
    struct clp_rule r = {
        .cfa_reg = CLP_REG_RSP, .cfa_off = (int32_t)cfa, .saved = {[CLP_SAVE_RIP] = 1}};
    if (cfa < 8 || cfa != (int32_t)cfa)
        return false;
    for (unsigned i = 0; i < CLP_SAVE_RIP; i++) {
        int64_t below = cfa - y->place[i];
        if (!y->popped[i])
            continue;
        bool told = y->place[i] >= 0 && below > 0 && below % 8 == 0 && below / 8 <= CLP_SLOT_MAX;
        r.saved[i] = told ? (uint8_t)(below / 8) : CLP_SLOT_UNDEFINED;
    }
    *ret = r;
    return true;
}

static void finish(struct search *s, const struct way *y)
{
    struct clp_walk_cached_forward *f = s->found;
    struct clp_rule rule;
    if (!to_rule(y, &rule))
        return;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->rule[i].cfa_off == rule.cfa_off)
            return;
    if (f->count < CLP_ARRAY_LEN(f->rule))
        f->rule[f->count++] = rule;
    else
        f->overflow = true;
}

static void pop_register(struct way *y, unsigned hardware)
{
    static const uint8_t dwarf[8] = {CLP_REG_RAX, CLP_REG_RCX, CLP_REG_RDX, CLP_REG_RBX,
                                     CLP_REG_RSP, CLP_REG_RBP, CLP_REG_RSI, CLP_REG_RDI};
    uint8_t reg = hardware < 8 ? dwarf[hardware] : (uint8_t)hardware;
    for (unsigned i = 0; i < CLP_SAVE_RIP; i++) {
        if (clp_save_register[i] == reg) {
            y->place[i] = y->rsp;
            y->popped[i] = true;
        }
    }
}

static void take_branch(struct search *s, const struct way *y, uint64_t target)
{
    if (s->branches == BRANCHES_MAX || !is_new(s, target, y->rsp))
        return;
    s->branch[s->branches] = *y;
    s->branch[s->branches++].at = target;
}

static int64_t displacement(const uint8_t *end, size_t bytes)
{
    int32_t v;
    if (bytes == 1)
        return (int8_t)end[-1];
    memcpy(&v, end - 4, sizeof(v));
    return v;
}

static bool is_prefix(uint8_t b)
{
    return b == 0xf2 || b == 0xf3 || b == 0x66 || b == 0x3e || b == 0x2e || (b & 0xf0) == 0x40;
}

/* An instruction that goes elsewhere; `y->at` is behind it already. `p` is its opcode, `end` its
 * end. */
static enum flow leave(struct search *s, struct way *y, const uint8_t *p, const uint8_t *end)
{
    unsigned group = end - p >= 2 ? p[1] >> 3 & 7 : 0;
    bool is_call = p[0] == 0xe8 || (p[0] == 0xff && group == 2);
    if (is_call || (p[0] == 0x0f && p[1] == 0x05)) /* or a system call */
        return NEXT;
    if (p[0] == 0xc3 || p[0] == 0xc2) {
        finish(s, y);
        return GONE;
    }
    if ((p[0] >= 0x70 && p[0] <= 0x7f) || (p[0] >= 0xe0 && p[0] <= 0xe3)) {
        take_branch(s, y, y->at + (uint64_t)displacement(end, 1));
        return NEXT;
    }
    if (p[0] == 0x0f && p[1] >= 0x80 && p[1] <= 0x8f) {
        take_branch(s, y, y->at + (uint64_t)displacement(end, 4));
        return NEXT;
    }
    if (p[0] != 0xe9 && p[0] != 0xeb)
        return GONE; /* a switch, a trap, an end */
    y->at += (uint64_t)displacement(end, p[0] == 0xeb ? 1 : 4);
    return is_new(s, y->at, y->rsp) ? NEXT : GONE;
}

static enum flow run_one(struct search *s, struct way *y)
{
    struct clp_x86 i;
    size_t len;
    const uint8_t *p = code_at(s, y->at, &len);
    if (!clp_x86_decode(p, len, &i) || i.effect == CLP_X86_DYNAMIC || p[0] == 0xcc)
        return GONE;
    const uint8_t *end = p + i.len, *opcode = p;
    while (opcode < end - 1 && is_prefix(*opcode))
        opcode++;
    y->at += i.len;
    if (i.effect == CLP_X86_LEAVES)
        return leave(s, y, opcode, end);
    if (i.effect != CLP_X86_MOVES)
        return NEXT;
    if (opcode[0] >= 0x58 && opcode[0] <= 0x5f)
        pop_register(y, (opcode[0] - 0x58u) + (opcode > p && (opcode[-1] & 0xf1) == 0x41 ? 8 : 0));
    y->rsp -= i.bytes;
    return NEXT;
}

static void follow(struct search *s, uint64_t from)
{
    s->left = INSTRUCTIONS_MAX;
    s->branch[s->branches++] = (struct way){.at = from};
    while (s->branches > 0 && s->left > 0) {
        struct way y = s->branch[--s->branches];
        while (s->left > 0 && run_one(s, &y) == NEXT)
            s->left--;
    }
}

const struct clp_walk_cached_forward *clp_walker_forward_answers(struct clp_walker *w)
{
    uint64_t rip = w->regs.r[CLP_REG_RIP];
    size_t slots = CLP_ARRAY_LEN(w->state->forwards);
    struct clp_walk_cached_forward *f =
        &w->state->forwards[(rip * 0x9e3779b97f4a7c15ull >> 40) % slots];
    if (f->address != rip || f->id != w->code.id) {
        struct search s = {.w = w, .found = f};
        *f = (struct clp_walk_cached_forward){.address = rip, .id = w->code.id};
        follow(&s, rip);
    }
    return f;
}

static bool is_believed(struct clp_walker *w, const struct clp_rule *rule)
{
    uint64_t value, slot = w->regs.r[CLP_REG_RSP] + (uint64_t)(int64_t)rule->cfa_off - 8;
    return clp_stack_u64(&w->in->stack, slot, &value) &&
           (clp_walker_is_return(w, value) || (value != 0 && value == w->state->hijack_stub));
}

static const struct clp_rule *the_only_answer(struct clp_walker *w)
{
    const struct clp_walk_cached_forward *f = clp_walker_forward_answers(w);
    const struct clp_rule *rule = NULL;
    for (uint32_t i = 0; i < f->count; i++) {
        if (!is_believed(w, &f->rule[i]))
            continue;
        if (rule)
            return NULL;
        rule = &f->rule[i];
    }
    return f->overflow ? NULL : rule;
}

/* A pointer to a function, as a thread is given one to start with, may stand behind a call as well:
 * the one that ends the function before and never returns. */
static bool is_function_start(struct clp_walker *w, uint64_t value)
{
    struct clp_code code = {0};
    uint64_t start, end;
    w->source->find(w->source->user, value, w->in->time_ns, &code);
    return code.kind == CLP_CODE_NATIVE && code.native &&
           clp_native_function(code.native, value - code.start, &start, &end) == 0 &&
           start == value - code.start;
}

static bool may_be_return(struct clp_walker *w, uint64_t value)
{
    if (value != 0 && value == w->state->hijack_stub)
        return true;
    if (w->source->was_code && !w->source->was_code(w->source->user, value))
        return false;
    return clp_walker_is_return(w, value) && !is_function_start(w, value);
}

/* How many return addresses the rest of the stack holds (2: at least), and where the first is. */
static unsigned count_returns(struct clp_walker *w, uint64_t *ret_slot)
{
    unsigned n = 0;
    uint64_t value, rsp = w->regs.r[CLP_REG_RSP];
    for (uint64_t at = rsp; n < 2 && clp_stack_u64(&w->in->stack, at, &value); at += 8) {
        if (may_be_return(w, value) && n++ == 0)
            *ret_slot = at;
    }
    return n;
}

static enum clp_next near_top(struct clp_walker *w)
{
    static const struct clp_rule call = {.cfa_reg = CLP_REG_RSP,
                                         .saved = {[CLP_SAVE_RBP] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_RBX] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_R12] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_R13] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_R14] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_R15] = CLP_SLOT_UNDEFINED,
                                                   [CLP_SAVE_RIP] = 1}};
    uint64_t rsp = w->regs.r[CLP_REG_RSP], top = w->in->stack_top, slot = 0;
    if (top == 0 || w->in->stack.high < top || rsp >= top || top - rsp > SCAN_BYTES_MAX)
        return CLP_NEXT_LOST;
    unsigned n = count_returns(w, &slot);
    if (n == 0)
        return CLP_NEXT_ROOT;
    if (n > 1)
        return CLP_NEXT_LOST;
    struct clp_rule rule = call;
    rule.cfa_off = (int32_t)(slot + 8 - rsp);
    return clp_walker_apply(w, NULL, &rule);
}

enum clp_next clp_walker_step_forward(struct clp_walker *w)
{
    const struct clp_rule *rule = the_only_answer(w);
    return rule ? clp_walker_apply(w, NULL, rule) : near_top(w);
}
