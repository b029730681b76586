#include "sampler/unwind/walk.h"

#include "sampler/unwind/walker.h"

int64_t clp_walker_read(struct clp_walker *w, uint64_t address, void *buf, size_t len)
{
    return w->source->read(w->source->user, address, buf, len);
}

void clp_walker_find(struct clp_walker *w)
{
    uint64_t pc = w->regs.r[CLP_REG_PC];
    w->lookup = w->exact ? pc : pc - CLP_REGS_BEFORE_RETURN;
    w->code = (struct clp_code){0};
    w->source->find(w->source->user, w->lookup, w->in->time_ns, &w->code);
}

enum clp_next clp_walker_step(struct clp_walker *w)
{
    switch (w->code.kind) {
    case CLP_CODE_MANAGED:
        return clp_walker_step_managed(w);
    case CLP_CODE_NATIVE:
        return clp_walker_step_native(w);
    default:
        return clp_walker_step_thunk(w);
    }
}

static struct clp_walk_frame describe(const struct clp_walker *w)
{
    static const uint8_t kind[] = {[CLP_CODE_UNKNOWN] = CLP_WALK_UNKNOWN,
                                   [CLP_CODE_MANAGED] = CLP_WALK_MANAGED,
                                   [CLP_CODE_NATIVE] = CLP_WALK_NATIVE,
                                   [CLP_CODE_STUB] = CLP_WALK_STUB};
    return (struct clp_walk_frame){.address = w->lookup,
                                   .id = w->code.id,
                                   .kind = kind[w->code.kind & 3],
                                   .base = w->code.start};
}

static bool add(struct clp_walk_frame f, struct clp_walk_frame *frames, uint32_t cap,
                struct clp_walker *w, uint32_t *count)
{
    if (*count == cap) {
        w->flags |= CLP_WALK_TRUNCATED;
        return false;
    }
    frames[(*count)++] = f;
    return true;
}

void clp_walk(const struct clp_code_source *code, struct clp_walk_state *state,
              const struct clp_walk_input *in, struct clp_walk_frame *frames, uint32_t cap,
              struct clp_walk_result *ret)
{
    struct clp_walker w = {
        .source = code, .state = state, .in = in, .regs = in->regs, .exact = !in->leaf_is_caller};
    uint32_t count = 0;
    enum clp_next n = CLP_NEXT;
    while (n != CLP_NEXT_ROOT && n != CLP_NEXT_LOST) {
        clp_walker_find(&w);
        if (w.code.kind == CLP_CODE_UNKNOWN && count > 0) {
            w.flags |= CLP_WALK_INCOMPLETE; /* that was no return address */
            break;
        }
        if (!add(describe(&w), frames, cap, &w, &count))
            break;
        struct clp_walk_frame *f = &frames[count - 1];
        n = clp_walker_step(&w);
        if (n == CLP_NEXT || n == CLP_NEXT_HIJACKED)
            f->cfa = w.regs.r[CLP_REG_SP];
        if (n == CLP_NEXT_HIJACKED &&
            !add((struct clp_walk_frame){.kind = CLP_WALK_HIJACKED_CALLER}, frames, cap, &w,
                 &count))
            break;
    }
    *ret = (struct clp_walk_result){.count = count, .flags = w.flags};
}
