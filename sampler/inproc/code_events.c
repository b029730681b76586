#include "sampler/inproc/code_events.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/gate.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/pe_images.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/threads.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define STARTS_MAX 64u /* code versions of one method */
#define RANGES_MAX 4u  /* hot and cold parts of one version */
#define PROLOGUE_BYTES 128u

/* When something unloaded last of which not all code was in the table. */
static _Atomic uint64_t unknown_unload_ns;

void clp_code_events_init(void)
{
    atomic_store(&unknown_unload_ns, 0);
}

/* ---- bodies -------------------------------------------------------------------------------- */

void clp_code_decode(uint64_t start, uint32_t code_bytes, struct clp_managed_frame *ret)
{
    uint8_t code[PROLOGUE_BYTES];
    int64_t n = clp_images_read(start, code, CLP_MIN(code_bytes, PROLOGUE_BYTES));
    clp_prologue_decode(code, n > 0 ? (size_t)n : 0, ret);
}

/* Code that may unload is decoded at once: later its memory may hold something else.  The other
 * waits until a sample meets it; most methods never do. */
static void add_range(uint32_t method, const struct clr_code_range *r, uint64_t birth_ns)
{
    struct clp_managed_frame frame;
    clp_code_lock();
    bool mortal = clp_code_table_method_locked(method)->state & CLP_METHOD_STATE_MORTAL;
    clp_code_unlock();
    if (mortal)
        clp_code_decode(r->start, (uint32_t)r->size, &frame);
    clp_code_lock();
    uint32_t body =
        clp_code_table_body_add_locked(method, r->start, (uint32_t)r->size, birth_ns, 0);
    if (body && mortal)
        clp_code_table_body_set_frame_locked(body, &frame);
    clp_code_unlock();
}

static void add_ranges(uint32_t method, const struct clr_code_range *ranges, uint32_t count,
                       uint64_t birth_ns)
{
    for (uint32_t i = 0; i < CLP_MIN(count, RANGES_MAX); i++)
        if (ranges[i].size > 0 && ranges[i].size <= UINT32_MAX)
            add_range(method, &ranges[i], birth_ns);
}

/* Precompiled code is known by its image, better than by its first bytes. */
static bool is_new_start(uint32_t method, uint64_t start)
{
    clp_code_lock();
    bool known =
        clp_pe_images_cover_locked(start) || clp_code_table_body_known_locked(method, start);
    clp_code_unlock();
    return !known;
}

/* All versions of a method that are not in the table yet. */
static void add_versions(struct clr_info *info, uint32_t method, clr_function_id function,
                         uint64_t rejit, uint64_t birth_ns)
{
    uint64_t starts[STARTS_MAX];
    struct clr_code_range ranges[RANGES_MAX];
    uint32_t count = 0, got;
    if (!CLR_OK(
            info->slots->get_native_code_starts(info, function, rejit, STARTS_MAX, &count, starts)))
        return;
    for (uint32_t i = 0; i < CLP_MIN(count, STARTS_MAX); i++) {
        got = 0;
        if (is_new_start(method, starts[i]) &&
            CLR_OK(info->slots->get_code_info4(info, starts[i], RANGES_MAX, &got, ranges)))
            add_ranges(method, ranges, got, birth_ns);
    }
}

/* ---- methods ------------------------------------------------------------------------------- */

/* A method that is suspect and compiled again may be another one under a reused id. */
static uint32_t find_method(clr_function_id function)
{
    clp_code_lock();
    uint32_t method = clp_code_table_method_find_locked(function);
    uint64_t suspect_ns = method ? clp_code_table_suspect_ns_locked(method) : 0;
    if (suspect_ns) {
        clp_code_table_method_kill_locked(method, suspect_ns);
        method = 0;
    }
    clp_code_unlock();
    return method;
}

static uint32_t add_method_locked(clr_function_id function, uint32_t owner, bool sure)
{
    uint32_t method = clp_code_table_method_find_locked(function);
    if (method)
        return method;
    method = clp_code_table_method_add_locked(function, owner,
                                              owner || !sure ? CLP_METHOD_STATE_MORTAL : 0);
    if (method && !owner && !sure &&
        clp_code_table_set_unsure_locked(method, clp_modules_last_serial_locked()) < 0) {
        clp_code_table_method_kill_locked(method, 0);
        return 0;
    }
    return method;
}

/* A new method that may unload is named now, while it certainly exists. */
static uint32_t add_mortal_method(clr_function_id function, const struct clp_function_facts *facts,
                                  uint32_t owner, bool sure)
{
    struct clp_method_texts texts;
    clp_names_init_texts(&texts);
    clp_names_method(facts, &texts);
    clp_code_lock();
    uint32_t method = add_method_locked(function, owner, sure);
    if (method)
        clp_code_table_method_name_locked(method, &texts);
    clp_code_unlock();
    return method;
}

/* `immortal`: its code was seen in an image that cannot unload. */
static uint32_t find_or_add_method(clr_function_id function, bool immortal)
{
    struct clp_function_facts facts;
    bool sure;
    uint32_t method = find_method(function);
    if (method || clp_names_facts(function, &facts) < 0)
        return method;
    uint32_t owner = clp_names_owner(&facts, &sure);
    if (owner || !(sure || immortal))
        return add_mortal_method(function, &facts, owner, sure);
    clp_code_lock();
    method = add_method_locked(function, 0, true);
    clp_code_unlock();
    return method;
}

void clp_code_jit_finished(clr_function_id function, uint64_t rejit)
{
    struct clr_info *info = clp_runtime_info();
    uint32_t method = info ? find_or_add_method(function, false) : 0;
    if (method)
        add_versions(info, method, function, rejit, clp_clock_monotonic_ns());
    clp_runtime_compiled();
}

/* ---- dynamic methods ----------------------------------------------------------------------- */

static bool has_name_locked(uint32_t method, const struct clp_text *name)
{
    const struct clp_method_name *n =
        clp_code_table_name_locked(clp_code_table_method_locked(method));
    return n && n->name && n->name->len == name->len &&
           memcmp(n->name->text, name->buf, name->len) == 0;
}

/* An id that is in the table under another name was reused without a word about its end. */
static uint32_t add_dynamic_method(clr_function_id function, const struct clp_method_texts *texts,
                                   uint64_t now_ns)
{
    clp_code_lock();
    uint32_t owner = clp_modules_collectible_locked(texts->module) ? texts->module : 0;
    uint32_t method = clp_code_table_method_find_locked(function);
    if (method && !has_name_locked(method, &texts->name)) {
        clp_code_table_method_kill_locked(method, now_ns);
        method = 0;
    }
    if (!method)
        method = clp_code_table_method_add_locked(function, owner, CLP_METHOD_STATE_MORTAL);
    if (method)
        clp_code_table_method_name_locked(method, texts);
    clp_code_unlock();
    return method;
}

static int add_dynamic(struct clr_info *info, clr_function_id function, uint64_t birth_ns,
                       bool with_signature)
{
    struct clp_method_texts texts;
    struct clr_code_range ranges[RANGES_MAX];
    uint32_t count = 0;
    clp_names_init_texts(&texts);
    if (clp_names_dynamic(function, with_signature, &texts) < 0 ||
        !CLR_OK(info->slots->get_code_info2(info, function, RANGES_MAX, &count, ranges)))
        return -ENOENT;
    uint32_t method = add_dynamic_method(function, &texts, birth_ns);
    if (!method)
        return -ENOMEM;
    add_ranges(method, ranges, count, birth_ns);
    return 0;
}

void clp_code_dynamic_finished(clr_function_id function)
{
    struct clr_info *info = clp_runtime_info();
    if (info)
        (void)add_dynamic(info, function, clp_clock_monotonic_ns(), true);
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
void clp_code_dynamic_unloaded(clr_function_id function)
{
    uint64_t now = clp_clock_monotonic_ns();
    struct clr_info *info = clp_runtime_info();
    if (!kill_dynamic(function, now) &&
        (!info || add_dynamic(info, function, 0, false) < 0 || !kill_dynamic(function, now)))
        atomic_store(&unknown_unload_ns, now);
    clp_gate_wait(CLP_GATE_DYNAMIC);
}

/* ---- modules, threads ---------------------------------------------------------------------- */

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

/* ---- what exists already ------------------------------------------------------------------- */

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

void clp_code_thread_destroyed(clr_thread_id thread)
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

void clp_code_enumerate(void)
{
    struct clr_info *info = clp_runtime_info();
    if (!info)
        return;
    enumerate_threads(info);
    enumerate_modules(info);
}

/* ---- code that is older than the library --------------------------------------------------- */

/* Inside the gate. */
static int learn(struct clr_info *info, uint64_t ip, uint64_t birth_ns)
{
    clr_function_id function = 0;
    uint64_t rejit = 0;
    if (!CLR_OK(info->slots->get_function_from_ip3(info, ip, &function, &rejit)) || !function)
        return -ENOENT;
    int r = add_dynamic(info, function, birth_ns, true);
    if (r != -ENOENT)
        return r;
    uint32_t method = find_or_add_method(function, false);
    if (!method)
        return -ENOENT;
    add_versions(info, method, function, rejit, birth_ns);
    return 0;
}

/* Why this is safe where asking in general is not: the sample saw the code running at time_ns, so
 * it was loaded then.  The runtime tells of every unload before it frees anything.  If none was
 * told since of something that is not in the table, the code at ip (not in the table either) is
 * loaded still; and while the gate is closed none can get past its callback.  Code that lies here
 * now is what lay here at time_ns, because new code would be in the table. */
int clp_code_learn_at(uint64_t ip, uint64_t time_ns)
{
    struct clr_info *info = clp_runtime_info();
    int r = -EAGAIN;
    if (!info)
        return r;
    clp_gate_enter(CLP_GATE_MODULES | CLP_GATE_DYNAMIC);
    uint64_t unload_ns = atomic_load(&unknown_unload_ns);
    if (unload_ns < time_ns)
        r = learn(info, ip, unload_ns);
    clp_gate_leave();
    return r;
}

uint32_t clp_code_method_at(uint64_t ip)
{
    struct clr_info *info = clp_runtime_info();
    clr_function_id function = 0;
    if (!info)
        return 0;
    clp_gate_enter(CLP_GATE_MODULES);
    uint32_t method = 0;
    if (CLR_OK(info->slots->get_function_from_ip3(info, ip, &function, NULL)) && function)
        method = find_or_add_method(function, true);
    clp_gate_leave();
    if (method) {
        clp_code_lock();
        clp_code_table_set_sure_locked(method);
        clp_code_unlock();
    }
    return method;
}

/* The sample proves that the code was loaded after the last unload of anything that it could belong
 * to (each such unload makes it suspect anew); none gets past its callback while the gate is
 * closed. */
bool clp_code_confirm(uint32_t method, uint64_t ip, uint64_t time_ns)
{
    struct clr_info *info = clp_runtime_info();
    clr_function_id function = 0;
    clp_gate_enter(CLP_GATE_MODULES);
    clp_code_lock();
    uint64_t suspect_ns = clp_code_table_suspect_ns_locked(method);
    clr_function_id known = clp_code_table_method_locked(method)->function;
    clp_code_unlock();
    bool ask = info && suspect_ns < time_ns;
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
