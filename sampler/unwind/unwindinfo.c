#include "sampler/unwind/unwindinfo.h"

#include "base/core/bytes.h"

enum {
    UWOP_PUSH_NONVOL = 0,
    UWOP_ALLOC_LARGE = 1,
    UWOP_ALLOC_SMALL = 2,
    UWOP_SET_FPREG = 3,
    UWOP_SAVE_NONVOL = 4,
    UWOP_SAVE_NONVOL_FAR = 5,
    UWOP_SAVE_XMM128 = 8,
    UWOP_SAVE_XMM128_FAR = 9,
    UWOP_SET_FPREG_LARGE = 11, /* Unix only: offset / 16 in the next two slots */
};

#define FLAG_CHAINED 4
/* `vzeroupper; lea rbp,[rsp+N]` may follow what the record calls the prologue. */
#define LEA_BYTES_MAX 11u

/* Windows numbering to the bit in clp_managed_frame.saved. */
static uint8_t saved_bit(uint8_t reg)
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
        return CLP_SAVED_OTHER;
    }
}

/* Codes run from the last instruction to the first, so pushes appear in the reverse of their order:
 * rbx, r12, ... r15, rbp.  A register out of that order is saved somewhere unusual. */
static void take_push(struct clp_managed_frame *f, uint8_t reg)
{
    f->push_count++;
    f->frame_bytes += 8;
    if (f->base == CLP_BASE_RBP) /* something was pushed before rbp */
        f->exact = false;
    if (reg == 5) {
        f->base = CLP_BASE_RBP;
        return;
    }
    uint8_t bit = saved_bit(reg);
    if (bit <= f->saved)
        bit = CLP_SAVED_OTHER;
    f->saved |= bit;
}

static bool take_code(struct clp_managed_frame *f, struct clp_bytes *b)
{
    (void)clp_bytes_u8(b); /* where the instruction ends */
    uint8_t op = clp_bytes_u8(b);
    uint8_t info = op >> 4;
    switch (op & 15) {
    case UWOP_PUSH_NONVOL:
        take_push(f, info);
        return true;
    case UWOP_ALLOC_LARGE:
        f->frame_bytes += info == 0 ? clp_bytes_u16(b) * 8u : clp_bytes_u32(b);
        return true;
    case UWOP_ALLOC_SMALL:
        f->frame_bytes += info * 8u + 8;
        return true;
    case UWOP_SET_FPREG:
        return true;
    case UWOP_SET_FPREG_LARGE:
    case UWOP_SAVE_NONVOL_FAR:
    case UWOP_SAVE_XMM128_FAR:
        (void)clp_bytes_u32(b);
        return true;
    case UWOP_SAVE_NONVOL:
    case UWOP_SAVE_XMM128:
        (void)clp_bytes_u16(b);
        return true;
    default:
        return false;
    }
}

void clp_unwind_info_decode(const uint8_t *info, size_t len, struct clp_managed_frame *ret)
{
    struct clp_managed_frame f = {.base = CLP_BASE_RSP, .exact = true};
    struct clp_bytes b = clp_bytes_of(info, len);
    uint8_t head = clp_bytes_u8(&b);
    uint32_t prologue = clp_bytes_u8(&b);
    size_t codes = clp_bytes_u8(&b) * 2u;
    (void)clp_bytes_u8(&b); /* frame register and offset: always the saved rbp's place here */
    size_t left = clp_bytes_left(&b);
    struct clp_bytes list = clp_bytes_of(b.at, CLP_MIN(codes, left));
    bool good = !b.bad && left >= codes && (head & 7) == 1 && !((head >> 3) & FLAG_CHAINED);
    while (good && clp_bytes_left(&list) > 0)
        good = take_code(&f, &list) && !list.bad;
    if (!good)
        f = (struct clp_managed_frame){.base = CLP_BASE_RBP};
    else if (f.base == CLP_BASE_RBP)
        f.lea_disp = f.frame_bytes - 8;
    if (f.base == CLP_BASE_RBP)
        prologue += LEA_BYTES_MAX;
    f.prologue_bytes = (uint8_t)CLP_MIN(prologue, (uint32_t)UINT8_MAX);
    *ret = f;
}
