/* What the unwinder needs to know of a piece of code, and how it asks.
 *
 * Everything in this folder is malloc-free (memory comes from a clp_arena or from the caller),
 * takes no lock, and runs on the library's one native thread, in the agent and in tests - never in
 * a signal handler. */
#ifndef CLP_SAMPLER_UNWIND_CODE_H
#define CLP_SAMPLER_UNWIND_CODE_H

#include "base/core/core.h"

#include <stdbool.h>

#include "sampler/unwind/regs.h"

struct clp_regs {
    uint64_t r[CLP_REG_SLOTS];
    uint32_t unknown; /* bit per register whose value is not known; a rule that needs one is BAD */
};

/* How a managed body keeps its frame: decoded once per body from its prologue (JIT code) or from
 * the R2R image's UNWIND_INFO. */
enum clp_frame_base {
    CLP_BASE_RSP = 1, /* frameless: CFA = rsp + frame_bytes + 8 after the prologue */
    CLP_BASE_RBP = 2, /* rbp points at the saved rbp: CFA = rbp + 16 after the prologue */
};

enum {
    CLP_SAVED_RBX = 1 << 0,
    CLP_SAVED_R12 = 1 << 1,
    CLP_SAVED_R13 = 1 << 2,
    CLP_SAVED_R14 = 1 << 3,
    CLP_SAVED_R15 = 1 << 4,
    CLP_SAVED_OTHER = 1 << 7, /* pushed in another order: where they lie is not known */
};

struct clp_managed_frame {
    uint8_t base;           /* enum clp_frame_base */
    uint8_t prologue_bytes; /* code bytes after which the frame stands for sure */
    uint8_t push_count;     /* pushes in the prologue, rbp included */
    uint8_t saved;          /* callee-saved registers pushed below rbp or the return address, in the
                             * compiler's fixed order r15, r14, r13, r12, rbx: CLP_SAVED_* bits */
    bool osr;               /* the prologue copies the Tier-0 frame's rbp: needs the OSR repair */
    bool funclet;           /* R2R only: a catch/filter/finally body, runs on its parent's rbp */
    bool exact;             /* false: the prologue was not recognised; base is a guess */
    uint32_t frame_bytes;   /* from the return address down to rsp: pushes * 8 + allocation */
    uint32_t lea_disp;      /* N of `lea rbp,[rsp+N]`; 0 for `mov rbp,rsp` */
    uint32_t osr_above;     /* OSR: from rbp up to the Tier-0 frame's saved rbp, 0 when not told */
};

/* Decodes the first bytes of a JIT-compiled body. Source of the shapes: RyuJIT's genFnProlog for
 * x64 SysV; counts in docs/decisions.md. Always fills *ret (exact=false when in doubt). */
void clp_prologue_decode(const uint8_t *code, size_t len, struct clp_managed_frame *ret);

enum clp_code_kind {
    CLP_CODE_UNKNOWN = 0, /* not executable or not known at all */
    CLP_CODE_MANAGED = 1, /* a JIT or R2R body */
    CLP_CODE_NATIVE = 2,  /* inside an ELF image */
    CLP_CODE_STUB = 3,    /* executable, no file, no known method: precode, thunk, copied helper */
};

struct clp_native_table; /* compact .eh_frame of one image, native.h */

struct clp_code {
    uint8_t kind;        /* enum clp_code_kind */
    uint32_t id;         /* MANAGED: body id; NATIVE: image id */
    uint32_t method_key; /* MANAGED: equal for all bodies (tiers, OSR) of one method; never 0 */
    uint64_t start; /* MANAGED: first byte of the body; NATIVE: bias (run-time minus link-time) */
    uint64_t end;   /* MANAGED: past the last byte */
    struct clp_managed_frame frame;        /* MANAGED */
    const struct clp_native_table *native; /* NATIVE; NULL when the file could not be read */
};

/* Supplied by the user of the walker (the library's code tables, or a test). */
struct clp_code_source {
    void *user;
    /* Fills *ret for the code that held `ip` at `time_ns`; kind UNKNOWN when there is none. */
    void (*find)(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret);
    /* Copies code bytes without risk (process_vm_readv); bytes copied, may be short, or <0. */
    int64_t (*read)(void *user, uint64_t address, void *buf, size_t len);
    /* Is `ip` in an exception filter of this managed code?  Asked only where the stack pointer is
     * not where the method keeps it.  NULL: there are none. */
    bool (*is_filter)(void *user, const struct clp_code *code, uint64_t ip);
    /* May code lie at `address`, by what is known already?  A cheap question before `find`, for
     * words of a stack that are mostly data.  NULL: perhaps everywhere. */
    bool (*was_code)(void *user, uint64_t address);
};

#endif
