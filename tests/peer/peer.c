/* A second profiler for tests: a main profiler in plain C that counts its callbacks in a shared
 * file.  It stands for the APM that a process may have already, so it asks for what ours never
 * asks for (the main slot) and shares no source with it.
 *
 * CLP_PEER_COUNTS (environment) or the attach data names the file, which the test made with
 * struct peer_counts inside.  When `detach` becomes 1, the peer asks the runtime to detach it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct peer_counts {
    _Atomic uint64_t detach; /* written by the test */
    _Atomic uint64_t active; /* 1 after Initialize, 2 after detach, 3 after Shutdown */
    _Atomic uint64_t jit_finished;
    _Atomic uint64_t exceptions;
    _Atomic uint64_t threads_created;
    _Atomic uint64_t modules;
    _Atomic uint64_t collections;
    _Atomic uint64_t error; /* HRESULT of a call that failed */
};

/* Slots of ICorProfilerCallback up to ICorProfilerCallback5, by the interface's order in
 * corprof.h of dotnet/runtime. */
enum {
    SLOT_QUERY_INTERFACE = 0,
    SLOT_ADD_REF = 1,
    SLOT_RELEASE = 2,
    SLOT_INITIALIZE = 3,
    SLOT_SHUTDOWN = 4,
    SLOT_MODULE_LOAD_FINISHED = 14,
    SLOT_JIT_FINISHED = 24,
    SLOT_THREAD_CREATED = 29,
    SLOT_EXCEPTION_THROWN = 54,
    SLOT_GC_STARTED = 73,
    SLOT_INITIALIZE_FOR_ATTACH = 80,
    SLOT_DETACH_SUCCEEDED = 82,
    SLOT_COUNT = 98, /* through ICorProfilerCallback11, whose last one answers FALSE by default */
};

/* Slots of ICorProfilerInfo. */
enum {
    INFO_REQUEST_DETACH = 58,  /* ICorProfilerInfo3 */
    INFO_SET_EVENT_MASK2 = 82, /* ICorProfilerInfo5 */
};

enum {
    MASK_LOW = 0x4 | 0x20 | 0x40 | 0x200, /* modules, JIT, exceptions, threads */
    MASK_HIGH = 0x10,                     /* BASIC_GC */
};

#define E_FAIL ((int32_t)0x80004005)

typedef int32_t (*slot_fn)(void);
struct object {
    const slot_fn *slots;
};

static struct peer_counts *counts;
static struct object *info;
static slot_fn callback_slots[SLOT_COUNT];
static struct object callback = {callback_slots};

/* IID_ICorProfilerInfo5, little-endian as the runtime compares it. */
static const uint8_t info5_iid[16] = {0x28, 0x29, 0x60, 0x07, 0x38, 0xce, 0x83, 0x4b,
                                      0x81, 0xe7, 0x74, 0xad, 0xaf, 0x78, 0x12, 0x14};

static int32_t nothing(void)
{
    return 0;
}

static int32_t query_interface(struct object *self, const uint8_t *iid, void **ret)
{
    (void)iid;
    *ret = self;
    return 0;
}

static uint32_t one_reference(struct object *self)
{
    (void)self;
    return 1;
}

static int map_counts(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    void *at = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        return -1;
    counts = at;
    return 0;
}

static void *wait_for_detach(void *unused)
{
    (void)unused;
    while (!atomic_load(&counts->detach))
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    int32_t (*request)(struct object *, uint32_t) =
        (int32_t(*)(struct object *, uint32_t))info->slots[INFO_REQUEST_DETACH];
    int32_t hr = request(info, 2000);
    if (hr < 0)
        atomic_store(&counts->error, (uint32_t)hr);
    return NULL;
}

static int32_t begin(struct object *unknown, const char *path)
{
    if (!path || map_counts(path) < 0)
        return E_FAIL;
    int32_t (*query)(struct object *, const uint8_t *, void **) =
        (int32_t(*)(struct object *, const uint8_t *, void **))unknown->slots[SLOT_QUERY_INTERFACE];
    int32_t hr = query(unknown, info5_iid, (void **)&info);
    if (hr < 0)
        return hr;
    int32_t (*set_mask)(struct object *, uint32_t, uint32_t) =
        (int32_t(*)(struct object *, uint32_t, uint32_t))info->slots[INFO_SET_EVENT_MASK2];
    hr = set_mask(info, MASK_LOW, MASK_HIGH);
    if (hr < 0) {
        atomic_store(&counts->error, (uint32_t)hr);
        return hr;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_detach, NULL) != 0)
        return E_FAIL;
    pthread_detach(thread);
    atomic_store(&counts->active, 1);
    return 0;
}

static int32_t initialize(struct object *self, struct object *unknown)
{
    (void)self;
    return begin(unknown, getenv("CLP_PEER_COUNTS"));
}

static int32_t initialize_for_attach(struct object *self, struct object *unknown, const void *data,
                                     uint32_t bytes)
{
    (void)self;
    static char path[512];
    if (bytes == 0 || bytes >= sizeof(path))
        return E_FAIL;
    memcpy(path, data, bytes);
    return begin(unknown, path);
}

static int32_t count_jit(void)
{
    atomic_fetch_add(&counts->jit_finished, 1);
    return 0;
}

static int32_t count_exception(void)
{
    atomic_fetch_add(&counts->exceptions, 1);
    return 0;
}

static int32_t count_thread(void)
{
    atomic_fetch_add(&counts->threads_created, 1);
    return 0;
}

static int32_t count_module(void)
{
    atomic_fetch_add(&counts->modules, 1);
    return 0;
}

static int32_t count_collection(void)
{
    atomic_fetch_add(&counts->collections, 1);
    return 0;
}

static int32_t detached(void)
{
    atomic_store(&counts->active, 2);
    return 0;
}

static int32_t shut_down(void)
{
    atomic_store(&counts->active, 3);
    return 0;
}

static slot_fn callback_slots[SLOT_COUNT] = {
    [SLOT_QUERY_INTERFACE] = (slot_fn)query_interface,
    [SLOT_ADD_REF] = (slot_fn)one_reference,
    [SLOT_RELEASE] = (slot_fn)one_reference,
    [SLOT_INITIALIZE] = (slot_fn)initialize,
    [SLOT_SHUTDOWN] = shut_down,
    [SLOT_MODULE_LOAD_FINISHED] = count_module,
    [SLOT_JIT_FINISHED] = count_jit,
    [SLOT_THREAD_CREATED] = count_thread,
    [SLOT_EXCEPTION_THROWN] = count_exception,
    [SLOT_GC_STARTED] = count_collection,
    [SLOT_INITIALIZE_FOR_ATTACH] = (slot_fn)initialize_for_attach,
    [SLOT_DETACH_SUCCEEDED] = detached,
};

static int32_t create_instance(struct object *self, void *outer, const uint8_t *iid, void **ret)
{
    (void)self, (void)outer, (void)iid;
    *ret = &callback;
    return 0;
}

static const slot_fn factory_slots[5] = {
    (slot_fn)query_interface,
    (slot_fn)one_reference,
    (slot_fn)one_reference,
    (slot_fn)create_instance,
    nothing,
};
static struct object factory = {factory_slots};

EXPORT int32_t DllGetClassObject(const uint8_t *clsid, const uint8_t *iid, void **ret);
EXPORT int32_t DllGetClassObject(const uint8_t *clsid, const uint8_t *iid, void **ret)
{
    (void)clsid, (void)iid;
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        if (!callback_slots[i])
            callback_slots[i] = nothing;
    }
    *ret = &factory;
    return 0;
}

EXPORT int32_t DllCanUnloadNow(void);
EXPORT int32_t DllCanUnloadNow(void)
{
    return 1; /* S_FALSE: the waiting thread may still be inside */
}
