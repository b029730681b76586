/* What the runtime sees of the library: two exported functions, a class factory, and one callback
 * object.  Everything of substance is behind runtime.h, code_events.h and threads.h.
 *
 * One static object serves every activation: the state of the library is one per process, and a
 * second activation is turned away in runtime.c. */
#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/code_events.h"
#include "sampler/inproc/enumerate.h"
#include "sampler/inproc/events.h"
#include "sampler/inproc/hooks.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/threads.h"
#include "wire/clsid.h"

#include <errno.h>
#include <string.h>

typedef void (*slot)(void);

static const struct clr_guid iid_unknown = CLR_IID_UNKNOWN;
static const struct clr_guid iid_class_factory = CLR_IID_CLASS_FACTORY;

/* ICorProfilerCallback to ICorProfilerCallback11: each extends the one before. */
static const struct clr_guid iid_callbacks[] = {
    {0x176fbed1, 0xa55c, 0x4796, {0x98, 0xca, 0xa9, 0xda, 0x0e, 0xf8, 0x83, 0xe7}},
    {0x8a8cc829, 0xccf2, 0x49fe, {0xbb, 0xae, 0x0f, 0x02, 0x22, 0x28, 0x07, 0x1a}},
    {0x4fd2ed52, 0x7731, 0x4b8d, {0x94, 0x69, 0x03, 0xd2, 0xcc, 0x30, 0x86, 0xc5}},
    {0x7b63b2e3, 0x107d, 0x4d48, {0xb2, 0xf6, 0xf6, 0x1e, 0x22, 0x94, 0x70, 0xd2}},
    {0x8dfba405, 0x8c9f, 0x45f8, {0xbf, 0xfa, 0x83, 0xb1, 0x4c, 0xef, 0x78, 0xb5}},
    {0xfc13df4b, 0x4448, 0x4f4f, {0x95, 0x0c, 0xba, 0x8d, 0x19, 0xd0, 0x0c, 0x36}},
    {0xf76a2dba, 0x1d52, 0x4539, {0x86, 0x6c, 0x2a, 0xa5, 0x18, 0xf9, 0xef, 0xc3}},
    {0x5bed9b15, 0xc079, 0x4d47, {0xbf, 0xe2, 0x21, 0x5a, 0x14, 0x0c, 0x07, 0xe0}},
    {0x27583ec3, 0xc8f5, 0x482f, {0x80, 0x52, 0x19, 0x4b, 0x8c, 0xe4, 0x70, 0x5a}},
    {0xcec5b60e, 0xc69c, 0x495f, {0x87, 0xf6, 0x84, 0xd2, 0x8e, 0xe1, 0x6f, 0xfb}},
    {0x42350846, 0xaaed, 0x47f7, {0xb1, 0x28, 0xfd, 0x0c, 0x98, 0x88, 0x1c, 0xde}},
};

static bool same_guid(const struct clr_guid *a, const void *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- the callback object ------------------------------------------------------------------- */

/* Callbacks run on the application's threads: what it does next may look at errno. */
struct errno_kept {
    int value;
};
static void give_errno_back(struct errno_kept *e)
{
    errno = e->value;
}
#define KEEP_ERRNO CLP_CLEANUP(give_errno_back) CLP_UNUSED struct errno_kept kept = {errno}

static clr_hresult ignored(void)
{
    return CLR_S_OK;
}

static uint32_t count_reference(struct clr_object *self)
{
    (void)self;
    return 1;
}

static clr_hresult callback_query_interface(struct clr_object *self, const struct clr_guid *iid,
                                            void **ret)
{
    if (!ret)
        return CLR_E_POINTER;
    *ret = NULL;
    bool known = same_guid(&iid_unknown, iid);
    for (size_t i = 0; i < CLP_ARRAY_LEN(iid_callbacks); i++)
        known |= same_guid(&iid_callbacks[i], iid);
    if (!known)
        return CLR_E_NOINTERFACE;
    *ret = self;
    return CLR_S_OK;
}

static clr_hresult on_initialize(void *self, struct clr_object *info)
{
    (void)self;
    KEEP_ERRNO;
    return clp_runtime_start(info);
}

static clr_hresult on_attach(void *self, struct clr_object *info, const void *data, uint32_t len)
{
    (void)self;
    KEEP_ERRNO;
    return clp_runtime_attach(info, data, len);
}

static clr_hresult on_attach_complete(void *self)
{
    (void)self;
    KEEP_ERRNO;
    clp_runtime_attached();
    return CLR_S_OK;
}

static clr_hresult on_detached(void *self)
{
    (void)self;
    KEEP_ERRNO;
    clp_runtime_detached();
    return CLR_S_OK;
}

static clr_hresult on_shutdown(void *self)
{
    (void)self;
    KEEP_ERRNO;
    clp_runtime_ends();
    return CLR_S_OK;
}

/* Answered TRUE to every caller: the slot of the main profiler is left to others, and the library
 * works beside one in any order. */
static clr_hresult on_load_as_notification_only(void *self, int32_t *ret)
{
    (void)self;
    *ret = 1;
    return CLR_S_OK;
}

static clr_hresult on_module_loaded(void *self, clr_module_id module, clr_hresult status)
{
    (void)self;
    KEEP_ERRNO;
    if (CLR_OK(status) && clp_runtime_active())
        clp_code_module_loaded(module);
    return CLR_S_OK;
}

static clr_hresult on_module_attached(void *self, clr_module_id module, clr_assembly_id assembly)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_active())
        clp_code_module_attached(module, assembly);
    return CLR_S_OK;
}

/* What goes away is heeded for as long as the loop may ask about it, also while the process ends.
 */
static clr_hresult on_module_unload(void *self, clr_module_id module)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_info())
        clp_code_module_unload(0, module);
    return CLR_S_OK;
}

static clr_hresult on_assembly_unload(void *self, clr_assembly_id assembly)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_info())
        clp_code_module_unload(assembly, 0);
    return CLR_S_OK;
}

static clr_hresult on_jit_started(void *self, clr_function_id function, int32_t may_block)
{
    (void)self;
    (void)may_block;
    KEEP_ERRNO;
    if (clp_runtime_active())
        clp_code_jit_started(function);
    return CLR_S_OK;
}

static clr_hresult on_rejit_finished(void *self, clr_function_id function, uint64_t rejit,
                                     clr_hresult status, int32_t may_block)
{
    (void)self;
    (void)may_block;
    KEEP_ERRNO;
    if (CLR_OK(status) && clp_runtime_active()) {
        clp_hooks_compiled();
        clp_code_jit_finished(function, rejit);
    }
    return CLR_S_OK;
}

static clr_hresult on_jit_finished(void *self, clr_function_id function, clr_hresult status,
                                   int32_t may_block)
{
    return on_rejit_finished(self, function, 0, status, may_block);
}

static clr_hresult on_dynamic_jit_finished(void *self, clr_function_id function, clr_hresult status,
                                           int32_t may_block)
{
    (void)self;
    (void)may_block;
    KEEP_ERRNO;
    if (CLR_OK(status) && clp_runtime_active())
        clp_code_dynamic_finished(function);
    return CLR_S_OK;
}

static clr_hresult on_dynamic_unloaded(void *self, clr_function_id function)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_info())
        clp_code_dynamic_unloaded(function);
    return CLR_S_OK;
}

static clr_hresult on_thread_assigned(void *self, clr_thread_id thread, uint32_t tid)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_active()) {
        clp_threads_assigned(thread, (int32_t)tid);
        clp_event_thread_begins();
    }
    return CLR_S_OK;
}

static clr_hresult on_thread_destroyed(void *self, clr_thread_id thread)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_info())
        clp_enumerate_thread_destroyed(thread);
    return CLR_S_OK;
}

static clr_hresult on_thread_named(void *self, clr_thread_id thread, uint32_t units,
                                   const uint16_t *name)
{
    (void)self;
    KEEP_ERRNO;
    if (clp_runtime_active())
        clp_threads_named(thread, name, name ? units : 0);
    return CLR_S_OK;
}

/* Asked for by the test build alone. */
static clr_hresult on_exception_thrown(void *self, uint64_t object)
{
    (void)self;
    (void)object;
    KEEP_ERRNO;
    if (clp_runtime_active())
        clp_hooks_thrown();
    return CLR_S_OK;
}

/* Of sessions of ours, and of those of other profilers. */
static clr_hresult on_event(void *self, uint64_t provider, uint32_t id, uint32_t version,
                            uint32_t metadata_len, const uint8_t *metadata, uint32_t len,
                            const uint8_t *data, const struct clr_guid *activity,
                            const struct clr_guid *related, clr_thread_id thread, uint32_t frames,
                            const uint64_t *stack)
{
    (void)self;
    (void)metadata_len;
    (void)metadata;
    (void)activity;
    (void)related;
    (void)thread;
    (void)frames;
    (void)stack;
    KEEP_ERRNO;
    if (clp_runtime_active() && !clp_capture_forked()) {
        clp_events_delivered(provider, id, version, data, len);
        clp_hooks_event(id);
    }
    return CLR_S_OK;
}

/* Every slot by its name, so that a line too many or too few does not compile or not match. */
struct callback_slots {
#define CLR_CALLBACK(number, name, function) slot name;
#include "sampler/inproc/clr_callbacks.def"
#undef CLR_CALLBACK
};
#define CLR_CALLBACK(number, name, function)                                                       \
    static_assert(offsetof(struct callback_slots, name) == (number) * sizeof(slot), #name);
#include "sampler/inproc/clr_callbacks.def"
#undef CLR_CALLBACK

static const struct callback_slots callback_slots = {
#define CLR_CALLBACK(number, name, function) .name = (slot)(function),
#include "sampler/inproc/clr_callbacks.def"
#undef CLR_CALLBACK
};

struct callback_object {
    const struct callback_slots *slots;
};
static struct callback_object callback_object = {&callback_slots};

/* What an attach gets while the library is active: it only brings a reader. If it has to stay
 * (runtime.c, join), nothing may arrive twice. */
static struct callback_slots stand_in_slots;
static struct callback_object stand_in_object = {&stand_in_slots};

/* One attach at a time: the runtime's diagnostics server has one thread. */
static struct callback_object *stand_in(void)
{
    slot *each = (slot *)&stand_in_slots;
    for (size_t i = 0; i < sizeof(stand_in_slots) / sizeof(slot); i++)
        each[i] = (slot)ignored;
    stand_in_slots.QueryInterface = callback_slots.QueryInterface;
    stand_in_slots.AddRef = callback_slots.AddRef;
    stand_in_slots.Release = callback_slots.Release;
    stand_in_slots.Initialize = callback_slots.Initialize;
    stand_in_slots.InitializeForAttach = callback_slots.InitializeForAttach;
    stand_in_slots.ProfilerAttachComplete = callback_slots.ProfilerAttachComplete;
    stand_in_slots.LoadAsNotificationOnly = callback_slots.LoadAsNotificationOnly;
    return &stand_in_object;
}

/* ---- the class factory --------------------------------------------------------------------- */

static clr_hresult factory_query_interface(void *self, const struct clr_guid *iid, void **ret)
{
    if (!ret)
        return CLR_E_POINTER;
    bool known = same_guid(&iid_unknown, iid) || same_guid(&iid_class_factory, iid);
    *ret = known ? self : NULL;
    return known ? CLR_S_OK : CLR_E_NOINTERFACE;
}

static clr_hresult factory_create(void *self, void *outer, const struct clr_guid *iid, void **ret)
{
    (void)self;
    if (outer)
        return CLR_CLASS_E_NOAGGREGATION;
    struct callback_object *object = clp_runtime_active() ? stand_in() : &callback_object;
    return callback_query_interface((struct clr_object *)object, iid, ret);
}

struct factory_slots {
    slot query_interface, add_ref, release, create_instance, lock_server;
};
static const struct factory_slots factory_slots = {
    .query_interface = (slot)factory_query_interface,
    .add_ref = (slot)count_reference,
    .release = (slot)count_reference,
    .create_instance = (slot)factory_create,
    .lock_server = (slot)ignored,
};
static struct {
    const struct factory_slots *slots;
} factory_object = {&factory_slots};

/* ---- exports ------------------------------------------------------------------------------- */

CLP_EXPORT clr_hresult DllGetClassObject(const struct clr_guid *clsid, const struct clr_guid *iid,
                                         void **ret);
CLP_EXPORT clr_hresult DllCanUnloadNow(void);

clr_hresult DllGetClassObject(const struct clr_guid *clsid, const struct clr_guid *iid, void **ret)
{
    static const uint8_t our_clsid[] = CLP_CLSID_BYTES;
    static_assert(sizeof(our_clsid) == sizeof(*clsid), "a GUID");
    if (!ret)
        return CLR_E_POINTER;
    *ret = NULL;
    if (!same_guid(clsid, our_clsid))
        return CLR_CLASS_E_CLASSNOTAVAILABLE;
    return factory_query_interface(&factory_object, iid, ret);
}

/* Never: a signal may be pending and a thread may stand inside the handler. */
clr_hresult DllCanUnloadNow(void)
{
    return CLR_S_FALSE;
}
