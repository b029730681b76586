/* What is particular to x86-64 in a rule. */
#include "sampler/unwind/rule.h"

#define RED_ZONE_SLOTS (128 / 8)

/* For a hardware exception the runtime leaves its handler's stack and makes a frame on that of the
 * failing code: nothing was called there, so the frame keeps clear of the red zone (128 bytes, SysV
 * x86-64 psABI 3.2.2), and its tables find the failing instruction's address below that.  Where the
 * failing code had its other registers they do not tell. */
static void note_interruption(struct clp_rule *rule)
{
    static const uint8_t lost[] = {CLP_SAVE_RBX, CLP_SAVE_R12, CLP_SAVE_R13, CLP_SAVE_R14,
                                   CLP_SAVE_R15};
    if (rule->flags || rule->saved[CLP_SAVE_RIP] <= RED_ZONE_SLOTS ||
        rule->saved[CLP_SAVE_RIP] > CLP_SLOT_MAX)
        return;
    rule->flags = CLP_RULE_INTERRUPTED;
    for (size_t i = 0; i < CLP_ARRAY_LEN(lost); i++)
        if (rule->saved[lost[i]] == CLP_SLOT_SAME)
            rule->saved[lost[i]] = CLP_SLOT_UNDEFINED;
}

void clp_rule_settle(struct clp_rule *rule)
{
    /* No word about the return address is no return address. */
    if (rule->saved[CLP_SAVE_RIP] == CLP_SLOT_SAME)
        rule->saved[CLP_SAVE_RIP] = CLP_SLOT_UNDEFINED;
    note_interruption(rule);
}

void clp_regs_return(struct clp_regs *regs, bool interrupted)
{
    (void)regs; /* the return address is the program counter */
    (void)interrupted;
}
