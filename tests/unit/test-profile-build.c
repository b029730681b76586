/* Records in, profile out: the records are made as the reader hands them over. */
#include "tests/unit/clp-cmocka.h"

#include "agent/profile_build.h"
#include "agent/types.h"
#include "pprof/model.h"
#include "tests/unit/alloc-fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct clp_symbols *symbols;
static struct clp_build *build;

static int set_up(void **state)
{
    (void)state;
    struct clp_build_config c = {.root_fd = -1,
                                 .pid = getpid(),
                                 .ns_pid = getpid(),
                                 .main_binary = "/app/main",
                                 .cpu_interval_ns = 10000000};
    assert_int_equal(clp_symbols_new(NULL, &symbols), 0);
    c.symbols = symbols;
    return clp_build_new(&c, &build);
}

static int tear_down(void **state)
{
    (void)state;
    build = clp_build_free(build);
    symbols = clp_symbols_free(symbols);
    return 0;
}

static void image(uint32_t id, uint16_t kind, const char *path)
{
    struct clp_rec_image rec = {.image_id = id,
                                .kind = kind,
                                .build_id_len = 2,
                                .start = 0x1000,
                                .end = 0x9000,
                                .bias = 0x1000};
    struct clp_reader_record r = {
        .type = CLP_REC_IMAGE,
        .image = {.rec = &rec, .build_id = (const uint8_t *)"\xab\x01", .path = path}};
    clp_build_record(build, &r);
}

static void method(uint32_t id, const char *type, const char *name)
{
    struct clp_rec_method rec = {.method_id = id, .image_id = 1};
    struct clp_reader_record r = {.type = CLP_REC_METHOD,
                                  .method = {.rec = &rec,
                                             .type = type,
                                             .name = name,
                                             .type_args = "",
                                             .method_args = "",
                                             .signature = ""}};
    clp_build_record(build, &r);
}

static void body(uint32_t id, uint32_t method_id)
{
    struct clp_rec_body rec = {.body_id = id, .method_id = method_id, .start = 0x7000 * id};
    struct clp_reader_record r = {.type = CLP_REC_BODY, .body = {.rec = &rec}};
    clp_build_record(build, &r);
}

static void thread(uint32_t id, int32_t tid, uint32_t kind, const char *name)
{
    struct clp_rec_thread rec = {.thread_id = id, .tid = tid, .kind = kind};
    struct clp_reader_record r = {.type = CLP_REC_THREAD, .thread = {.rec = &rec, .name = name}};
    clp_build_record(build, &r);
}

static void sample(uint32_t thread_id, int64_t value, uint16_t flags, uint16_t count,
                   const uint64_t *frames)
{
    struct clp_rec_sample rec = {.rec = {.count = count},
                                 .value = value,
                                 .thread_id = thread_id,
                                 .kind = CLP_SAMPLE_CPU,
                                 .flags = flags};
    struct clp_reader_record r = {.type = CLP_REC_SAMPLE,
                                  .sample = {.rec = &rec, .frames = frames}};
    clp_build_record(build, &r);
}

static void event(uint16_t kind, double value, double value2, uint64_t number, const char *first,
                  const char *second)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, 1, 4);
    struct clp_rec_event rec = {.rec = {.count = 1},
                                .value = value,
                                .value2 = value2,
                                .number = number,
                                .thread_id = 1,
                                .kind = kind};
    struct clp_reader_record r = {
        .type = CLP_REC_EVENT, .event = {.rec = &rec, .frames = &frame, .texts = {first, second}}};
    clp_build_record(build, &r);
}

static void wait_for(uint32_t thread_id, int64_t value, uint16_t flags, int call, uint16_t count,
                     const uint64_t *frames)
{
    struct clp_rec_sample rec = {.rec = {.count = count},
                                 .value = value,
                                 .value2 = call + 1,
                                 .thread_id = thread_id,
                                 .kind = CLP_SAMPLE_WALL,
                                 .flags = flags};
    struct clp_reader_record r = {.type = CLP_REC_SAMPLE,
                                  .sample = {.rec = &rec, .frames = frames}};
    clp_build_record(build, &r);
}

#define M(body_id, offset) clp_frame_make(CLP_FRAME_MANAGED, (body_id), (offset))
#define FRAMES(...)                                                                                \
    CLP_ARRAY_LEN(((const uint64_t[]){__VA_ARGS__})), (const uint64_t[])                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static struct clp_profile *finish(void)
{
    struct clp_build_window w = {.start_unix_ns = 1000, .duration_ns = 60};
    struct clp_profile *p = NULL;
    w.counters[CLP_CTR_PROCESS_CPU_NS] = 500;
    w.counters[CLP_CTR_DROP_RING_FULL] = 3;
    w.counters[CLP_CTR_THREADS] = 12;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    return p;
}

static void add_labels(char *buf, const struct clp_profile *p, uint32_t labels)
{
    uint32_t n;
    const struct clp_model_label *l = clp_model_labels(p, labels, &n);
    for (uint32_t i = 0; i < n; i++) {
        char *end = buf + strlen(buf);
        if (l[i].str)
            sprintf(end, " %s=%s", clp_model_text(p, l[i].key), clp_model_text(p, l[i].str));
        else
            sprintf(end, " %s=%lld", clp_model_text(p, l[i].key), (long long)l[i].num);
    }
}

/* "30 Leaf;Root thread_id=7 thread_name=x", in the order of the profile. */
static const char *describe(const struct clp_profile *p, uint32_t index)
{
    static char buf[2048];
    uint32_t n, lines, at = index + 1; /* entry 0 is [other] */
    const struct clp_model_sample *s = clp_model_sample(p, at);
    const uint32_t *locations = clp_model_stack(p, s->stack, &n);
    sprintf(buf, "%.0f ", p->values[at]);
    for (uint32_t i = 0; i < n; i++) {
        const struct clp_model_location *l = clp_model_location(p, locations[i]);
        const struct clp_profile_line *line = clp_model_lines(p, l, &lines);
        const struct clp_model_function *f = clp_model_function(p, line->function);
        sprintf(buf + strlen(buf), "%s%s", i ? ";" : "", clp_model_text(p, f->name));
    }
    add_labels(buf, p, s->labels);
    return buf;
}

static void define_app(void)
{
    image(1, CLP_IMAGE_MANAGED, "/app/App.dll");
    method(1, "App.Program", "Main");
    method(2, "App.Work", "Spin");
    body(1, 1);
    body(2, 2);
    body(3, 2); /* the next tier of Spin */
    thread(1, 70, CLP_THREAD_MANAGED, "worker");
}

static void tiers_and_addresses_of_a_method_are_one_sample(void **state)
{
    (void)state;
    define_app();
    sample(1, 10, 0, FRAMES(M(2, 4), M(1, 9)));
    sample(1, 20, 0, FRAMES(M(3, 8), M(1, 30)));
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 1);
    assert_string_equal(describe(p, 0),
                        "30 App.Work.Spin;App.Program.Main thread_id=70 thread_name=worker");
    clp_profile_free(p);
}

static void threads_and_gc_waits_are_apart(void **state)
{
    (void)state;
    define_app();
    thread(2, 71, CLP_THREAD_RUNTIME, "");
    sample(1, 10, 0, FRAMES(M(2, 4)));
    sample(2, 5, 0, FRAMES(M(2, 4)));
    sample(1, 7, CLP_SAMPLE_GC_WAIT, FRAMES(M(2, 4)));
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 3);
    assert_string_equal(describe(p, 1), "5 App.Work.Spin thread_id=71");
    assert_string_equal(describe(p, 2), "7 App.Work.Spin thread_id=70 thread_name=worker wait=gc");
    clp_profile_free(p);
}

static void values_at(const struct clp_profile *p, uint32_t index, double first, double second)
{
    const double *v = &p->values[(index + 1) * clp_profile_value_count(p)];
    assert_true(v[0] == first && v[1] == second);
}

static void build_anew(uint32_t types)
{
    struct clp_build_config c = {
        .symbols = symbols, .root_fd = -1, .pid = getpid(), .ns_pid = getpid(), .types = types};
    build = clp_build_free(build);
    assert_int_equal(clp_build_new(&c, &build), 0);
    define_app();
}

static bool tells(const struct clp_profile *p, const char *comment)
{
    bool found = false;
    for (uint32_t i = 0; i < p->comment_count; i++)
        found |= strncmp(p->comments[i], comment, strlen(comment)) == 0;
    return found;
}

/* Of what other readers of the library record nothing is told. */
static void totals_are_of_what_is_recorded(void **state)
{
    (void)state;
    struct clp_build_window w = {.start_unix_ns = 1000, .duration_ns = 60};
    struct clp_profile *p = NULL;
    w.counters[CLP_CTR_PROCESS_CPU_NS] = 500;
    w.counters[CLP_CTR_SAMPLED_CPU_NS] = w.counters[CLP_CTR_SAMPLES] = 400;
    w.counters[CLP_CTR_EXCEPTIONS] = 5;
    w.counters[CLP_CTR_DROP_EVENTS] = 2;
    build_anew(1u << CLP_TYPE_LIVEHEAP);
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_true(tells(p, "process_cpu=500 "));
    assert_true(tells(p, "drop_events=2 "));
    assert_true(tells(p, "gc_pauses=0 ")); /* they come with the live heap */
    assert_false(tells(p, "exceptions="));
    assert_false(tells(p, "waits="));
    assert_false(tells(p, "sampled_cpu="));
    assert_false(tells(p, "samples="));
    clp_profile_free(p);
    /* Other types show from the next window on, and so do their totals. */
    clp_build_set_types(build, 1u << CLP_TYPE_EXCEPTIONS, 0);
    w.counters[CLP_CTR_EXCEPTIONS] = 9;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_true(tells(p, "gc_pauses=0 ") && !tells(p, "exceptions="));
    clp_profile_free(p);
    w.counters[CLP_CTR_EXCEPTIONS] = 11;
    assert_int_equal(clp_build_finish(build, &w, &p), 0);
    assert_true(tells(p, "exceptions=2 ") && !tells(p, "gc_pauses="));
    clp_profile_free(p);
}

static void events_have_values_and_labels_of_their_kind(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_ALLOCATIONS);
    event(CLP_SAMPLE_ALLOC, 1.5, 96, 0, "System.Collections.Generic.List`1[System.String]", "");
    event(CLP_SAMPLE_ALLOC, 2.5, 160, 0, "System.Collections.Generic.List`1[System.String]", "");
    event(CLP_SAMPLE_ALLOC, 1, 90000, 0, "System.Int32[,]", "large");
    event(CLP_SAMPLE_EXCEPTION, 7, 0, 0, "E", "m"); /* nobody asked for these */
    sample(1, 10, 0, FRAMES(M(2, 4)));
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 2);
    values_at(p, 0, 4, 256);
    assert_non_null(strstr(describe(p, 0), " allocation_class=List<string>"));
    assert_null(strstr(describe(p, 0), "heap="));
    assert_non_null(strstr(describe(p, 1), " allocation_class=System.Int32[,]"));
    assert_non_null(strstr(describe(p, 1), " heap=large"));
    clp_profile_free(p);
}

/* The owner's frames are a label, and no part of the stack. */
static void another_threads_frames_are_a_label(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_LOCKS);
    const uint64_t frames[] = {M(2, 4), M(1, 4), M(2, 8)};
    struct clp_rec_event rec = {.rec = {.count = 3},
                                .value = 1,
                                .value2 = 5,
                                .thread_id = 1,
                                .other_count = 2,
                                .kind = CLP_SAMPLE_LOCK};
    struct clp_reader_record r = {.type = CLP_REC_EVENT,
                                  .event = {.rec = &rec, .frames = frames, .texts = {"", ""}}};
    clp_build_record(build, &r);
    event(CLP_SAMPLE_LOCK, 1, 5, 0, "", "");
    struct clp_profile *p = finish();
    const char *label = strstr(describe(p, 0), " lock_owner_stack=");
    assert_non_null(label);
    assert_non_null(strstr(label, "; "));
    assert_null(strstr(describe(p, 1), "lock_owner_stack"));
    clp_profile_free(p);
}

static void generations_of_live_objects_are_words(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_LIVEHEAP);
    event(CLP_SAMPLE_LIVE, 10, 1000, 2, "System.String", "1 to 10 min");
    event(CLP_SAMPLE_LIVE, 1, 90000, 3, "System.Byte[]", "under 10 s");
    struct clp_profile *p = finish();
    values_at(p, 0, 10, 1000);
    assert_non_null(strstr(describe(p, 0), " generation=2"));
    assert_non_null(strstr(describe(p, 0), " age=1 to 10 min"));
    assert_non_null(strstr(describe(p, 1), " generation=large"));
    clp_profile_free(p);
}

static void numbers_of_events_are_labels(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_LOCKS | 1u << CLP_TYPE_GC);
    event(CLP_SAMPLE_LOCK, 1, 500, 4711, "owner", "");
    event(CLP_SAMPLE_LOCK, 1, 600, 0, "", "");
    event(CLP_SAMPLE_GC, 1, 900, 0, "induced", "blocking");
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_value_count(p), 4);
    assert_non_null(strstr(describe(p, 0), " lock_owner_id=4711"));
    assert_non_null(strstr(describe(p, 0), " lock_owner=owner"));
    assert_null(strstr(describe(p, 1), "lock_owner"));
    assert_non_null(strstr(describe(p, 2), " gc_generation=0"));
    assert_non_null(strstr(describe(p, 2), " gc_reason=induced"));
    values_at(p, 2, 1, 900); /* types in the order of a profile: the last of the table first */
    clp_profile_free(p);
}

static bool has_comment(const struct clp_profile *p, const char *text)
{
    for (uint32_t i = 0; i < p->comment_count; i++)
        if (strcmp(p->comments[i], text) == 0)
            return true;
    return false;
}

/* Window by window, as exact as the values; a type without a name is among the others. */
static void exceptions_are_counted_by_type(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_EXCEPTIONS);
    event(CLP_SAMPLE_EXCEPTION, 3, 0, 0, "System.A", "one");
    event(CLP_SAMPLE_EXCEPTION, 4, 0, 0, "System.A", "another");
    event(CLP_SAMPLE_EXCEPTION, 2, 0, 0, "System.Collections.Generic.List`1[System.Int32]", "");
    event(CLP_SAMPLE_EXCEPTION, 5, 0, 0, "", "");
    struct clp_profile *p = finish();
    assert_true(has_comment(p, "exceptions[System.A]=7 count"));
    assert_true(has_comment(p, "exceptions[System.Collections.Generic.List<int>]=2 count") ||
                has_comment(p, "exceptions[List<int>]=2 count"));
    assert_true(has_comment(p, "exceptions[others]=5 count"));
    clp_profile_free(p);
    event(CLP_SAMPLE_EXCEPTION, 1, 0, 0, "System.A", "one");
    p = finish();
    assert_true(has_comment(p, "exceptions[System.A]=1 count"));
    assert_false(has_comment(p, "exceptions[others]=5 count"));
    clp_profile_free(p);
}

static void throw_types(unsigned types)
{
    for (unsigned i = 0; i < types; i++) {
        char name[32];
        snprintf(name, sizeof(name), "System.E%u", i);
        event(CLP_SAMPLE_EXCEPTION, 1, 0, 0, name, "");
    }
}

/* Beside many other targets, in the window that has begun and in each one after it. */
static void fewer_types_of_exceptions_are_kept_in_a_share(void **state)
{
    (void)state;
    build_anew(1u << CLP_TYPE_EXCEPTIONS);
    clp_build_set_share(build, 64);
    for (unsigned window = 0; window < 2; window++) {
        throw_types(100);
        clp_profile_free(finish());
        assert_int_equal(clp_build_exceptions(build)->by_name.len, CLP_TYPE_COUNTS_MAX / 64);
    }
}

/* The rest of a clock goes to the thread's last stack, also when that was in the window before. */
static void samples_without_frames_follow_the_last_stack(void **state)
{
    (void)state;
    define_app();
    thread(2, 71, CLP_THREAD_MANAGED, "other");
    sample(1, 10, 0, FRAMES(M(2, 4), M(1, 1)));
    sample(1, 4, CLP_SAMPLE_NO_STACK,
           FRAMES(clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_SIGNALS_BLOCKED, 0)));
    sample(1, 3, 0, 0, NULL);
    sample(2, 2, 0, 0, NULL);
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0),
                        "13 App.Work.Spin;App.Program.Main thread_id=70 thread_name=worker");
    assert_string_equal(describe(p, 1), "4 [signals blocked] thread_id=70 thread_name=worker");
    assert_string_equal(describe(p, 2),
                        "2 [before the first sample] thread_id=71 thread_name=other");
    clp_profile_free(p);
    sample(1, 6, 0, 0, NULL);
    p = finish();
    assert_string_equal(describe(p, 0),
                        "6 App.Work.Spin;App.Program.Main thread_id=70 thread_name=worker");
    clp_profile_free(p);
}

static void words_for_threads_without_stacks(void **state)
{
    (void)state;
    thread(1, 90, CLP_THREAD_NATIVE, "grpc \xc3\xa9");
    thread(2, 0, CLP_THREAD_PROCESS, "");
    uint64_t native = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_NATIVE_THREAD, 0);
    sample(1, 10, CLP_SAMPLE_NO_STACK, FRAMES(native));
    sample(2, 5, CLP_SAMPLE_NO_STACK,
           FRAMES(clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_SHORT_LIVED, 0)));
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0),
                        "10 [native grpc \xc3\xa9] thread_id=90 thread_name=grpc \xc3\xa9");
    assert_string_equal(describe(p, 1), "5 [short-lived threads]");
    clp_profile_free(p);
}

/* A hostile target names what it never defined. */
static void undefined_ids_are_unknown(void **state)
{
    (void)state;
    sample(99, 1, 0,
           FRAMES(M(50, 0), clp_frame_make(CLP_FRAME_NATIVE, 60, 7),
                  clp_frame_make(CLP_FRAME_SPECIAL, 4000, 0),
                  clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0)));
    body(51, 70); /* of a method that does not exist */
    sample(99, 1, 0, FRAMES(M(51, 0)));
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0), "1 [unknown];[unknown];[unknown];[unknown]");
    assert_string_equal(describe(p, 1), "1 [unknown]");
    assert_string_equal(p->comments[p->comment_count - 1], "agent_unknown_ids=5 count");
    clp_profile_free(p);
}

static void an_image_without_a_file_still_has_a_name(void **state)
{
    (void)state;
    image(1, CLP_IMAGE_MANAGED, "/app/App.dll");
    image(2, CLP_IMAGE_ELF, "/no/where/libx.so");
    sample(1, 1, 0,
           FRAMES(clp_frame_make(CLP_FRAME_NATIVE, 2, 0x500),
                  clp_frame_make(CLP_FRAME_NATIVE, 1, 0x500)));
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0), "1 libx.so![unknown];App.dll![unknown]");
    clp_profile_free(p);
}

static void mappings_begin_with_the_program(void **state)
{
    (void)state;
    define_app();
    sample(1, 10, 0, FRAMES(M(2, 4)));
    struct clp_profile *p = finish();
    assert_int_equal(p->mappings.len, 3); /* entry 0 is none */
    assert_string_equal(clp_model_text(p, clp_model_mapping(p, 1)->filename), "/app/main");
    const struct clp_model_mapping *app = clp_model_mapping(p, 2);
    assert_string_equal(clp_model_text(p, app->filename), "/app/App.dll");
    assert_string_equal(clp_model_text(p, app->build_id), "ab01");
    assert_true(app->start == 0x1000 && app->limit == 0x9000);
    assert_true(app->flags & CLP_MODEL_HAS_FUNCTIONS);
    clp_profile_free(p);
}

static void comments_tell_totals_and_losses_of_the_window(void **state)
{
    (void)state;
    char version[64];
    struct clp_profile *p = finish();
    snprintf(version, sizeof(version), "clrpulse %s", CLP_VERSION);
    assert_string_equal(p->comments[0], version);
    assert_string_equal(p->comments[1], "process_cpu=500 nanoseconds");
    assert_string_equal(p->comments[2], "sampled_cpu=0 nanoseconds");
    bool ring_full = false;
    for (uint32_t i = 0; i < p->comment_count; i++) {
        ring_full |= strcmp(p->comments[i], "drop_ring_full=3 count") == 0;
        assert_null(strstr(p->comments[i], "drop_too_deep"));
    }
    assert_true(ring_full);
    clp_profile_free(p);
    p = finish(); /* the same counters again: nothing happened since; states stay */
    assert_string_equal(p->comments[1], "process_cpu=0 nanoseconds");
    bool threads = false;
    for (uint32_t i = 0; i < p->comment_count; i++) {
        assert_null(strstr(p->comments[i], "drop_ring_full"));
        threads |= strcmp(p->comments[i], "threads=12 count") == 0;
    }
    assert_true(threads);
    clp_profile_free(p);
}

static void a_renamed_thread_has_its_new_name(void **state)
{
    (void)state;
    define_app();
    sample(1, 10, 0, FRAMES(M(2, 4)));
    thread(1, 70, CLP_THREAD_MANAGED, "renamed");
    sample(1, 20, 0, FRAMES(M(2, 4)));
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0), "10 App.Work.Spin thread_id=70 thread_name=worker");
    assert_string_equal(describe(p, 1), "20 App.Work.Spin thread_id=70 thread_name=renamed");
    clp_profile_free(p);
}

/* Far more threads and methods than the ceilings allow: bounded, totals kept, losses told. */
static void ceilings_hold(void **state)
{
    (void)state;
    char name[32];
    define_app();
    for (uint32_t i = 2; i < 3 * CLP_BUILD_THREADS_MAX; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        thread(i, 0x3fffff00, CLP_THREAD_MANAGED, name); /* no such thread lives */
        sample(i, 1, 0, FRAMES(M(2, 4)));
    }
    static char longer[1001];
    memset(longer, 'x', 1000);
    for (uint32_t i = 10; i < CLP_BUILD_DEFINITIONS_BYTES / 500; i++)
        method(i, "App.T", longer);
    struct clp_profile *p = finish();
    assert_float_equal(clp_profile_total(p, 0), 3 * CLP_BUILD_THREADS_MAX - 2, 0);
    bool refused = false, forgotten = false;
    for (uint32_t i = 0; i < p->comment_count; i++) {
        refused |= strncmp(p->comments[i], "agent_definitions_refused=", 26) == 0;
        forgotten |= strncmp(p->comments[i], "agent_threads_forgotten=", 24) == 0;
    }
    assert_true(refused);
    assert_true(forgotten);
    clp_profile_free(p);
}

static double total_of_a_small_window(void)
{
    define_app();
    sample(1, 10, 0, FRAMES(M(2, 4), M(1, 1)));
    sample(1, 3, 0, 0, NULL);
    thread(1, 70, CLP_THREAD_MANAGED, "renamed");
    sample(1, 5, CLP_SAMPLE_GC_WAIT, FRAMES(M(2, 4)));
    struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = 1};
    struct clp_profile *p = NULL;
    if (clp_build_finish(build, &w, &p) < 0)
        return -1;
    double total = clp_profile_total(p, 0);
    clp_profile_free(p);
    return total;
}

/* Whichever allocation fails: names may be lost, the total is not, unless the window is lost whole.
 */
static void memory_may_fail_anywhere(void **state)
{
    uint64_t failed = 1, times = 0;
    for (uint64_t allowed = 0; failed; allowed++) {
        (void)tear_down(state);
        assert_int_equal(set_up(state), 0);
        alloc_fail_after(allowed, 0);
        double total = total_of_a_small_window();
        failed = alloc_fail_stop();
        times += failed;
        assert_true(total == 18 || total == -1);
    }
    assert_true(times > 20);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void span(uint32_t thread_id, uint64_t id, uint64_t root, uint32_t endpoint)
{
    struct clp_rec_span rec = {.thread_id = thread_id,
                               .endpoint = endpoint,
                               .trace_high = 0xab,
                               .trace_low = 0xcd,
                               .span_id = id,
                               .local_root_span_id = root};
    struct clp_reader_record r = {.type = CLP_REC_SPAN, .span = {.rec = &rec}};
    clp_build_record(build, &r);
}

static void endpoint(uint32_t number, const char *name)
{
    struct clp_rec_endpoint rec = {.endpoint = number};
    struct clp_reader_record r = {.type = CLP_REC_ENDPOINT,
                                  .endpoint = {.rec = &rec, .name = name}};
    clp_build_record(build, &r);
}

static void root_ends(uint64_t root, uint32_t number)
{
    struct clp_rec_root rec = {.local_root_span_id = root, .endpoint = number};
    struct clp_reader_record r = {.type = CLP_REC_ROOT, .root = {.rec = &rec}};
    clp_build_record(build, &r);
}

#define TRACE "trace_id=00000000000000ab00000000000000cd"

static void samples_tell_their_span(void **state)
{
    (void)state;
    define_app();
    span(1, 0x12, 0x34, 0);
    sample(1, 10, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    sample(1, 1, 0, 0, NULL); /* the rest of the clock goes where the stack went */
    sample(1, 20, 0, FRAMES(M(1, 1)));
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 2);
    assert_string_equal(describe(p, 0), "11 App.Program.Main local_root_span_id=0000000000000034 "
                                        "span_id=0000000000000012 thread_id=70 "
                                        "thread_name=worker " TRACE);
    assert_string_equal(describe(p, 1), "20 App.Program.Main thread_id=70 thread_name=worker");
    clp_profile_free(p);
}

static void an_endpoint_that_comes_late_is_told(void **state)
{
    (void)state;
    define_app();
    endpoint(2, "HttpRequestIn");
    span(1, 0x12, 0x34, 2);
    sample(1, 10, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    span(1, 0x15, 0x56, 2);
    sample(1, 20, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    endpoint(3, "GET /orders/{id}");
    root_ends(0x34, 3);
    span(1, 0x13, 0x34, 2); /* what was known before does not come back */
    struct clp_profile *p = finish();
    assert_string_equal(describe(p, 0), "10 App.Program.Main endpoint=GET /orders/{id} "
                                        "local_root_span_id=0000000000000034 "
                                        "span_id=0000000000000012 thread_id=70 "
                                        "thread_name=worker " TRACE);
    assert_non_null(strstr(describe(p, 1), "endpoint=HttpRequestIn"));
    clp_profile_free(p);
    sample(1, 30, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    p = finish(); /* work that outlives its request: the name that it began with */
    assert_non_null(strstr(describe(p, 0), "endpoint=HttpRequestIn"));
    clp_profile_free(p);
}

static void a_request_over_two_windows_has_one_name(void **state)
{
    (void)state;
    struct clp_build_config c = {.root_fd = -1, .symbols = symbols, .names_later = true};
    build = clp_build_free(build);
    assert_int_equal(clp_build_new(&c, &build), 0);
    define_app();
    endpoint(2, "HttpRequestIn");
    endpoint(3, "GET /orders/{id}");
    span(1, 0x12, 0x34, 2);
    sample(1, 10, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    span(1, 0x15, 0x56, 0); /* not even a first name */
    sample(1, 20, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    span(1, 0x17, 0x78, 2);
    sample(1, 40, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    struct clp_profile *first = finish();
    assert_int_equal(clp_build_open_roots(build), 3);
    sample(1, 30, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1))); /* no new SPAN tells of it */
    root_ends(0x34, 3);
    root_ends(0x34, 3);
    root_ends(0x99, 3);
    root_ends(0x56, 3);
    assert_int_equal(clp_build_open_roots(build), 1);
    clp_build_name(build, first);
    assert_int_equal(clp_build_open_roots(build), 0);
    assert_non_null(strstr(describe(first, 0), "endpoint=GET /orders/{id}"));
    assert_non_null(strstr(describe(first, 1), "endpoint=GET /orders/{id}"));
    assert_non_null(strstr(describe(first, 2), "endpoint=HttpRequestIn"));
    clp_profile_free(first);
    struct clp_profile *second = finish();
    assert_int_equal(clp_build_open_roots(build), 1);
    clp_build_name(build, second);
    assert_non_null(strstr(describe(second, 0), "endpoint=HttpRequestIn"));
    clp_profile_free(second);
}

static void endpoints_of_a_window_are_bounded(void **state)
{
    (void)state;
    char name[32];
    uint32_t others = 0;
    define_app();
    for (uint32_t i = 0; i < CLP_SPAN_ENDPOINTS_WINDOW + 20; i++) {
        snprintf(name, sizeof(name), "/users/%u", i);
        endpoint(2 + i, name);
        span(1, 1 + i, 1 + i, 2 + i);
        sample(1, 1, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
    }
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), CLP_SPAN_ENDPOINTS_WINDOW + 20);
    for (uint32_t i = 0; i < clp_profile_sample_count(p); i++)
        others += strstr(describe(p, i), "endpoint=[other]") != NULL;
    assert_int_equal(others, 20);
    clp_profile_free(p);
}

static void span_labels_can_be_fewer(void **state)
{
    (void)state;
    static const char *const expected[] = {
        [CLP_SPANS_ROOTS] = "30 App.Program.Main endpoint=e local_root_span_id=0000000000000034 "
                            "thread_id=70 thread_name=worker " TRACE,
        [CLP_SPANS_OFF] = "30 App.Program.Main thread_id=70 thread_name=worker",
    };
    for (enum clp_span_mode mode = CLP_SPANS_ROOTS; mode <= CLP_SPANS_OFF; mode++) {
        struct clp_build_config c = {
            .symbols = symbols, .root_fd = -1, .cpu_interval_ns = 1, .spans = mode};
        build = clp_build_free(build);
        assert_int_equal(clp_build_new(&c, &build), 0);
        define_app();
        endpoint(2, "e");
        for (uint64_t id = 1; id <= 2; id++) {
            span(1, id, 0x34, 2);
            sample(1, (int64_t)(10 * id), CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 1)));
        }
        struct clp_profile *p = finish();
        assert_int_equal(clp_profile_sample_count(p), 1);
        assert_string_equal(describe(p, 0), expected[mode]);
        clp_profile_free(p);
    }
}

/* ---- wall ---- */

static void renew(uint32_t types, bool leave_out_idle)
{
    struct clp_build_config c = {.root_fd = -1,
                                 .pid = getpid(),
                                 .ns_pid = getpid(),
                                 .cpu_interval_ns = 10000000,
                                 .types = types,
                                 .leave_out_idle = leave_out_idle,
                                 .symbols = symbols};
    build = clp_build_free(build);
    assert_int_equal(clp_build_new(&c, &build), 0);
    image(1, CLP_IMAGE_MANAGED, "/app/app.dll");
    method(1, "App.Work", "Run");
    body(1, 1);
    method(2, "System.Threading.Thread", "Sleep");
    body(2, 2);
    method(3, "System.Threading.LowLevelLifoSemaphore", "WaitForSignal");
    body(3, 3);
    thread(7, 70, CLP_THREAD_MANAGED, "w");
}

/* Wall and CPU of one sample, in the order of the profile's types. */
static void expect_values(const struct clp_profile *p, uint32_t index, double wall, double cpu)
{
    assert_int_equal(p->value_count, 2);
    assert_true(p->values[2 * (index + 1)] == wall);
    assert_true(p->values[2 * (index + 1) + 1] == cpu);
}

static void labels_are(const struct clp_profile *p, uint32_t index, const char *want)
{
    char buf[512] = "";
    add_labels(buf, p, clp_model_sample(p, index + 1)->labels);
    assert_string_equal(buf, want);
}

static void requests_end(uint32_t number, uint32_t ended)
{
    struct clp_rec_root rec = {.endpoint = number, .ended = ended};
    struct clp_reader_record r = {.type = CLP_REC_ROOT, .root = {.rec = &rec}};
    clp_build_record(build, &r);
}

static void requests_are_counted_by_endpoint(void **state)
{
    (void)state;
    char name[32];
    size_t n;
    for (uint32_t i = 0; i < CLP_UPLOAD_NUMBERS_MAX + 50; i++) {
        snprintf(name, sizeof(name), "/users/%u", i);
        endpoint(2 + i, name);
        requests_end(2 + i, 1 + i % 77);
    }
    requests_end(5, 1000);
    requests_end(5, 1000);
    requests_end(CLP_ENDPOINT_OTHER, 500);
    requests_end(4711, 9000); /* a name that nobody knows */
    clp_profile_free(finish());
    const struct clp_upload_number *r = clp_build_requests(build, &n);
    assert_int_equal(n, CLP_UPLOAD_NUMBERS_MAX);
    assert_string_equal(r[0].name, "/users/3");
    assert_true(r[0].value == 2004);
    assert_string_equal(r[1].name, "[other]");
    assert_true(r[1].value == 500);
    for (size_t i = 1; i < n; i++)
        assert_true(r[i].value <= r[i - 1].value);
    assert_true(r[n - 1].value == 27); /* 98 of the others have as many or more */
    clp_profile_free(finish());
    (void)clp_build_requests(build, &n);
    assert_int_equal(n, 0);
}

static void a_wait_for_a_cpu_is_its_own_request_s(void **state)
{
    (void)state;
    renew(1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL, false);
    span(7, 0x12, 0x34, 0);
    sample(7, 30, CLP_SAMPLE_IN_SPAN, FRAMES(M(1, 0)));
    wait_for(7, 4, CLP_SAMPLE_CPU_WAIT | CLP_SAMPLE_IN_SPAN, -1, 0, NULL); /* where it ran */
    wait_for(7, 5, CLP_SAMPLE_CPU_WAIT, -1, 0, NULL);                      /* in no request */
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 3);
    expect_values(p, 1, 4, 0);
    assert_int_equal(clp_model_sample(p, 2)->stack, clp_model_sample(p, 1)->stack);
    assert_non_null(strstr(describe(p, 1), "span_id=0000000000000012"));
    expect_values(p, 2, 5, 0);
    assert_string_equal(strchr(describe(p, 2), ' '),
                        " [unknown wait] thread_id=70 thread_name=w wait=cpu-wait");
    clp_profile_free(p);
}

static void running_is_a_part_of_living(void **state)
{
    (void)state;
    renew(1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL, false);
    sample(7, 30, 0, FRAMES(M(1, 0)));
    wait_for(7, 50, 0, 202, FRAMES(M(2, 0), M(1, 0)));
    wait_for(7, 5, 0, -1, 0, NULL);                   /* goes on: the same stack and word */
    wait_for(7, 4, CLP_SAMPLE_CPU_WAIT, -1, 0, NULL); /* where it ran */
    sample(7, 1, 0, 0, NULL);                         /* not where it waited */
    struct clp_profile *p = finish();
    assert_int_equal(clp_profile_sample_count(p), 3);
    expect_values(p, 0, 31, 31);
    labels_are(p, 0, " thread_id=70 thread_name=w");
    expect_values(p, 1, 55, 0);
    labels_are(p, 1, " thread_id=70 thread_name=w wait=sleep");
    expect_values(p, 2, 4, 0);
    labels_are(p, 2, " thread_id=70 thread_name=w wait=cpu-wait");
    assert_int_equal(clp_model_sample(p, 3)->stack, clp_model_sample(p, 1)->stack);
    clp_profile_free(p);
    /* A wait that lasts into the next window. */
    wait_for(7, 9, 0, -1, 0, NULL);
    p = finish();
    expect_values(p, 0, 9, 0);
    labels_are(p, 0, " thread_id=70 thread_name=w wait=sleep");
    clp_profile_free(p);
}

static void idle_can_be_left_out(void **state)
{
    (void)state;
    renew(1u << CLP_TYPE_WALL, true);
    wait_for(7, 50, 0, 202, FRAMES(M(3, 0)));
    wait_for(7, 6, 0, -1, 0, NULL);
    wait_for(7, 7, 0, 202, FRAMES(M(2, 0), M(1, 0)));
    struct clp_profile *p = finish();
    assert_int_equal(p->value_count, 1);
    assert_int_equal(clp_profile_sample_count(p), 1);
    assert_true(clp_profile_total(p, 0) == 7);
    bool said = false;
    for (uint32_t i = 0; i < p->comment_count; i++)
        said |= strcmp(p->comments[i], "agent_idle_left_out=56 nanoseconds") == 0;
    assert_true(said);
    clp_profile_free(p);
}

static void waits_of_unknown_threads(void **state)
{
    (void)state;
    renew(1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL, false);
    wait_for(99, 5, 0, 202, 0, NULL);
    wait_for(7, 6, CLP_SAMPLE_CPU_WAIT, -1, 0, NULL);
    wait_for(7, 7, CLP_SAMPLE_NO_STACK, -1,
             FRAMES(clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_FROZEN, 0)));
    struct clp_profile *p = finish();
    assert_true(clp_profile_total(p, 0) == 18);
    assert_true(clp_profile_total(p, 1) == 0);
    labels_are(p, 2, " thread_id=70 thread_name=w");
    clp_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(tiers_and_addresses_of_a_method_are_one_sample),
        T(threads_and_gc_waits_are_apart),
        T(totals_are_of_what_is_recorded),
        T(events_have_values_and_labels_of_their_kind),
        T(numbers_of_events_are_labels),
        T(exceptions_are_counted_by_type),
        T(fewer_types_of_exceptions_are_kept_in_a_share),
        T(another_threads_frames_are_a_label),
        T(generations_of_live_objects_are_words),
        T(samples_without_frames_follow_the_last_stack),
        T(words_for_threads_without_stacks),
        T(undefined_ids_are_unknown),
        T(an_image_without_a_file_still_has_a_name),
        T(mappings_begin_with_the_program),
        T(comments_tell_totals_and_losses_of_the_window),
        T(samples_tell_their_span),
        T(an_endpoint_that_comes_late_is_told),
        T(a_request_over_two_windows_has_one_name),
        T(endpoints_of_a_window_are_bounded),
        T(span_labels_can_be_fewer),
        T(a_renamed_thread_has_its_new_name),
        T(running_is_a_part_of_living),
        T(a_wait_for_a_cpu_is_its_own_request_s),
        T(requests_are_counted_by_endpoint),
        T(idle_can_be_left_out),
        T(waits_of_unknown_threads),
        T(ceilings_hold),
        T(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
