/* Set-up and the consumer's side of the capture ring; nothing here runs in a signal handler. */
#include "sampler/inproc/capture.h"

#include "base/core/arena.h"
#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define HWCAP2_FSGSBASE_BIT (1u << 1)

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static uint64_t round_up_pow2(uint64_t n)
{
    uint64_t p = CLP_CAPTURE_RING_MIN;
    while (p < n)
        p <<= 1;
    return p;
}

/* Not clp_pages_alloc: this page must exist in a forked child, as zeros. */
static struct clp_fork_page *map_fork_page(bool *ret_wipes)
{
    void *p = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    *ret_wipes = madvise(p, PAGE_BYTES, MADV_WIPEONFORK) == 0;
    return p;
}

static void learn_the_machine(struct clp_capture_state *s)
{
    s->pid = (int32_t)getpid();
    s->vdso_clock = clp_clock_vdso();
    s->fs_way = getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE_BIT ? CLP_FS_INSTRUCTION : CLP_FS_NONE;
}

int clp_capture_init(size_t ring_bytes, uint32_t max_threads)
{
    struct clp_capture_state *s = &clp_capture_state;
    if (s->page)
        return 0;
    if (!max_threads || max_threads > CLP_CAPTURE_THREADS_MAX || ring_bytes > (1u << 30))
        return -EINVAL;
    uint64_t ring = round_up_pow2(ring_bytes);
    size_t slots = max_threads * sizeof(struct clp_thread_slot);
    bool wipes = false;
    uint8_t *r = clp_pages_alloc(ring);
    struct clp_thread_slot *t = clp_pages_alloc(slots);
    struct clp_fork_page *page = map_fork_page(&wipes);
    if (!r || !t || !page) {
        clp_pages_free(r, ring);
        clp_pages_free(t, slots);
        clp_pages_free(page, PAGE_BYTES);
        return -ENOMEM;
    }
    memset(r, 0, ring); /* a first touch in the handler would cost it a page fault */
    learn_the_machine(s);
    s->ring = r;
    s->ring_bytes = ring;
    s->slots = t;
    s->slot_count = max_threads;
    s->page_wipes = wipes;
    atomic_store(&page->intact, 1);
    s->page = page;
    return 0;
}

void clp_capture_allow_arch_prctl(void)
{
    if (clp_capture_state.fs_way == CLP_FS_NONE)
        clp_capture_state.fs_way = CLP_FS_SYSCALL;
}

static struct clp_capture *entry_at(uint64_t position)
{
    struct clp_capture_state *s = &clp_capture_state;
    return (struct clp_capture *)(s->ring + (position & (s->ring_bytes - 1)));
}

/* The size in an entry is our own word, but it lies in memory that a broken target may overwrite.
 * Padding may be one line, the last one that is mapped: nothing behind its size may be read. */
static bool plausible(const struct clp_capture *c, uint32_t entry_state, uint64_t left)
{
    const uint8_t *ring_end = clp_capture_state.ring + clp_capture_state.ring_bytes;
    uint64_t bytes = c->bytes;
    if (bytes == 0 || bytes % CLP_ENTRY_ALIGN != 0 || bytes > left ||
        bytes > (uint64_t)(ring_end - (const uint8_t *)c))
        return false;
    return entry_state == CLP_ENTRY_PADDING ||
           (bytes >= sizeof(*c) && bytes - sizeof(*c) >= c->stack_bytes);
}

const struct clp_capture *clp_capture_peek(void)
{
    struct clp_capture_state *s = &clp_capture_state;
    for (;;) {
        uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
        if (tail == head)
            return NULL;
        struct clp_capture *c = entry_at(tail);
        uint32_t state = atomic_load_explicit(&c->state, memory_order_acquire);
        if (state == CLP_ENTRY_WRITING)
            return NULL;
        if (!plausible(c, state, head - tail)) {
            clp_capture_enable(false);
            return NULL;
        }
        if (state == CLP_ENTRY_COMPLETE)
            return c;
        clp_capture_release(c);
    }
}

/* The next entries start on other lines, so the state word of each line must read "writing" before
 * the room is given back: otherwise old stack bytes could pass for a complete entry. */
void clp_capture_release(const struct clp_capture *c)
{
    struct clp_capture_state *s = &clp_capture_state;
    uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
    uint8_t *line = (uint8_t *)entry_at(tail);
    uint32_t bytes = c->bytes;
    for (uint32_t at = 0; at < bytes; at += CLP_ENTRY_ALIGN)
        atomic_store_explicit((_Atomic uint32_t *)(line + at), CLP_ENTRY_WRITING,
                              memory_order_relaxed);
    atomic_store_explicit(&s->tail, tail + bytes, memory_order_release);
}

size_t clp_capture_waiting(void)
{
    struct clp_capture_state *s = &clp_capture_state;
    uint64_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
    return (size_t)(atomic_load_explicit(&s->head, memory_order_relaxed) - tail);
}

uint64_t clp_capture_lost_full(void)
{
    return atomic_load(&clp_capture_state.lost_full);
}

uint64_t clp_capture_lost_reentry(void)
{
    return atomic_load(&clp_capture_state.lost_reentry);
}

struct clp_thread_slot *clp_capture_slot(uint32_t index)
{
    return index < clp_capture_state.slot_count ? &clp_capture_state.slots[index] : NULL;
}

size_t clp_capture_bytes(void)
{
    return clp_capture_state.page ? clp_capture_state.ring_bytes + PAGE_BYTES : 0;
}

void clp_capture_set_interval(uint64_t mean_ns)
{
    atomic_store(&clp_capture_state.interval_ns, mean_ns);
}

uint32_t clp_capture_hijack_offset(void)
{
    return atomic_load(&clp_capture_state.hijack_offset);
}

void clp_capture_set_hijack_offset(uint32_t offset)
{
    atomic_store(&clp_capture_state.hijack_offset, offset);
}

void clp_capture_enable(bool on)
{
    if (clp_capture_state.page && !clp_capture_forked())
        atomic_store(&clp_capture_state.page->enabled, on);
}
