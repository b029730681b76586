#include "sampler/unwind/cfi.h"

#include <errno.h>

enum {
    OP_ADVANCE = 0x40, /* two high bits: operand in the low six */
    OP_OFFSET = 0x80,
    OP_RESTORE = 0xc0,
    OP_NOP = 0x00,
    OP_SET_LOC = 0x01,
    OP_ADVANCE1 = 0x02,
    OP_ADVANCE2 = 0x03,
    OP_ADVANCE4 = 0x04,
    OP_OFFSET_EXTENDED = 0x05,
    OP_RESTORE_EXTENDED = 0x06,
    OP_UNDEFINED = 0x07,
    OP_SAME_VALUE = 0x08,
    OP_REGISTER = 0x09,
    OP_REMEMBER = 0x0a,
    OP_RESTORE_STATE = 0x0b,
    OP_DEF_CFA = 0x0c,
    OP_DEF_CFA_REGISTER = 0x0d,
    OP_DEF_CFA_OFFSET = 0x0e,
    OP_DEF_CFA_EXPRESSION = 0x0f,
    OP_EXPRESSION = 0x10,
    OP_OFFSET_EXTENDED_SF = 0x11,
    OP_DEF_CFA_SF = 0x12,
    OP_DEF_CFA_OFFSET_SF = 0x13,
    OP_VAL_OFFSET = 0x14,
    OP_VAL_OFFSET_SF = 0x15,
    OP_VAL_EXPRESSION = 0x16,
    OP_NEGATE_RA_STATE = 0x2d, /* aarch64: the return address is signed from here on, or no more */
    OP_GNU_ARGS_SIZE = 0x2e,
    OP_GNU_NEGATIVE_OFFSET = 0x2f,
};

#define REMEMBER_MAX 8

struct machine {
    const struct clp_eh_section *section;
    const struct clp_cie *cie;
    uint64_t loc, end;
    struct clp_cfi_row row, initial;
    struct clp_cfi_row remembered[REMEMBER_MAX];
    unsigned depth;
    void (*emit)(void *user, uint64_t start, const struct clp_cfi_row *row);
    void *user;
};

static struct clp_place place_number(enum clp_place_kind kind, int64_t value)
{
    if (value != (int32_t)value)
        return (struct clp_place){.kind = CLP_PLACE_BAD};
    return (struct clp_place){.kind = kind, .value = (int32_t)value};
}

static struct clp_place place_expr(enum clp_place_kind kind, struct clp_bytes *b)
{
    uint64_t len = clp_bytes_uleb(b);
    const uint8_t *expr = clp_bytes_take(b, len);
    if (!expr || len > UINT16_MAX)
        return (struct clp_place){.kind = CLP_PLACE_BAD};
    return (struct clp_place){.kind = kind, .expr = expr, .expr_len = (uint16_t)len};
}

/* Registers beyond the general ones (xmm, mmx...) are read and forgotten. */
static void set(struct machine *m, uint64_t reg, struct clp_place p)
{
    if (reg < CLP_REG_COUNT)
        m->row.reg[reg] = p;
}

static int64_t scaled(const struct machine *m, int64_t n)
{
    int64_t v;
    return __builtin_mul_overflow(n, m->cie->data_align, &v) ? INT64_MAX : v;
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t value)
{
    struct clp_place p = place_number(CLP_PLACE_VAL_OFFSET, value);
    if (reg >= CLP_REG_COUNT)
        p.kind = CLP_PLACE_BAD;
    p.reg = (uint8_t)reg;
    m->row.cfa = p;
}

static int advance(struct machine *m, uint64_t delta)
{
    uint64_t by;
    if (__builtin_mul_overflow(delta, m->cie->code_align, &by) || by > m->end - m->loc)
        by = m->end - m->loc;
    if (by)
        m->emit(m->user, m->loc, &m->row);
    m->loc += by;
    return m->loc < m->end ? 0 : -ENODATA;
}

static int set_loc(struct machine *m, struct clp_bytes *b)
{
    uint64_t at = m->section->vaddr + (uint64_t)(b->at - m->section->bytes);
    uint64_t to;
    if (clp_eh_pointer(b, m->cie->pointer_enc, at, &to) < 0 || to < m->loc)
        return -EBADMSG;
    if (to == m->loc)
        return 0;
    m->emit(m->user, m->loc, &m->row);
    m->loc = CLP_MIN(to, m->end);
    return m->loc < m->end ? 0 : -ENODATA;
}

static int remember(struct machine *m)
{
    if (m->depth == REMEMBER_MAX)
        return -EBADMSG;
    m->remembered[m->depth++] = m->row;
    return 0;
}

static int restore_state(struct machine *m)
{
    if (m->depth == 0)
        return -EBADMSG;
    m->row = m->remembered[--m->depth];
    return 0;
}

static int restore_register(struct machine *m, uint64_t reg)
{
    if (reg < CLP_REG_COUNT)
        m->row.reg[reg] = m->initial.reg[reg];
    return 0;
}

static int location_op(struct machine *m, uint8_t op, struct clp_bytes *b)
{
    switch (op) {
    case OP_SET_LOC:
        return set_loc(m, b);
    case OP_ADVANCE1:
        return advance(m, clp_bytes_u8(b));
    case OP_ADVANCE2:
        return advance(m, clp_bytes_u16(b));
    default:
        return advance(m, clp_bytes_u32(b));
    }
}

static void cfa_op(struct machine *m, uint8_t op, struct clp_bytes *b)
{
    struct clp_place *cfa = &m->row.cfa;
    uint64_t reg;
    switch (op) {
    case OP_DEF_CFA:
        reg = clp_bytes_uleb(b);
        set_cfa(m, reg, (int64_t)clp_bytes_uleb(b));
        break;
    case OP_DEF_CFA_SF:
        reg = clp_bytes_uleb(b);
        set_cfa(m, reg, scaled(m, clp_bytes_sleb(b)));
        break;
    case OP_DEF_CFA_REGISTER:
        set_cfa(m, clp_bytes_uleb(b), cfa->value);
        break;
    case OP_DEF_CFA_OFFSET:
        set_cfa(m, cfa->reg, (int64_t)clp_bytes_uleb(b));
        break;
    case OP_DEF_CFA_OFFSET_SF:
        set_cfa(m, cfa->reg, scaled(m, clp_bytes_sleb(b)));
        break;
    default:
        *cfa = place_expr(CLP_PLACE_EXPR, b);
        break;
    }
}

static int register_op(struct machine *m, uint8_t op, struct clp_bytes *b)
{
    uint64_t reg = clp_bytes_uleb(b);
    uint64_t other;
    switch (op) {
    case OP_OFFSET_EXTENDED:
        set(m, reg, place_number(CLP_PLACE_OFFSET, scaled(m, (int64_t)clp_bytes_uleb(b))));
        break;
    case OP_OFFSET_EXTENDED_SF:
        set(m, reg, place_number(CLP_PLACE_OFFSET, scaled(m, clp_bytes_sleb(b))));
        break;
    case OP_GNU_NEGATIVE_OFFSET:
        set(m, reg,
            place_number(CLP_PLACE_OFFSET, scaled(m, -(int64_t)(clp_bytes_uleb(b) & INT64_MAX))));
        break;
    case OP_VAL_OFFSET:
        set(m, reg, place_number(CLP_PLACE_VAL_OFFSET, scaled(m, (int64_t)clp_bytes_uleb(b))));
        break;
    case OP_VAL_OFFSET_SF:
        set(m, reg, place_number(CLP_PLACE_VAL_OFFSET, scaled(m, clp_bytes_sleb(b))));
        break;
    case OP_RESTORE_EXTENDED:
        return restore_register(m, reg);
    case OP_UNDEFINED:
        set(m, reg, (struct clp_place){.kind = CLP_PLACE_UNDEFINED});
        break;
    case OP_SAME_VALUE:
        set(m, reg, (struct clp_place){.kind = CLP_PLACE_SAME});
        break;
    case OP_REGISTER:
        other = clp_bytes_uleb(b);
        set(m, reg,
            (struct clp_place){.kind = other < CLP_REG_COUNT ? CLP_PLACE_REGISTER : CLP_PLACE_BAD,
                               .reg = (uint8_t)other});
        break;
    case OP_EXPRESSION:
        set(m, reg, place_expr(CLP_PLACE_EXPR, b));
        break;
    case OP_VAL_EXPRESSION:
        set(m, reg, place_expr(CLP_PLACE_VAL_EXPR, b));
        break;
    default:
        return -EBADMSG;
    }
    return 0;
}

static int execute(struct machine *m, uint8_t op, struct clp_bytes *b)
{
    uint8_t low = op & 0x3f;
    switch (op & 0xc0) {
    case OP_ADVANCE:
        return advance(m, low);
    case OP_OFFSET:
        set(m, low, place_number(CLP_PLACE_OFFSET, scaled(m, (int64_t)clp_bytes_uleb(b))));
        return 0;
    case OP_RESTORE:
        return restore_register(m, low);
    default:
        break;
    }
    switch (op) {
    case OP_NOP:
        return 0;
    case OP_GNU_ARGS_SIZE:
        (void)clp_bytes_uleb(b);
        return 0;
    case OP_NEGATE_RA_STATE:
        return CLP_REGS_SIGN_RETURNS ? 0 : -EBADMSG;
    case OP_REMEMBER:
        return remember(m);
    case OP_RESTORE_STATE:
        return restore_state(m);
    case OP_SET_LOC:
    case OP_ADVANCE1:
    case OP_ADVANCE2:
    case OP_ADVANCE4:
        return location_op(m, op, b);
    case OP_DEF_CFA:
    case OP_DEF_CFA_SF:
    case OP_DEF_CFA_REGISTER:
    case OP_DEF_CFA_OFFSET:
    case OP_DEF_CFA_OFFSET_SF:
    case OP_DEF_CFA_EXPRESSION:
        cfa_op(m, op, b);
        return 0;
    default:
        return register_op(m, op, b);
    }
}

static int run_program(struct machine *m, struct clp_bytes b)
{
    while (clp_bytes_left(&b) > 0) {
        uint8_t op = clp_bytes_u8(&b);
        int r = execute(m, op, &b);
        if (r < 0 || b.bad)
            return b.bad ? -EBADMSG : r;
    }
    return 0;
}

void clp_cfi_run(const struct clp_eh_section *s, const struct clp_cie *cie,
                 const struct clp_fde *fde,
                 void (*emit)(void *user, uint64_t start, const struct clp_cfi_row *row),
                 void *user)
{
    struct machine m = {.section = s,
                        .cie = cie,
                        .loc = fde->start,
                        .end = fde->end,
                        .row.cfa.kind = CLP_PLACE_BAD,
                        .emit = emit,
                        .user = user};
    int r = cie->ra_reg == CLP_REG_RA ? run_program(&m, cie->program) : -EBADMSG;
    m.initial = m.row;
    if (r == 0)
        r = run_program(&m, fde->program);
    if (r == -EBADMSG)
        m.row.cfa.kind = CLP_PLACE_BAD;
    if (m.loc < m.end)
        emit(user, m.loc, &m.row);
}
