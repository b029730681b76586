/* Compact unwind rules: what a row of a native table, or a state of a managed body, says about the
 * caller's registers. Internal to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_RULE_H
#define CLP_SAMPLER_UNWIND_RULE_H

#include <assert.h>

#include "sampler/unwind/native.h"

/* DWARF numbers of clp_rule.saved. */
extern const uint8_t clp_save_register[CLP_SAVE_COUNT];

enum {
    CLP_SLOT_SAME = 0, /* 1..CLP_SLOT_MAX: saved at CFA - 8 * n */
    CLP_SLOT_MAX = 253,
    CLP_SLOT_UNDEFINED = 254,
    CLP_SLOT_EXTRA = 255, /* among the rule's extras */
};

enum {
    CLP_CFA_NONE = 0x40, /* no function here */
    CLP_CFA_BAD = 0x41,  /* a function whose rule cannot be expressed */
    CLP_CFA_EXPR = 0x42, /* cfa_off: place of the expression in the table's pool */
};

enum {
    CLP_RULE_SIGNAL = 1 << 0, /* a signal trampoline: the caller's rip is exact */
    CLP_RULE_INTERRUPTED =
        1 << 1, /* the runtime's imitation of one: the same, without a ucontext */
};

struct clp_rule {
    int32_t cfa_off;
    uint16_t extra_first;
    uint8_t extra_count;
    uint8_t cfa_reg; /* enum CLP_REG_*, or CLP_CFA_* */
    uint8_t saved[CLP_SAVE_COUNT];
    uint8_t flags;
};
static_assert(sizeof(struct clp_rule) == 16, "tables hold hundreds");

/* What does not fit into a slot number. */
struct clp_rule_extra {
    int32_t value; /* OFFSET, VAL_OFFSET */
    uint16_t expr; /* EXPR, VAL_EXPR: place in the pool */
    uint8_t reg;
    uint8_t kind;  /* enum clp_place_kind */
    uint8_t other; /* REGISTER */
};

/* Row: from (its page << 16 | low) on, rule number `rule`; the high bit marks a function's start.
 */
#define CLP_ROW_START 0x8000u
#define CLP_ROW_RULE 0x7fffu
struct clp_row {
    uint16_t low;
    uint16_t rule;
};

#define CLP_TRIPS_MAX 4 /* measured: 1 in libcoreclr, 0 elsewhere */

struct clp_native_table {
    uint64_t base; /* link-time address of page 0, a multiple of 64 KB */
    size_t bytes;  /* of everything */
    uint32_t pages, rows;
    uint32_t rules, extras;
    uint32_t pool_bytes;
    uint64_t trip[CLP_TRIPS_MAX]; /* functions that begin like the runtime's hijack stub, or 0 */
    const uint32_t *page_first;   /* pages + 1 entries: first row of each page */
    const struct clp_row *row;
    const struct clp_rule *rule; /* [0] is NONE */
    const struct clp_rule_extra *extra;
    const uint8_t *pool; /* expressions: u16 length, bytes */
};

/* The rule for a link-time address; never NULL (NONE outside of functions). */
const struct clp_rule *clp_native_rule(const struct clp_native_table *t, uint64_t vaddr);

/* The CFA by a rule; false when it cannot be told. */
bool clp_rule_cfa(const struct clp_native_table *t, const struct clp_rule *rule,
                  const struct clp_stack_view *stack, const struct clp_regs *regs,
                  uint64_t *ret) CLP_MUST_USE;

/* Follows a rule. `t` holds its extras and expressions; NULL when the rule has none. */
enum clp_step clp_rule_apply(const struct clp_native_table *t, const struct clp_rule *rule,
                             const struct clp_stack_view *stack, struct clp_regs *regs);

/* rule-x86-64.c, rule-aarch64.c: what no row says, put into a new rule. */
void clp_rule_settle(struct clp_rule *rule);
/* The caller's registers are known but for where it goes on: its program counter. */
void clp_regs_return(struct clp_regs *regs, bool interrupted);

/* Evaluates a DWARF expression; `initial`, if given, is pushed first. */
bool clp_expr_eval(const uint8_t *expr, size_t len, const uint64_t *initial,
                   const struct clp_stack_view *stack, const struct clp_regs *regs, uint64_t *ret);

#endif
