/* Epilogues are followed forward, as the processor would run them: add rsp,N or lea rsp,[rbp-N],
 * pops, ret or a tail jump.  What leads to the end that way is right wherever in the epilogue it
 * starts. */
#include <string.h>

#include "sampler/unwind/managed.h"

struct simulation {
    const uint8_t *p;
    size_t left;
    bool from_rbp;                 /* rsp is known relative to rbp, not to the rsp at the start */
    int64_t rsp;                   /* rsp - base register */
    int64_t place[CLP_SAVE_COUNT]; /* where a register was popped from, base-relative */
    bool popped[CLP_SAVE_COUNT];
    bool moved; /* at least one instruction of an epilogue was seen */
};

enum outcome { GO_ON, FINISHED, NOT_EPILOGUE };

static bool starts_with(const struct simulation *s, const char *bytes, size_t n)
{
    return s->left >= n && memcmp(s->p, bytes, n) == 0;
}
#define STARTS(s, literal) starts_with(s, literal, sizeof(literal) - 1)

static int32_t imm32(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static enum outcome consume(struct simulation *s, size_t n)
{
    s->p += n;
    s->left -= n;
    s->moved = true;
    return GO_ON;
}

static enum outcome pop_register(struct simulation *s, unsigned reg, size_t n)
{
    static const uint8_t hardware_to_dwarf[8] = {CLP_REG_RAX, CLP_REG_RCX, CLP_REG_RDX,
                                                 CLP_REG_RBX, CLP_REG_RSP, CLP_REG_RBP,
                                                 CLP_REG_RSI, CLP_REG_RDI};
    uint8_t dwarf = reg < 8 ? hardware_to_dwarf[reg] : (uint8_t)reg;
    if (dwarf == CLP_REG_RSP)
        return NOT_EPILOGUE;
    for (unsigned i = 0; i < CLP_SAVE_RIP; i++) {
        if (clp_save_register[i] == dwarf) {
            s->place[i] = s->rsp;
            s->popped[i] = true;
        }
    }
    s->rsp += 8;
    return consume(s, n);
}

static enum outcome set_rsp_from_rbp(struct simulation *s, int32_t disp, size_t n)
{
    if (s->popped[CLP_SAVE_RBP])
        return NOT_EPILOGUE;
    s->from_rbp = true;
    s->rsp = disp;
    return consume(s, n);
}

static enum outcome move_op(struct simulation *s)
{
    const uint8_t *p = s->p;
    if (STARTS(s, "\x48\x83\xc4") && s->left >= 4) {
        s->rsp += (int8_t)p[3];
        return consume(s, 4);
    }
    if (STARTS(s, "\x48\x81\xc4") && s->left >= 7) {
        s->rsp += imm32(p + 3);
        return consume(s, 7);
    }
    if (STARTS(s, "\x48\x8d\x65") && s->left >= 4)
        return set_rsp_from_rbp(s, (int8_t)p[3], 4);
    if (STARTS(s, "\x48\x8d\xa5") && s->left >= 7)
        return set_rsp_from_rbp(s, imm32(p + 3), 7);
    if (STARTS(s, "\x48\x8b\xe5") || STARTS(s, "\x48\x89\xec"))
        return set_rsp_from_rbp(s, 0, 3);
    if (STARTS(s, "\xc5\xf8\x77"))
        return consume(s, 3);
    if (s->left >= 1 && p[0] >= 0x58 && p[0] <= 0x5f)
        return pop_register(s, p[0] - 0x58u, 1);
    if (s->left >= 2 && p[0] == 0x41 && p[1] >= 0x58 && p[1] <= 0x5f)
        return pop_register(s, p[1] - 0x58u + 8, 2);
    return NOT_EPILOGUE;
}

static bool leaves_body(const struct clp_code_window *w, uint64_t target)
{
    return target < w->start || target >= w->end;
}

/* A tail call.  `jmp reg` is also a switch in a body: RyuJIT marks the tail call by a REX.W prefix.
 */
static bool is_tail_jump(const struct simulation *s, const struct clp_code_window *w)
{
    const uint8_t *p = s->p;
    uint64_t at = w->address + (uint64_t)(s->p - (w->bytes + w->before));
    if (s->left >= 5 && p[0] == 0xe9)
        return leaves_body(w, at + 5 + (uint64_t)(int64_t)imm32(p + 1));
    if (STARTS(s, "\xff\x25") || STARTS(s, "\x48\xff\x25"))
        return true;
    bool rex = s->left >= 3 && (p[0] & 0xf8) == 0x48 && p[1] == 0xff;
    bool bare = s->left >= 2 && p[0] == 0xff;
    bool wide = s->left >= 3 && p[0] == 0x41 && p[1] == 0xff;
    uint8_t modrm = rex || wide ? p[2] : bare ? p[1] : 0;
    if (!(rex || bare || wide) || ((modrm >> 3) & 7) != 4)
        return false;
    return rex || s->moved || modrm < 0xc0;
}

static enum outcome step(struct simulation *s, const struct clp_code_window *w)
{
    if (s->left == 0)
        return NOT_EPILOGUE;
    if (s->p[0] == 0xc3 || STARTS(s, "\xf3\xc3") || is_tail_jump(s, w))
        return FINISHED;
    return move_op(s);
}

/* Everything relative to the CFA, which lies 8 above the return address that rsp now points at. */
static bool to_rule(const struct simulation *s, struct clp_rule *ret)
{
    int64_t cfa = s->rsp + 8;
    struct clp_rule r = {.cfa_reg = s->from_rbp ? CLP_REG_RBP : CLP_REG_RSP,
                         .cfa_off = (int32_t)cfa,
                         .saved = {[CLP_SAVE_RIP] = 1}};
    for (unsigned i = 0; i < CLP_SAVE_RIP; i++) {
        int64_t below = cfa - s->place[i];
        if (!s->popped[i])
            continue;
        if (below <= 0 || below % 8 || below / 8 > CLP_SLOT_MAX)
            return false;
        r.saved[i] = (uint8_t)(below / 8);
    }
    *ret = r;
    return cfa == (int32_t)cfa;
}

/* In an rbp frame the end is reached through `pop rbp`, in the simulation or right before it;
 * otherwise this is the end of a funclet (.NET 10), which leaves its parent's rbp alone. */
static bool rbp_is_back(const struct simulation *s, const struct clp_code_window *w)
{
    const uint8_t *point = w->bytes + w->before;
    if (s->popped[CLP_SAVE_RBP])
        return true;
    return !s->moved && w->before >= 1 && point[-1] == 0x5d &&
           !(w->before >= 2 && point[-2] == 0x41); /* pop r13 */
}

bool clp_managed_epilogue_rule(const struct clp_managed_frame *f, const struct clp_code_window *w,
                               struct clp_rule *ret)
{
    struct simulation s = {.p = w->bytes + w->before, .left = w->len - w->before};
    enum outcome o = GO_ON;
    if (f->funclet)
        return false;
    while (o == GO_ON)
        o = step(&s, w);
    if (o != FINISHED)
        return false;
    if (f->base == CLP_BASE_RBP && !rbp_is_back(&s, w))
        return false;
    return to_rule(&s, ret);
}

bool clp_funclet_pending_rbp(const struct clp_code_window *w, int32_t *ret)
{
    const uint8_t *p = w->bytes + w->before;
    size_t left = w->len - w->before;
    if (left >= 4 && memcmp(p, "\x48\x89\x2c\x24", 4) == 0) { /* mov [rsp],rbp */
        p += 4;
        left -= 4;
    }
    if (left >= 4 && memcmp(p, "\x48\x8d\x6d", 3) == 0)
        *ret = (int8_t)p[3];
    else if (left >= 7 && memcmp(p, "\x48\x8d\xad", 3) == 0)
        *ret = imm32(p + 3);
    else
        return false;
    return true;
}
