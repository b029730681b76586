/* Unwind rules for compiled managed code. Internal to sampler/unwind.
 *
 * Sources: RyuJIT's genFnProlog and genFnEpilog for x64 SysV (dotnet/runtime, codegenxarch.cpp);
 * clr-abi.md. */
#ifndef CLP_SAMPLER_UNWIND_MANAGED_H
#define CLP_SAMPLER_UNWIND_MANAGED_H

#include "sampler/unwind/rule.h"

/* Where a prologue stands after the instructions before some point in it. */
struct clp_prologue_state {
    uint32_t at;       /* code bytes consumed */
    uint32_t last;     /* end of the last instruction that changed the frame */
    uint32_t below;    /* bytes from the return address down to rsp */
    uint32_t lea_disp; /* once the frame stands */
    uint32_t osr_top;  /* OSR: rsp-relative slot of the first register saved in the Tier-0 frame */
    uint32_t probe_disp; /* of `lea r11,[rsp-N]`; 0 = none pending */
    uint8_t pushes;
    uint8_t saved; /* CLP_SAVED_* */
    bool rbp_pushed;
    bool rbp_set; /* rbp points at the saved rbp */
    bool osr;
    bool misplaced; /* rbp was set to something else */
};

/* Follows a prologue until `limit` code bytes are consumed, its frame stands, or an instruction
 * comes that belongs to no prologue (then ->at tells where). */
void clp_prologue_run(const uint8_t *code, size_t len, uint32_t limit,
                      struct clp_prologue_state *ret);

/* The rule for a point after the prologue: frame stands. */
void clp_managed_body_rule(const struct clp_managed_frame *f, struct clp_rule *ret);

/* The rule for a point inside the prologue, whose code from the body's start is given. True when
 * the point lies before the frame stands; false: use the body rule. */
bool clp_managed_prologue_rule(const struct clp_managed_frame *f, const uint8_t *code, size_t len,
                               uint32_t offset, struct clp_rule *ret);

/* Code around a leaf: bytes[before] is the instruction about to run. */
struct clp_code_window {
    const uint8_t *bytes;
    size_t len;
    size_t before;       /* bytes known before the point */
    uint64_t address;    /* of the point */
    uint64_t start, end; /* of the body: a jump that leaves it is a tail call */
};

/* True when the point is in an epilogue: following it to its end leads to the caller, by *ret. */
bool clp_managed_epilogue_rule(const struct clp_managed_frame *f, const struct clp_code_window *w,
                               struct clp_rule *ret);

/* .NET 8 and 9: between two instructions of a funclet's prologue rbp holds the parent's stack
 * pointer; true with what is still to be added to it. */
bool clp_funclet_pending_rbp(const struct clp_code_window *w, int32_t *ret);

#endif
