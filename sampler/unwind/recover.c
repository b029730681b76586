/* The frame pointer of a caller, where nothing has saved it.
 *
 * A stack that was read without a signal comes with two registers: where it is and what runs.  A
 * system call's wrapper saves no frame pointer, so a caller that keeps its frame by rbp needs it
 * found again, from the stack and from the caller's code.  S is the caller's stack pointer at its
 * call.  A rule is only believed where it leads to a return address that a call stands before;
 * where none does, the walk ends and says so. The rules and how often each was right:
 * docs/unwinding.md. */
#include <string.h>

#include "sampler/unwind/walker.h"
#include "sampler/unwind/x86.h"

#define RBP_BIT (1u << CLP_REG_RBP)
#define CODE_BYTES_MAX 8192u  /* of a function that is gone over */
#define SCAN_BYTES_MAX 65536u /* of a frame that is searched */
#define ARGUMENTS_MAX 16u     /* words pushed for a call */

/* What is known of the way from S to the frame pointer, of the code around one call. */
enum { DISTANCE = 1, DYNAMIC = 2 };

static uint64_t call_rsp(const struct clp_walker *w)
{
    return w->regs.r[CLP_REG_RSP];
}

static bool take(struct clp_walker *w, uint64_t rbp)
{
    w->regs.r[CLP_REG_RBP] = rbp;
    w->regs.unknown &= ~RBP_BIT;
    return true;
}

/* Does a frame stand at `rbp`: is the word above it an address that a call returns to? */
static bool is_frame(struct clp_walker *w, uint64_t rbp)
{
    uint64_t address;
    if (rbp < call_rsp(w) || rbp % 8 || !clp_stack_u64(&w->in->stack, rbp + 8, &address))
        return false;
    return (address && address == w->state->hijack_stub) || clp_walker_is_return(w, address);
}

/* ---- managed callers ----------------------------------------------------------------------- */

/* A method that calls native code writes down where it is: {stack pointer at the call, return
 * address, frame pointer} (InlinedCallFrame, dotnet/runtime frames.h). */
static bool by_call_frame(struct clp_walker *w)
{
    uint64_t ip = w->regs.r[CLP_REG_RIP], s = call_rsp(w), word, rbp;
    uint64_t end = CLP_MIN(w->in->stack.high, s + SCAN_BYTES_MAX);
    for (uint64_t at = s; at + 16 <= end; at += 8) {
        if (!clp_stack_u64(&w->in->stack, at, &word))
            return false;
        if (word == ip && clp_stack_u64(&w->in->stack, at + 8, &rbp) && rbp > at + 8 &&
            is_frame(w, rbp))
            return take(w, rbp);
    }
    return false;
}

static bool is_pop(const uint8_t *p, size_t len, size_t *ret_len)
{
    bool wide = len >= 2 && p[0] == 0x41 && (p[1] & 0xf8) == 0x58;
    *ret_len = wide ? 2 : 1;
    return wide || (len >= 1 && (p[0] & 0xf8) == 0x58);
}

/* lea rsp,[rbp-N]; pops; ret: how a method ends whose stack pointer may be anywhere. */
static bool has_dynamic_epilogue(const uint8_t *code, size_t len)
{
    for (size_t i = 0; i + 4 < len; i++) {
        size_t at, n;
        if (memcmp(code + i, "\x48\x8d\x65", 3) == 0)
            at = i + 4;
        else if (memcmp(code + i, "\x48\x8d\xa5", 3) == 0)
            at = i + 7;
        else
            continue;
        while (at < len && is_pop(code + at, len - at, &n))
            at += n;
        if (at < len && code[at] == 0xc3)
            return true;
    }
    return false;
}

static bool reserves_dynamically(struct clp_walker *w)
{
    uint8_t code[CODE_BYTES_MAX];
    uint64_t bytes = w->code.end - w->code.start;
    if (w->code.end <= w->code.start || bytes > sizeof(code))
        return true; /* not looked at: not believed */
    int64_t n = clp_walker_read(w, w->code.start, code, bytes);
    return n != (int64_t)bytes || has_dynamic_epilogue(code, bytes);
}

/* The prologue's own distance, where the stack pointer does not move after it. */
static bool by_prologue(struct clp_walker *w)
{
    const struct clp_managed_frame *f = &w->code.frame;
    uint64_t rbp = call_rsp(w) + f->lea_disp;
    if (!f->exact || f->funclet || !is_frame(w, rbp) || reserves_dynamically(w))
        return false;
    return take(w, rbp);
}

bool clp_walker_recover_managed(struct clp_walker *w)
{
    const struct clp_managed_frame *f = &w->code.frame;
    if (!(w->regs.unknown & RBP_BIT) || (f->base != CLP_BASE_RBP && !f->funclet))
        return false;
    return by_call_frame(w) || by_prologue(w);
}

/* ---- native callers ------------------------------------------------------------------------ */

struct function {
    uint64_t start, end; /* link-time */
    uint32_t answer;     /* DISTANCE, DYNAMIC, or 0: not to be told */
    uint32_t below;      /* bytes from rbp down to S */
};

/* leave, or lea rsp,[rbp-N]: the way out, taken by functions of both kinds. */
static bool is_way_out(const uint8_t *p, size_t len)
{
    return p[0] == 0xc9 || (len >= 3 && p[0] == 0x48 && p[1] == 0x8d && (p[2] & 0x3f) == 0x25);
}

/* From where the tables say that rbp holds the frame to the first branch, or to the call. */
static void sum_up(struct clp_walker *w, const uint8_t *code, size_t len, struct function *f)
{
    int64_t below = 0;
    bool stands = false, summing = true;
    for (size_t at = 0; at < len;) {
        struct clp_x86 i;
        uint64_t address = f->start + at;
        if (!stands)
            stands = clp_native_rule(w->code.native, address)->cfa_reg == CLP_REG_RBP;
        if (!clp_x86_decode(code + at, len - at, &i))
            return;
        bool before_call = address < w->lookup - w->code.start;
        if (stands && i.effect == CLP_X86_DYNAMIC && !is_way_out(code + at, len - at)) {
            f->answer = DYNAMIC;
            return;
        }
        summing &= before_call && !(stands && i.effect == CLP_X86_LEAVES);
        if (stands && summing && i.effect == CLP_X86_MOVES)
            below += i.bytes;
        if (stands && below >= 0 && below <= INT32_MAX) {
            f->answer = DISTANCE;
            f->below = (uint32_t)below;
        }
        at += i.len;
    }
}

static void examine(struct clp_walker *w, struct function *f)
{
    uint8_t code[CODE_BYTES_MAX];
    size_t len = CLP_MIN(f->end - f->start, (uint64_t)sizeof(code));
    int64_t n = clp_walker_read(w, f->start + w->code.start, code, len);
    if (n > 0)
        sum_up(w, code, (size_t)n, f);
}

static bool find_function(struct clp_walker *w, struct function *f)
{
    if (clp_native_function(w->code.native, w->lookup - w->code.start, &f->start, &f->end) < 0)
        return false;
    size_t slots = CLP_ARRAY_LEN(w->state->frames);
    struct clp_walk_cached_frame *e = &w->state->frames[(w->lookup ^ (w->lookup >> 7)) % slots];
    if (e->address != w->lookup || e->table != w->code.native) {
        examine(w, f);
        *e = (struct clp_walk_cached_frame){
            .address = w->lookup, .table = w->code.native, .answer = f->answer, .below = f->below};
    }
    f->answer = e->answer;
    f->below = e->below;
    return true;
}

static bool by_distance(struct clp_walker *w, const struct function *f)
{
    uint64_t rbp = call_rsp(w) + f->below;
    for (unsigned pushed = 0; pushed <= ARGUMENTS_MAX; pushed++, rbp += 8)
        if (is_frame(w, rbp))
            return take(w, rbp);
    return false;
}

/* Through a linker's stub or a compiler's jump to what it leads to. */
static uint64_t behind_jump(struct clp_walker *w, uint64_t target)
{
    uint8_t code[16];
    int32_t disp;
    uint64_t to;
    if (clp_walker_read(w, target, code, sizeof(code)) != (int64_t)sizeof(code))
        return 0;
    size_t at = memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0 ? 4 : 0; /* endbr64 */
    at += code[at] == 0xf2;                                       /* bnd */
    memcpy(&disp, code + at + 1, sizeof(disp));
    if (code[at] == 0xe9)
        return target + at + 5 + (uint64_t)(int64_t)disp;
    memcpy(&disp, code + at + 2, sizeof(disp));
    uint64_t slot = target + at + 6 + (uint64_t)(int64_t)disp;
    if (code[at] != 0xff || code[at + 1] != 0x25 ||
        clp_walker_read(w, slot, &to, sizeof(to)) != (int64_t)sizeof(to))
        return 0;
    return to;
}

/* Does a direct call of `function` stand before `address`? */
static bool returns_from(struct clp_walker *w, uint64_t address, uint64_t function)
{
    uint8_t call[5];
    int32_t disp;
    if (!clp_walker_is_return(w, address) ||
        clp_walker_read(w, address - sizeof(call), call, sizeof(call)) != (int64_t)sizeof(call) ||
        call[0] != 0xe8)
        return false;
    memcpy(&disp, call + 1, sizeof(disp));
    uint64_t target = address + (uint64_t)(int64_t)disp;
    return target == function || behind_jump(w, target) == function;
}

/* The stack pointer of the function may be anywhere: where it was called from is searched. */
static bool by_caller(struct clp_walker *w, const struct function *f)
{
    uint64_t s = call_rsp(w), word;
    uint64_t end = CLP_MIN(w->in->stack.high, s + SCAN_BYTES_MAX);
    for (uint64_t at = s + 8; at + 8 <= end; at += 8)
        if (clp_stack_u64(&w->in->stack, at, &word) &&
            returns_from(w, word, f->start + w->code.start))
            return take(w, at - 8);
    return false;
}

bool clp_walker_recover_native(struct clp_walker *w, const struct clp_rule *rule)
{
    struct function f = {0};
    if (!(w->regs.unknown & RBP_BIT) || rule->cfa_reg != CLP_REG_RBP || rule->cfa_off != 16 ||
        !find_function(w, &f))
        return false;
    if (f.answer == DISTANCE && by_distance(w, &f))
        return true;
    return by_caller(w, &f);
}
