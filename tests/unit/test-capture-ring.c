#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/capture_state.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/timers.h"
#include "tests/unit/capture-harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <time.h>
#include <unistd.h>

/* The ring is filled by calling the handler as the kernel would, with a made-up context. */

#define SLOT 7

static uint64_t fake_stack[(CLP_CAPTURE_STACK_MAX + 4096) / 8];

static void prepare_slot(uint32_t index, uint64_t low, uint64_t high)
{
    struct clp_thread_slot *s = clp_capture_slot(index);
    assert_non_null(s);
    atomic_store(&s->generation, 2 * index + 1);
    s->random = 88172645463325252ull;
    atomic_store(&s->timer_id, -1);
    atomic_store(&s->thread_object, 0);
    atomic_store(&s->stack_low, low);
    atomic_store(&s->stack_high, high);
}

static void strike(uint32_t index, uint64_t rsp, const stack_t *alternate)
{
    siginfo_t info = {.si_code = SI_QUEUE};
    ucontext_t uc;
    memset(&uc, 0, sizeof(uc));
    uc.uc_mcontext.gregs[REG_RSP] = (greg_t)rsp;
    uc.uc_mcontext.gregs[REG_RIP] = 0x1111;
    uc.uc_mcontext.gregs[REG_RBP] = 0x2222;
    uc.uc_mcontext.gregs[REG_RBX] = 0x3333;
    uc.uc_mcontext.gregs[REG_R12] = 0x12;
    uc.uc_mcontext.gregs[REG_R13] = 0x13;
    uc.uc_mcontext.gregs[REG_R14] = 0x14;
    uc.uc_mcontext.gregs[REG_R15] = 0x15;
    uc.uc_mcontext.gregs[REG_RAX] = 0xaa;
    uc.uc_mcontext.gregs[REG_R9] = 0x9;
    uc.uc_mcontext.gregs[REG_R10] = 0x10;
    uc.uc_mcontext.gregs[REG_R11] = 0x11;
    if (alternate)
        uc.uc_stack = *alternate;
    sigaddset(&uc.uc_sigmask, index % 2 ? SIGSEGV : SIGUSR1);
    info.si_value.sival_ptr = (void *)(uintptr_t)clp_capture_tag(index, 2 * index + 1);
    clp_capture_handler(SIGRTMIN, &info, &uc);
}

/* As the kernel's timer `id` would. */
static void strike_timer(int32_t id)
{
    siginfo_t info = {.si_code = SI_TIMER};
    ucontext_t uc;
    memset(&uc, 0, sizeof(uc));
    info.si_timerid = id;
    info.si_value.sival_ptr = (void *)(uintptr_t)clp_capture_tag(SLOT, 2 * SLOT + 1);
    clp_capture_handler(SIGRTMIN, &info, &uc);
}

static uint64_t top(void)
{
    return (uint64_t)(uintptr_t)(fake_stack + CLP_ARRAY_LEN(fake_stack));
}

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(fake_stack); i++)
        fake_stack[i] = i * 0x0101010101010101ull;
    /* Small numbers, so that stack words look like the state words of entries. */
    for (size_t i = 0; i < CLP_ARRAY_LEN(fake_stack); i += 8)
        fake_stack[i] = CLP_CAPTURE_STACK_MAX << 8 | 1;
    prepare_slot(SLOT, (uint64_t)(uintptr_t)fake_stack, top());
    clp_capture_enable(true);
    return 0;
}

static void copies_registers_and_stack(void **state)
{
    (void)state;
    uint64_t rsp = top() - 7000;
    uint64_t before = clp_clock_self_ns();
    strike(SLOT, rsp, NULL);
    const struct clp_capture *c = clp_capture_peek();
    assert_non_null(c);
    assert_int_equal(c->slot, SLOT);
    assert_int_equal(c->generation, 2 * SLOT + 1);
    assert_int_equal(c->rip, 0x1111);
    assert_int_equal(c->rsp, rsp);
    assert_int_equal(c->rbp, 0x2222);
    assert_int_equal(c->rbx, 0x3333);
    assert_int_equal(c->r12, 0x12);
    assert_int_equal(c->r13, 0x13);
    assert_int_equal(c->r14, 0x14);
    assert_int_equal(c->r15, 0x15);
    assert_int_equal(c->rax, 0xaa);
    assert_int_equal(c->r9, 0x9);
    assert_int_equal(c->r10, 0x10);
    assert_int_equal(c->r11, 0x11);
    assert_int_equal(c->flags, CLP_CAPTURE_SEGV_BLOCKED);
    assert_int_equal(c->stack_bytes, 7000);
    assert_int_equal(c->stack_high, top());
    assert_memory_equal(c->stack, (const void *)(uintptr_t)rsp, 7000);
    assert_in_range(c->thread_cpu_ns, before, clp_clock_self_ns());
    assert_in_range(c->time_ns, 1, clp_clock_monotonic_ns());
    clp_capture_release(c);
    assert_null(clp_capture_peek());
}

static void copies_the_hijack_pair(void **state)
{
    (void)state;
    uint64_t object[64] = {[0x98 / 8] = 0x7fff1234, [0x98 / 8 + 1] = 0x7fff5678};
    atomic_store(&clp_capture_slot(SLOT)->thread_object, (uint64_t)(uintptr_t)object);
    strike(SLOT, top() - 64, NULL);
    clp_capture_set_hijack_offset(0x98);
    strike(SLOT, top() - 64, NULL);
    atomic_store(&clp_capture_slot(SLOT)->thread_object, 0);
    strike(SLOT, top() - 64, NULL);
    clp_capture_set_hijack_offset(0);
    const struct {
        uint64_t ret, slot;
    } want[] = {{0, 0}, {0x7fff1234, 0x7fff5678}, {0, 0}};
    for (size_t i = 0; i < CLP_ARRAY_LEN(want); i++) {
        const struct clp_capture *c = clp_capture_peek();
        assert_non_null(c);
        assert_int_equal(c->hijacked_return, want[i].ret);
        assert_int_equal(c->hijacked_slot, want[i].slot);
        clp_capture_release(c);
    }
}

static void check_flags(uint64_t rsp, const stack_t *alternate, uint32_t flags, uint32_t bytes)
{
    strike(SLOT, rsp, alternate);
    const struct clp_capture *c = clp_capture_peek();
    assert_non_null(c);
    assert_int_equal(c->flags & ~(unsigned)CLP_CAPTURE_SEGV_BLOCKED, flags);
    assert_int_equal(c->stack_bytes, bytes);
    clp_capture_release(c);
}

static void keeps_within_the_bounds(void **state)
{
    (void)state;
    uint64_t low = (uint64_t)(uintptr_t)fake_stack;
    check_flags(top() - 8, NULL, 0, 8);
    check_flags(top() - 3, NULL, 0, 3); /* SP may have any alignment */
    check_flags(top(), NULL, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(top() + 8, NULL, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(low - 8, NULL, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(0, NULL, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(~0ull, NULL, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(top() - CLP_CAPTURE_STACK_MAX, NULL, 0, CLP_CAPTURE_STACK_MAX);
    check_flags(top() - CLP_CAPTURE_STACK_MAX - 8, NULL, CLP_CAPTURE_TOO_DEEP,
                CLP_CAPTURE_STACK_MAX);
    check_flags(low, NULL, CLP_CAPTURE_TOO_DEEP, CLP_CAPTURE_STACK_MAX);
    /* An alternate stack that lies within the bounds (made on the thread's own stack). */
    stack_t alternate = {.ss_sp = (void *)(uintptr_t)(top() - 4096), .ss_size = 2048};
    check_flags(top() - 4096, &alternate, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(top() - 2049, &alternate, CLP_CAPTURE_OTHER_STACK, 0);
    check_flags(top() - 2048, &alternate, 0, 2048);
    check_flags(top() - 4104, &alternate, 0, 4104);
}

static void without_bounds_tells_the_fs_base(void **state)
{
    (void)state;
    uint64_t tcb;
    __asm__("mov %%fs:0, %0" : "=r"(tcb));
    prepare_slot(SLOT, 0, 0);
    clp_capture_allow_arch_prctl();
    strike(SLOT, top() - 64, NULL);
    const struct clp_capture *c = clp_capture_peek();
    assert_non_null(c);
    assert_int_equal(c->flags & CLP_CAPTURE_NO_BOUNDS, CLP_CAPTURE_NO_BOUNDS);
    assert_int_equal(c->stack_bytes, 0);
    assert_int_equal(c->stack_high, tcb);
    clp_capture_release(c);
    prepare_slot(SLOT, (uint64_t)(uintptr_t)fake_stack, top());
}

static void ignores_what_is_not_for_the_slot(void **state)
{
    (void)state;
    struct clp_thread_slot *s = clp_capture_slot(SLOT);
    atomic_fetch_add(&s->generation, 2);
    strike(SLOT, top() - 64, NULL);
    assert_null(clp_capture_peek());
    atomic_fetch_sub(&s->generation, 2);

    uint64_t before = clp_capture_lost_reentry();
    atomic_store(&s->in_handler, 1);
    strike(SLOT, top() - 64, NULL);
    assert_null(clp_capture_peek());
    assert_int_equal(clp_capture_lost_reentry(), before + 1);
    atomic_store(&s->in_handler, 0);

    clp_capture_enable(false);
    strike(SLOT, top() - 64, NULL);
    assert_null(clp_capture_peek());
    clp_capture_enable(true);

    siginfo_t info = {.si_code = SI_QUEUE};
    ucontext_t uc;
    memset(&uc, 0, sizeof(uc));
    info.si_value.sival_ptr = (void *)(uintptr_t)clp_capture_tag(0xffff, 1); /* beyond the table */
    clp_capture_handler(SIGRTMIN, &info, &uc);
    assert_null(clp_capture_peek());
}

/* Entries of all sizes pass the end of the ring many times; each arrives whole and in order. */
static void wraps(void **state)
{
    (void)state;
    uint32_t seed = 1, sizes[4096];
    uint32_t sent = 0, got = 0;
    while (got < CLP_ARRAY_LEN(sizes)) {
        uint64_t full = clp_capture_lost_full();
        if (sent < CLP_ARRAY_LEN(sizes)) {
            seed = seed * 1664525 + 1013904223;
            sizes[sent] = (seed >> 16) % (seed & 0x100 ? 60000 : 600);
            strike(SLOT, top() - sizes[sent] - 8, NULL);
        }
        if (sent < CLP_ARRAY_LEN(sizes) && clp_capture_lost_full() == full) {
            sent++;
            continue;
        }
        const struct clp_capture *c = clp_capture_peek();
        assert_non_null(c);
        assert_int_equal(c->stack_bytes, sizes[got] + 8);
        assert_memory_equal(c->stack, (const void *)(uintptr_t)(top() - sizes[got] - 8),
                            sizes[got] + 8);
        clp_capture_release(c);
        got++;
    }
    assert_null(clp_capture_peek());
}

static void strike_and_release(uint32_t stack_bytes)
{
    strike(SLOT, top() - stack_bytes, NULL);
    const struct clp_capture *c = clp_capture_peek();
    assert_non_null(c);
    clp_capture_release(c);
}

/* A hole of the ring's size below a page that must not be touched: the kernel puts the ring there.
 */
static void make_room_below_a_wall(void)
{
    char *room = mmap(NULL, (1 << 20) + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room != MAP_FAILED)
        munmap(room, 1 << 20);
}

/* The last line of the ring is all padding: its entry ends where the mapping ends. */
static void pads_the_last_line(void **state)
{
    (void)state;
    uint64_t mask = clp_capture_state.ring_bytes - 1, last = clp_capture_state.ring_bytes - 64;
    uint32_t lines = (uint32_t)((sizeof(struct clp_capture) + 8 + 63) / 64);
    while ((atomic_load(&clp_capture_state.head) & mask) != last) {
        /* Steps of `lines`, of one line more as long as the rest does not divide by them. */
        uint64_t rest = (last - (atomic_load(&clp_capture_state.head) & mask)) & mask;
        strike_and_release(rest / 64 % lines ? 8 + 64 : 8);
    }
    strike_and_release(8);
    assert_int_equal(atomic_load(&clp_capture_state.head) & mask, (uint64_t)lines * 64);
    assert_true(clp_capture_enabled());
}

static void counts_what_finds_no_room(void **state)
{
    (void)state;
    uint64_t before = clp_capture_lost_full();
    unsigned held = 0;
    while (clp_capture_lost_full() == before && held < 100000) {
        strike(SLOT, top() - 7000, NULL);
        held++;
    }
    held--;
    assert_in_range(held, (1 << 20) / 8192, (1 << 20) / 7000);
    strike(SLOT, top() - 7000, NULL);
    strike(SLOT, top() - 7000, NULL);
    assert_int_equal(clp_capture_lost_full(), before + 3);
    for (unsigned i = 0; i < held; i++) {
        const struct clp_capture *c = clp_capture_peek();
        assert_non_null(c);
        clp_capture_release(c);
    }
    assert_null(clp_capture_peek());
    /* The next one says how many of its thread were lost before it. */
    strike(SLOT, top() - 8, NULL);
    const struct clp_capture *c = clp_capture_peek();
    assert_non_null(c);
    assert_int_equal(c->lost, 3);
    clp_capture_release(c);
    strike(SLOT, top() - 8, NULL);
    c = clp_capture_peek();
    assert_int_equal(c->lost, 0);
    clp_capture_release(c);
}

/* Every signal of our timer arms the next one: uniform between a half and one and a half intervals.
 */
static void rearms_with_jitter(void **state)
{
    (void)state;
    const uint64_t interval = 10 * CLP_NSEC_PER_MSEC;
    const int rounds = 4000;
    struct clp_thread_slot *s = clp_capture_slot(SLOT);
    int32_t id;
    assert_int_equal(clp_timer_create(harness_tid(), clp_capture_tag(SLOT, 0), &id), 0);
    atomic_store(&s->timer_id, id);
    clp_capture_set_interval(interval);
    double sum = 0, squares = 0;
    for (int i = 0; i < rounds; i++) {
        struct itimerspec left;
        strike_timer(id);
        assert_int_equal(syscall(SYS_timer_gettime, id, &left), 0);
        assert_int_equal(left.it_interval.tv_nsec, 0);
        double ns = (double)left.it_value.tv_nsec;
        assert_true(left.it_value.tv_sec == 0 && ns > (double)interval * 0.45);
        assert_true(ns <= (double)interval * 1.5);
        sum += ns;
        squares += ns * ns;
        clp_capture_release(clp_capture_peek());
    }
    double mean = sum / rounds, variance = squares / rounds - mean * mean;
    double uniform = (double)interval * (double)interval / 12;
    /* The standard error of the mean is 0.46 % of the interval; the clock runs on meanwhile. */
    assert_true(mean > (double)interval * 0.975 && mean < (double)interval * 1.02);
    assert_true(variance > uniform * 0.9 && variance < uniform * 1.1);

    /* A new thread's intervals double until they are the usual one. */
    s->ramp_ns = CLP_NSEC_PER_MSEC;
    const uint64_t means[] = {1, 2, 4, 8, 10, 10};
    for (size_t i = 0; i < CLP_ARRAY_LEN(means); i++) {
        struct itimerspec left;
        strike_timer(id);
        assert_int_equal(syscall(SYS_timer_gettime, id, &left), 0);
        assert_in_range(left.it_value.tv_nsec, means[i] * 400000, means[i] * 1500000);
        clp_capture_release(clp_capture_peek());
    }

    /* Not for a timer that was deleted and replaced meanwhile, and not when told to stop. */
    struct itimerspec off = {.it_value = {0, 0}}, left;
    assert_int_equal(syscall(SYS_timer_settime, id, 0, &off, NULL), 0);
    strike_timer(id + 1);
    clp_capture_set_interval(0);
    strike_timer(id);
    assert_int_equal(syscall(SYS_timer_gettime, id, &left), 0);
    assert_true(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
    clp_capture_release(clp_capture_peek());
    clp_capture_release(clp_capture_peek());
    clp_timer_delete(id);
    atomic_store(&s->timer_id, -1);
}

/* ---- many producers at a time ---- */

#define PRODUCERS 8
#define EACH 20000

static void *produce(void *arg)
{
    uint32_t slot = 100 + (uint32_t)(uintptr_t)arg;
    uint64_t stack[128];
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(stack); i++)
        stack[i] = slot;
    uint64_t high = (uint64_t)(uintptr_t)(stack + CLP_ARRAY_LEN(stack));
    prepare_slot(slot, (uint64_t)(uintptr_t)stack, high);
    for (uint32_t i = 0; i < EACH; i++)
        strike(slot, high - 8 * (1 + i % CLP_ARRAY_LEN(stack)), NULL);
    return NULL;
}

static void takes_many_producers(void **state)
{
    (void)state;
    pthread_t t[PRODUCERS];
    uint64_t full = clp_capture_lost_full(), got = 0, lost_seen = 0;
    uint64_t last_cpu[PRODUCERS] = {0};
    for (uintptr_t i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, produce, (void *)i), 0);
    while (got + (clp_capture_lost_full() - full) < PRODUCERS * EACH) {
        const struct clp_capture *c = clp_capture_peek();
        if (!c)
            continue;
        uint32_t who = c->slot - 100;
        assert_in_range(who, 0, PRODUCERS - 1);
        assert_true(c->stack_bytes % 8 == 0 && c->stack_bytes > 0);
        for (uint32_t i = 0; i < c->stack_bytes / 8; i++) {
            uint64_t word;
            memcpy(&word, c->stack + 8 * i, 8);
            assert_int_equal(word, c->slot);
        }
        assert_true(c->thread_cpu_ns > last_cpu[who]); /* in each thread's order */
        last_cpu[who] = c->thread_cpu_ns;
        lost_seen += c->lost;
        got++;
        clp_capture_release(c);
    }
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(t[i], NULL);
    assert_null(clp_capture_peek());
    assert_true(got > 0);
    for (uint32_t i = 0; i < PRODUCERS; i++)
        lost_seen += atomic_load(&clp_capture_slot(100 + i)->lost);
    assert_int_equal(lost_seen, clp_capture_lost_full() - full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_registers_and_stack),
        cmocka_unit_test(copies_the_hijack_pair),
        cmocka_unit_test(keeps_within_the_bounds),
        cmocka_unit_test(without_bounds_tells_the_fs_base),
        cmocka_unit_test(ignores_what_is_not_for_the_slot),
        cmocka_unit_test(wraps),
        cmocka_unit_test(pads_the_last_line),
        cmocka_unit_test(counts_what_finds_no_room),
        cmocka_unit_test(rearms_with_jitter),
        cmocka_unit_test(takes_many_producers),
    };
    make_room_below_a_wall();
    if (clp_capture_init(1 << 20, 1024) < 0 || clp_capture_init(1 << 22, 9) < 0)
        return 1;
    return cmocka_run_group_tests(tests, set_up, NULL);
}
