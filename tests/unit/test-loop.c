/* The library's thread at work on this very process: no runtime, busy threads, real readers. */
#include "sampler/inproc/clock.h"
#include "sampler/inproc/loop.h"
#include "wire/memory.h"
#include "wire/message.h"

#include "tests/unit/capture-harness.h"
#include "tests/unit/clp-cmocka.h"
#include "tests/unit/loop-reader.h"
#include "tests/unit/managed-double.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CPU (1u << CLP_SAMPLE_CPU)
#define INTERVAL (5 * CLP_NSEC_PER_MSEC)
#define RING (1u << 20)

static _Atomic int enumerated, detach_requests;

struct worker {
    pthread_t thread;
    _Atomic int32_t tid;
    _Atomic bool stop;
    uint64_t object[256]; /* plays the Thread object: as much of it may be read */
    uint64_t clock[4];    /* before and after joining, before and after the mark */
};

static struct loop_reader readers[5];
static struct worker workers[4];

static _Atomic bool lost_count;
static _Atomic uint32_t sights_lost;

/* What the runtime's enumeration does: tells of the threads that are there. */
static void on_enumerate(void)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(workers); i++)
        if (workers[i].tid && !workers[i].stop)
            clp_threads_assigned((uint64_t)(uintptr_t)workers[i].object, workers[i].tid);
    enumerated++;
}

/* Refused so many times first. */
static _Atomic int detach_refusals;

static bool on_request_detach(void)
{
    return detach_requests++ >= detach_refusals;
}

static bool on_has_lost_count(void)
{
    return lost_count;
}

static void on_lost_sight(void)
{
    sights_lost++;
}

static const struct clp_loop_runtime runtime = {.enumerate = on_enumerate,
                                                .request_detach = on_request_detach,
                                                .has_lost_count = on_has_lost_count,
                                                .lost_sight = on_lost_sight,
                                                .major = 10,
                                                .patch = 12,
                                                .attaching = true};

/* In the test itself, not in a fixture: cmocka sets its own SIGSEGV action around each of them. */
static void start_loop(void)
{
    enumerated = detach_requests = 0;
    harness_fake_runtime(true);
    assert_int_equal(clp_loop_start(&runtime), 0);
    clp_loop_runtime_ready();
}

static int stop_loop(void **state)
{
    (void)state;
    clp_loop_stop();
    return 0;
}

static uint64_t thread_clock(int32_t tid)
{
    uint64_t ns;
    assert_int_equal(clp_clock_thread_ns(tid, &ns), 0);
    return ns;
}

/* ---- busy threads ---- */

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_setname_np(pthread_self(), "busy worker");
    clp_threads_assigned((uint64_t)(uintptr_t)w->object, harness_tid());
    w->tid = harness_tid();
    managed_root(&w->stop);
    clp_threads_destroyed((uint64_t)(uintptr_t)w->object);
    return NULL;
}

static void start_worker(struct worker *w)
{
    memset(w, 0, sizeof(*w));
    assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
    while (!w->tid)
        usleep(100);
}

static void stop_worker(struct worker *w)
{
    w->stop = true;
    pthread_join(w->thread, NULL);
}

static void read_clocks(struct worker *w, size_t n, int which)
{
    for (size_t i = 0; i < n; i++)
        w[i].clock[which] = thread_clock(w[i].tid);
}

/* What a reader was given lies between the clocks that enclose it: exact, no tolerance. */
static void check_sums(struct loop_reader *r, const struct worker *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct loop_reader_thread *t = loop_reader_by_tid(r, w[i].tid);
        assert_non_null(t);
        assert_true(t->total_ns >= w[i].clock[2] - w[i].clock[1]);
        assert_true(t->total_ns <= w[i].clock[3] - w[i].clock[0]);
    }
}

/* At a mark the control totals say the same as the samples in front of it, and both say the same as
 * the process clock. */
static void check_totals(struct loop_reader *r)
{
    static const enum clp_counter all[] = {
        CLP_CTR_SAMPLED_CPU_NS, CLP_CTR_NATIVE_CPU_NS, CLP_CTR_SHORT_LIVED_CPU_NS,
        CLP_CTR_SIGNALS_BLOCKED_CPU_NS, CLP_CTR_UNSAMPLED_CPU_NS};
    uint64_t parts = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(all); i++)
        parts += clp_reader_marked(r->reader, all[i]);
    assert_int_equal(parts, r->total_at_mark_ns);
    uint64_t process = clp_reader_marked(r->reader, CLP_CTR_PROCESS_CPU_NS);
    assert_true(process + 2 * CLP_NSEC_PER_MSEC >= parts);
    assert_true(parts + parts / 100 + 10 * CLP_NSEC_PER_MSEC >= process);
}

/* The machine may be busy: waits for what must come, not for a time. */
static void pump_until_samples(struct loop_reader *r, int32_t tid, uint32_t n)
{
    for (int i = 0; i < 1000; i++) {
        loop_reader_pump_for(r, 10 * CLP_NSEC_PER_MSEC);
        struct loop_reader_thread *t = loop_reader_by_tid(r, tid);
        if (t && t->samples >= n)
            return;
    }
    fail_msg("no samples of a busy thread");
}

static void pump_until_interval(struct loop_reader *r, uint64_t ns)
{
    for (int i = 0; clp_reader_counter(r->reader, CLP_CTR_INTERVAL_NS) != ns; i++) {
        assert_true(i < 1000);
        loop_reader_pump_for(r, 10 * CLP_NSEC_PER_MSEC);
    }
}

static void pump_until_no_timers(struct loop_reader *r)
{
    for (int i = 0; clp_threads_timers() != 0; i++) {
        assert_true(i < 1000);
        loop_reader_pump_for(r, 10 * CLP_NSEC_PER_MSEC);
    }
}

/* ---- tests ---- */

static void test_sums_equal_the_clocks(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    for (int i = 0; i < 3; i++)
        start_worker(&workers[i]);
    read_clocks(workers, 3, 0);
    loop_reader_open(r, RING, CPU, INTERVAL);
    read_clocks(workers, 3, 1);
    for (int i = 0; i < 3; i++)
        pump_until_samples(r, workers[i].tid, 20);
    read_clocks(workers, 3, 2);
    loop_reader_flush(r, 7);
    read_clocks(workers, 3, 3);
    check_sums(r, workers, 3);
    check_totals(r);
    assert_int_equal(enumerated, 1);
    assert_int_equal(r->hello.runtime_major, 10);
    assert_int_equal(clp_reader_counter(r->reader, CLP_CTR_DROP_RING_FULL), 0);
    for (int i = 0; i < 3; i++) {
        struct loop_reader_thread *t = loop_reader_by_tid(r, workers[i].tid);
        assert_string_equal(t->name, "busy worker");
        assert_int_equal(t->kind, CLP_THREAD_MANAGED);
        assert_true(t->stack_ns * 100 >= t->total_ns * 80);
        stop_worker(&workers[i]);
    }
    /* A second mark without sampling in between takes the threads' ends along. */
    loop_reader_flush(r, 8);
    loop_reader_bye(r, 0);
    loop_reader_close(r);
}

struct stacks {
    uint64_t all, right;
};

static void look_at_stack(void *user, const struct clp_reader_record *rec)
{
    struct stacks *s = user;
    const uint64_t *f = rec->sample.frames;
    uint16_t n = rec->sample.rec->rec.count;
    if (clp_frame_kind(f[0]) != CLP_FRAME_MANAGED || clp_frame_id(f[0]) != MANAGED_LEAF_BODY)
        return;
    s->all++;
    /* Leaf, Root, then native frames down to the thread's start, where the walk knows that it ends.
     */
    s->right += n >= 4 && f[1] >> 32 == (CLP_FRAME_MANAGED << 28 | MANAGED_ROOT_BODY) &&
                clp_frame_kind(f[2]) == CLP_FRAME_NATIVE &&
                clp_frame_kind(f[n - 1]) == CLP_FRAME_NATIVE &&
                !(rec->sample.rec->flags & (CLP_SAMPLE_INCOMPLETE | CLP_SAMPLE_TRUNCATED));
}

static void test_stacks_go_from_leaf_to_thread_start(void **state)
{
    struct loop_reader *r = &readers[0];
    struct stacks s = {0};
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, RING, CPU, INTERVAL);
    r->on_sample = look_at_stack;
    r->user = &s;
    for (int i = 0; i < 400 && s.all < 50; i++)
        loop_reader_pump_for(r, 50 * CLP_NSEC_PER_MSEC);
    assert_true(s.all >= 50);
    assert_true(s.right * 100 >=
                s.all * 98); /* prologues and epilogues of the double are made up */
    stop_worker(&workers[0]);
    loop_reader_close(r);
}

static void test_two_readers_get_the_same(void **state)
{
    struct loop_reader *a = &readers[0], *b = &readers[1];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    read_clocks(workers, 1, 0);
    loop_reader_open(a, RING, CPU, 20 * CLP_NSEC_PER_MSEC);
    read_clocks(workers, 1, 1);
    pump_until_samples(a, workers[0].tid, 5);
    assert_int_equal(clp_reader_counter(a->reader, CLP_CTR_INTERVAL_NS), 20 * CLP_NSEC_PER_MSEC);
    /* The second one sees only what comes after it, the first one all. */
    workers[1] = workers[0];
    workers[1].clock[0] = thread_clock(workers[0].tid);
    loop_reader_open(b, RING, CPU, INTERVAL);
    workers[1].clock[1] = thread_clock(workers[0].tid);
    pump_until_samples(b, workers[0].tid, 20);
    assert_int_equal(clp_reader_counter(a->reader, CLP_CTR_INTERVAL_NS), INTERVAL);
    workers[0].clock[2] = thread_clock(workers[0].tid);
    loop_reader_flush(a, 1);
    workers[0].clock[3] = thread_clock(workers[0].tid);
    check_sums(a, &workers[0], 1);
    workers[1].clock[2] = thread_clock(workers[0].tid);
    loop_reader_flush(b, 2);
    workers[1].clock[3] = thread_clock(workers[0].tid);
    check_sums(b, &workers[1], 1);
    assert_true(loop_reader_by_tid(a, workers[0].tid)->total_ns >
                loop_reader_by_tid(b, workers[0].tid)->total_ns);
    loop_reader_bye(b, 0);
    pump_until_interval(a, 20 * CLP_NSEC_PER_MSEC);
    stop_worker(&workers[0]);
    loop_reader_close(b);
    loop_reader_close(a);
}

/* Whose name, newline included, begins so; 0: none. */
static int32_t thread_named(const char *beginning)
{
    DIR *d = opendir("/proc/self/task");
    int32_t found = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[64], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, comm, sizeof(comm) - 1) > 0 &&
            !strncmp(comm, beginning, strlen(beginning)))
            found = atoi(e->d_name);
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
    return found;
}

static int32_t loop_tid(void)
{
    return thread_named("clrpulse\n");
}

/* A thread that was joined stays in /proc for a moment. */
static void expect_no_thread(const char *beginning)
{
    loop_wait_until(thread_named(beginning) == 0);
}

static uint64_t switches(int32_t tid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    text[n] = '\0';
    const char *at = strstr(text, "\nvoluntary_ctxt_switches:");
    assert_non_null(at);
    return strtoull(at + 26, NULL, 10);
}

/* In its futex without a time-out: nothing but a reader wakes it. */
static bool sleeps_for_good(int32_t tid)
{
    char path[64], line[256] = "";
    unsigned long long nr = 0, timeout = 1;
    snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    bool got = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    return got && sscanf(line, "%llu %*s %*s %*s %llx", &nr, &timeout) == 2 && nr == SYS_futex &&
           timeout == 0;
}

static void wait_until_idle(int32_t tid)
{
    loop_wait_until(sleeps_for_good(tid));
}

static void test_last_reader_killed_means_idle(void **state)
{
    struct loop_reader *a = &readers[0], *b = &readers[1];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(a, RING, CPU, INTERVAL);
    loop_reader_open(b, RING, CPU, INTERVAL);
    loop_reader_pump_for(a, 100 * CLP_NSEC_PER_MSEC);
    loop_reader_close(a); /* no BYE: as if it had been killed */
    usleep(100000);
    pump_until_samples(b, workers[0].tid, 20);
    assert_true(clp_threads_timers() > 0);
    loop_reader_close(b);
    int32_t tid = loop_tid();
    assert_true(tid > 0);
    wait_until_idle(tid);
    uint64_t cpu = thread_clock(tid), n = switches(tid), chained = harness_chained;
    usleep(500000);
    assert_int_equal(switches(tid), n); /* no wake-up at all */
    assert_int_equal(thread_clock(tid), cpu);
    assert_int_equal(clp_threads_timers(), 0);
    assert_false(clp_capture_enabled());
    assert_int_equal(harness_chained, chained);
    assert_int_equal(detach_requests, 0);
    stop_worker(&workers[0]);
}

static void test_full_ring_loses_no_time(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    for (int i = 0; i < 4; i++)
        start_worker(&workers[i]);
    read_clocks(workers, 4, 0);
    loop_reader_open(r, CLP_WIRE_RING_MIN_BYTES, CPU, CLP_NSEC_PER_MSEC);
    read_clocks(workers, 4, 1);
    /* Nobody reads: a sample every few milliseconds fills the ring; here it is filled by hand. */
    struct clp_wire_header *h = r->mapping;
    atomic_store(&h->tail, atomic_load(&h->tail) - (CLP_WIRE_RING_MIN_BYTES - 4096));
    loop_wait_until(clp_reader_counter(r->reader, CLP_CTR_DROP_RING_FULL) > 20);
    assert_true(clp_reader_counter(r->reader, CLP_CTR_DEFER_RING_FULL_CPU_NS) >
                20 * CLP_NSEC_PER_MSEC);
    read_clocks(workers, 4, 2);
    loop_reader_flush(r, 3); /* reading makes room: the tail is right again */
    read_clocks(workers, 4, 3);
    check_sums(r, workers, 4);
    assert_int_equal(clp_reader_counter(r->reader, CLP_CTR_DEFER_RING_FULL_CPU_NS), 0);
    for (int i = 0; i < 4; i++)
        stop_worker(&workers[i]);
    loop_reader_close(r);
}

static void test_settings_switch_sampling_on_and_off(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, RING, 0, INTERVAL);
    loop_reader_pump_for(r, 200 * CLP_NSEC_PER_MSEC);
    assert_int_equal(r->records, 0);
    assert_int_equal(clp_threads_timers(), 0);
    loop_reader_flush(r, 1); /* a mark comes all the same */
    loop_reader_settings(r, CPU, INTERVAL);
    pump_until_samples(r, workers[0].tid, 5);
    loop_reader_settings(r, 0, INTERVAL);
    pump_until_no_timers(r);
    loop_reader_flush(r, 2); /* behind all that was on its way */
    uint64_t records = r->records;
    loop_reader_pump_for(r, 200 * CLP_NSEC_PER_MSEC);
    assert_int_equal(r->records, records);
    assert_int_equal(clp_threads_timers(), 0);
    stop_worker(&workers[0]);
    loop_reader_close(r);
}

static void test_bye_of_the_last_may_ask_for_detach(void **state)
{
    (void)state;
    start_loop();
    loop_reader_open(&readers[0], RING, CPU, INTERVAL);
    loop_reader_open(&readers[1], RING, CPU, INTERVAL);
    loop_reader_bye(&readers[0], CLP_BYE_DETACH_IF_LAST);
    usleep(150000);
    assert_int_equal(detach_requests, 0);
    loop_reader_bye(&readers[1], CLP_BYE_DETACH_IF_LAST);
    loop_wait_until(detach_requests > 0);
    assert_int_equal(detach_requests, 1);
    loop_reader_close(&readers[0]);
    loop_reader_close(&readers[1]);
}

static void test_a_refused_detach_is_asked_for_again(void **state)
{
    (void)state;
    start_loop();
    detach_refusals = 2;
    sights_lost = 0;
    loop_reader_open(&readers[0], RING, CPU, INTERVAL);
    loop_reader_bye(&readers[0], CLP_BYE_DETACH_IF_LAST);
    loop_wait_until(detach_requests >= 3);
    usleep(300000); /* longer than between two tries: it was granted */
    assert_int_equal(detach_requests, 3);
    detach_refusals = 0;
    loop_reader_close(&readers[0]);
    /* Callbacks were not heeded meanwhile: whoever comes now gets what is there now. */
    assert_int_equal(sights_lost, 2);
    loop_reader_open(&readers[1], RING, CPU, INTERVAL);
    assert_int_equal(enumerated, 2);
    loop_reader_close(&readers[1]);
}

static uint64_t waited_for_readers_ns(uint64_t most_ns)
{
    uint64_t from = clp_clock_monotonic_ns();
    clp_loop_wait_for_readers(most_ns);
    return clp_clock_monotonic_ns() - from;
}

/* What holds a program's start: a reader that is there and has not said WELCOME, for so long. */
static void test_only_a_reader_that_hesitates_is_waited_for(void **state)
{
    const uint64_t short_ns = 100 * CLP_NSEC_PER_MSEC, long_ns = 4 * CLP_NSEC_PER_SEC;
    struct loop_reader *gone = &readers[0], *r = &readers[1];
    (void)state;
    start_loop();
    loop_reader_announce(gone);
    loop_reader_close(gone);
    assert_true(waited_for_readers_ns(long_ns) < long_ns);
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
    assert_true(waited_for_readers_ns(short_ns) >= short_ns);
    assert_int_equal(clp_wire_memory_create(RING, &r->memfd, &r->mapping), 0);
    r->ring_bytes = RING;
    assert_int_equal(clp_reader_new(r->mapping, RING, &r->reader), 0);
    assert_int_equal(loop_reader_welcome(r, r->attach.reader_nonce, r->memfd, CPU, INTERVAL), 0);
    assert_true(waited_for_readers_ns(long_ns) < long_ns);
    loop_reader_close(r);
}

static void expect_recount(struct loop_reader *r)
{
    struct clp_msg m;
    assert_int_equal(loop_reader_receive(r, &m, sizeof(m), 2000), sizeof(m));
    assert_int_equal(clp_msg_check(&m, sizeof(m)), CLP_MSG_RECOUNT);
}

static void test_a_runtime_that_has_lost_count_is_put_right(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, RING, CPU, INTERVAL);
    assert_int_equal(enumerated, 1);
    lost_count = true;
    expect_recount(r);
    expect_recount(r); /* until it helps */
    assert_true(sights_lost >= 1);
    assert_int_equal(enumerated, 1);
    lost_count = false;
    clp_loop_runtime_ready();
    loop_wait_until(enumerated >= 2);
    assert_int_equal(enumerated, 2); /* what came and went meanwhile */
    loop_reader_flush(r, 1);         /* nothing was lost */
    stop_worker(&workers[0]);
    loop_reader_close(r);
}

/* Its last reader leaves while the runtime cannot be asked: nothing is sampled for nobody. */
static void test_the_last_reader_leaves_a_runtime_that_has_lost_count(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, RING, CPU, INTERVAL);
    loop_wait_until(clp_threads_timers() > 0);
    lost_count = true;
    expect_recount(r);
    loop_reader_close(r);
    loop_wait_until(clp_threads_timers() == 0);
    lost_count = false;
    stop_worker(&workers[0]);
}

/* A socket that is closed with something unread tells of that before it gives what was sent. */
static void test_a_goodbye_is_heard_behind_unread_words(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    loop_reader_open(r, RING, CPU, INTERVAL);
    lost_count = true; /* the library asks for help, and nobody reads that */
    struct pollfd p = {.fd = r->sock, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    loop_reader_bye(r, CLP_BYE_DETACH_IF_LAST);
    loop_reader_close(r);
    loop_wait_until(detach_requests > 0);
    lost_count = false;
    assert_int_equal(detach_requests, 1);
}

/* The count is wrong from the beginning: the reader waits, and is asked for help meanwhile. */
static void test_a_reader_that_was_never_counted_waits(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    lost_count = true;
    enumerated = 0;
    harness_fake_runtime(true);
    assert_int_equal(clp_loop_start(&runtime), 0);
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
    assert_int_equal(clp_wire_memory_create(RING, &r->memfd, &r->mapping), 0);
    r->ring_bytes = RING;
    assert_int_equal(clp_reader_new(r->mapping, RING, &r->reader), 0);
    assert_int_equal(loop_reader_welcome(r, r->attach.reader_nonce, r->memfd, CPU, INTERVAL), 0);
    expect_recount(r);
    assert_int_equal(enumerated, 0);
    lost_count = false; /* whoever did it: the runtime's own word need not come */
    loop_reader_wait_active(r);
    loop_reader_close(r);
}

static void test_a_fifth_reader_is_told(void **state)
{
    struct clp_msg_refused refused;
    (void)state;
    start_loop();
    for (int i = 0; i < 4; i++)
        loop_reader_open(&readers[i], RING, CPU, INTERVAL);
    loop_reader_announce(&readers[4]);
    struct loop_reader *r = &readers[4];
    r->sock = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(loop_reader_receive(r, &refused, sizeof(refused), 2000), sizeof(refused));
    assert_int_equal(refused.msg.type, CLP_MSG_REFUSED);
    assert_int_equal(refused.msg.flags, CLP_REFUSED_FULL);
    assert_true(strlen(refused.reason) > 10);
    loop_reader_close(r);
    loop_reader_pump_for(&readers[0], 50 * CLP_NSEC_PER_MSEC);
    for (int i = 0; i < 4; i++)
        loop_reader_close(&readers[i]);
    wait_until_idle(loop_tid());
    loop_reader_open(r, RING, CPU, INTERVAL); /* there is room again */
    loop_reader_close(r);
}

/* ---- readers that break the rules ---- */

/* Told and dropped, or dropped; never mapped, and the library serves the next one. */
static void expect_dropped(struct loop_reader *r, bool told)
{
    union clp_msg_any buf;
    int n = loop_reader_receive(r, &buf, sizeof(buf), 3000);
    if (told) {
        assert_int_equal(n, sizeof(struct clp_msg_refused));
        assert_int_equal(buf.msg.type, CLP_MSG_REFUSED);
        n = loop_reader_receive(r, &buf, sizeof(buf), 3000);
    }
    assert_int_equal(n, 0);
    loop_reader_close(r);
}

static int memfd_of(off_t size, bool allocate, int seals)
{
    int fd = memfd_create("t", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, size), 0);
    if (allocate)
        assert_int_equal(fallocate(fd, 0, 0, size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void test_memory_that_does_not_pass(void **state)
{
    const off_t size = CLP_WIRE_HEADER_BYTES + RING;
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    (void)state;
    start_loop();
    int fds[] = {-1,
                 memfd_of(size, true, 0),
                 memfd_of(size, false, seals),
                 memfd_of(size - 4096, true, seals),
                 open("/dev/zero", O_RDWR | O_CLOEXEC),
                 memfd_of(size, true, seals) /* no header in it */};
    for (size_t i = 0; i < CLP_ARRAY_LEN(fds); i++) {
        struct loop_reader *r = &readers[0];
        loop_reader_announce(r);
        assert_true(loop_reader_accept(r, 10000));
        assert_int_equal(loop_reader_welcome(r, r->attach.reader_nonce, fds[i], CPU, INTERVAL), 0);
        expect_dropped(r, true);
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

static void test_wrong_nonce(void **state)
{
    struct loop_reader *r = &readers[0];
    uint8_t nonce[CLP_NONCE_BYTES];
    int fd;
    void *p;
    (void)state;
    start_loop();
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
    memcpy(nonce, r->attach.reader_nonce, sizeof(nonce));
    nonce[7] ^= 4;
    assert_int_equal(clp_wire_memory_create(RING, &fd, &p), 0);
    assert_int_equal(loop_reader_welcome(r, nonce, fd, CPU, INTERVAL), 0);
    expect_dropped(r, false);
    munmap(p, CLP_WIRE_HEADER_BYTES + RING);
    close(fd);
}

static void test_messages_out_of_place(void **state)
{
    static const struct clp_msg_hello hello = {.msg = {sizeof(hello), CLP_MSG_HELLO, 0}};
    static const struct clp_msg_flush flush = {.msg = {sizeof(flush), CLP_MSG_FLUSH, 0}};
    static const struct clp_msg wrong_size = {16, CLP_MSG_BYE, 0};
    static const struct {
        const void *msg;
        size_t len;
    } cases[] = {{&hello, sizeof(hello)},
                 {&flush, sizeof(flush)}, /* id 0 */
                 {&wrong_size, sizeof(wrong_size)},
                 {"x", 1},
                 {readers, 4096}};
    (void)state;
    start_loop();
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        struct loop_reader *r = &readers[0];
        loop_reader_open(r, RING, CPU, INTERVAL);
        loop_reader_send(r, cases[i].msg, cases[i].len);
        expect_dropped(r, true);
        loop_reader_announce(r);
        assert_true(loop_reader_accept(r, 10000));
        loop_reader_send(r, cases[i].msg, cases[i].len); /* before WELCOME */
        expect_dropped(r, true);
    }
}

/* Messages without end and never a read: the others are served, the loop does not spin for ever. */
static void test_a_flood_does_not_starve_the_others(void **state)
{
    struct loop_reader *bad = &readers[0], *good = &readers[1];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(bad, CLP_WIRE_RING_MIN_BYTES, CPU, INTERVAL);
    loop_reader_open(good, RING, CPU, INTERVAL);
    struct clp_msg_flush m = {.msg = {sizeof(m), CLP_MSG_FLUSH, 0}, .flush_id = 1};
    for (int i = 0; i < 30; i++) {
        for (int k = 0; k < 300; k++)
            (void)send(bad->sock, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL);
        loop_reader_pump_for(good, 10 * CLP_NSEC_PER_MSEC);
    }
    pump_until_samples(good, workers[0].tid, 5);
    loop_reader_flush(good, 9);
    stop_worker(&workers[0]);
    loop_reader_close(bad);
    loop_reader_close(good);
}

/* Nobody listens at the path, or the path is nothing: no harm. */
static void test_readers_that_are_not_there(void **state)
{
    struct clp_attach_data d = {.magic = CLP_WIRE_MAGIC, .version = CLP_WIRE_VERSION};
    (void)state;
    start_loop();
    memset(d.socket_path, 'x', sizeof(d.socket_path)); /* not terminated */
    assert_int_equal(clp_loop_add_reader(&d), 0);
    memset(d.socket_path, 0, sizeof(d.socket_path));
    assert_int_equal(clp_loop_add_reader(&d), 0);
    strcpy(d.socket_path, "/tmp/clp-loop-nobody");
    assert_int_equal(clp_loop_add_reader(&d), 0);
    usleep(50000);
    loop_reader_open(&readers[0], RING, CPU, INTERVAL);
    loop_reader_close(&readers[0]);
    wait_until_idle(loop_tid());
}

/* ---- coming and going ---- */

struct footprint {
    size_t fds, threads, mapped_kb;
};

static size_t entries(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static struct footprint footprint(void)
{
    struct footprint f = {entries("/proc/self/fd"), entries("/proc/self/task"), 0};
    FILE *statm = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    assert_int_equal(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    f.mapped_kb = pages * 4;
    return f;
}

/* Sanitizers map memory of their own as they go. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAPS_ARE_OURS = 0 };
#else
enum { MAPS_ARE_OURS = 1 };
#endif

static void expect_same(struct footprint a, struct footprint b)
{
    assert_int_equal(a.fds, b.fds);
    assert_int_equal(a.threads, b.threads);
    if (MAPS_ARE_OURS)
        assert_int_equal(a.mapped_kb, b.mapped_kb);
}

static void join_and_leave(void)
{
    loop_reader_open(&readers[0], RING, CPU, INTERVAL);
    loop_reader_pump_for(&readers[0], 30 * CLP_NSEC_PER_MSEC);
    loop_reader_bye(&readers[0], 0);
    loop_reader_close(&readers[0]);
    wait_until_idle(loop_tid());
}

/* The first sample from an image builds its unwind table, which is kept. */
static void sample_for(struct worker *w, uint64_t ns)
{
    struct loop_reader *r = &readers[0];
    loop_reader_open(r, RING, CPU, INTERVAL);
    uint64_t got = 0;
    for (int i = 0; i < 500 && got < ns; i++) {
        loop_reader_pump_for(r, 10 * CLP_NSEC_PER_MSEC);
        const struct loop_reader_thread *t = loop_reader_by_tid(r, w->tid);
        got = t ? t->stack_ns : 0;
    }
    assert_true(got >= ns);
    loop_reader_bye(r, 0);
    loop_reader_close(r);
}

static void test_fifty_readers_come_and_go(void **state)
{
    struct footprint second = {0};
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    sample_for(&workers[0], 100 * CLP_NSEC_PER_MSEC);
    for (int i = 0; i < 50; i++) {
        join_and_leave();
        if (i == 1)
            second = footprint();
    }
    expect_same(second, footprint());
    stop_worker(&workers[0]);
}

static void test_start_and_stop_leave_nothing(void **state)
{
    struct footprint second = {0};
    struct sigaction before, after;
    (void)state;
    harness_fake_runtime(true);
    sigaction(SIGRTMIN, NULL, &before);
    for (int i = 0; i < 10; i++) {
        start_loop();
        loop_reader_open(&readers[0], RING, CPU, INTERVAL);
        loop_reader_pump_for(&readers[0], 30 * CLP_NSEC_PER_MSEC);
        assert_true(loop_tid() > 0);
        clp_loop_stop();
        uint64_t buf[16];
        assert_int_equal(loop_reader_receive(&readers[0], buf, sizeof(buf), 1000), 0);
        loop_reader_close(&readers[0]);
        expect_no_thread("clrpulse"); /* nor the starter of sessions */
        assert_int_equal(clp_threads_timers(), 0);
        sigaction(SIGRTMIN, NULL, &after);
        assert_ptr_equal(before.sa_sigaction, after.sa_sigaction);
        if (i == 1)
            second = footprint();
    }
    expect_same(second, footprint());
    clp_loop_stop(); /* once more is harmless */
}

static void test_nothing_shows_in_the_descriptor_table(void **state)
{
    (void)state;
    start_loop();
    size_t before = entries("/proc/self/fd");
    loop_reader_open(&readers[0], RING, CPU, INTERVAL);
    /* listener, socket and memory of the test's own reader; nothing of the library */
    assert_int_equal(entries("/proc/self/fd"), before + 3);
    loop_reader_close(&readers[0]);
}

static void test_shutdown_says_its_last_words(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, RING, CPU, INTERVAL);
    pump_until_samples(r, workers[0].tid, 5);
    workers[0].clock[2] = thread_clock(workers[0].tid);
    workers[0].clock[1] = workers[0].clock[2] - loop_reader_by_tid(r, workers[0].tid)->total_ns;
    uint64_t began = clp_clock_monotonic_ns();
    clp_loop_shutdown(100 * CLP_NSEC_PER_MSEC);
    uint64_t took = clp_clock_monotonic_ns() - began;
    assert_true(took < 500 * CLP_NSEC_PER_MSEC); /* a busy machine */
    assert_true(loop_reader_wait_mark(r, 0, 100));
    assert_true(loop_reader_by_tid(r, workers[0].tid)->total_ns >=
                workers[0].clock[2] - workers[0].clock[1]);
    expect_no_thread("clrpulse\n");
    assert_int_equal(clp_threads_timers(), 0);
    stop_worker(&workers[0]);
    loop_reader_close(r);
    clp_loop_stop();
}

/* A reader that reads nothing must not hold up the end of the process. */
static void test_shutdown_does_not_wait_for_a_wedged_reader(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    start_loop();
    start_worker(&workers[0]);
    loop_reader_open(r, CLP_WIRE_RING_MIN_BYTES, CPU, INTERVAL);
    struct clp_wire_header *h = r->mapping;
    atomic_store(&h->tail, atomic_load(&h->head) - CLP_WIRE_RING_MIN_BYTES);
    usleep(50000);
    uint64_t began = clp_clock_monotonic_ns();
    clp_loop_shutdown(100 * CLP_NSEC_PER_MSEC);
    assert_true(clp_clock_monotonic_ns() - began < 500 * CLP_NSEC_PER_MSEC); /* a busy machine */
    stop_worker(&workers[0]);
    loop_reader_close(r);
    clp_loop_stop();
}

static void test_without_the_runtimes_mask_nothing_is_sampled(void **state)
{
    struct loop_reader *r = &readers[0];
    (void)state;
    harness_fake_runtime(false);
    assert_int_equal(clp_loop_start(&runtime), 0);
    clp_loop_runtime_ready();
    int fd;
    void *p;
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
    assert_int_equal(clp_wire_memory_create(RING, &fd, &p), 0);
    assert_int_equal(loop_reader_welcome(r, r->attach.reader_nonce, fd, CPU, INTERVAL), 0);
    expect_dropped(r, true);
    munmap(p, CLP_WIRE_HEADER_BYTES + RING);
    close(fd);
    clp_loop_stop();
}

#define WITH_LOOP(f) cmocka_unit_test_teardown(f, stop_loop)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
/* The thread sanitizer holds signals back from a thread that makes no system call: no samples. */
#ifndef __SANITIZE_THREAD__
        WITH_LOOP(test_sums_equal_the_clocks),
        WITH_LOOP(test_stacks_go_from_leaf_to_thread_start),
        WITH_LOOP(test_two_readers_get_the_same),
        WITH_LOOP(test_last_reader_killed_means_idle),
        WITH_LOOP(test_full_ring_loses_no_time),
        WITH_LOOP(test_settings_switch_sampling_on_and_off),
        WITH_LOOP(test_a_flood_does_not_starve_the_others),
        WITH_LOOP(test_shutdown_says_its_last_words),
#endif
        WITH_LOOP(test_bye_of_the_last_may_ask_for_detach),
        WITH_LOOP(test_a_refused_detach_is_asked_for_again),
        WITH_LOOP(test_only_a_reader_that_hesitates_is_waited_for),
        WITH_LOOP(test_a_runtime_that_has_lost_count_is_put_right),
        WITH_LOOP(test_the_last_reader_leaves_a_runtime_that_has_lost_count),
        WITH_LOOP(test_a_goodbye_is_heard_behind_unread_words),
        WITH_LOOP(test_a_reader_that_was_never_counted_waits),
        WITH_LOOP(test_a_fifth_reader_is_told),
        WITH_LOOP(test_memory_that_does_not_pass),
        WITH_LOOP(test_wrong_nonce),
        WITH_LOOP(test_messages_out_of_place),
        WITH_LOOP(test_readers_that_are_not_there),
        WITH_LOOP(test_fifty_readers_come_and_go),
        WITH_LOOP(test_nothing_shows_in_the_descriptor_table),
        WITH_LOOP(test_start_and_stop_leave_nothing),
        WITH_LOOP(test_shutdown_does_not_wait_for_a_wedged_reader),
        WITH_LOOP(test_without_the_runtimes_mask_nothing_is_sampled),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
