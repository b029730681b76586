/* The strictest test of a walk: step a thread one instruction at a time. Only a call adds a caller,
 * only a return takes one away; any other change of the callers between two instructions is an
 * error of the walker, be it in a prologue, an epilogue or a stub. */
#ifndef CLP_TESTS_WALK_STEPS_H
#define CLP_TESTS_WALK_STEPS_H

#include "tests/walk/process.h"

enum step_kind { STEP_OTHER, STEP_CALL, STEP_RETURN, STEP_SYSCALL };

struct callers {
    uint32_t count;
    uint32_t flags;
    uint64_t leaf;
    uint64_t address[CLP_WALK_FRAMES_MAX];
};

/* What the instruction at `ip` does to the callers. */
enum step_kind step_kind_at(const struct process *p, uint64_t ip);
void callers_of(const struct clp_walk_frame *frames, const struct clp_walk_result *r,
                struct callers *ret);
/* Could `after` follow `before` by that instruction? */
bool callers_follow(const struct callers *before, enum step_kind kind, const struct callers *after);

#endif
