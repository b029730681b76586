/* Gathers the distinct rules of a table while it is built. Internal to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_INTERN_H
#define CLP_SAMPLER_UNWIND_INTERN_H

#include "sampler/unwind/cfi.h"
#include "sampler/unwind/rule.h"
#include "sampler/unwind/source.h"

#define CLP_RULES_MAX 32000u     /* measured: 14 to 595 in a library */
#define CLP_EXTRAS_MAX 8192u     /* measured: up to 60 */
#define CLP_POOL_MAX (60u << 10) /* measured: up to 1.5 KB */

enum { CLP_RULE_ID_NONE = 0, CLP_RULE_ID_BAD = 1 };

struct clp_rule_intern {
    struct clp_scratch memory;
    struct clp_rule *rule;
    struct clp_rule_extra *extra;
    uint8_t *pool;
    uint16_t *hash; /* 0 = empty, else rule id */
    uint32_t rules, extras, pool_bytes;
};

int clp_rule_intern_init(struct clp_rule_intern *in) CLP_MUST_USE;
void clp_rule_intern_done(struct clp_rule_intern *in);

/* The number of the rule that says what `row` says; CLP_RULE_ID_BAD when it cannot be expressed or
 * a ceiling is reached. */
uint16_t clp_rule_intern(struct clp_rule_intern *in, const struct clp_cfi_row *row,
                         bool signal_frame);

#endif
