#include "sampler/inproc/spans.h"

#include "base/core/lock.h"
#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/rawcall.h"
#include "sampler/inproc/threads.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define HASH_HEADS 1024u
#define NO_CELL UINT32_MAX

static_assert(sizeof(struct clp_span) == 40, "clp_span.h, and Clrpulse.Spans writes it");
static_assert(sizeof(struct clp_span_cell) == 128, "two cache lines");

/* What `own` of a cell holds. */
enum { OWN_TID = 0, OWN_NEXT = 1 };

static struct {
    struct clp_lock lock;
    struct clp_span_cell *cells; /* never unmapped, and inherited by forked children: the thread
                                  * that forks may go on writing its own */
    uint32_t used, free_head;
    uint32_t by_tid[HASH_HEADS]; /* index + 1 */
    pthread_key_t key;           /* its destructor tells of a thread's end */
    bool has_key;
    _Atomic uint64_t refused;
} cells = {.free_head = NO_CELL};

static _Atomic uint32_t generation;
static _Atomic bool hook_runs;

/* ---- cells ---------------------------------------------------------------------------------- */

static uint32_t *head_of(int32_t tid)
{
    return &cells.by_tid[(uint32_t)tid % HASH_HEADS];
}

/* Under the lock. */
static struct clp_span_cell *find(int32_t tid)
{
    for (uint32_t i = *head_of(tid); i; i = (uint32_t)cells.cells[i - 1].own[OWN_NEXT])
        if ((int32_t)cells.cells[i - 1].own[OWN_TID] == tid)
            return &cells.cells[i - 1];
    return NULL;
}

/* Under the lock. */
static void unlink_cell(struct clp_span_cell *c)
{
    uint32_t *at = head_of((int32_t)c->own[OWN_TID]);
    uint32_t self = (uint32_t)(c - cells.cells) + 1, next = (uint32_t)c->own[OWN_NEXT];
    if (*at == self) {
        *at = next;
        return;
    }
    for (uint32_t i = *at; i; i = (uint32_t)cells.cells[i - 1].own[OWN_NEXT])
        if ((uint32_t)cells.cells[i - 1].own[OWN_NEXT] == self)
            cells.cells[i - 1].own[OWN_NEXT] = next;
}

static void write_span(struct clp_span_cell *c, const struct clp_span *span)
{
    uint64_t next = c->version + 1;
    c->copy[next & 1] = *span;
    __atomic_store_n(&c->version, next, __ATOMIC_RELEASE);
}

/* The thread ends: no managed code of it runs any more (the runtime's own farewell, a thread_local
 * destructor, comes first). */
static void thread_ends(void *cell)
{
    static const struct clp_span none;
    struct clp_span_cell *c = cell;
    if (clp_capture_forked())
        return;
    write_span(c, &none);
    clp_lock(&cells.lock);
    unlink_cell(c);
    clp_unlock(&cells.lock);
    clp_threads_span((int32_t)c->own[OWN_TID], NULL);
    clp_lock(&cells.lock);
    c->own[OWN_TID] = 0;
    c->own[OWN_NEXT] = cells.free_head;
    cells.free_head = (uint32_t)(c - cells.cells);
    clp_unlock(&cells.lock);
}

/* Under the lock. */
static bool prepare(void)
{
    size_t bytes = CLP_SPAN_CELLS_MAX * sizeof(struct clp_span_cell);
    if (cells.cells)
        return true;
    if (!cells.has_key && pthread_key_create(&cells.key, thread_ends) != 0)
        return false;
    cells.has_key = true;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p != MAP_FAILED)
        cells.cells = p;
    return cells.cells;
}

/* Under the lock. */
static struct clp_span_cell *take(int32_t tid)
{
    struct clp_span_cell *c;
    if (!prepare())
        return NULL;
    if (cells.free_head != NO_CELL) {
        c = &cells.cells[cells.free_head];
        cells.free_head = (uint32_t)c->own[OWN_NEXT];
    } else if (cells.used < CLP_SPAN_CELLS_MAX) {
        c = &cells.cells[cells.used++];
    } else {
        return NULL;
    }
    c->own[OWN_TID] = (uint64_t)tid;
    c->own[OWN_NEXT] = *head_of(tid);
    *head_of(tid) = (uint32_t)(c - cells.cells) + 1;
    return c;
}

static struct clp_span_cell *make_cell(void)
{
    static const struct clp_span none;
    int32_t tid = (int32_t)clp_raw3(SYS_gettid, 0, 0, 0);
    clp_lock(&cells.lock);
    struct clp_span_cell *c = cells.cells ? find(tid) : NULL;
    if (c)
        write_span(c, &none); /* of a thread of that number that ended without a word */
    else
        c = take(tid);
    clp_unlock(&cells.lock);
    if (!c || pthread_setspecific(cells.key, c) != 0) {
        atomic_fetch_add(&cells.refused, 1);
        return NULL;
    }
    clp_threads_span(tid, c);
    return c;
}

static struct clp_span_cell *own_cell(void)
{
    if (!__atomic_load_n(&cells.has_key, __ATOMIC_ACQUIRE))
        return NULL;
    return pthread_getspecific(cells.key);
}

CLP_EXPORT struct clp_span_cell *clp_span_cell(uint32_t abi)
{
    if (abi != CLP_SPAN_ABI || clp_capture_forked())
        return NULL;
    struct clp_span_cell *c = own_cell();
    return c ? c : make_cell();
}

CLP_EXPORT const uint32_t *clp_span_generation(void)
{
    return (const uint32_t *)&generation;
}

CLP_EXPORT int clp_span_set(const struct clp_span *span)
{
    if (span->span_id == 0 || (span->trace_high | span->trace_low) == 0)
        return -EINVAL;
    struct clp_span_cell *c = clp_span_cell(CLP_SPAN_ABI);
    if (!c)
        return -ENOMEM;
    write_span(c, span);
    return 0;
}

CLP_EXPORT void clp_span_clear(void)
{
    static const struct clp_span none;
    struct clp_span_cell *c = own_cell();
    if (c)
        write_span(c, &none);
}

CLP_EXPORT void clp_span_hook_runs(void)
{
    atomic_store(&hook_runs, true);
}

/* ---- for the library ------------------------------------------------------------------------ */

bool clp_span_read(const struct clp_span_cell *cell, struct clp_span *ret)
{
    *ret = (struct clp_span){0};
    if (!cell)
        return true;
    for (int tries = 0; tries < 8; tries++) {
        uint64_t version = __atomic_load_n(&cell->version, __ATOMIC_ACQUIRE);
        *ret = cell->copy[version & 1];
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&cell->version, __ATOMIC_RELAXED) == version)
            return true;
    }
    *ret = (struct clp_span){0};
    return false;
}

struct clp_span_cell *clp_spans_cell_of(int32_t tid)
{
    clp_lock(&cells.lock);
    struct clp_span_cell *c = cells.cells ? find(tid) : NULL;
    clp_unlock(&cells.lock);
    return c;
}

void clp_spans_saw_root(uint64_t root)
{
    if (root)
        clp_capture_saw_root(root);
}

CLP_EXPORT int clp_span_root_sampled(uint64_t root)
{
    uint32_t place = clp_span_root_place(root);
    return root &&
           atomic_load_explicit(&clp_capture_state.root_tags[place], memory_order_relaxed) ==
               clp_span_root_tag(root) &&
           atomic_load_explicit(&clp_capture_state.roots_seen[place], memory_order_relaxed) == root;
}

void clp_spans_live(bool live)
{
    uint32_t now = atomic_load(&generation);
    if ((now & 1) != live)
        atomic_store(&generation, now + 1);
}

bool clp_spans_hook_runs(void)
{
    return atomic_load(&hook_runs);
}

uint64_t clp_spans_refused(void)
{
    return atomic_load(&cells.refused);
}

size_t clp_spans_bytes(void)
{
    return cells.used * sizeof(struct clp_span_cell);
}
