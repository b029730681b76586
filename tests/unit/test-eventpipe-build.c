#include "tests/unit/clp-cmocka.h"

#include "agent/eventpipe_build.h"
#include "pprof/encode.h"
#include "tests/unit/nettrace-writer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNTIME "Microsoft-Windows-DotNETRuntime"
#define SAMPLER "Microsoft-DotNETCore-SampleProfiler"
#define MS 1000000ull

/* Metadata ids of the streams here. */
enum { SAMPLE = 1, LOAD, EXCEPTION, ALLOCATION, WAIT, WAIT_END, SUSPEND, START, RESTART };

struct fixture {
    struct clp_epb *build;
    struct clp_nettrace *reader;
    struct ntw w, payload;
    uint32_t sequence;
    size_t fed; /* bytes of the stream */
};

static void take(void *context, const struct clp_nettrace_event *e)
{
    struct fixture *f = context;
    clp_epb_event(f->build, e);
}

static bool nameless(void *context, uint64_t address, char *name, size_t cap)
{
    (void)context, (void)address, (void)name, (void)cap;
    return false;
}

static void begin_with(struct fixture *f, const struct clp_epb_config *build)
{
    static const uint32_t ids[] = {143, 80, 303, 81, 91, 9, 1, 3};
    struct clp_nettrace_config config = {.event = take, .context = f};
    *f = (struct fixture){0};
    assert_int_equal(clp_epb_new(build, &f->build), 0);
    assert_int_equal(clp_nettrace_new(&config, &f->reader), 0);
    ntw_begin(&f->w, 4, 8);
    f->payload = (struct ntw){.version = 4, .bytes = malloc(NTW_MAX_BYTES)};
    ntw_metadata(&f->w, SAMPLE, SAMPLER, 0, "", NULL, 0);
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(ids); i++)
        ntw_metadata(&f->w, LOAD + i, RUNTIME, ids[i], "", NULL, 0);
}

static void begin(struct fixture *f, bool cpu)
{
    begin_with(f, &(struct clp_epb_config){.cpu = cpu});
}

static void end(struct fixture *f)
{
    clp_epb_free(f->build);
    clp_nettrace_free(f->reader);
    ntw_done(&f->w);
    ntw_done(&f->payload);
}

static void event(struct fixture *f, uint32_t kind, uint64_t tid, uint64_t ticks, uint32_t stack)
{
    struct ntw_event e = {.metadata = kind,
                          .sequence = ++f->sequence,
                          .thread = tid,
                          .capture = 1,
                          .ticks = ticks,
                          .stack = stack,
                          .sorted = true,
                          .payload = f->payload.bytes,
                          .payload_len = (uint32_t)f->payload.len};
    ntw_event(&f->w, &e);
    f->payload.len = 0;
}

static void load(struct fixture *f, uint64_t start, uint64_t ticks, const char *type,
                 const char *name)
{
    struct ntw *p = &f->payload;
    ntw_u64(p, 1);
    ntw_u64(p, 1);
    ntw_u64(p, start);
    ntw_u32(p, 0x100);
    ntw_u32(p, 0);
    ntw_u32(p, 0);
    ntw_text16(p, type);
    ntw_text16(p, name);
    ntw_text16(p, "void  ()");
    event(f, LOAD, 9, ticks, 0);
}

static void feed(struct fixture *f)
{
    assert_int_equal(clp_nettrace_feed(f->reader, f->w.bytes + f->fed, f->w.len - f->fed), 0);
    clp_nettrace_finish(f->reader);
    f->fed = f->w.len;
}

static struct clp_profile *finish_at(struct fixture *f, uint64_t end_ticks)
{
    struct clp_profile *p;
    struct clp_epb_window w = {
        .start_unix_ns = 1, .duration_ns = 1000 * MS, .end_ticks = end_ticks};
    feed(f);
    assert_int_equal(clp_epb_finish(f->build, &w, &p), 0);
    return p;
}

static struct clp_profile *finish(struct fixture *f)
{
    return finish_at(f, 1000 * MS);
}

static double total(const struct clp_profile *p, const char *type)
{
    int at = clp_profile_value_index(p, type);
    assert_true(at >= 0);
    return clp_profile_total(p, (size_t)at);
}

static bool mentions(const struct clp_profile *p, const char *text)
{
    struct clp_encode_options o = {.plain = true};
    struct clp_encoded e;
    assert_int_equal(clp_profile_encode(p, &o, &e), 0);
    bool found = memmem(e.data, e.len, text, strlen(text)) != NULL;
    clp_encoded_done(&e);
    return found;
}

/* ---- wall and CPU --------------------------------------------------------------------------- */

/* Uneven gaps: the sum is the time, not a count of samples. */
static void samples_are_worth_their_gaps(void **state)
{
    const uint64_t frames[] = {0x1010};
    const uint64_t at_ms[] = {10, 12, 20, 21, 50};
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "Ns.T", "Run");
    ntw_stacks(&f.w, 1, frames, 1, 1);
    for (size_t i = 0; i < CLP_ARRAY_LEN(at_ms); i++)
        event(&f, SAMPLE, 7, at_ms[i] * MS, 1);
    struct clp_profile *p = finish(&f);
    assert_float_equal(total(p, "wall"), 40.0 * MS + 10.0 * MS, 1); /* and the mean for the first */
    assert_true(mentions(p, "Ns.T.Run"));
    assert_false(mentions(p, "[unknown]"));
    clp_profile_free(p);
    end(&f);
}

/* Some runtimes (9.0, early 10.0) say "external" of every sample: the thread's clock decides. */
static void the_mode_of_a_sample_does_not_matter(void **state)
{
    enum { EXTERNAL = 1, MANAGED };
    const uint64_t frames[] = {0x1010};
    (void)state;
    for (uint32_t mode = EXTERNAL; mode <= MANAGED; mode++) {
        struct fixture f;
        begin(&f, true);
        load(&f, 0x1000, 1, "Ns.T", "Run");
        ntw_stacks(&f.w, 1, frames, 1, 1);
        for (uint64_t t = 100; t < 200; t += 10)
            for (uint64_t tid = 7; tid <= 8; tid++) {
                ntw_u32(&f.payload, mode);
                event(&f, SAMPLE, tid, t * MS, 1);
            }
        clp_epb_burst(f.build, 100 * MS, 200 * MS, 100 * MS);
        clp_epb_clock(f.build, 7, 100 * MS, 200 * MS, 80 * MS);
        clp_epb_clock(f.build, 8, 100 * MS, 200 * MS, 0);
        struct clp_profile *p = finish(&f);
        assert_float_equal(total(p, "cpu"), 80.0 * MS, 10);
        assert_true(fabs(total(p, "wall") - 200.0 * MS) < 20.0 * MS);
        assert_false(mentions(p, "[native thread]"));
        clp_profile_free(p);
        end(&f);
    }
}

static void a_burst_stands_for_its_period(void **state)
{
    const uint64_t frames[] = {0x1010};
    struct fixture f;
    (void)state;
    begin(&f, true);
    load(&f, 0x1000, 1, "Ns.T", "Run");
    ntw_stacks(&f.w, 1, frames, 1, 1);
    for (uint64_t t = 110; t < 200; t += 2)
        event(&f, SAMPLE, 7, t * MS, 1); /* there all the time */
    for (uint64_t t = 110; t < 154; t += 2)
        event(&f, SAMPLE, 8, t * MS, 1); /* for half of it */
    clp_epb_burst(f.build, 100 * MS, 200 * MS, 1000 * MS);
    clp_epb_clock(f.build, 7, 100 * MS, 150 * MS, 5 * MS);
    clp_epb_clock(f.build, 7, 150 * MS, 200 * MS, 0);
    clp_epb_clock(f.build, 7, 200 * MS, 1000 * MS, 95 * MS); /* outside: in the same proportion */
    clp_epb_clock(f.build, 9, 100 * MS, 1000 * MS, 33 * MS); /* never sampled */
    clp_epb_short_lived(f.build, 4 * MS);
    struct clp_profile *p = finish(&f);
    assert_true(fabs(total(p, "wall") - 1489.0 * MS) < 20.0 * MS);
    assert_float_equal(total(p, "cpu"), (100.0 + 33 + 4) * MS, 10);
    assert_true(mentions(p, "[short-lived threads]"));
    assert_true(mentions(p, "[native thread]"));
    clp_profile_free(p);
    end(&f);
}

/* ---- names ---------------------------------------------------------------------------------- */

static void names_may_come_after_the_samples(void **state)
{
    const uint64_t frames[] = {0x1010, 0x2011, 0x3000};
    struct fixture f;
    (void)state;
    begin(&f, false);
    ntw_stacks(&f.w, 1, frames, 1, 3);
    event(&f, SAMPLE, 7, 10 * MS, 1);
    assert_int_equal(clp_nettrace_feed(f.reader, f.w.bytes, f.w.len), 0);
    size_t fed = f.w.len;
    clp_epb_settle(f.build, 500 * MS, 500 * MS);
    assert_int_equal(clp_epb_nameless(f.build), 1);
    load(&f, 0x1000, 1, "A", "Leaf");
    load(&f, 0x2000, 2, "A", "Caller");
    f.fed = fed;
    struct clp_profile *p = finish(&f);
    assert_true(mentions(p, "A.Leaf"));
    assert_true(mentions(p, "A.Caller"));
    assert_true(mentions(p, "[unknown]")); /* 0x3000 is nobody's */
    assert_int_equal(clp_profile_sample_count(p), 1);
    clp_profile_free(p);
    end(&f);
}

/* The same addresses at several moments: a name is not kept for a stack beyond its body's life. */
static void a_stack_changes_its_name_with_its_code(void **state)
{
    const uint64_t frames[] = {0x1010};
    struct fixture f;
    (void)state;
    begin(&f, false);
    ntw_stacks(&f.w, 1, frames, 1, 1);
    load(&f, 0x1000, 5 * MS, "A", "First");
    event(&f, SAMPLE, 7, 10 * MS, 1);
    load(&f, 0x1000, 15 * MS, "A", "Second");
    event(&f, SAMPLE, 7, 20 * MS, 1);
    event(&f, SAMPLE, 7, 30 * MS, 1);
    struct clp_profile *p = finish(&f);
    assert_true(mentions(p, "A.First"));
    assert_true(mentions(p, "A.Second"));
    assert_int_equal(clp_profile_sample_count(p), 2);
    clp_profile_free(p);
    end(&f);
}

static void deep_stacks_say_that_they_are_cut(void **state)
{
    uint64_t frames[100];
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "A", "Recurse");
    for (size_t i = 0; i < CLP_ARRAY_LEN(frames); i++)
        frames[i] = 0x1010;
    ntw_stacks(&f.w, 1, frames, 1, 100);
    event(&f, SAMPLE, 7, 10 * MS, 1);
    struct clp_profile *p = finish(&f);
    assert_true(mentions(p, "[truncated]"));
    assert_true(mentions(p, "stacks_truncated=1"));
    clp_profile_free(p);
    end(&f);
}

/* ---- events --------------------------------------------------------------------------------- */

static void exceptions_lose_the_frames_that_throw(void **state)
{
    const uint64_t frames[] = {0x1010, 0x2010};
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "System.Runtime.EH", "DispatchEx");
    load(&f, 0x2000, 2, "A", "Thrower");
    ntw_stacks(&f.w, 1, frames, 1, 2);
    for (unsigned i = 0; i < 3; i++) {
        ntw_text16(&f.payload, "System.InvalidOperationException");
        event(&f, EXCEPTION, 7, (10 + i) * MS, 1);
    }
    struct clp_profile *p = finish(&f);
    assert_float_equal(total(p, "exceptions"), 3, 0);
    assert_true(mentions(p, "A.Thrower"));
    assert_true(mentions(p, "System.InvalidOperationException"));
    assert_false(mentions(p, "DispatchEx"));
    clp_profile_free(p);
    end(&f);
}

static void an_allocation_stands_for_others(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, false);
    ntw_u32(&f.payload, 0);
    ntw_u16(&f.payload, 0);
    ntw_u64(&f.payload, 1);
    ntw_text16(&f.payload, "System.Byte[]");
    ntw_u64(&f.payload, 0x1234);
    ntw_u64(&f.payload, 1000);
    ntw_u64(&f.payload, 0);
    event(&f, ALLOCATION, 7, 10 * MS, 0);
    struct clp_profile *p = finish(&f);
    assert_true(fabs(total(p, "alloc_objects") - 1 / (1 - exp(-1000 / 102400.0))) < 1e-6);
    assert_true(fabs(total(p, "alloc_space") - 1000 / (1 - exp(-1000 / 102400.0))) < 1e-3);
    clp_profile_free(p);
    end(&f);
}

static void waits_that_end_and_one_that_does_not(void **state)
{
    const uint64_t frames[] = {0x1010};
    double ns = 5.0 * MS;
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "A", "Lock");
    ntw_stacks(&f.w, 1, frames, 1, 1);
    event(&f, WAIT, 7, 10 * MS, 1);
    ntw_put(&f.payload, "\0\0\0", 3);
    ntw_put(&f.payload, &ns, 8);
    event(&f, WAIT_END, 7, 15 * MS, 0);
    event(&f, WAIT, 8, 900 * MS, 1);
    struct clp_profile *p = finish(&f);
    assert_float_equal(total(p, "lock_contentions"), 2, 0);
    assert_float_equal(total(p, "lock_delay"), 105.0 * MS, 1);
    clp_profile_free(p);
    end(&f);
}

/* The sampler's own suspensions have another reason and are no pauses of a collection. */
static void only_collections_are_pauses(void **state)
{
    struct fixture f;
    (void)state;
    begin(&f, false);
    ntw_u32(&f.payload, 0);
    event(&f, SUSPEND, 1, 10 * MS, 0);
    event(&f, RESTART, 1, 11 * MS, 0);
    ntw_u32(&f.payload, 1);
    event(&f, SUSPEND, 1, 20 * MS, 0);
    ntw_u32(&f.payload, 1);
    ntw_u32(&f.payload, 2);
    event(&f, START, 1, 21 * MS, 0);
    event(&f, RESTART, 1, 27 * MS, 0);
    struct clp_profile *p = finish(&f);
    assert_float_equal(total(p, "gc_collections"), 1, 0);
    assert_float_equal(total(p, "gc_pause"), 7.0 * MS, 0);
    assert_true(mentions(p, "gc_generation"));
    clp_profile_free(p);
    end(&f);
}

/* No sample in a window is not the same as a runtime that takes none. */
static void a_runtime_without_samples_is_told(void **state)
{
    static const bool each[] = {false, true};
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(each); i++) {
        struct fixture f;
        begin_with(&f, &(struct clp_epb_config){
                           .cpu = true, .unsampled = each[i], .native_name = nameless});
        struct clp_profile *p = finish(&f);
        assert_int_equal(mentions(p, "takes no samples"), each[i]);
        clp_profile_free(p);
        end(&f);
    }
}

/* ---- windows -------------------------------------------------------------------------------- */

static void contention_ends(struct fixture *f, uint64_t ticks, double ns)
{
    uint64_t bits;
    memcpy(&bits, &ns, sizeof(bits));
    ntw_put(&f->payload, "", 1);
    ntw_u16(&f->payload, 0);
    ntw_u64(&f->payload, bits);
    event(f, WAIT_END, 7, ticks, 0);
}

/* What is younger than a window is the next one's, with its stack; a wait across the border is
 * counted once, and each window has its part of the time. */
static void windows_abut(void **state)
{
    const uint64_t frames[] = {0x1010, 0x2010};
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "Ns.T", "First");
    load(&f, 0x2000, 1, "Ns.T", "Second");
    ntw_stacks(&f.w, 1, frames, 1, 1);
    ntw_stacks(&f.w, 2, frames + 1, 1, 1);
    ntw_text16(&f.payload, "E.Early");
    event(&f, EXCEPTION, 7, 50 * MS, 1);
    event(&f, WAIT, 7, 80 * MS, 2);
    ntw_text16(&f.payload, "E.Late");
    event(&f, EXCEPTION, 8, 120 * MS, 2);
    struct clp_profile *p = finish_at(&f, 100 * MS);
    assert_float_equal(total(p, "exceptions"), 1, 0);
    assert_float_equal(total(p, "lock_contentions"), 1, 0);
    assert_float_equal(total(p, "lock_delay"), 20.0 * MS, 0);
    assert_true(mentions(p, "E.Early"));
    assert_false(mentions(p, "E.Late"));
    clp_profile_free(p);
    contention_ends(&f, 130 * MS, 50.0 * MS);
    p = finish_at(&f, 200 * MS);
    assert_float_equal(total(p, "exceptions"), 1, 0);
    assert_float_equal(total(p, "lock_contentions"), 0, 0);
    assert_float_equal(total(p, "lock_delay"), 30.0 * MS, 0);
    assert_true(mentions(p, "E.Late"));
    assert_true(mentions(p, "Ns.T.Second"));
    assert_false(mentions(p, "Ns.T.First"));
    clp_profile_free(p);
    end(&f);
}

/* Loads lag behind: a sample whose time they have not told wholly does not get a name that
 * something later takes away. */
static void names_wait_for_their_time(void **state)
{
    const uint64_t frames[] = {0x1010};
    struct fixture f;
    (void)state;
    begin(&f, false);
    load(&f, 0x1000, 1, "Ns.T", "Old");
    ntw_stacks(&f.w, 1, frames, 1, 1);
    ntw_text16(&f.payload, "E.X");
    event(&f, EXCEPTION, 7, 50 * MS, 1);
    feed(&f);
    clp_epb_settle(f.build, 100 * MS, 40 * MS);
    load(&f, 0x1000, 45 * MS, "Ns.T", "New");
    struct clp_profile *p = finish(&f);
    assert_true(mentions(p, "Ns.T.New"));
    assert_false(mentions(p, "Ns.T.Old"));
    clp_profile_free(p);
    end(&f);
}

static void only_what_is_wanted(void **state)
{
    struct clp_epb_config build = {.wants = CLP_EPB_EXCEPTIONS};
    struct clp_nettrace_config config;
    struct fixture f;
    (void)state;
    begin(&f, false);
    clp_epb_free(f.build);
    assert_int_equal(clp_epb_new(&build, &f.build), 0);
    config = (struct clp_nettrace_config){.event = take, .context = &f};
    clp_nettrace_free(f.reader);
    assert_int_equal(clp_nettrace_new(&config, &f.reader), 0);
    clp_epb_begin(f.build, 20 * MS);
    ntw_text16(&f.payload, "E.Before");
    event(&f, EXCEPTION, 7, 19 * MS, 0);
    ntw_text16(&f.payload, "E.X");
    event(&f, EXCEPTION, 7, 20 * MS, 0);
    event(&f, SAMPLE, 7, 30 * MS, 0);
    struct clp_profile *p = finish(&f);
    assert_float_equal(total(p, "exceptions"), 1, 0);
    assert_int_equal(clp_profile_value_index(p, "wall"), -ENOENT);
    assert_int_equal(clp_profile_sample_count(p), 1);
    clp_profile_free(p);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_worth_their_gaps),
        cmocka_unit_test(the_mode_of_a_sample_does_not_matter),
        cmocka_unit_test(a_burst_stands_for_its_period),
        cmocka_unit_test(names_may_come_after_the_samples),
        cmocka_unit_test(a_stack_changes_its_name_with_its_code),
        cmocka_unit_test(deep_stacks_say_that_they_are_cut),
        cmocka_unit_test(exceptions_lose_the_frames_that_throw),
        cmocka_unit_test(an_allocation_stands_for_others),
        cmocka_unit_test(waits_that_end_and_one_that_does_not),
        cmocka_unit_test(only_collections_are_pauses),
        cmocka_unit_test(a_runtime_without_samples_is_told),
        cmocka_unit_test(windows_abut),
        cmocka_unit_test(names_wait_for_their_time),
        cmocka_unit_test(only_what_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
