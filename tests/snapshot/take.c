#include "tests/snapshot/take.h"

#include "base/core/lock.h"
#include "sampler/inproc/bounds.h"
#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/hooks.h"
#include "sampler/inproc/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define WAITING_MAX 1024u
#define OWN_FRAMES_BYTES 4096u /* of the functions here, below the frame that makes room */

static struct {
    struct clp_lock lock;
    struct clp_snapshot *first, *last;
    uint32_t waiting;
    _Atomic uint64_t skipped;
} queue;

/* ---- queue ---- */

static bool has_room(void)
{
    clp_lock(&queue.lock);
    bool room = queue.waiting < WAITING_MAX;
    clp_unlock(&queue.lock);
    return room;
}

static void put(struct clp_snapshot *s)
{
    clp_lock(&queue.lock);
    if (queue.last)
        queue.last->next = s;
    else
        queue.first = s;
    queue.last = s;
    queue.waiting++;
    clp_unlock(&queue.lock);
}

struct clp_snapshot *clp_snapshot_next(void)
{
    clp_lock(&queue.lock);
    struct clp_snapshot *s = queue.first;
    if (s) {
        queue.first = s->next;
        queue.last = s->next ? queue.last : NULL;
        queue.waiting--;
    }
    clp_unlock(&queue.lock);
    return s;
}

uint64_t clp_snapshot_skipped(void)
{
    return atomic_load(&queue.skipped);
}

/* ---- our capture ---- */

/* As the handler's copy_registers. */
static void copy_registers(struct clp_capture *c, const ucontext_t *uc)
{
    const greg_t *g = uc->uc_mcontext.gregs;
    c->rip = (uint64_t)g[REG_RIP];
    c->rsp = (uint64_t)g[REG_RSP];
    c->rbp = (uint64_t)g[REG_RBP];
    c->rbx = (uint64_t)g[REG_RBX];
    c->r12 = (uint64_t)g[REG_R12];
    c->r13 = (uint64_t)g[REG_R13];
    c->r14 = (uint64_t)g[REG_R14];
    c->r15 = (uint64_t)g[REG_R15];
}

static void copy_hijack_pair(struct clp_capture *c, struct clr_info *info)
{
    uint32_t offset = atomic_load(&clp_capture_state.hijack_offset);
    clr_thread_id thread = 0;
    if (!offset || !CLR_OK(info->slots->get_current_thread_id(info, &thread)) || !thread)
        return;
    memcpy(&c->hijacked_return, (const void *)(uintptr_t)(thread + offset), 8);
    memcpy(&c->hijacked_slot, (const void *)(uintptr_t)(thread + offset + 8), 8);
}

static void copy(struct clp_capture *c, const ucontext_t *uc, uint64_t high, struct clr_info *info)
{
    copy_registers(c, uc);
    c->slot = UINT32_MAX; /* no sample of a thread in the table */
    c->time_ns = clp_clock_monotonic_ns();
    c->stack_high = high;
    c->stack_bytes = (uint32_t)CLP_MIN(high - c->rsp, (uint64_t)c->bytes);
    copy_hijack_pair(c, info);
    memcpy(c->stack, (const void *)(uintptr_t)c->rsp, c->stack_bytes);
}

/* ---- the runtime's walk ---- */

static clr_hresult on_frame(clr_function_id function, uint64_t ip, uint64_t frame,
                            uint32_t context_bytes, uint8_t *context, void *user)
{
    struct clp_snapshot *s = user;
    (void)ip;
    (void)frame;
    (void)context_bytes;
    (void)context;
    if (!function)
        return CLR_S_OK; /* native frames between managed ones */
    if (s->count < CLP_SNAPSHOT_FRAMES_MAX)
        s->functions[s->count++] = function;
    else
        s->cut = true;
    return CLR_S_OK;
}

/* This frame is the leaf of our walk, and calls the runtime for its own: both see the same callers.
 */
static __attribute__((noinline)) void take(struct clr_info *info, struct clp_snapshot *s,
                                           uint64_t high)
{
    ucontext_t here;
    (void)getcontext(&here);
    copy(&s->capture, &here, high, info);
    s->result = info->slots->do_stack_snapshot(info, 0, on_frame, 0, s, NULL, 0);
}

/* `bytes` of stack at most. */
static struct clp_snapshot *make(uint64_t bytes)
{
    bytes = CLP_MIN(bytes, CLP_CAPTURE_STACK_MAX);
    struct clp_snapshot *s = malloc(sizeof(*s) + bytes);
    if (!s)
        return NULL;
    memset(s, 0, sizeof(*s));
    s->capture.bytes = (uint32_t)bytes;
    s->tid = gettid();
    return s;
}

static void take_here(void)
{
    struct clr_info *info = clp_runtime_info();
    uint64_t low, high, here = (uint64_t)(uintptr_t)__builtin_frame_address(0);
    if (!info || !clp_capture_enabled())
        return;
    struct clp_snapshot *s = NULL;
    if (has_room() && clp_bounds_own(&low, &high) && here >= low && here < high)
        s = make(high - here + OWN_FRAMES_BYTES);
    if (!s) {
        atomic_fetch_add(&queue.skipped, 1);
        return;
    }
    take(info, s, high);
    put(s);
}

/* What stacks are compared at: CLP_TEST_VERIFY=allocations, else exceptions. Both at once would
 * have one delay the other. */
static bool at_allocations(void)
{
    static _Atomic int answer = -1;
    if (atomic_load(&answer) < 0) {
        const char *what = getenv("CLP_TEST_VERIFY");
        atomic_store(&answer, what && strcmp(what, "allocations") == 0);
    }
    return atomic_load(&answer) == 1;
}

void clp_hooks_thrown(void)
{
    if (!at_allocations())
        take_here();
}

/* AllocationTick, AllocationSampled. */
void clp_hooks_event(uint32_t id)
{
    if ((id == 10 || id == 303) && at_allocations())
        take_here();
}
