#include "sampler/inproc/budget.h"

static void next_window(struct clp_budget *b, uint64_t wall_ns, uint64_t own_ns,
                        uint64_t process_ns)
{
    b->wall_ns = wall_ns;
    b->own_ns = own_ns;
    b->process_ns = process_ns;
}

void clp_budget_begin(struct clp_budget *b, uint64_t wall_ns, uint64_t own_ns, uint64_t process_ns)
{
    b->doublings = 0;
    next_window(b, wall_ns, own_ns, process_ns);
}

bool clp_budget_due(const struct clp_budget *b, uint64_t wall_ns)
{
    return wall_ns - b->wall_ns >= CLP_BUDGET_WINDOW_NS;
}

bool clp_budget_check(struct clp_budget *b, uint64_t wall_ns, uint64_t own_ns, uint64_t process_ns)
{
    if (!clp_budget_due(b, wall_ns))
        return false;
    uint64_t wall = wall_ns - b->wall_ns;
    uint64_t own = own_ns - b->own_ns;
    uint64_t allowed = CLP_MAX(wall / CLP_BUDGET_CORE_SHARE,
                               (process_ns - b->process_ns) / CLP_BUDGET_PROCESS_SHARE);
    next_window(b, wall_ns, own_ns, process_ns);
    if (own > allowed && b->doublings < CLP_BUDGET_DOUBLINGS_MAX) {
        b->doublings++;
        b->slowdowns++;
        return true;
    }
    if (own < allowed / 4 && b->doublings > 0) {
        b->doublings--;
        return true;
    }
    return false;
}
