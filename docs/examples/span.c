/* A native library, loaded by a .NET program or by any other host of the runtime, that tells
 * clrpulse which order it works on. Builds against sampler/inproc/clp_span.h alone and links
 * nothing: without clrpulse in the process the calls find nothing and do nothing.
 *
 *   cc -shared -fPIC -I . -o liborders.so docs/examples/span.c */
#include "sampler/inproc/clp_span.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int orders_find_clrpulse(void);
EXPORT void orders_process(uint64_t trace_high, uint64_t trace_low, uint64_t id, uint64_t ns);

typedef int span_set(const struct clp_span *span);
typedef void span_clear(void);
typedef uint32_t span_endpoint(const char *name, size_t bytes);

static struct {
    span_set *set;
    span_clear *clear;
    span_endpoint *endpoint;
} clrpulse;

/* The runtime loads the library for itself (RTLD_LOCAL), so RTLD_DEFAULT does not know it. */
static int find(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (!slash || strcmp(slash, "/libclrpulse.so") != 0)
        return 0;
    *(void **)found = dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_LAZY); /* there already, or NULL */
    return *(void **)found != NULL;
}

/* Call it now and then until it says 1: clrpulse may attach at any time, and stays. */
int orders_find_clrpulse(void)
{
    void *library = NULL;
    (void)dl_iterate_phdr(find, &library);
    if (!library)
        return 0;
    clrpulse.clear = (span_clear *)dlsym(library, "clp_span_clear");
    clrpulse.endpoint = (span_endpoint *)dlsym(library, "clp_span_endpoint");
    clrpulse.set = (span_set *)dlsym(library, "clp_span_set");
    return clrpulse.clear && clrpulse.endpoint && clrpulse.set;
}

static void work(uint64_t ns)
{
    struct timespec t;
    uint64_t now, end = 0;
    do {
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        end = end ? end : now + ns;
    } while (now < end);
}

/* The samples of this thread carry the order's ids until it is done. */
void orders_process(uint64_t trace_high, uint64_t trace_low, uint64_t id, uint64_t ns)
{
    static const char name[] = "process order";
    struct clp_span span = {
        .trace_high = trace_high, .trace_low = trace_low, .span_id = id, .local_root_span_id = id};
    if (clrpulse.set) {
        span.endpoint = clrpulse.endpoint(name, strlen(name));
        (void)clrpulse.set(&span);
    }
    work(ns);
    if (clrpulse.clear)
        clrpulse.clear();
}
