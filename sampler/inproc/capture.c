/* The handler.  Compiled without vector registers, without builtins and always optimised (see
 * CMakeLists.txt), so that it uses little stack and calls nothing but itself and the vdso. */
#include "base/core/random.h"
#include "sampler/inproc/capture.h"

#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/rawcall.h"

#include <sys/ucontext.h>

#define TAG_MAGIC 0xc1b7ull /* upper 16 bits of a tag; then 16 bits of slot, 32 of generation */
#define ARCH_GET_FS_CODE 0x1003

struct clp_capture_state clp_capture_state;

uint64_t clp_capture_tag(uint32_t slot, uint32_t generation)
{
    return TAG_MAGIC << 48 | (uint64_t)(slot & 0xffff) << 32 | generation;
}

static inline uint64_t tag_of(const siginfo_t *info)
{
    return (uint64_t)(uintptr_t)info->si_value.sival_ptr;
}

/* The runtime sends its activations by pthread_kill (SI_TKILL), so the kernel's code for timers
 * tells them apart; the magic tells our timers from the application's own. */
static inline bool is_ours(const siginfo_t *info)
{
#ifdef CLP_TEST_SIGNALS
    if (info->si_code != SI_TIMER && info->si_code != SI_QUEUE)
        return false;
#else
    if (info->si_code != SI_TIMER)
        return false;
#endif
    return tag_of(info) >> 48 == TAG_MAGIC;
}

/* What the kernel would have done without us: the default action of a real-time signal ends the
 * process. The signal is blocked while we run, so it strikes when this handler returns. */
static __attribute__((noinline)) void default_action(int sig, siginfo_t *info)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } dfl = {SIG_DFL, 0, 0, 0};
    long pid = clp_raw3(SYS_getpid, 0, 0, 0), tid = clp_raw3(SYS_gettid, 0, 0, 0);
    (void)clp_raw4(SYS_rt_sigaction, sig, (long)&dfl, 0, 8);
    (void)clp_raw4(SYS_rt_tgsigqueueinfo, pid, tid, sig, (long)info);
}

static inline uint64_t now_ns(clockid_t clock)
{
    struct timespec ts = {0, 0};
    clp_clock_gettime_fn vdso = clp_capture_state.vdso_clock;
    if (clock != CLOCK_MONOTONIC || !vdso || vdso(clock, &ts) != 0)
        (void)clp_raw3(SYS_clock_gettime, clock, (long)&ts, 0);
    return (uint64_t)ts.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Room for an entry that does not wrap, or NULL. Any number of handlers at a time. */
static inline struct clp_capture *reserve(uint64_t bytes)
{
    struct clp_capture_state *s = &clp_capture_state;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    uint64_t at, pad, next;
    do {
        at = head & (s->ring_bytes - 1);
        pad = at + bytes > s->ring_bytes ? s->ring_bytes - at : 0;
        next = head + pad + bytes;
        /* Signed: `head` may be older than the tail that is read now; then the exchange fails. */
        int64_t used = (int64_t)(next - atomic_load_explicit(&s->tail, memory_order_acquire));
        if (used > (int64_t)s->ring_bytes)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&s->head, &head, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (!pad)
        return (struct clp_capture *)(s->ring + at);
    struct clp_capture *filler = (struct clp_capture *)(s->ring + at);
    filler->bytes = (uint32_t)pad;
    atomic_store_explicit(&filler->state, CLP_ENTRY_PADDING, memory_order_release);
    return (struct clp_capture *)s->ring;
}

/* How much may be copied from `sp` upward: nothing unless the thread stands on its own stack. */
static inline uint64_t stack_extent(const struct clp_thread_slot *slot, const ucontext_t *uc,
                                    uint64_t sp, uint64_t high, uint32_t *flags)
{
    uint64_t low = atomic_load_explicit(&slot->stack_low, memory_order_relaxed);
    uint64_t alternate = sp - (uint64_t)(uintptr_t)uc->uc_stack.ss_sp;
    if (!high) {
        *flags |= CLP_CAPTURE_NO_BOUNDS;
        return 0;
    }
    if (sp < low || sp >= high || alternate < uc->uc_stack.ss_size) {
        *flags |= CLP_CAPTURE_OTHER_STACK;
        return 0;
    }
    if (high - sp <= CLP_CAPTURE_STACK_MAX)
        return high - sp;
    *flags |= CLP_CAPTURE_TOO_DEEP;
    return CLP_CAPTURE_STACK_MAX;
}

/* On glibc and musl the FS base is the thread's control block, at the top of the thread's stack. */
static inline uint64_t fs_base(void)
{
    uint64_t base = 0;
    if (clp_capture_state.fs_way == CLP_FS_INSTRUCTION)
        __asm__ volatile("rdfsbase %0" : "=r"(base));
    else if (clp_capture_state.fs_way == CLP_FS_SYSCALL)
        (void)clp_raw3(SYS_arch_prctl, ARCH_GET_FS_CODE, (long)&base, 0);
    return base;
}

static inline void copy_registers(struct clp_capture *c, const ucontext_t *uc)
{
    const greg_t *g = uc->uc_mcontext.gregs;
    c->rip = (uint64_t)g[REG_RIP];
    c->rsp = (uint64_t)g[REG_RSP];
    c->rbp = (uint64_t)g[REG_RBP];
    c->rbx = (uint64_t)g[REG_RBX];
    c->r12 = (uint64_t)g[REG_R12];
    c->r13 = (uint64_t)g[REG_R13];
    c->r14 = (uint64_t)g[REG_R14];
    c->r15 = (uint64_t)g[REG_R15];
    c->rax = (uint64_t)g[REG_RAX];
    c->r9 = (uint64_t)g[REG_R9];
    c->r10 = (uint64_t)g[REG_R10];
    c->r11 = (uint64_t)g[REG_R11];
}

/* Two words of this thread's own Thread object, which lives until ThreadDestroyed has returned. */
static inline void copy_hijack_pair(struct clp_capture *c, const struct clp_thread_slot *slot)
{
    uint32_t offset = atomic_load_explicit(&clp_capture_state.hijack_offset, memory_order_relaxed);
    uint64_t object = atomic_load_explicit(&slot->thread_object, memory_order_seq_cst);
    c->hijacked_return = c->hijacked_slot = 0;
    if (!offset || !object)
        return;
    const uint64_t *pair = (const uint64_t *)(uintptr_t)(object + offset);
    c->hijacked_return = pair[0];
    c->hijacked_slot = pair[1];
}

/* Forty bytes, whole at any moment: the other copy is the one that may be half written. */
static inline void copy_span(struct clp_capture *c, const struct clp_thread_slot *slot)
{
    clp_span_read_own(atomic_load_explicit(&slot->span, memory_order_acquire), &c->span);
    if (c->span.local_root_span_id)
        clp_capture_saw_root(c->span.local_root_span_id);
}

/* Not memcpy: that is a call through the PLT, which may bind lazily under the loader's lock. */
static inline void copy_stack(uint8_t *to, uint64_t from, uint64_t n)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static inline bool segv_blocked(const ucontext_t *uc)
{
    return *(const uint64_t *)(const void *)&uc->uc_sigmask >> (SIGSEGV - 1) & 1;
}

/* The ring's lines have left the caches since its last turn. Fetching them while the kernel reads
 * the clock takes a quarter off the copy. */
static inline void prefetch(const struct clp_capture *c, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const uint8_t *)c + i, 1);
}

static inline void store(struct clp_thread_slot *slot, uint64_t tag, const siginfo_t *info,
                         const ucontext_t *uc)
{
    uint64_t sp = (uint64_t)uc->uc_mcontext.gregs[REG_RSP];
    uint64_t high = atomic_load_explicit(&slot->stack_high, memory_order_acquire);
    uint32_t flags = segv_blocked(uc) ? CLP_CAPTURE_SEGV_BLOCKED : 0;
    uint64_t n = stack_extent(slot, uc, sp, high, &flags);
    uint64_t bytes = CLP_ALIGN_UP(sizeof(struct clp_capture) + n, CLP_ENTRY_ALIGN);
    struct clp_capture *c = reserve(bytes);
    if (!c) {
        atomic_fetch_add_explicit(&clp_capture_state.lost_full, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&slot->lost, 1, memory_order_relaxed);
        return;
    }
    prefetch(c, bytes);
    c->thread_cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    c->time_ns = now_ns(CLOCK_MONOTONIC);
    c->bytes = (uint32_t)bytes;
    c->slot = (uint32_t)(tag >> 32) & 0xffff;
    c->generation = (uint32_t)tag;
    copy_registers(c, uc);
    copy_hijack_pair(c, slot);
    copy_span(c, slot);
    c->stack_high = high ? high : fs_base();
    c->flags = flags;
    c->overrun = info->si_code == SI_TIMER ? (uint32_t)info->si_overrun : 0;
    c->stack_bytes = (uint32_t)n;
    c->lost = atomic_exchange_explicit(&slot->lost, 0, memory_order_relaxed);
    copy_stack(c->stack, sp, n);
    atomic_store_explicit(&c->state, CLP_ENTRY_COMPLETE, memory_order_release);
}

static inline uint64_t jittered(struct clp_thread_slot *slot, uint64_t mean)
{
    return mean / 2 + ((clp_random_u64(&slot->random) >> 32) * mean >> 32);
}

/* Many threads live for less than an interval. Theirs begins with short ones, so that most of them
 * are sampled, and what one has used since its last sample is never much more than before it. */
static inline uint64_t next_mean(struct clp_thread_slot *slot)
{
    uint64_t mean = atomic_load_explicit(&clp_capture_state.interval_ns, memory_order_relaxed);
    uint64_t ramp = slot->ramp_ns;
    if (!ramp || ramp >= mean)
        return mean;
    slot->ramp_ns = 2 * ramp;
    return ramp;
}

/* The next expiry, in this thread's CPU time from now. A signal that a deleted timer left behind
 * does not disturb the timer that came after it; a directed one (test build) re-arms nothing. */
static inline void rearm(struct clp_thread_slot *slot, const siginfo_t *info)
{
    uint64_t mean = next_mean(slot);
    int32_t id = atomic_load_explicit(&slot->timer_id, memory_order_relaxed);
    if (!mean || id < 0 || info->si_code != SI_TIMER || id != info->si_timerid)
        return;
    uint64_t ns = jittered(slot, mean);
    struct itimerspec next = {
        .it_value = {(time_t)(ns / CLP_NSEC_PER_SEC), (long)(ns % CLP_NSEC_PER_SEC)}};
    (void)clp_raw4(SYS_timer_settime, id, 0, (long)&next, 0);
}

bool clp_capture_forked(void)
{
    const struct clp_capture_state *s = &clp_capture_state;
    if (!s->page)
        return false;
    if (s->page_wipes)
        return !atomic_load_explicit(&s->page->intact, memory_order_relaxed);
    return clp_raw3(SYS_getpid, 0, 0, 0) != s->pid;
}

bool clp_capture_enabled(void)
{
    const struct clp_fork_page *page = clp_capture_state.page;
    return page && atomic_load_explicit(&page->enabled, memory_order_relaxed) &&
           !clp_capture_forked();
}

static inline void sample(const siginfo_t *info, const ucontext_t *uc)
{
    uint64_t tag = tag_of(info);
    uint32_t index = (uint32_t)(tag >> 32) & 0xffff;
    if (!clp_capture_enabled() || index >= clp_capture_state.slot_count)
        return;
    struct clp_thread_slot *slot = &clp_capture_state.slots[index];
    if (atomic_load_explicit(&slot->generation, memory_order_acquire) != (uint32_t)tag)
        return; /* a late signal of a slot that was given away */
    if (atomic_exchange_explicit(&slot->in_handler, 1, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&clp_capture_state.lost_reentry, 1, memory_order_relaxed);
        return;
    }
    store(slot, tag, info, uc);
    rearm(slot, info);
    atomic_store_explicit(&slot->in_handler, 0, memory_order_release);
}

void clp_capture_handler(int sig, siginfo_t *info, void *ucontext)
{
    if (is_ours(info)) {
        sample(info, ucontext);
        return;
    }
    const struct clp_old_action *old =
        atomic_load_explicit(&clp_capture_state.old_action, memory_order_acquire);
    if (!old || (void *)old->handler == (void *)SIG_IGN)
        return;
    if ((void *)old->handler == (void *)SIG_DFL) {
        default_action(sig, info);
        return;
    }
    /* Last and in tail position: the runtime's handler stands where it would stand without us. */
    if (old->siginfo)
        old->handler(sig, info, ucontext);
    else
        ((void (*)(int))(void (*)(void))old->handler)(sig);
}
