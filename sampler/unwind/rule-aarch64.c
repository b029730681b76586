/* What is particular to aarch64 in a rule. */
#include "sampler/unwind/rule.h"

/* A function that calls nothing keeps its return address in lr: no word about it is "still there".
 */
void clp_rule_settle(struct clp_rule *rule)
{
    (void)rule;
}

/* The caller goes on at lr, without the bits of a signature (pointer authentication); a call has
 * destroyed its own lr, a signal has not. */
void clp_regs_return(struct clp_regs *regs, bool interrupted)
{
    regs->r[CLP_REG_PC] = regs->r[CLP_REG_LR] & CLP_REGS_ADDRESS_MASK;
    if (!interrupted)
        regs->unknown |= 1u << CLP_REG_LR;
}
