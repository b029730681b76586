#include "sampler/inproc/code_learn.h"

#include "sampler/inproc/code_add.h"
#include "sampler/inproc/code_events.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/gate.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/runtime.h"

#include <errno.h>

/* Inside the gate. */
static int learn(struct clr_info *info, uint64_t ip, uint64_t birth_ns)
{
    clr_function_id function = 0;
    uint64_t rejit = 0;
    if (!CLR_OK(info->slots->get_function_from_ip3(info, ip, &function, &rejit)) || !function)
        return -ENOENT;
    int r = clp_code_add_dynamic(info, function, birth_ns, true);
    if (r != -ENOENT)
        return r;
    uint32_t method = clp_code_find_or_add(function, false);
    if (!method)
        return -ENOENT;
    clp_code_add_versions(info, method, function, rejit, birth_ns);
    return 0;
}

/* Why this is safe where asking in general is not: the sample saw the code running at time_ns, so
 * it was loaded then.  The runtime tells of every unload before it frees anything.  If none was
 * told since of something that is not in the table, the code at ip (not in the table either) is
 * loaded still; and while the gate is closed none can get past its callback.  Code that lies here
 * now is what lay here at time_ns, because new code would be in the table.
 *
 * So a younger body there was seen before its birth: the runtime lets threads run a method before
 * it tells that it is compiled. */
int clp_code_learn_at(uint64_t ip, uint64_t time_ns)
{
    struct clr_info *info = clp_runtime_info();
    int r = -EAGAIN;
    if (!info || clp_runtime_has_lost_count()) /* then an unload may go untold */
        return r;
    clp_gate_enter(CLP_GATE_MODULES | CLP_GATE_DYNAMIC);
    uint64_t unload_ns = clp_code_unknown_unload_ns();
    if (unload_ns < time_ns)
        r = learn(info, ip, unload_ns);
    clp_code_lock();
    if (r == 0)
        clp_code_table_seen_locked(ip, time_ns);
    clp_code_unlock();
    clp_gate_leave();
    return r;
}

uint32_t clp_code_method_at(uint64_t ip, clr_function_id *ret_function)
{
    struct clr_info *info = clp_runtime_info();
    clr_function_id function = 0;
    *ret_function = 0;
    if (!info || clp_runtime_has_lost_count())
        return 0;
    clp_gate_enter(CLP_GATE_MODULES);
    uint32_t method = 0;
    if (CLR_OK(info->slots->get_function_from_ip3(info, ip, &function, NULL)) && function)
        method = clp_code_find_or_add(function, true);
    clp_gate_leave();
    clp_code_lock();
    if (method && clp_code_is_method_locked(method, function))
        clp_code_table_set_sure_locked(method);
    clp_code_unlock();
    *ret_function = function;
    return method;
}

/* The sample proves that the code was loaded after the last unload of anything that it could belong
 * to (each such unload makes it suspect anew); none gets past its callback while the gate is
 * closed. */
bool clp_code_confirm(uint32_t method, uint64_t ip, uint64_t time_ns)
{
    struct clr_info *info = clp_runtime_info();
    clr_function_id function = 0;
    bool may_ask = info && !clp_runtime_has_lost_count();
    clp_gate_enter(CLP_GATE_MODULES);
    clp_code_lock();
    uint64_t suspect_ns = clp_code_table_suspect_ns_locked(method);
    clr_function_id known = clp_code_table_method_locked(method)->function;
    clp_code_unlock();
    bool ask = may_ask && suspect_ns < time_ns;
    bool same = ask && CLR_OK(info->slots->get_function_from_ip3(info, ip, &function, NULL)) &&
                function == known;
    clp_code_lock();
    if (same)
        clp_code_table_trust_locked(method);
    else if (ask)
        clp_code_table_method_kill_locked(method, suspect_ns);
    clp_code_unlock();
    clp_gate_leave();
    return same;
}

void clp_code_name_method(uint32_t method)
{
    struct clp_method_texts texts;
    struct clp_function_facts facts;
    clp_code_lock();
    clr_function_id function = clp_code_table_method_locked(method)->function;
    clp_code_unlock();
    clp_names_init_texts(&texts);
    if (!clp_runtime_info())
        return; /* later perhaps */
    if (function && clp_names_facts(function, &facts) == 0)
        clp_names_method(&facts, &texts);
    clp_code_lock();
    clp_code_table_method_name_locked(method, &texts);
    clp_code_unlock();
}
