/* DWARF expressions, as far as unwind tables use them. Source: DWARF 5, 2.5. */
#include <string.h>

#include "base/core/bytes.h"
#include "sampler/unwind/rule.h"

enum {
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,
    OP_CONST1S = 0x09,
    OP_CONST2U = 0x0a,
    OP_CONST2S = 0x0b,
    OP_CONST4U = 0x0c,
    OP_CONST4S = 0x0d,
    OP_CONST8U = 0x0e,
    OP_CONST8S = 0x0f,
    OP_CONSTU = 0x10,
    OP_CONSTS = 0x11,
    OP_DUP = 0x12,
    OP_DROP = 0x13,
    OP_OVER = 0x14,
    OP_SWAP = 0x16,
    OP_AND = 0x1a,
    OP_MINUS = 0x1c,
    OP_MUL = 0x1e,
    OP_NEG = 0x1f,
    OP_NOT = 0x20,
    OP_OR = 0x21,
    OP_PLUS = 0x22,
    OP_PLUS_UCONST = 0x23,
    OP_SHL = 0x24,
    OP_SHR = 0x25,
    OP_SHRA = 0x26,
    OP_XOR = 0x27,
    OP_EQ = 0x29,
    OP_GE = 0x2a,
    OP_GT = 0x2b,
    OP_LE = 0x2c,
    OP_LT = 0x2d,
    OP_NE = 0x2e,
    OP_LIT0 = 0x30,
    OP_LIT31 = 0x4f,
    OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f,
    OP_BREGX = 0x92,
    OP_DEREF_SIZE = 0x94,
    OP_NOP = 0x96,
};

#define DEPTH_MAX 16

struct evaluation {
    struct clp_bytes code;
    const struct clp_stack_view *stack;
    const struct clp_regs *regs;
    uint64_t value[DEPTH_MAX];
    unsigned depth;
    bool failed;
};

static void push(struct evaluation *e, uint64_t v)
{
    if (e->depth < DEPTH_MAX)
        e->value[e->depth++] = v;
    else
        e->failed = true;
}

static uint64_t pop(struct evaluation *e)
{
    if (e->depth > 0)
        return e->value[--e->depth];
    e->failed = true;
    return 0;
}

static void push_register(struct evaluation *e, uint64_t reg, int64_t offset)
{
    if (reg >= CLP_REG_COUNT || (e->regs->unknown & (1u << reg)))
        e->failed = true;
    else
        push(e, e->regs->r[reg] + (uint64_t)offset);
}

static void dereference(struct evaluation *e, unsigned size)
{
    uint64_t v = 0;
    if (!clp_stack_u64(e->stack, pop(e), &v) || size == 0 || size > 8)
        e->failed = true;
    push(e, size < 8 ? v & ((1ull << (size * 8)) - 1) : v);
}

static bool constant(struct evaluation *e, uint8_t op)
{
    struct clp_bytes *b = &e->code;
    switch (op) {
    case OP_CONST1U:
        push(e, clp_bytes_u8(b));
        return true;
    case OP_CONST1S:
        push(e, (uint64_t)(int64_t)(int8_t)clp_bytes_u8(b));
        return true;
    case OP_CONST2U:
        push(e, clp_bytes_u16(b));
        return true;
    case OP_CONST2S:
        push(e, (uint64_t)(int64_t)(int16_t)clp_bytes_u16(b));
        return true;
    case OP_CONST4U:
        push(e, clp_bytes_u32(b));
        return true;
    case OP_CONST4S:
        push(e, (uint64_t)(int64_t)(int32_t)clp_bytes_u32(b));
        return true;
    case OP_CONST8U:
    case OP_CONST8S:
        push(e, clp_bytes_u64(b));
        return true;
    case OP_CONSTU:
        push(e, clp_bytes_uleb(b));
        return true;
    case OP_CONSTS:
        push(e, (uint64_t)clp_bytes_sleb(b));
        return true;
    default:
        return false;
    }
}

static uint64_t shift_right(uint64_t v, uint64_t by, bool arithmetic)
{
    bool negative = arithmetic && (int64_t)v < 0;
    if (by > 63)
        return negative ? ~0ull : 0;
    uint64_t shifted = v >> by;
    return negative && by > 0 ? shifted | (~0ull << (64 - by)) : shifted;
}

static bool binary(struct evaluation *e, uint8_t op)
{
    if (op < OP_AND || op > OP_NE || op == OP_NEG || op == OP_NOT || op == OP_PLUS_UCONST)
        return false;
    uint64_t b = pop(e);
    uint64_t a = pop(e);
    switch (op) {
    case OP_AND:
        push(e, a & b);
        return true;
    case OP_MINUS:
        push(e, a - b);
        return true;
    case OP_MUL:
        push(e, a * b);
        return true;
    case OP_OR:
        push(e, a | b);
        return true;
    case OP_PLUS:
        push(e, a + b);
        return true;
    case OP_SHL:
        push(e, b < 64 ? a << b : 0);
        return true;
    case OP_SHR:
    case OP_SHRA:
        push(e, shift_right(a, b, op == OP_SHRA));
        return true;
    case OP_XOR:
        push(e, a ^ b);
        return true;
    case OP_EQ:
        push(e, a == b);
        return true;
    case OP_GE:
        push(e, (int64_t)a >= (int64_t)b);
        return true;
    case OP_GT:
        push(e, (int64_t)a > (int64_t)b);
        return true;
    case OP_LE:
        push(e, (int64_t)a <= (int64_t)b);
        return true;
    case OP_LT:
        push(e, (int64_t)a < (int64_t)b);
        return true;
    case OP_NE:
        push(e, a != b);
        return true;
    default:
        return false;
    }
}

static bool stack_op(struct evaluation *e, uint8_t op)
{
    uint64_t a, b;
    switch (op) {
    case OP_DUP:
        a = pop(e);
        push(e, a);
        push(e, a);
        return true;
    case OP_DROP:
        (void)pop(e);
        return true;
    case OP_OVER:
        b = pop(e);
        a = pop(e);
        push(e, a);
        push(e, b);
        push(e, a);
        return true;
    case OP_SWAP:
        b = pop(e);
        a = pop(e);
        push(e, b);
        push(e, a);
        return true;
    case OP_NEG:
        push(e, 0 - pop(e));
        return true;
    case OP_NOT:
        push(e, ~pop(e));
        return true;
    case OP_PLUS_UCONST:
        a = pop(e);
        push(e, a + clp_bytes_uleb(&e->code));
        return true;
    case OP_NOP:
        return true;
    default:
        return false;
    }
}

static bool execute(struct evaluation *e, uint8_t op)
{
    if (op >= OP_LIT0 && op <= OP_LIT31)
        push(e, op - OP_LIT0);
    else if (op >= OP_BREG0 && op <= OP_BREG31)
        push_register(e, op - OP_BREG0, clp_bytes_sleb(&e->code));
    else if (op == OP_BREGX) {
        uint64_t reg = clp_bytes_uleb(&e->code);
        push_register(e, reg, clp_bytes_sleb(&e->code));
    } else if (op == OP_DEREF)
        dereference(e, 8);
    else if (op == OP_DEREF_SIZE)
        dereference(e, clp_bytes_u8(&e->code));
    else
        return constant(e, op) || stack_op(e, op) || binary(e, op);
    return true;
}

bool clp_expr_eval(const uint8_t *expr, size_t len, const uint64_t *initial,
                   const struct clp_stack_view *stack, const struct clp_regs *regs, uint64_t *ret)
{
    struct evaluation e = {.code = clp_bytes_of(expr, len), .stack = stack, .regs = regs};
    if (initial)
        push(&e, *initial);
    while (!e.failed && !e.code.bad && clp_bytes_left(&e.code) > 0) {
        if (!execute(&e, clp_bytes_u8(&e.code)))
            return false;
    }
    if (e.failed || e.code.bad || e.depth == 0)
        return false;
    *ret = e.value[e.depth - 1];
    return true;
}
