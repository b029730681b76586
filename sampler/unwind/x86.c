#include "sampler/unwind/x86.h"

#include <string.h>

enum map { MAP_ONE, MAP_0F, MAP_0F38, MAP_0F3A };

/* What follows an opcode. */
enum {
    HAS_MODRM = 1 << 0,
    IMM8 = 1 << 1,
    IMM_Z = 1 << 2, /* 4 bytes, 2 with an operand size prefix */
    IMM16 = 1 << 3,
    IMM_MOV = 1 << 4, /* mov r,imm: 8 bytes with REX.W */
    MOFFS = 1 << 5,   /* an address of 8 bytes */
    GROUP3 = 1 << 6,  /* test has an immediate, its siblings have none */
    INVALID = 1 << 7,
};

struct decoding {
    const uint8_t *code;
    size_t len, at;
    enum map map;
    uint8_t opcode, modrm, rex;
    bool operand16, vex;
};

static uint8_t one_byte_form(uint8_t op)
{
    static const struct {
        uint8_t first, last, form;
    } forms[] = {
        {0x50, 0x5f, 0},
        {0x63, 0x63, HAS_MODRM},
        {0x68, 0x68, IMM_Z},
        {0x69, 0x69, HAS_MODRM | IMM_Z},
        {0x6a, 0x6a, IMM8},
        {0x6b, 0x6b, HAS_MODRM | IMM8},
        {0x6c, 0x6f, 0},
        {0x70, 0x7f, IMM8},
        {0x80, 0x80, HAS_MODRM | IMM8},
        {0x81, 0x81, HAS_MODRM | IMM_Z},
        {0x83, 0x83, HAS_MODRM | IMM8},
        {0x84, 0x8f, HAS_MODRM},
        {0x90, 0x99, 0},
        {0x9b, 0x9f, 0},
        {0xa0, 0xa3, MOFFS},
        {0xa4, 0xa7, 0},
        {0xa8, 0xa8, IMM8},
        {0xa9, 0xa9, IMM_Z},
        {0xaa, 0xaf, 0},
        {0xb0, 0xb7, IMM8},
        {0xb8, 0xbf, IMM_MOV},
        {0xc0, 0xc1, HAS_MODRM | IMM8},
        {0xc2, 0xc2, IMM16},
        {0xc3, 0xc3, 0},
        {0xc6, 0xc6, HAS_MODRM | IMM8},
        {0xc7, 0xc7, HAS_MODRM | IMM_Z},
        {0xc8, 0xc8, IMM16 | IMM8},
        {0xc9, 0xc9, 0},
        {0xca, 0xca, IMM16},
        {0xcb, 0xcc, 0},
        {0xcd, 0xcd, IMM8},
        {0xcf, 0xcf, 0},
        {0xd0, 0xd3, HAS_MODRM},
        {0xd7, 0xd7, 0},
        {0xd8, 0xdf, HAS_MODRM},
        {0xe0, 0xe7, IMM8},
        {0xe8, 0xe9, IMM_Z},
        {0xeb, 0xeb, IMM8},
        {0xec, 0xef, 0},
        {0xf1, 0xf1, 0},
        {0xf4, 0xf5, 0},
        {0xf6, 0xf6, HAS_MODRM | GROUP3 | IMM8},
        {0xf7, 0xf7, HAS_MODRM | GROUP3 | IMM_Z},
        {0xf8, 0xfd, 0},
        {0xfe, 0xff, HAS_MODRM},
    };
    if (op < 0x40) {
        static const uint8_t arithmetic[8] = {HAS_MODRM, HAS_MODRM, HAS_MODRM, HAS_MODRM,
                                              IMM8,      IMM_Z,     INVALID,   INVALID};
        return arithmetic[op & 7];
    }
    for (size_t i = 0; i < CLP_ARRAY_LEN(forms); i++)
        if (op >= forms[i].first && op <= forms[i].last)
            return forms[i].form;
    return INVALID;
}

static uint8_t two_byte_form(uint8_t op)
{
    if (op >= 0x80 && op <= 0x8f)
        return IMM_Z;
    if ((op >= 0x05 && op <= 0x09) || op == 0x0b || op == 0x0e || (op >= 0x30 && op <= 0x37) ||
        op == 0x77 || (op >= 0xa0 && op <= 0xa2) || (op >= 0xa8 && op <= 0xaa) ||
        (op >= 0xc8 && op <= 0xcf))
        return 0;
    bool imm8 = (op >= 0x70 && op <= 0x73) || op == 0xa4 || op == 0xac || op == 0xba ||
                op == 0xc2 || (op >= 0xc4 && op <= 0xc6);
    return imm8 ? HAS_MODRM | IMM8 : HAS_MODRM;
}

static uint8_t form_of(const struct decoding *d)
{
    switch (d->map) {
    case MAP_ONE:
        return one_byte_form(d->opcode);
    case MAP_0F:
        return two_byte_form(d->opcode);
    case MAP_0F38:
        return HAS_MODRM;
    default:
        return HAS_MODRM | IMM8;
    }
}

static bool next(struct decoding *d, uint8_t *ret)
{
    if (d->at >= d->len)
        return false;
    *ret = d->code[d->at++];
    return true;
}

static bool is_prefix(uint8_t b)
{
    return b == 0x66 || b == 0x67 || b == 0xf0 || b == 0xf2 || b == 0xf3 || b == 0x2e ||
           b == 0x36 || b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65;
}

/* C5, C4 and 62: the vector prefixes hold the opcode map. */
static bool take_vex(struct decoding *d, uint8_t first)
{
    static const uint8_t more[] = {[0] = 1, [1] = 2, [2] = 3}; /* bytes behind the first */
    uint8_t map = MAP_0F;
    unsigned kind = first == 0xc5 ? 0 : first == 0xc4 ? 1 : 2;
    if (d->len - d->at < more[kind] + 1u)
        return false;
    if (kind)
        map = d->code[d->at] & (kind == 1 ? 0x1f : 0x07);
    d->at += more[kind];
    d->vex = true;
    d->map = (enum map)map;
    return map >= MAP_0F && map <= MAP_0F3A && next(d, &d->opcode);
}

static bool take_opcode(struct decoding *d)
{
    uint8_t b;
    do {
        if (!next(d, &b))
            return false;
        d->operand16 |= b == 0x66;
    } while (is_prefix(b));
    if ((b & 0xf0) == 0x40) {
        d->rex = b;
        if (!next(d, &b))
            return false;
    }
    if (b == 0xc5 || b == 0xc4 || b == 0x62)
        return take_vex(d, b);
    d->opcode = b;
    if (b != 0x0f)
        return true;
    if (!next(d, &d->opcode))
        return false;
    d->map = d->opcode == 0x38 ? MAP_0F38 : d->opcode == 0x3a ? MAP_0F3A : MAP_0F;
    return d->map == MAP_0F || next(d, &d->opcode);
}

static bool take_modrm(struct decoding *d)
{
    uint8_t sib = 0;
    if (!next(d, &d->modrm))
        return false;
    unsigned mod = d->modrm >> 6, rm = d->modrm & 7;
    if (mod == 3)
        return true;
    if (rm == 4 && !next(d, &sib))
        return false;
    if (mod == 1)
        d->at += 1;
    else if (mod == 2 || (mod == 0 && (rm == 5 || (rm == 4 && (sib & 7) == 5))))
        d->at += 4;
    return true;
}

static void take_immediates(struct decoding *d, uint8_t form)
{
    size_t z = d->operand16 ? 2 : 4;
    if (form & GROUP3 && (d->modrm >> 3 & 7) > 1)
        return;
    if (form & IMM8)
        d->at += 1;
    if (form & IMM16)
        d->at += 2;
    if (form & IMM_Z)
        d->at += z;
    if (form & IMM_MOV)
        d->at += d->rex & 8 ? 8 : z;
    if (form & MOFFS)
        d->at += 8;
}

/* ---- effects ------------------------------------------------------------------------------- */

static unsigned modrm_reg(const struct decoding *d)
{
    return (d->modrm >> 3 & 7u) | (d->rex & 4 ? 8u : 0);
}

static bool modrm_is_rsp(const struct decoding *d)
{
    return d->modrm >> 6 == 3 && (d->modrm & 7) == 4 && !(d->rex & 1);
}

/* The immediate at the end of the instruction. */
static int32_t immediate(const struct decoding *d, size_t bytes)
{
    int32_t v;
    if (bytes == 1)
        return (int8_t)d->code[d->at - 1];
    memcpy(&v, d->code + d->at - 4, sizeof(v));
    return v;
}

static void arithmetic_effect(const struct decoding *d, struct clp_x86 *ret)
{
    unsigned operation = d->modrm >> 3 & 7;
    int32_t v = immediate(d, d->opcode == 0x83 ? 1 : 4);
    if (!modrm_is_rsp(d) || operation == 7) /* cmp */
        return;
    ret->effect = CLP_X86_DYNAMIC;
    if ((operation != 0 && operation != 5) || v == INT32_MIN || d->operand16)
        return;
    ret->effect = CLP_X86_MOVES;
    ret->bytes = operation == 5 ? v : -v;
}

static void moves(struct clp_x86 *ret, int32_t bytes)
{
    ret->effect = CLP_X86_MOVES;
    ret->bytes = bytes;
}

static void group5_effect(const struct decoding *d, struct clp_x86 *ret)
{
    unsigned operation = d->modrm >> 3 & 7;
    if (operation >= 2 && operation <= 5)
        ret->effect = CLP_X86_LEAVES;
    else if (operation == 6)
        moves(ret, 8);
}

/* Instructions whose destination is a register or memory operand, and those with the register. */
static bool writes_rsp(const struct decoding *d)
{
    bool to_rm = (d->opcode < 0x40 && (d->opcode & 7) <= 1 && d->opcode < 0x38) ||
                 d->opcode == 0x89 || d->opcode == 0xc7 || d->opcode == 0x8f;
    bool to_reg = (d->opcode < 0x38 && ((d->opcode & 7) == 2 || (d->opcode & 7) == 3)) ||
                  d->opcode == 0x8b || d->opcode == 0x8d;
    return (to_rm && modrm_is_rsp(d)) || (to_reg && modrm_reg(d) == 4);
}

static void one_byte_effect(const struct decoding *d, struct clp_x86 *ret)
{
    uint8_t op = d->opcode;
    if (op >= 0x50 && op <= 0x57)
        moves(ret, 8);
    else if (op == 0x5c && !(d->rex & 1)) /* pop rsp */
        ret->effect = CLP_X86_DYNAMIC;
    else if (op >= 0x58 && op <= 0x5f)
        moves(ret, -8);
    else if (op == 0x68 || op == 0x6a || op == 0x9c)
        moves(ret, 8);
    else if (op == 0x9d || op == 0x8f)
        moves(ret, -8);
    else if (op == 0x81 || op == 0x83)
        arithmetic_effect(d, ret);
    else if (op == 0xff)
        group5_effect(d, ret);
    else if (op == 0xc8 || op == 0xc9) /* enter, leave */
        ret->effect = CLP_X86_DYNAMIC;
    else if ((op >= 0x70 && op <= 0x7f) || (op >= 0xe0 && op <= 0xe3) || op == 0xe8 || op == 0xe9 ||
             op == 0xeb || op == 0xc2 || op == 0xc3 || (op >= 0xca && op <= 0xcf) || op == 0xf4)
        ret->effect = CLP_X86_LEAVES;
    else if (writes_rsp(d))
        ret->effect = CLP_X86_DYNAMIC;
}

static void two_byte_effect(const struct decoding *d, struct clp_x86 *ret)
{
    uint8_t op = d->opcode;
    if ((op >= 0x80 && op <= 0x8f) || op == 0x05 || op == 0x07 || op == 0x0b)
        ret->effect = CLP_X86_LEAVES;
    else if (op >= 0x40 && op <= 0x4f && modrm_reg(d) == 4) /* cmov */
        ret->effect = CLP_X86_DYNAMIC;
}

bool clp_x86_decode(const uint8_t *code, size_t len, struct clp_x86 *ret)
{
    struct decoding d = {.code = code, .len = CLP_MIN(len, (size_t)CLP_X86_MAX)};
    if (!take_opcode(&d))
        return false;
    uint8_t form = form_of(&d);
    if (form & INVALID || (form & HAS_MODRM && !take_modrm(&d)))
        return false;
    take_immediates(&d, form);
    if (d.at > d.len)
        return false;
    *ret = (struct clp_x86){.len = (uint8_t)d.at};
    if (d.map == MAP_ONE)
        one_byte_effect(&d, ret);
    else if (d.map == MAP_0F && !d.vex)
        two_byte_effect(&d, ret);
    return true;
}
