/* Registers of aarch64 that unwind rules may name. Internal to code.h. */
#ifndef CLP_SAMPLER_UNWIND_REGS_AARCH64_H
#define CLP_SAMPLER_UNWIND_REGS_AARCH64_H

#include <elf.h>

/* Index = DWARF number (DWARF for the Arm 64-bit Architecture, 4.1); the program counter has none.
 */
enum {
    CLP_REG_X0 = 0,
    CLP_REG_X18 = 18,
    CLP_REG_X19 = 19,
    CLP_REG_X20,
    CLP_REG_X21,
    CLP_REG_X22,
    CLP_REG_X23,
    CLP_REG_FP = 29,
    CLP_REG_LR = 30,
    CLP_REG_SP = 31,
    CLP_REG_COUNT = 32,
    CLP_REG_PC = 32, /* always known: it has no bit in clp_regs.unknown */
    CLP_REG_SLOTS = 33,

    CLP_REG_RA = CLP_REG_LR,
};

/* The registers that functions save most, in the order of clp_rule.saved; the others are extras. */
enum {
    CLP_SAVE_FP,
    CLP_SAVE_X19,
    CLP_SAVE_X20,
    CLP_SAVE_X21,
    CLP_SAVE_X22,
    CLP_SAVE_X23,
    CLP_SAVE_LR,
    CLP_SAVE_COUNT,
    CLP_SAVE_RA = CLP_SAVE_LR,
};
#define CLP_SAVE_REGISTERS                                                                         \
    {                                                                                              \
        CLP_REG_FP, CLP_REG_X19, CLP_REG_X20, CLP_REG_X21, CLP_REG_X22, CLP_REG_X23, CLP_REG_LR    \
    }

/* x0 to x18: what a call may destroy (AAPCS64, 6.1.1). */
#define CLP_REGS_VOLATILE 0x7ffffu

#define CLP_REGS_ELF_MACHINE EM_AARCH64
#define CLP_REGS_BEFORE_RETURN 4 /* so far before a return address is its call */
#define CLP_REGS_SIGN_RETURNS 1

/* A user address has at most 48 bits (52 on request): above them a return address may be signed. */
#define CLP_REGS_ADDRESS_MASK 0x0000ffffffffffffull

#endif
