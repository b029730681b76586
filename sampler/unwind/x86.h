/* Lengths of x86-64 instructions, and what they do to the stack pointer.
 *
 * Enough to go over a function's first instructions one by one: every encoding a compiler emits has
 * its length; of what is executed only pushes, pops and moves of rsp are told apart.  Pure
 * functions over a copy of the code. Source: Intel SDM volume 2, appendix A (opcode maps). Internal
 * to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_X86_H
#define CLP_SAMPLER_UNWIND_X86_H

#include "base/core/core.h"

#include <stdbool.h>

enum clp_x86_effect {
    CLP_X86_NONE = 0,    /* rsp stays */
    CLP_X86_MOVES = 1,   /* rsp goes down by `bytes` (up where negative) */
    CLP_X86_DYNAMIC = 2, /* rsp gets a value that the code alone does not tell */
    CLP_X86_LEAVES = 3,  /* a jump, call, return, trap: what follows may not be what runs next */
};

struct clp_x86 {
    uint8_t len;
    uint8_t effect; /* enum clp_x86_effect */
    int32_t bytes;
};

#define CLP_X86_MAX 15u

/* The instruction at code[0]. False: not an instruction, or cut by `len`. */
bool clp_x86_decode(const uint8_t *code, size_t len, struct clp_x86 *ret) CLP_MUST_USE;

#endif
