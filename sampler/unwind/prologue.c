/* RyuJIT prologues for x64 SysV: in this order
 *   OSR only: mov rax,[rbp]; push rax
 *   push rbp; push r15, r14, r13, r12, rbx as needed
 *   the allocation: push rax (8 bytes), sub rsp,N, with probes of each page before it, or for large
 *     frames lea r11,[rsp-N]; call probe helper; mov rsp,r11
 *   OSR only: mov [rsp+N],reg: registers saved in the Tier-0 frame
 *   vzeroupper
 *   lea rbp,[rsp+N], or mov rbp,rsp
 * What follows (zeroing, arguments to their homes, cookies) does not move the frame. */
#include <string.h>

#include "sampler/unwind/managed.h"

static bool starts_with(const uint8_t *p, size_t len, const char *bytes, size_t n)
{
    return len >= n && memcmp(p, bytes, n) == 0;
}
#define STARTS(p, len, literal) starts_with(p, len, literal, sizeof(literal) - 1)

static int32_t imm32(const uint8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static uint8_t saved_bit(unsigned reg)
{
    switch (reg) {
    case 3:
        return CLP_SAVED_RBX;
    case 12:
        return CLP_SAVED_R12;
    case 13:
        return CLP_SAVED_R13;
    case 14:
        return CLP_SAVED_R14;
    case 15:
        return CLP_SAVED_R15;
    default:
        return 0;
    }
}

/* Saves go r15 down to rbx, before the allocation; a push of anything else is an allocation. */
static void take_save(struct clp_prologue_state *s, uint8_t bit, bool allocated)
{
    bool in_order = !allocated && (s->saved == 0 || bit < (s->saved & -s->saved));
    s->saved |= in_order ? bit : CLP_SAVED_OTHER;
}

static void take_push(struct clp_prologue_state *s, unsigned reg)
{
    uint8_t bit = saved_bit(reg);
    bool allocated = s->below > s->pushes * 8u;
    s->below += 8;
    if (reg == 5) {
        s->misplaced |= s->below != 8;
        s->rbp_pushed = true;
        s->pushes++;
    } else if (bit) {
        take_save(s, bit, allocated);
        s->pushes++;
    }
}

static size_t push_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    if (len >= 1 && p[0] >= 0x50 && p[0] <= 0x57) {
        take_push(s, p[0] - 0x50u);
        return 1;
    }
    if (len >= 2 && p[0] == 0x41 && p[1] >= 0x50 && p[1] <= 0x57) {
        take_push(s, p[1] - 0x50u + 8);
        return 2;
    }
    return 0;
}

static size_t allocate_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    if (STARTS(p, len, "\x48\x83\xec") && len >= 4 && (int8_t)p[3] > 0) {
        s->below += p[3];
        return 4;
    }
    if (STARTS(p, len, "\x48\x81\xec") && len >= 7 && imm32(p + 3) > 0) {
        s->below += (uint32_t)imm32(p + 3);
        return 7;
    }
    /* mov rsp,r11 after lea r11,[rsp-N] and the probe helper */
    if (s->probe_disp && (STARTS(p, len, "\x49\x8b\xe3") || STARTS(p, len, "\x4c\x89\xdc"))) {
        s->below += s->probe_disp;
        s->probe_disp = 0;
        return 3;
    }
    return 0;
}

/* Instructions that touch pages or lead to the probe helper: the frame does not move yet. */
static size_t probe_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    if (STARTS(p, len, "\x85\x84\x24")) /* test [rsp-N],eax */
        return len >= 7 ? 7 : 0;
    if (STARTS(p, len, "\x85\x44\x24"))
        return len >= 4 ? 4 : 0;
    if (STARTS(p, len, "\x85\x04\x24"))
        return 3;
    if (STARTS(p, len, "\x4c\x8d\x9c\x24") && len >= 8 && imm32(p + 4) < 0) {
        s->probe_disp = 0u - (uint32_t)imm32(p + 4);
        return 8;
    }
    if (!s->probe_disp)
        return 0;
    if (p[0] == 0xe8)
        return len >= 5 ? 5 : 0;
    if (STARTS(p, len, "\xff\x15"))
        return len >= 6 ? 6 : 0;
    if (STARTS(p, len, "\x48\xb8"))
        return len >= 10 ? 10 : 0;
    return STARTS(p, len, "\xff\xd0") || STARTS(p, len, "\xff\x10") ? 2 : 0;
}

static size_t set_rbp_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    size_t n = 0;
    uint32_t disp = 0;
    if (STARTS(p, len, "\x48\x8d\x6c\x24") && len >= 5) {
        disp = (uint32_t)(int32_t)(int8_t)p[4];
        n = 5;
    } else if (STARTS(p, len, "\x48\x8d\xac\x24") && len >= 8) {
        disp = (uint32_t)imm32(p + 4);
        n = 8;
    } else if (STARTS(p, len, "\x48\x8b\xec") || STARTS(p, len, "\x48\x89\xe5")) {
        n = 3;
    }
    if (n == 0 || !(s->rbp_pushed || s->osr))
        return 0;
    s->rbp_set = true;
    s->lea_disp = disp;
    s->misplaced |= disp + 8 != s->below;
    return n;
}

/* OSR: mov [rsp+N],reg puts a callee-saved register below the Tier-0 frame's saved rbp. */
static size_t osr_save_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    if (!s->osr || len < 5 || (p[0] & 0xfb) != 0x48 || p[1] != 0x89 || p[3] != 0x24)
        return 0;
    unsigned reg = ((p[2] >> 3) & 7u) + (p[0] & 4 ? 8 : 0);
    bool wide = (p[2] & 0xc7) == 0x84;
    if (!saved_bit(reg) || (!wide && (p[2] & 0xc7) != 0x44) || (wide && len < 8))
        return 0;
    uint32_t disp = wide ? (uint32_t)imm32(p + 4) : (uint32_t)(int32_t)(int8_t)p[4];
    if (s->osr_top == 0)
        s->osr_top = disp;
    take_save(s, saved_bit(reg), false);
    return wide ? 8 : 5;
}

static size_t neutral_op(const uint8_t *p, size_t len)
{
    return STARTS(p, len, "\xc5\xf8\x77") ? 3 : 0; /* vzeroupper */
}

static size_t osr_entry_op(struct clp_prologue_state *s, const uint8_t *p, size_t len)
{
    if (s->at != 0 || !STARTS(p, len, "\x48\x8b\x45\x00\x50"))
        return 0;
    s->osr = true;
    return 4;
}

/* Length of the instruction at p, which has been applied to the state; 0: not of a prologue. */
static size_t step(struct clp_prologue_state *s, const uint8_t *p, size_t len, bool *ret_frame)
{
    *ret_frame = true;
    size_t n = osr_entry_op(s, p, len);
    n = n ? n : push_op(s, p, len);
    n = n ? n : allocate_op(s, p, len);
    n = n ? n : set_rbp_op(s, p, len);
    n = n ? n : osr_save_op(s, p, len);
    if (n)
        return n;
    *ret_frame = false;
    n = probe_op(s, p, len);
    return n ? n : neutral_op(p, len);
}

void clp_prologue_run(const uint8_t *code, size_t len, uint32_t limit,
                      struct clp_prologue_state *ret)
{
    struct clp_prologue_state s = {0};
    while (s.at < limit && s.at < len && !s.rbp_set) {
        struct clp_prologue_state before = s;
        bool frame;
        size_t n = step(&s, code + s.at, len - s.at, &frame);
        if (n == 0 || s.at + n > limit) {
            s = before;
            break;
        }
        s.at += (uint32_t)n;
        if (frame)
            s.last = s.at;
    }
    *ret = s;
}

void clp_prologue_decode(const uint8_t *code, size_t len, struct clp_managed_frame *ret)
{
    struct clp_prologue_state s;
    clp_prologue_run(code, len, (uint32_t)CLP_MIN(len, (size_t)UINT8_MAX), &s);
    bool rbp = s.rbp_pushed || s.osr;
    *ret = (struct clp_managed_frame){
        .base = rbp ? CLP_BASE_RBP : CLP_BASE_RSP,
        .prologue_bytes = (uint8_t)s.last,
        .push_count = s.pushes,
        .saved = s.saved,
        .osr = s.osr,
        .exact = len > 0 && !s.misplaced && !s.probe_disp && (s.rbp_set || !rbp),
        .frame_bytes = s.below,
        .lea_disp = s.lea_disp,
    };
    /* The first register saved lies right below the Tier-0 frame's saved rbp. */
    if (s.osr && s.osr_top > s.lea_disp)
        ret->osr_above = s.osr_top + 8 - s.lea_disp;
}
