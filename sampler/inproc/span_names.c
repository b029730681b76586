/* Names of endpoints, and the roots that have ended. Any thread puts in, the loop takes out. */
#include "sampler/inproc/spans.h"

#include "base/core/lock.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/clock.h"

#include <errno.h>
#include <string.h>

#define PLACES CLP_SPAN_ENDPOINTS_MAX
#define UNUSED_NS (60 * CLP_NSEC_PER_SEC)
#define FIRST_ENDPOINT (CLP_SPAN_ENDPOINT_OTHER + 1)

/* A name lies at the place that its number says, so numbers need no table of their own. */
struct name {
    uint32_t endpoint; /* 0 free */
    uint32_t next;     /* of the same hash, place + 1 */
    uint32_t bytes;
    uint64_t used_ns;
    char text[CLP_SPAN_NAME_MAX_BYTES];
};

struct ended {
    uint64_t root;
    uint32_t endpoint;
};

static struct {
    struct clp_lock lock;
    struct name names[PLACES];
    uint32_t heads[PLACES];
    uint32_t next_endpoint; /* those below FIRST_ENDPOINT are passed over */
    struct ended ended[CLP_SPAN_ROOTS_ENDED_MAX];
    uint32_t ended_from, ended_to; /* count up for ever */
    /* Requests that have ended, by the place of their endpoint. Without the lock. */
    _Atomic uint32_t counts[PLACES];
} N; /* all zeros at first: none of it is in the image */

static uint32_t hash_of(const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3ull;
    return (uint32_t)(h >> 32 ^ h) % PLACES;
}

/* The longest part that is whole characters. */
static size_t cut(const char *text, size_t bytes)
{
    if (bytes <= CLP_SPAN_NAME_MAX_BYTES)
        return bytes;
    size_t n = CLP_SPAN_NAME_MAX_BYTES;
    while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void unlink_name(struct name *n)
{
    uint32_t self = (uint32_t)(n - N.names) + 1;
    uint32_t *at = &N.heads[hash_of(n->text, n->bytes)];
    while (*at != self)
        at = &N.names[*at - 1].next;
    *at = n->next;
    n->endpoint = 0;
}

static struct name *find(const char *text, size_t bytes)
{
    for (uint32_t i = N.heads[hash_of(text, bytes)]; i; i = N.names[i - 1].next)
        if (N.names[i - 1].bytes == bytes && memcmp(N.names[i - 1].text, text, bytes) == 0)
            return &N.names[i - 1];
    return NULL;
}

/* A place that is free or unused for long; NULL when all names are in use. */
static struct name *make_room(uint64_t now_ns)
{
    for (uint32_t tries = 0; tries < PLACES; tries++) {
        struct name *n = &N.names[N.next_endpoint % PLACES];
        bool reserved = N.next_endpoint % PLACES < FIRST_ENDPOINT;
        if (!reserved && (n->endpoint == 0 || now_ns - n->used_ns > UNUSED_NS)) {
            if (n->endpoint)
                unlink_name(n);
            return n;
        }
        N.next_endpoint++;
    }
    return NULL;
}

/* Under the lock. */
static uint32_t intern(const char *text, size_t bytes, uint64_t now_ns)
{
    struct name *n = find(text, bytes);
    if (!n) {
        n = make_room(now_ns);
        if (!n)
            return CLP_SPAN_ENDPOINT_OTHER;
        uint32_t *head = &N.heads[hash_of(text, bytes)];
        n->endpoint = N.next_endpoint++;
        n->bytes = (uint32_t)bytes;
        memcpy(n->text, text, bytes);
        n->next = *head;
        *head = (uint32_t)(n - N.names) + 1;
    }
    n->used_ns = now_ns;
    return n->endpoint;
}

CLP_EXPORT uint32_t clp_span_endpoint(const char *name, size_t bytes)
{
    if (!name || bytes == 0 || clp_capture_forked())
        return CLP_SPAN_ENDPOINT_NONE;
    uint64_t now_ns = clp_clock_monotonic_ns();
    clp_lock(&N.lock);
    uint32_t endpoint = intern(name, cut(name, bytes), now_ns);
    clp_unlock(&N.lock);
    return endpoint;
}

int clp_spans_endpoint_name(uint32_t endpoint, char *ret)
{
    int r = -ENOENT;
    clp_lock(&N.lock);
    struct name *n = &N.names[endpoint % PLACES];
    if (endpoint >= FIRST_ENDPOINT && n->endpoint == endpoint) {
        n->used_ns = clp_clock_monotonic_ns();
        memcpy(ret, n->text, n->bytes);
        ret[n->bytes] = '\0';
        r = 0;
    }
    clp_unlock(&N.lock);
    return r;
}

/* ---- roots that have ended ------------------------------------------------------------------ */

CLP_EXPORT void clp_span_root_ended(uint64_t root, const char *name, size_t bytes)
{
    uint32_t endpoint = root ? clp_span_endpoint(name, bytes) : CLP_SPAN_ENDPOINT_NONE;
    if (endpoint == CLP_SPAN_ENDPOINT_NONE)
        return;
    clp_lock(&N.lock);
    if (N.ended_to - N.ended_from == CLP_SPAN_ROOTS_ENDED_MAX)
        N.ended_from++; /* the oldest keeps the name that it began with */
    N.ended[N.ended_to++ % CLP_SPAN_ROOTS_ENDED_MAX] = (struct ended){root, endpoint};
    clp_unlock(&N.lock);
}

/* [other] has the place of its number, which make_room leaves free. */
CLP_EXPORT void clp_span_request_ended(uint32_t endpoint)
{
    if (endpoint != CLP_SPAN_ENDPOINT_NONE && !clp_capture_forked())
        atomic_fetch_add_explicit(&N.counts[endpoint % PLACES], 1, memory_order_relaxed);
}

bool clp_spans_next_count(uint32_t *at, uint32_t *ret_endpoint, uint32_t *ret_ended)
{
    for (; *at < PLACES; ++*at) {
        if (atomic_load_explicit(&N.counts[*at], memory_order_relaxed) == 0)
            continue;
        clp_lock(&N.lock);
        uint32_t endpoint = N.names[*at].endpoint;
        *ret_endpoint = endpoint ? endpoint : CLP_SPAN_ENDPOINT_OTHER;
        *ret_ended = atomic_exchange_explicit(&N.counts[*at], 0, memory_order_relaxed);
        clp_unlock(&N.lock);
        ++*at;
        return true;
    }
    return false;
}

bool clp_spans_next_ended(uint64_t *ret_root, uint32_t *ret_endpoint)
{
    clp_lock(&N.lock);
    bool any = N.ended_from != N.ended_to;
    if (any) {
        const struct ended *e = &N.ended[N.ended_from++ % CLP_SPAN_ROOTS_ENDED_MAX];
        *ret_root = e->root;
        *ret_endpoint = e->endpoint;
    }
    clp_unlock(&N.lock);
    return any;
}
