#include "sampler/inproc/runtime.h"

#include "sampler/inproc/bodies.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/code_events.h"
#include "sampler/inproc/counted.h"
#include "sampler/inproc/enumerate.h"
#include "sampler/inproc/hooks.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/loop.h"
#include "sampler/inproc/probe.h"
#include "wire/clsid.h"
#include "wire/wire.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHUTDOWN_BUDGET_NS (100 * CLP_NSEC_PER_MSEC)
/* The runtime looks for threads inside our callbacks after this time, again after twice this time,
 * and from then on only each 5 s (profdetach.cpp); it never waits less than 300 ms.  A smaller hint
 * would spend both early looks at once: one unlucky callback then cost 5 s. */
#define DETACH_HINT_MS 300

/* How long the runtime's answer is believed. */
#define ANSWER_NS (100 * CLP_NSEC_PER_MSEC)

/* No exceptions, no garbage collections, no stack snapshots: what is not needed costs nothing. */
#define MASK_LOW                                                                                   \
    (CLR_MONITOR_THREADS | CLR_MONITOR_JIT_COMPILATION | CLR_MONITOR_MODULE_LOADS |                \
     CLR_MONITOR_ASSEMBLY_LOADS | CLP_HOOKS_MASK_LOW)
#define MASK_HIGH (CLR_HIGH_DYNAMIC_FUNCTION_UNLOADS | CLR_HIGH_MONITOR_EVENT_PIPE)

enum state {
    STATE_DORMANT = 0,
    STATE_STARTING = 1,
    STATE_ACTIVE = 2,
    STATE_LEAVING = 3, /* RequestProfilerDetach was called */
    STATE_ENDED = 4,   /* the process shuts down */
};

static _Atomic uint32_t state;
static _Atomic(struct clr_info *) usable; /* NULL unless the runtime may be called */
static struct clr_info *held;             /* our reference, STARTING to the end of detach */
static _Atomic bool lost_count;           /* the runtime's last answer, and when it came */
static _Atomic uint64_t asked_ns;
static _Atomic bool awaits_first_method; /* loaded at start: the runtime is not up yet */
static pid_t active_pid;                 /* a forked child inherits the state, but no thread */

/* A forked child has the state, but not the library's thread: its locks may be held for ever. */
bool clp_runtime_active(void)
{
    return atomic_load_explicit(&state, memory_order_acquire) == STATE_ACTIVE &&
           !clp_capture_forked();
}

struct clr_info *clp_runtime_info(void)
{
    return clp_capture_forked() ? NULL : atomic_load_explicit(&usable, memory_order_acquire);
}

static bool move(uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&state, &from, to);
}

/* ---- activation ---------------------------------------------------------------------------- */

static bool is_off(const char *value)
{
    return value && value[0] != '\0' && strtoul(value, NULL, 16) == 0;
}

/* The owner's wish counts also where the runtime does not look at it: at attach. */
static bool forbidden(void)
{
    const char *off = getenv("CLRPULSE_DISABLE");
    return (off && off[0] != '\0' && strcmp(off, "0") != 0) ||
           is_off(getenv("DOTNET_EnableDiagnostics_Profiler")) ||
           is_off(getenv("COMPlus_EnableDiagnostics_Profiler"));
}

static bool data_is_valid(const struct clp_attach_data *d)
{
    return d->magic == CLP_WIRE_MAGIC && d->version == CLP_WIRE_VERSION &&
           (d->flags & ~(uint32_t)CLP_ATTACH_COUNT_ONLY) == 0 &&
           memchr(d->socket_path, '\0', sizeof(d->socket_path)) != NULL &&
           d->socket_path[0] != '\0';
}

bool clp_runtime_has_lost_count(void)
{
    struct clr_info *info = clp_runtime_info();
    uint64_t now = clp_clock_monotonic_ns();
    if (!info)
        return false;
    if (now - atomic_load(&asked_ns) >= ANSWER_NS) {
        atomic_store(&lost_count, clp_counted_no(info, MASK_LOW, MASK_HIGH));
        atomic_store(&asked_ns, now);
    }
    return atomic_load(&lost_count);
}

/* Loop thread: the last reader left and asked for it. Where the runtime has lost count of us a
 * detach would end the process: the library stays, idle, for the next reader. false: not now, which
 * the runtime also says for a moment, and whoever asks it at the same time makes it say. */
static bool request_detach(void)
{
    struct clr_info *info = clp_runtime_info();
    if (!info || !clp_counted_yes(info, MASK_LOW, MASK_HIGH) || !move(STATE_ACTIVE, STATE_LEAVING))
        return false;
    atomic_store(&usable, NULL);
    if (CLR_OK(info->slots->request_profiler_detach(info, DETACH_HINT_MS)))
        return true;
    atomic_store(&usable, info);
    (void)move(STATE_LEAVING, STATE_ACTIVE);
    return false;
}

static struct clp_loop_runtime describe(struct clr_info *info)
{
    struct clp_loop_runtime r = {.enumerate = clp_enumerate,
                                 .request_detach = request_detach,
                                 .has_lost_count = clp_runtime_has_lost_count,
                                 .lost_sight = clp_code_lost_sight,
                                 .attaching = !atomic_load(&awaits_first_method)};
    (void)info->slots->get_runtime_information(info, NULL, NULL, &r.major, &r.minor, &r.patch, NULL,
                                               0, NULL, NULL);
    return r;
}

static struct clr_info *ask_interface(struct clr_object *object)
{
    static const struct clr_guid iid = CLR_IID_INFO13;
    void *info = NULL;
    if (!CLR_OK(object->slots->query_interface(object, &iid, &info)))
        return NULL;
    return info;
}

static void release(struct clr_info *info)
{
    info->slots->base.release((struct clr_object *)info);
}

static clr_hresult start_parts(struct clr_info *info, const struct clp_attach_data *data)
{
    struct clp_loop_runtime runtime = describe(info);
    /* Callbacks read memory as well, so this is known before the first one; the loop's thread,
     * which probes the rest, does not run yet. */
    if (clp_probe_result(CLP_PROBE_VM_READV) < 0)
        clp_images_forbid_vm_readv();
    if (clp_bodies_init() < 0)
        return CLP_ATTACH_NO_MEMORY;
    if (clp_loop_start(&runtime) < 0) {
        clp_bodies_done();
        return CLP_ATTACH_NO_MEMORY;
    }
    clr_hresult hr = info->slots->set_event_mask2(info, MASK_LOW, MASK_HIGH);
    if (CLR_OK(hr) && data && clp_loop_add_reader(data) < 0)
        hr = CLP_ATTACH_NO_MEMORY;
    if (!CLR_OK(hr)) {
        clp_loop_stop();
        clp_bodies_done();
    }
    return hr;
}

static clr_hresult activate(struct clr_object *object, const struct clp_attach_data *data)
{
    struct clr_info *info = ask_interface(object);
    if (!info)
        return CLP_ATTACH_FAILED;
    active_pid = getpid();
    clr_hresult hr = start_parts(info, data);
    if (!CLR_OK(hr)) {
        release(info);
        return hr;
    }
    held = info;
    atomic_store(&usable, info); /* the tables stand: callbacks may come */
    return hr;
}

static clr_hresult join(const struct clp_attach_data *data)
{
    return clp_loop_add_reader(data) < 0 ? CLP_ATTACH_NO_MEMORY : CLP_ATTACH_JOINED;
}

/* The second instance (entry.c: a stand-in without callbacks) stays registered where the runtime
 * has lost count of the first: its place in the count brings the callbacks of both back. (The
 * runtime itself cannot be asked here: inside this callback it refuses the question.) */
static clr_hresult stand_in(struct clr_object *object)
{
    struct clr_info *its = atomic_load(&lost_count) ? ask_interface(object) : NULL;
    if (!its)
        return CLP_ATTACH_JOINED;
    /* Any mask makes the runtime add up what all profilers want. */
    clr_hresult hr = its->slots->set_event_mask2(its, CLR_MONITOR_THREADS, 0);
    release(its);
    return CLR_OK(hr) ? CLR_S_OK : CLP_ATTACH_JOINED;
}

static clr_hresult activate_once(struct clr_object *object, const struct clp_attach_data *data)
{
    if (data && data->flags & CLP_ATTACH_COUNT_ONLY)
        return clp_runtime_active() ? stand_in(object) : CLP_ATTACH_JOINED;
    if (!move(STATE_DORMANT, STATE_STARTING)) {
        if (!clp_runtime_active())
            return CLP_ATTACH_LEAVING;
        return data ? join(data) : CLP_ATTACH_JOINED;
    }
    clr_hresult hr = activate(object, data);
    atomic_store(&state, CLR_OK(hr) ? STATE_ACTIVE : STATE_DORMANT);
    return CLR_OK(hr) ? CLR_S_OK : hr;
}

clr_hresult clp_runtime_attach(struct clr_object *info, const void *data, uint32_t len)
{
    struct clp_attach_data copy;
    if (forbidden())
        return CLP_ATTACH_DISABLED;
    if (!data || len != sizeof(copy))
        return CLP_ATTACH_BAD_DATA;
    memcpy(&copy, data, sizeof(copy));
    return data_is_valid(&copy) ? activate_once(info, &copy) : CLP_ATTACH_BAD_DATA;
}

/* ---- load at start ------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The reader that started this process announces itself in the environment. A child process
 * inherits the variable; the nonce lets the reader turn it away. */
static bool data_from_environment(struct clp_attach_data *ret)
{
    const char *hex = getenv("CLRPULSE_ATTACH");
    if (!hex || strlen(hex) != 2 * sizeof(*ret))
        return false;
    uint8_t *bytes = (uint8_t *)ret;
    for (size_t i = 0; i < sizeof(*ret); i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return data_is_valid(ret);
}

/* The reader uses the time to bring the start-up hook, which then runs before Main; it takes some
 * milliseconds. One that is gone, or has no ear for us, is not waited for. */
#define START_WAIT_NS (300 * CLP_NSEC_PER_MSEC)

/* Any refusal here is quiet: the runtime reports other results than this one. */
clr_hresult clp_runtime_start(struct clr_object *info)
{
    struct clp_attach_data data;
    if (forbidden())
        return CLP_ATTACH_JOINED;
    bool announced = data_from_environment(&data);
    atomic_store(&awaits_first_method, true);
    clr_hresult hr = activate_once(info, announced ? &data : NULL);
    if (CLR_OK(hr) && announced)
        clp_loop_wait_for_readers(START_WAIT_NS);
    return CLR_OK(hr) ? hr : CLP_ATTACH_JOINED;
}

void clp_runtime_attached(void)
{
    atomic_store(&asked_ns, 0);
    if (clp_runtime_active())
        clp_loop_runtime_ready();
}

void clp_runtime_compiled(void)
{
    if (atomic_load_explicit(&awaits_first_method, memory_order_relaxed) &&
        atomic_exchange(&awaits_first_method, false))
        clp_loop_runtime_ready();
}

/* ---- the end ------------------------------------------------------------------------------- */

void clp_runtime_detached(void)
{
    atomic_store(&usable, NULL);
    clp_loop_stop();
    clp_bodies_done();
    if (held)
        release(held);
    held = NULL;
    atomic_store(&state, STATE_DORMANT);
}

/* The loop thread still names methods while this callback holds the shutdown back. */
void clp_runtime_ends(void)
{
    if (!move(STATE_ACTIVE, STATE_ENDED))
        return;
    clp_loop_shutdown(SHUTDOWN_BUDGET_NS);
    atomic_store(&usable, NULL);
}

/* A process may end without a Shutdown callback (another profiler came and went, exit() from native
 * code). By now the runtime is not to be asked any more. */
__attribute__((destructor)) static void process_ends(void)
{
    if (getpid() != active_pid || !move(STATE_ACTIVE, STATE_ENDED))
        return;
    atomic_store(&usable, NULL);
    clp_loop_shutdown(SHUTDOWN_BUDGET_NS);
}
