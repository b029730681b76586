/* The call frame program of one FDE, run into rows. Internal to sampler/unwind.
 * Source: DWARF 5, 6.4.2 and 6.4.3. */
#ifndef CLP_SAMPLER_UNWIND_CFI_H
#define CLP_SAMPLER_UNWIND_CFI_H

#include "sampler/unwind/code.h"
#include "sampler/unwind/ehframe.h"

enum clp_place_kind {
    CLP_PLACE_SAME = 0, /* unchanged, or no word about it */
    CLP_PLACE_UNDEFINED,
    CLP_PLACE_OFFSET,     /* saved at CFA + value */
    CLP_PLACE_VAL_OFFSET, /* is CFA + value; for the CFA itself: register `reg` + value */
    CLP_PLACE_REGISTER,   /* in register `reg` */
    CLP_PLACE_EXPR,       /* saved at the expression's value; for the CFA itself: is that value */
    CLP_PLACE_VAL_EXPR,   /* is the expression's value */
    CLP_PLACE_BAD,        /* cannot be expressed */
};

struct clp_place {
    const uint8_t *expr;
    int32_t value;
    uint16_t expr_len;
    uint8_t kind; /* enum clp_place_kind */
    uint8_t reg;
};

struct clp_cfi_row {
    struct clp_place cfa;
    struct clp_place reg[CLP_REG_COUNT];
};

/* Calls `emit` for each run of addresses with one row, ascending from fde->start and below
 * fde->end. A malformed program ends in a row whose CFA is BAD, from the address where it broke. */
void clp_cfi_run(const struct clp_eh_section *s, const struct clp_cie *cie,
                 const struct clp_fde *fde,
                 void (*emit)(void *user, uint64_t start, const struct clp_cfi_row *row),
                 void *user);

#endif
