#include "sampler/inproc/counted.h"

#include <stdatomic.h>
#include <stdbool.h>

#define INCONSISTENT_WITH_FLAGS ((clr_hresult)0x80131374)

/* Two questions at a time would take each other's flag away. */
static atomic_flag asking = ATOMIC_FLAG_INIT;

/* The asking thread runs no managed code: there is no frame to be told of. */
static clr_hresult stop_at_once(clr_function_id function, uint64_t ip, uint64_t frame,
                                uint32_t context_bytes, uint8_t *context, void *user)
{
    (void)function;
    (void)ip;
    (void)frame;
    (void)context_bytes;
    (void)context;
    (void)user;
    return CLR_S_FALSE;
}

static bool refused_under(struct clr_info *info, uint32_t low, uint32_t high)
{
    return CLR_OK(info->slots->set_event_mask2(info, low, high)) &&
           info->slots->do_stack_snapshot(info, 0, stop_at_once, 0, NULL, NULL, 0) ==
               INCONSISTENT_WITH_FLAGS;
}

static bool ask(struct clr_info *info, uint32_t low, uint32_t high, bool surely)
{
    if (atomic_flag_test_and_set(&asking))
        return false;
    bool no = refused_under(info, low | CLR_ENABLE_STACK_SNAPSHOT, high);
    bool by_our_flag =
        surely && !no && refused_under(info, low & ~(uint32_t)CLR_ENABLE_STACK_SNAPSHOT, high);
    (void)info->slots->set_event_mask2(info, low, high);
    atomic_flag_clear(&asking);
    return surely ? by_our_flag : no;
}

bool clp_counted_no(struct clr_info *info, uint32_t low, uint32_t high)
{
    return ask(info, low, high, false);
}

bool clp_counted_yes(struct clr_info *info, uint32_t low, uint32_t high)
{
    return ask(info, low, high, true);
}
