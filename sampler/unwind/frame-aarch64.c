#include "sampler/unwind/frame-aarch64.h"

#include <string.h>

#define PROLOGUE_BYTES_MAX 256u
#define EPILOGUE_BYTES_MAX 128u

enum { FP = CLP_REG_FP, LR = CLP_REG_LR, SP = 31, NO_REG = 32 };

/* What an instruction does to the frame. Distances in bytes. */
struct effect {
    bool known;        /* one of those below, or nothing that concerns the frame */
    bool store, load;  /* of `reg` at sp + offset and `reg2` 8 above, before or after moving sp */
    uint8_t reg, reg2; /* NO_REG: none, or a vector register */
    int64_t offset;
    int64_t before, after; /* sp moves by this before and after the access */
    bool sets_fp;          /* fp = sp + offset */
    bool sets_sp;          /* sp = fp + offset */
    bool dynamic;          /* sp changes by a register */
    bool leaves;           /* ret, br, or b */
};

static int64_t bits_signed(uint32_t i, unsigned from, unsigned count)
{
    return (int64_t)((uint64_t)(i >> from) << (64 - count)) >> (64 - count);
}

/* stp, ldp: C4.1.92 "Load/store register pair" of the Arm ARM. */
static bool decode_pair(uint32_t i, struct effect *e)
{
    bool general = (i & 0xfe000000) == 0xa8000000, vector = (i & 0x3e000000) == 0x2c000000;
    if ((!general && !vector) || (i >> 5 & 31) != SP)
        return false;
    unsigned size = vector ? 4u << (i >> 30) : 8, mode = i >> 23 & 3;
    int64_t by = bits_signed(i, 15, 7) * size;
    e->load = i >> 22 & 1;
    e->store = !e->load;
    e->reg = vector ? NO_REG : i & 31;
    e->reg2 = vector ? NO_REG : i >> 10 & 31;
    e->before = mode == 3 ? by : 0;
    e->after = mode == 1 ? by : 0;
    e->offset = mode == 2 || mode == 0 ? by : 0;
    return true;
}

/* str, ldr of one register: pre- and post-index, unsigned offset. */
static bool decode_single(uint32_t i, struct effect *e)
{
    bool vector = i >> 26 & 1;
    if ((i >> 5 & 31) != SP || (i >> 27 & 7) != 7)
        return false;
    e->load = i >> 22 & 1;
    e->store = !e->load;
    e->reg = vector || i >> 30 != 3 ? NO_REG : i & 31;
    e->reg2 = NO_REG;
    if ((i & 0x3b200c00) == 0x38000c00)
        e->before = bits_signed(i, 12, 9);
    else if ((i & 0x3b200c00) == 0x38000400)
        e->after = bits_signed(i, 12, 9);
    else if ((i & 0x3b000000) == 0x39000000)
        e->offset = (int64_t)(i >> 10 & 0xfff) << (i >> 30);
    else
        return false;
    return true;
}

/* add and sub of sp and fp with an immediate; mov between the two is add 0. */
static bool decode_add(uint32_t i, struct effect *e)
{
    unsigned to = i & 31, from = i >> 5 & 31;
    if ((i & 0xbf800000) != 0x91000000)
        return false;
    int64_t by = (int64_t)(i >> 10 & 0xfff) << (i >> 22 & 1 ? 12 : 0);
    by = i >> 30 & 1 ? -by : by;
    if (to == SP && from == SP) {
        e->before = by;
    } else if (to == FP && from == SP) {
        e->sets_fp = true;
        e->offset = by;
    } else if (to == SP && from == FP) {
        e->sets_sp = true;
        e->offset = by;
    }
    return true;
}

static struct effect decode(uint32_t i)
{
    struct effect e = {.reg = NO_REG, .reg2 = NO_REG};
    e.known = decode_pair(i, &e) || decode_single(i, &e) || decode_add(i, &e);
    if (e.known)
        return e;
    e = (struct effect){.reg = NO_REG, .reg2 = NO_REG};
    bool returns = i == 0xd65f03c0 || i == 0xd65f0bff || i == 0xd65f0fff;
    bool jumps = (i & 0xfc000000) == 0x14000000 || (i & 0xfffffc1f) == 0xd61f0000;
    e.leaves = returns || jumps;
    e.dynamic = (i & 0x1f) == SP && ((i & 0xffe00000) == 0xcb200000 || /* sub sp,sp,xN */
                                     (i & 0xffe00000) == 0x8b200000);  /* add sp,sp,xN */
    return e;
}

bool clp_aarch64_is_call(uint32_t i)
{
    return (i & 0xfc000000) == 0x94000000 || (i & 0xfffffc1f) == 0xd63f0000 ||
           (i & 0xfefff800) == 0xd63f0800;
}

/* A conditional or unconditional jump, a call, an exception: a prologue has none of them. */
static bool is_flow(uint32_t i)
{
    return (i >> 26 & 7) == 5 && (i >> 29 & 3) != 3;
}

static uint32_t instruction(const uint8_t *code)
{
    uint32_t i;
    memcpy(&i, code, sizeof(i));
    return i;
}

/* Everything relative to sp at the function's entry, which is the CFA. */
struct frame {
    int64_t sp, fp;
    bool fp_stands;
    bool saved[CLP_SAVE_COUNT];
    int64_t place[CLP_SAVE_COUNT];
};

static void note_access(struct frame *f, uint8_t reg, int64_t at)
{
    for (unsigned s = 0; s < CLP_SAVE_COUNT; s++) {
        if (clp_save_register[s] != reg)
            continue;
        f->saved[s] = true;
        f->place[s] = at;
    }
}

static void access_pair(struct frame *f, const struct effect *e)
{
    note_access(f, e->reg, f->sp + e->offset);
    note_access(f, e->reg2, f->sp + e->offset + 8);
}

static bool slots_of(const struct frame *f, int64_t cfa, struct clp_rule *rule)
{
    for (unsigned s = 0; s < CLP_SAVE_COUNT; s++) {
        int64_t below = cfa - f->place[s];
        if (!f->saved[s])
            continue;
        if (below <= 0 || below % 8 || below / 8 > CLP_SLOT_MAX)
            return false; /* a large frame saves these at its top: fp's own pair is always near */
        rule->saved[s] = (uint8_t)(below / 8);
    }
    return cfa == (int32_t)cfa;
}

bool clp_aarch64_prologue_rule(const uint8_t *code, size_t at, struct clp_rule *ret)
{
    struct frame f = {.sp = 0};
    size_t end = CLP_MIN(at, (size_t)PROLOGUE_BYTES_MAX);
    for (size_t i = 0; i + 4 <= end && !f.fp_stands; i += 4) {
        struct effect e = decode(instruction(code + i));
        if (e.dynamic || e.sets_sp)
            return false;
        if (e.leaves || is_flow(instruction(code + i)))
            break;
        f.sp += e.before;
        if (e.store)
            access_pair(&f, &e);
        f.sp += e.after;
        if (e.sets_fp) {
            f.fp_stands = true;
            f.fp = f.sp + e.offset;
        }
    }
    struct clp_rule rule = {.cfa_reg = f.fp_stands ? FP : CLP_REG_SP,
                            .cfa_off = (int32_t) - (f.fp_stands ? f.fp : f.sp)};
    if (!slots_of(&f, 0, &rule))
        return false;
    *ret = rule;
    return true;
}

bool clp_aarch64_epilogue_rule(const uint8_t *code, size_t len, struct clp_rule *ret)
{
    struct frame f = {.sp = 0};
    bool by_fp = false;
    for (size_t i = 0; i + 4 <= CLP_MIN(len, (size_t)EPILOGUE_BYTES_MAX); i += 4) {
        struct effect e = decode(instruction(code + i));
        if (e.leaves) {
            struct clp_rule rule = {.cfa_reg = by_fp ? FP : CLP_REG_SP, .cfa_off = (int32_t)f.sp};
            if (!slots_of(&f, f.sp, &rule))
                return false;
            *ret = rule;
            return true;
        }
        bool epilogue = e.load || e.sets_sp || e.before;
        if (!epilogue || (e.sets_sp && (by_fp || f.saved[CLP_SAVE_FP])))
            return false;
        if (e.sets_sp) {
            by_fp = true;
            f.sp = e.offset;
            continue;
        }
        f.sp += e.before;
        access_pair(&f, &e);
        f.sp += e.after;
    }
    return false;
}
