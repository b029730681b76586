/* The agent's memory under a stream that never repeats itself: distinct stacks and code without
 * end.
 *
 * One target, windows as the daemon makes them, encoded as well.  What is asserted: every total is
 * exact, what found no room is in [other], and the resident memory stops growing below its ceiling.
 * Under `./dev stress` (CLP_STRESS_SECONDS is set) it is half an hour's worth. */
#include "tests/unit/clp-cmocka.h"

#include "agent/profile_build.h"
#include "pprof/encode.h"
#include "pprof/model.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CLP_IS_SANITIZED 1
#else
#define CLP_IS_SANITIZED 0
#endif

#define WINDOWS 12u
#define DEPTH 24u
#define RUNNING 3000u             /* of the code, the newest */
#define CEILING_BYTES (96u << 20) /* all tables of one target full, and its encoding */
#define FLAT_BYTES (12u << 20)    /* what the allocator may keep more at the end than early on */

static struct clp_symbols *symbols;
static struct clp_build *build;
static uint64_t seed = 88172645463325252ull;

static uint32_t any(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % below);
}

static uint64_t wished(uint64_t stress, uint64_t standard)
{
    return getenv("CLP_STRESS_SECONDS") ? stress : standard;
}

static void define(uint32_t id)
{
    char name[80];
    snprintf(name, sizeof(name), "Method%uWithANameThatIsAsLongAsTheyOftenAre", id);
    struct clp_rec_method m = {.method_id = id, .image_id = 1};
    struct clp_reader_record r = {.type = CLP_REC_METHOD,
                                  .method = {.rec = &m,
                                             .type = "App.Some.Name.Space.Type",
                                             .name = name,
                                             .type_args = "",
                                             .method_args = "",
                                             .signature = "System.String,System.Int32"}};
    clp_build_record(build, &r);
    struct clp_rec_body b = {.body_id = id, .method_id = id, .start = 0x1000ull * id};
    r = (struct clp_reader_record){.type = CLP_REC_BODY, .body = {.rec = &b}};
    clp_build_record(build, &r);
}

static void sample(uint32_t known, uint64_t value)
{
    uint64_t frames[DEPTH];
    for (size_t i = 0; i < DEPTH; i++)
        frames[i] = clp_frame_make(CLP_FRAME_MANAGED, known - any(CLP_MIN(known, RUNNING)), 0);
    struct clp_rec_sample s = {
        .rec = {.count = DEPTH}, .value = (int64_t)value, .thread_id = 1, .kind = CLP_SAMPLE_CPU};
    struct clp_reader_record r = {.type = CLP_REC_SAMPLE, .sample = {.rec = &s, .frames = frames}};
    clp_build_record(build, &r);
}

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %llu", &pages), 1);
    assert_int_equal(fclose(f), 0);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* One window: its total must be what went in. */
static void window(uint64_t stacks, uint32_t *bodies, uint32_t new_bodies, uint64_t *ret_folded)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < new_bodies; i++)
        define(++*bodies);
    for (uint64_t i = 0; i < stacks; i++) {
        uint64_t value = 1 + any(1000);
        total += value;
        sample(*bodies, value);
    }
    struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = 60 * CLP_NSEC_PER_SEC};
    struct clp_profile *p = NULL;
    struct clp_encoded e;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_true(clp_profile_total(p, 0) == (double)total);
    *ret_folded += clp_profile_counts(p)->samples_folded;
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    clp_encoded_done(&e);
    clp_profile_free(p);
}

static void endless_stacks_and_code(void **state)
{
    (void)state;
    uint64_t stacks = wished(10000000, 840000) / WINDOWS;
    uint32_t new_bodies = (uint32_t)(wished(1000000, 180000) / WINDOWS);
    uint32_t bodies = 0;
    uint64_t early = 0, most = 0, folded = 0;
    for (unsigned i = 0; i < WINDOWS; i++) {
        window(stacks, &bodies, new_bodies, &folded);
        uint64_t now = resident_bytes();
        most = CLP_MAX(most, now);
        if (i == WINDOWS / 2)
            early = most;
    }
    printf("%llu stacks, %u bodies: %llu MB at most, %llu MB after half; %llu samples in [other]\n",
           (unsigned long long)(stacks * WINDOWS), bodies, (unsigned long long)(most >> 20),
           (unsigned long long)(early >> 20), (unsigned long long)folded);
    assert_true(folded > 0);
    if (CLP_IS_SANITIZED)
        return; /* their allocators keep what was freed */
    assert_true(most < CEILING_BYTES);
    assert_true(most - early < FLAT_BYTES);
}

/* A program whose code settles keeps its names: what is in use is evicted last. */
static void what_is_in_use_keeps_its_name(void **state)
{
    (void)state;
    uint32_t id = 100;
    for (uint32_t i = 1; i <= 50; i++)
        define(i);
    for (unsigned i = 0; i < WINDOWS; i++) {
        for (uint32_t n = 0; n < 20000; n++)
            define(++id); /* generated, never seen running */
        for (uint32_t n = 0; n < 100; n++)
            sample(50, 1);
        struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = CLP_NSEC_PER_SEC};
        struct clp_profile *p = NULL;
        assert_int_equal(clp_build_finish(build, &w, &p), 0);
        assert_int_equal(clp_profile_counts(p)->samples_folded, 0);
        clp_profile_free(p);
    }
    sample(20000, 1); /* of the evicted ones */
    struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = CLP_NSEC_PER_SEC};
    struct clp_profile *p = NULL;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_int_equal(clp_profile_counts(p)->samples_folded, 1);
    clp_profile_free(p);
}

static void gone(enum clp_rec_type what, uint32_t id)
{
    struct clp_rec_gone g = {.what = (uint16_t)what, .id = id};
    struct clp_reader_record r = {.type = CLP_REC_GONE, .gone = {.rec = &g}};
    clp_build_record(build, &r);
}

static void define_thread(uint32_t id)
{
    struct clp_rec_thread t = {.thread_id = id, .tid = 1, .kind = CLP_THREAD_MANAGED};
    struct clp_reader_record r = {.type = CLP_REC_THREAD, .thread = {.rec = &t, .name = "short"}};
    clp_build_record(build, &r);
}

static void sample_body(uint32_t id)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, id, 0);
    struct clp_rec_sample s = {
        .rec = {.count = 1}, .value = 1, .thread_id = 1, .kind = CLP_SAMPLE_CPU};
    struct clp_reader_record r = {.type = CLP_REC_SAMPLE, .sample = {.rec = &s, .frames = &frame}};
    clp_build_record(build, &r);
}

/* How often a comment of the window that ends here begins so. */
static unsigned finish_and_count(const char *comment)
{
    struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = CLP_NSEC_PER_SEC};
    struct clp_profile *p = NULL;
    unsigned n = 0;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_int_equal(clp_profile_counts(p)->samples_folded, 0);
    for (uint32_t i = 0; i < p->comment_count; i++)
        n += strncmp(p->comments[i], comment, strlen(comment)) == 0;
    clp_profile_free(p);
    return n;
}

/* Code and threads that come and go without end make nothing else lose its name, and no memory
 * grow; what has gone keeps its name as long as something refers to it. */
static void what_has_gone_makes_room(void **state)
{
    enum { QUIET = 1, GONE_BUT_USED = 2, FIRST = 100, EACH = 12000 };
    (void)state;
    size_t early = 0;
    define(QUIET);
    define(GONE_BUT_USED);
    gone(CLP_REC_METHOD, GONE_BUT_USED);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        for (uint32_t id = FIRST + w * EACH; id < FIRST + (w + 1) * EACH; id++) {
            define(id);
            define_thread(id);
            gone(CLP_REC_METHOD, id);
            gone(CLP_REC_THREAD, id);
        }
        sample_body(GONE_BUT_USED);
        assert_int_equal(finish_and_count("agent_"), 0);
        if (w == 2)
            early = mallinfo2().uordblks;
    }
    if (!CLP_IS_SANITIZED)
        assert_true(mallinfo2().uordblks < early + (256u << 10));
    sample_body(QUIET);
    assert_int_equal(finish_and_count("agent_unknown_ids"), 0);
    sample_body(FIRST + (WINDOWS - 1) * EACH);
    assert_int_equal(finish_and_count("agent_unknown_ids"), 1);
}

static void live_event(uint32_t body, double value)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, body, 0);
    struct clp_rec_event e = {
        .rec = {.count = 1}, .value = value, .thread_id = 1, .kind = CLP_SAMPLE_LIVE};
    struct clp_reader_record r = {.type = CLP_REC_EVENT,
                                  .event = {.rec = &e, .frames = &frame, .texts = {"T", "old"}}};
    clp_build_record(build, &r);
}

/* An object that no collection has looked at for some windows, of code that has unloaded. */
static void what_may_be_told_later_keeps_its_name(void **state)
{
    (void)state;
    define(5);
    gone(CLP_REC_METHOD, 5);
    for (int i = 0; i < 4; i++) {
        live_event(5, 0);
        assert_int_equal(finish_and_count("agent_"), 0);
    }
    live_event(5, 1);
    assert_int_equal(finish_and_count("agent_"), 0);
    assert_int_equal(finish_and_count("agent_"), 0);
    assert_int_equal(finish_and_count("agent_"), 0);
    live_event(5, 1);
    assert_int_equal(finish_and_count("agent_unknown_ids"), 1);
}

/* The rest of a clock has no stack of its own. */
static void the_last_stack_of_a_thread_keeps_its_names(void **state)
{
    struct clp_rec_sample s = {.value = 1, .thread_id = 1, .kind = CLP_SAMPLE_CPU};
    struct clp_reader_record rest = {.type = CLP_REC_SAMPLE, .sample = {.rec = &s}};
    (void)state;
    define(5);
    sample_body(5);
    gone(CLP_REC_METHOD, 5);
    for (int i = 0; i < 4; i++)
        assert_int_equal(finish_and_count("agent_"), 0);
    clp_build_record(build, &rest);
    assert_int_equal(finish_and_count("agent_"), 0);
    define(6);
    sample_body(6);
    for (int i = 0; i < 3; i++)
        assert_int_equal(finish_and_count("agent_"), 0);
    sample_body(5);
    assert_int_equal(finish_and_count("agent_unknown_ids"), 1);
}

/* A thread that is defined once more lives, whatever was told of it before. */
static void a_thread_comes_back(void **state)
{
    (void)state;
    gone(CLP_REC_THREAD, 1);
    define_thread(1);
    define(5);
    assert_int_equal(finish_and_count("agent_"), 0);
    sample_body(5);
    assert_int_equal(finish_and_count("agent_"), 0);
    gone(CLP_REC_THREAD, 1);
    gone(CLP_REC_IMAGE, 77); /* of which nobody knows */
    assert_int_equal(finish_and_count("agent_"), 0);
    sample_body(5);
    assert_int_equal(finish_and_count("agent_unknown_ids"), 1);
}

/* Many targets: each has a part of the room. */
static void a_share_is_smaller(void **state)
{
    (void)state;
    uint32_t bodies = 0;
    uint64_t whole = 0, part = 0;
    window(100, &bodies, 1000, &whole); /* a share counts from the next window on */
    clp_build_set_share(build, 16);
    window(0, &bodies, 0, &whole);
    window(20000, &bodies, 0, &part);
    assert_int_equal(whole, 0);
    assert_true(part >= 20000 - 65536 / 16 - 100);
}

static int begin(uint32_t types)
{
    struct clp_build_config c = {
        .root_fd = -1, .pid = getpid(), .ns_pid = getpid(), .types = types};
    assert_int_equal(clp_symbols_new(NULL, &symbols), 0);
    c.symbols = symbols;
    assert_int_equal(clp_build_new(&c, &build), 0);
    struct clp_rec_thread t = {.thread_id = 1, .tid = 1, .kind = CLP_THREAD_MANAGED};
    struct clp_reader_record r = {.type = CLP_REC_THREAD, .thread = {.rec = &t, .name = "worker"}};
    clp_build_record(build, &r);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return begin(0);
}

static int set_up_live(void **state)
{
    (void)state;
    return begin(1u << CLP_TYPE_LIVEHEAP);
}

static int tear_down(void **state)
{
    (void)state;
    build = clp_build_free(build);
    symbols = clp_symbols_free(symbols);
    (void)malloc_trim(0);
    return 0;
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_in_use_keeps_its_name),
        T(a_share_is_smaller),
        T(what_has_gone_makes_room),
        T(a_thread_comes_back),
        T(the_last_stack_of_a_thread_keeps_its_names),
        T(endless_stacks_and_code),
        cmocka_unit_test_setup_teardown(what_may_be_told_later_keeps_its_name, set_up_live,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
