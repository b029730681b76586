/* Registers of x86-64 that unwind rules may name. Internal to code.h. */
#ifndef CLP_SAMPLER_UNWIND_REGS_X86_64_H
#define CLP_SAMPLER_UNWIND_REGS_X86_64_H

#include <elf.h>

/* Index = DWARF number for the first 16 (System V psABI x86-64, figure 3.36). */
enum {
    CLP_REG_RAX,
    CLP_REG_RDX,
    CLP_REG_RCX,
    CLP_REG_RBX,
    CLP_REG_RSI,
    CLP_REG_RDI,
    CLP_REG_RBP,
    CLP_REG_RSP,
    CLP_REG_R8,
    CLP_REG_R9,
    CLP_REG_R10,
    CLP_REG_R11,
    CLP_REG_R12,
    CLP_REG_R13,
    CLP_REG_R14,
    CLP_REG_R15,
    CLP_REG_RIP,
    CLP_REG_COUNT,
    CLP_REG_SLOTS = CLP_REG_COUNT, /* places in struct clp_regs */

    CLP_REG_SP = CLP_REG_RSP,
    CLP_REG_RA = CLP_REG_RIP, /* DWARF's return address column */
    CLP_REG_PC = CLP_REG_RIP,
};

/* The registers that functions save, in the order of clp_rule.saved. */
enum {
    CLP_SAVE_RBP,
    CLP_SAVE_RBX,
    CLP_SAVE_R12,
    CLP_SAVE_R13,
    CLP_SAVE_R14,
    CLP_SAVE_R15,
    CLP_SAVE_RIP,
    CLP_SAVE_COUNT,
    CLP_SAVE_RA = CLP_SAVE_RIP,
};
#define CLP_SAVE_REGISTERS                                                                         \
    {                                                                                              \
        CLP_REG_RBP, CLP_REG_RBX, CLP_REG_R12, CLP_REG_R13, CLP_REG_R14, CLP_REG_R15, CLP_REG_RIP  \
    }

/* What a call may destroy (SysV x86-64 psABI, 3.2.1). */
#define CLP_REGS_VOLATILE                                                                          \
    (1u << CLP_REG_RAX | 1u << CLP_REG_RDX | 1u << CLP_REG_RCX | 1u << CLP_REG_RSI |               \
     1u << CLP_REG_RDI | 1u << CLP_REG_R8 | 1u << CLP_REG_R9 | 1u << CLP_REG_R10 |                 \
     1u << CLP_REG_R11)

#define CLP_REGS_ELF_MACHINE EM_X86_64
#define CLP_REGS_BEFORE_RETURN 1 /* so far before a return address is certainly its call */
#define CLP_REGS_SIGN_RETURNS 0  /* DW_CFA 0x2d has a meaning */

#endif
