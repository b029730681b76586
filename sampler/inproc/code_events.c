#include "sampler/inproc/code_events.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/code_add.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/gate.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/runtime.h"

#include <errno.h>
#include <stdatomic.h>

static _Atomic uint64_t unknown_unload_ns;

void clp_code_events_init(void)
{
    atomic_store(&unknown_unload_ns, 0);
}

uint64_t clp_code_unknown_unload_ns(void)
{
    return atomic_load(&unknown_unload_ns);
}

/* Otherwise they would come to light with the new one, and pass for as young: samples that saw them
 * may wait. */
void clp_code_jit_started(clr_function_id function)
{
    struct clr_info *info = clp_runtime_info();
    if (info)
        clp_code_add_older_versions(info, function, clp_code_unknown_unload_ns());
}

void clp_code_jit_finished(clr_function_id function, uint64_t rejit)
{
    struct clr_info *info = clp_runtime_info();
    uint32_t method = info ? clp_code_find_or_add(function, false) : 0;
    if (method)
        clp_code_add_versions(info, method, function, rejit, clp_clock_monotonic_ns());
    clp_runtime_compiled();
}

/* ---- dynamic methods ----------------------------------------------------------------------- */

void clp_code_dynamic_finished(clr_function_id function)
{
    struct clr_info *info = clp_runtime_info();
    if (info)
        (void)clp_code_add_dynamic(info, function, clp_clock_monotonic_ns(), true);
    clp_runtime_compiled();
}

static bool kill_dynamic(clr_function_id function, uint64_t now_ns)
{
    clp_code_lock();
    uint32_t method = clp_code_table_method_find_locked(function);
    if (method)
        clp_code_table_method_kill_locked(method, now_ns);
    clp_code_unlock();
    return method != 0;
}

/* One that is older than the library is learnt in its last moment: samples that saw it may still
 * wait, and it need not count as unknown. Without its signature, whose types the runtime would have
 * to look up in a state where it must not wait. */
static bool learn_dying(clr_function_id function, uint64_t now_ns)
{
    struct clr_info *info = clp_runtime_info();
    int r = info ? clp_code_add_dynamic(info, function, 0, false) : -ENOENT;
    if (r == -ENODATA)
        return true; /* made by reflection and never called: no sample saw it */
    return r == 0 && kill_dynamic(function, now_ns);
}

void clp_code_dynamic_unloaded(clr_function_id function)
{
    uint64_t now = clp_clock_monotonic_ns();
    if (!kill_dynamic(function, now) && !learn_dying(function, now))
        atomic_store(&unknown_unload_ns, now);
    clp_gate_wait(CLP_GATE_DYNAMIC);
}

/* ---- modules ------------------------------------------------------------------------------ */

void clp_code_module_loaded(clr_module_id module)
{
    clp_modules_loaded(module);
}

void clp_code_module_attached(clr_module_id module, clr_assembly_id assembly)
{
    clp_modules_attached(module, assembly);
}

static void module_dies(uint32_t number, uint64_t now_ns)
{
    clp_code_table_owner_kill_locked(number, now_ns);
    if (clp_modules_collectible_locked(number))
        clp_code_table_suspect_locked(clp_modules_at_locked(number)->serial, now_ns);
}

void clp_code_module_unload(clr_assembly_id assembly, clr_module_id module)
{
    uint64_t now = clp_clock_monotonic_ns();
    clp_code_lock();
    if (clp_modules_kill_locked(assembly, module, module_dies, now))
        atomic_store(&unknown_unload_ns, now);
    clp_code_unlock();
    clp_gate_wait(CLP_GATE_MODULES);
    clp_modules_release_dead();
}

void clp_code_lost_sight(void)
{
    uint64_t now = clp_clock_monotonic_ns();
    clp_code_lock();
    clp_modules_abandon_locked(module_dies, now);
    clp_code_table_mortal_kill_locked(now);
    atomic_store(&unknown_unload_ns, now);
    clp_code_unlock();
}
