/* The state of one walk, shared by the files that know the rules. Internal to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_WALKER_H
#define CLP_SAMPLER_UNWIND_WALKER_H

#include "sampler/unwind/walk.h"

struct clp_walker {
    const struct clp_code_source *source;
    struct clp_walk_state *state;
    const struct clp_walk_input *in;
    struct clp_regs regs;
    struct clp_code code; /* of the current frame */
    uint64_t lookup;      /* address that `code` was found by */
    bool exact;           /* pc is the next instruction to run, not a return address */
    bool trial;           /* a walk ahead, to see where it leads */
    uint32_t flags;       /* CLP_WALK_* */
};

/* What a rule says about going on. */
enum clp_next {
    CLP_NEXT = 0,          /* regs are the caller's */
    CLP_NEXT_ROOT = 1,     /* this was the outermost frame */
    CLP_NEXT_LOST = 2,     /* the caller cannot be told; flags say so */
    CLP_NEXT_HIJACKED = 3, /* as NEXT, but the direct caller is unknown and was passed over */
};

/* ---- walk.c ---- */

/* Looks the current frame's code up. */
void clp_walker_find(struct clp_walker *w);
/* From the current frame, whose code is known, to its caller. */
enum clp_next clp_walker_step(struct clp_walker *w);
int64_t clp_walker_read(struct clp_walker *w, uint64_t address, void *buf, size_t len);

/* ---- one frame each, the processor's own ---- */

enum clp_next clp_walker_step_managed(struct clp_walker *w);
enum clp_next clp_walker_step_native(struct clp_walker *w);
enum clp_next clp_walker_step_thunk(struct clp_walker *w);

/* ---- walk-x86-64.c; what follows is that processor's as well ---- */

/* Is it an address that a call returns to: known code, with a call instruction before it? */
bool clp_walker_is_return(struct clp_walker *w, uint64_t address);
/* The same for native code that called through a register or memory. */
bool clp_walker_is_indirect_return(struct clp_walker *w, uint64_t address);
/* Callers lie above: this bounds every walk. `before` is the callee's rsp. */
bool clp_walker_grew(const struct clp_walker *w, uint64_t before);
/* Follows a rule; the return address is looked at for a hijack. */
enum clp_next clp_walker_apply(struct clp_walker *w, const struct clp_native_table *t,
                               const struct clp_rule *rule);
/* Follows the frame pointer where nothing better is known; only onto a checked return address. */
enum clp_next clp_walker_by_rbp(struct clp_walker *w);

/* ---- hijack.c ---- */

/* Learns the stub's address from an image that holds it. */
void clp_walker_learn_stub(struct clp_walker *w, const struct clp_code *code);
/* The caller was just reached through a return address that lay at `slot`. */
enum clp_next clp_walker_unhijack(struct clp_walker *w, uint64_t slot);
/* Is the current native frame the stub's own? */
bool clp_walker_in_stub(const struct clp_walker *w);
enum clp_next clp_walker_step_stub(struct clp_walker *w, const struct clp_rule *rule);

/* ---- recover.c ---- */

/* The current frame keeps its frame by rbp, and rbp is not known: finds it in the stack.  True: it
 * is known now. */
bool clp_walker_recover_managed(struct clp_walker *w);
bool clp_walker_recover_native(struct clp_walker *w, const struct clp_rule *rule);

/* ---- forward.c ---- */

/* The current native frame has no tables: the caller by its code, or by being near the stack's top.
 * LOST sets no flag and changes nothing: other rules may know. */
enum clp_next clp_walker_step_forward(struct clp_walker *w);
/* Where the code from rip on may find its return address, by the code alone. */
const struct clp_walk_cached_forward *clp_walker_forward_answers(struct clp_walker *w);

/* ---- filter.c, osr.c ---- */

/* Is the current managed frame that of an exception filter? */
bool clp_walker_in_filter(struct clp_walker *w);
/* Goes to the filter's caller, in the runtime; false when it is not found. */
bool clp_walker_leave_filter(struct clp_walker *w);
/* OSR: puts the Tier-0 frame's rbp into regs; false when that frame is not found. */
bool clp_walker_osr_rbp(struct clp_walker *w);

#endif
