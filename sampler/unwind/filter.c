/* Handlers (funclets) run on their method's frame, far below it: between them and the frame lie
 * what threw the exception and the runtime's search for who handles it.  When a catch or finally
 * handler runs, all that is over, and the walk goes on where the method was called from.  While a
 * filter runs, nothing is: whoever threw may still be needed, and the walk has to go through all of
 * it.
 *
 * A filter's own frame is not described anywhere.  It is small and was called by the runtime
 * through a pointer, so its return address is looked for; the right one is proved by the walk from
 * there: it comes to the method whose filter this is, at the same frame. */
#include "sampler/unwind/walker.h"

#define FRAME_BYTES_MAX 4096u /* saved registers and arguments for calls */
#define FRAMES_MAX 1024u      /* from a filter to its method */

enum { IS_FILTER = 1, NO_FILTER = 2 };

static bool ask(struct clp_walker *w, uint64_t ip)
{
    const struct clp_code_source *s = w->source;
    size_t slots = CLP_ARRAY_LEN(w->state->filters);
    struct clp_walk_cached_call *e = &w->state->filters[(ip ^ (ip >> 9)) % slots];
    if (e->answer == 0 || e->address != ip || e->id != w->code.id) {
        e->address = ip;
        e->id = w->code.id;
        e->answer = s->is_filter && s->is_filter(s->user, &w->code, ip) ? IS_FILTER : NO_FILTER;
    }
    return e->answer == IS_FILTER;
}

bool clp_walker_in_filter(struct clp_walker *w)
{
    const struct clp_managed_frame *f = &w->code.frame;
    uint64_t own_rsp = w->regs.r[CLP_REG_RBP] - f->lea_disp;
    bool on_own_frame = f->base != CLP_BASE_RBP || w->regs.r[CLP_REG_RSP] == own_rsp;
    return !w->trial && (f->funclet || !on_own_frame) && ask(w, w->lookup);
}

static bool leads_to(struct clp_walker *trial, uint32_t method_key, uint64_t rbp)
{
    for (unsigned i = 0; i < FRAMES_MAX; i++) {
        clp_walker_find(trial);
        if (trial->code.kind == CLP_CODE_UNKNOWN)
            return false;
        if (trial->code.kind == CLP_CODE_MANAGED && trial->code.method_key == method_key &&
            trial->regs.r[CLP_REG_RBP] == rbp)
            return true;
        enum clp_next n = clp_walker_step(trial);
        if (n == CLP_NEXT_ROOT || n == CLP_NEXT_LOST)
            return false;
    }
    return false;
}

/* The runtime's registers as far as the filter's frame tells them: before .NET 10 it begins with
 * `push rbp`; from then on who calls it restores all by its own tables. */
static void to_caller(struct clp_walker *w, uint64_t slot, uint64_t address)
{
    uint64_t rbp = 0;
    bool known = clp_stack_u64(&w->in->stack, slot - 8, &rbp) && rbp > slot;
    w->regs.unknown =
        ~((1u << CLP_REG_RIP) | (1u << CLP_REG_RSP) | (known ? 1u << CLP_REG_RBP : 0));
    w->regs.r[CLP_REG_RIP] = address;
    w->regs.r[CLP_REG_RSP] = slot + 8;
    w->regs.r[CLP_REG_RBP] = rbp;
    w->exact = false;
}

static bool is_caller(struct clp_walker *w, uint64_t slot)
{
    struct clp_walker trial = *w;
    uint64_t address;
    if (!clp_stack_u64(&w->in->stack, slot, &address) || !clp_walker_is_indirect_return(w, address))
        return false;
    to_caller(&trial, slot, address);
    trial.trial = true;
    if (!leads_to(&trial, w->code.method_key, w->regs.r[CLP_REG_RBP]))
        return false;
    to_caller(w, slot, address);
    return true;
}

bool clp_walker_leave_filter(struct clp_walker *w)
{
    uint64_t rsp = w->regs.r[CLP_REG_RSP];
    for (uint64_t slot = rsp; slot < rsp + FRAME_BYTES_MAX; slot += 8)
        if (is_caller(w, slot))
            return true;
    return false;
}
