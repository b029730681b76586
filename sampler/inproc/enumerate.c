#include "sampler/inproc/enumerate.h"

#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/gate.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/threads.h"

#include <stdbool.h>

/* The runtime lists no module whose unload has begun, and no unload gets past its callback while
 * the section is open. */
static void enumerate_modules(struct clr_info *info)
{
    struct clr_enum *list = NULL;
    clr_module_id ids[64];
    uint32_t got = 0;
    clp_gate_enter(CLP_GATE_MODULES);
    if (CLR_OK(info->slots->enum_modules(info, &list)) && list) {
        while (CLR_OK(list->slots->next(list, CLP_ARRAY_LEN(ids), ids, &got)) && got > 0)
            for (uint32_t i = 0; i < got; i++)
                (void)clp_modules_learn(ids[i]);
        list->slots->base.release((struct clr_object *)list);
    }
    clp_gate_leave();
}

/* ThreadIDs that were destroyed while threads are enumerated. */
static struct {
    clr_thread_id ids[256];
    uint32_t count; /* more than fit: the rest of the list is not asked about */
    bool open;
} destroyed;

void clp_enumerate_thread_destroyed(clr_thread_id thread)
{
    clp_threads_destroyed(thread);
    clp_code_lock();
    if (destroyed.open && destroyed.count++ < CLP_ARRAY_LEN(destroyed.ids))
        destroyed.ids[destroyed.count - 1] = thread;
    clp_code_unlock();
    clp_gate_wait(CLP_GATE_THREADS);
}

static void watch_threads(bool on)
{
    clp_code_lock();
    destroyed.open = on;
    destroyed.count = 0;
    clp_code_unlock();
}

static bool is_destroyed(clr_thread_id thread)
{
    clp_code_lock();
    bool found = destroyed.count > CLP_ARRAY_LEN(destroyed.ids);
    for (uint32_t i = 0; i < CLP_MIN(destroyed.count, CLP_ARRAY_LEN(destroyed.ids)); i++)
        found |= destroyed.ids[i] == thread;
    clp_code_unlock();
    return found;
}

static void enumerate_thread(struct clr_info *info, clr_thread_id thread)
{
    uint32_t tid = 0;
    clp_gate_enter(CLP_GATE_THREADS);
    if (is_destroyed(thread) || !CLR_OK(info->slots->get_thread_info(info, thread, &tid)))
        tid = 0;
    if (tid)
        clp_threads_assigned(thread, (int32_t)tid);
    clp_gate_leave();
}

/* The list is made outside of the gate: it needs the runtime's lock of threads, which a thread that
 * is just destroyed may hold. */
static void enumerate_threads(struct clr_info *info)
{
    struct clr_enum *list = NULL;
    clr_thread_id ids[64];
    uint32_t got = 0;
    watch_threads(true);
    if (CLR_OK(info->slots->enum_threads(info, &list)) && list) {
        while (CLR_OK(list->slots->next(list, CLP_ARRAY_LEN(ids), ids, &got)) && got > 0)
            for (uint32_t i = 0; i < got; i++)
                enumerate_thread(info, ids[i]);
        list->slots->base.release((struct clr_object *)list);
    }
    watch_threads(false);
}

void clp_enumerate(void)
{
    struct clr_info *info = clp_runtime_info();
    if (!info)
        return;
    enumerate_threads(info);
    enumerate_modules(info);
}
