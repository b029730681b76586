/* One reader's feed on its own: what comes before what, and what becomes of time that finds no
 * room. */
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/feed.h"
#include "sampler/inproc/spans.h"
#include "sampler/inproc/idset.h"
#include "sampler/inproc/images.h"
#include "wire/memory.h"
#include "wire/reader.h"

#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RING CLP_WIRE_RING_MIN_BYTES
#define GONE_BODY 777u /* has no definition any more */
#define NATIVE_IMAGE 5000u

const struct clp_thread *clp_threads_process(void)
{
    static const struct clp_thread process = {.thread_id = 1,
                                              .slot = UINT32_MAX,
                                              .tid = 4711,
                                              .kind = CLP_THREAD_PROCESS,
                                              .name_version = 1};
    return &process;
}

/* ---- what the library knows: body n belongs to method n + 1000 in image 1 + n % 3 ---- */

int clp_bodies_body_record(uint32_t body_id, struct clp_rec_body *ret)
{
    if (body_id == GONE_BODY)
        return -ENOENT;
    *ret = (struct clp_rec_body){.rec = {.size = sizeof(*ret), .type = CLP_REC_BODY},
                                 .body_id = body_id,
                                 .method_id = body_id + 1000,
                                 .start = 0x10000,
                                 .code_bytes = 16};
    return 0;
}

int clp_bodies_method_record(uint32_t method_id, void *buf, size_t cap)
{
    union clp_rec_any *any = buf;
    if (cap < 256)
        return -ENOSPC;
    memset(buf, 0, 256);
    any->method = (struct clp_rec_method){.rec = {.size = 256, .type = CLP_REC_METHOD},
                                          .method_id = method_id,
                                          .image_id = 1 + (method_id - 1000) % 3,
                                          .name_len = 200};
    memset(any->bytes + sizeof(any->method), 'n', 200);
    return 256;
}

static int image_record(uint32_t image_id, void *buf)
{
    union clp_rec_any *any = buf;
    memset(buf, 0, 64);
    any->image = (struct clp_rec_image){.rec = {.size = 64, .type = CLP_REC_IMAGE},
                                        .image_id = image_id,
                                        .kind = CLP_IMAGE_ELF,
                                        .path_len = 2};
    memcpy(any->bytes + sizeof(any->image), "/x", 2);
    return 64;
}

int clp_bodies_image_record(uint32_t image_id, void *buf, size_t cap)
{
    (void)cap;
    return image_id < 100 ? image_record(image_id, buf) : -ENOENT;
}

static uint32_t unloaded_from = UINT32_MAX; /* methods and managed images with this number and on */

bool clp_bodies_gone(enum clp_rec_type what, uint32_t id)
{
    (void)what;
    return id >= unloaded_from;
}

int clp_spans_endpoint_name(uint32_t endpoint, char *ret)
{
    if (endpoint >= 50)
        return -ENOENT;
    snprintf(ret, CLP_SPAN_NAME_MAX_BYTES + 1, "endpoint %u", endpoint);
    return 0;
}

int clp_images_record(uint32_t image_id, void *buf, size_t cap)
{
    (void)cap;
    return image_id == NATIVE_IMAGE ? image_record(image_id, buf) : -ENOENT;
}

/* ---- a feed and its reader ---- */

struct fixture {
    int fd;
    void *mapping;
    struct clp_feed feed;
    struct clp_reader *reader;
    /* what was read */
    unsigned of_type[CLP_REC_TYPE_COUNT], definitions[6000];
    uint64_t total_ns, by_thread[64];
    uint64_t last_frame;
    uint16_t last_count, last_flags;
    char last_name[128];
    struct clp_rec_span last_span;
    uint32_t last_endpoint;
    uint64_t last_root;
    struct clp_rec_gone last_gone;
    double events;
    char event_text[2][64];
    struct clp_rec_event last_event;
};

static struct clp_thread threads[64];

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct clp_feed_totals zero = {0};
    assert_non_null(f);
    assert_int_equal(clp_wire_memory_create(RING, &f->fd, &f->mapping), 0);
    assert_int_equal(clp_feed_open(&f->feed, f->mapping, CLP_WIRE_HEADER_BYTES + RING, &zero, 7),
                     0);
    assert_int_equal(clp_reader_new(f->mapping, RING, &f->reader), 0);
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(threads); i++) {
        threads[i] = (struct clp_thread){.thread_id = i + 1, .slot = i, .tid = (int32_t)(100 + i)};
        threads[i].kind = CLP_THREAD_MANAGED;
        threads[i].name_version = 1;
        snprintf(threads[i].name, sizeof(threads[i].name), "thread %u", i);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    clp_feed_close(&f->feed);
    clp_reader_free(f->reader);
    munmap(f->mapping, CLP_WIRE_HEADER_BYTES + RING);
    close(f->fd);
    free(f);
    return 0;
}

static void sample(struct fixture *f, uint32_t thread, const uint64_t *frames, uint16_t count)
{
    struct clp_feed_sample s = {.thread = &threads[thread],
                                .kind = CLP_SAMPLE_CPU,
                                .value_ns = 10,
                                .time_ns = 1,
                                .count = count,
                                .frames = frames};
    (void)clp_feed_stack(&f->feed, &s);
}

static void sample_in_span(struct fixture *f, uint32_t thread, const struct clp_span *span)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0);
    struct clp_feed_sample s = {.thread = &threads[thread],
                                .kind = CLP_SAMPLE_CPU,
                                .value_ns = 10,
                                .time_ns = 1,
                                .count = 1,
                                .frames = &frame,
                                .span = span};
    clp_feed_stack(&f->feed, &s);
}

static void waits(struct fixture *f, uint32_t thread, enum clp_special special, uint16_t flags,
                  uint64_t ns)
{
    struct clp_feed_waiting w = {.special = special, .flags = flags, .wait_ns = ns, .time_ns = 1};
    clp_feed_wait(&f->feed, &threads[thread], &w);
}

static void sample_of_body(struct fixture *f, uint32_t thread, uint32_t body)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, body, 1);
    sample(f, thread, &frame, 1);
}

static void take(struct fixture *f, const struct clp_reader_record *rec)
{
    f->of_type[rec->type]++;
    switch (rec->type) {
    case CLP_REC_IMAGE:
        f->definitions[rec->image.rec->image_id]++;
        break;
    case CLP_REC_METHOD:
        assert_true(f->definitions[rec->method.rec->image_id] > 0);
        break;
    case CLP_REC_BODY:
        f->definitions[rec->body.rec->body_id]++;
        break;
    case CLP_REC_THREAD:
        snprintf(f->last_name, sizeof(f->last_name), "%s", rec->thread.name);
        break;
    case CLP_REC_SAMPLE:
        f->total_ns += (uint64_t)rec->sample.rec->value;
        f->by_thread[rec->sample.rec->thread_id] += (uint64_t)rec->sample.rec->value;
        f->last_count = rec->sample.rec->rec.count;
        f->last_flags = rec->sample.rec->flags;
        f->last_frame = f->last_count ? rec->sample.frames[0] : 0;
        if (f->last_count && clp_frame_kind(f->last_frame) == CLP_FRAME_MANAGED)
            assert_true(f->definitions[clp_frame_id(f->last_frame)] > 0);
        break;
    case CLP_REC_SPAN:
        f->last_span = *rec->span.rec;
        if (f->last_span.endpoint > CLP_ENDPOINT_OTHER)
            assert_true(f->definitions[5000 + f->last_span.endpoint] > 0);
        break;
    case CLP_REC_ENDPOINT:
        f->definitions[5000 + rec->endpoint.rec->endpoint]++;
        f->last_endpoint = rec->endpoint.rec->endpoint;
        snprintf(f->last_name, sizeof(f->last_name), "%s", rec->endpoint.name);
        break;
    case CLP_REC_ROOT:
        assert_true(f->definitions[5000 + rec->root.rec->endpoint] > 0);
        f->last_root = rec->root.rec->local_root_span_id;
        break;
    case CLP_REC_GONE:
        f->last_gone = *rec->gone.rec;
        break;
    case CLP_REC_EVENT:
        f->last_event = *rec->event.rec;
        f->events += rec->event.rec->value;
        for (unsigned i = 0; i < CLP_EVENT_TEXTS; i++)
            snprintf(f->event_text[i], sizeof(f->event_text[i]), "%s", rec->event.texts[i]);
        break;
    default:
        break;
    }
}

static void read_all(struct fixture *f)
{
    struct clp_reader_record rec;
    assert_true(clp_reader_poll(f->reader) >= 0);
    while (clp_reader_next(f->reader, &rec) == 1)
        take(f, &rec);
    assert_string_equal(clp_reader_error(f->reader), "");
}

/* Leaves room for `bytes` at most. */
static void fill_ring(struct fixture *f, uint32_t bytes)
{
    union clp_rec_any any = {
        .thread = {.rec = {.type = CLP_REC_THREAD}, .thread_id = 60, .kind = CLP_THREAD_NATIVE}};
    while (clp_ring_room(&f->feed.ring) > bytes) {
        uint32_t room = clp_ring_room(&f->feed.ring) - bytes;
        any.rec.size = CLP_MIN(room, 1024u) & ~7u;
        if (any.rec.size < sizeof(any.thread) || clp_ring_write(&f->feed.ring, &any.rec) < 0)
            return;
    }
}

/* ---- tests ---- */

static void test_each_definition_once(void **state)
{
    struct fixture *f = *state;
    uint64_t frames[] = {clp_frame_make(CLP_FRAME_MANAGED, 11, 0),
                         clp_frame_make(CLP_FRAME_MANAGED, 12, 0),
                         clp_frame_make(CLP_FRAME_NATIVE, NATIVE_IMAGE, 9),
                         clp_frame_make(CLP_FRAME_MANAGED, 11, 0)};
    for (int i = 0; i < 5; i++)
        sample(f, 0, frames, 4);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_SAMPLE], 5);
    assert_int_equal(f->of_type[CLP_REC_THREAD], 1);
    assert_int_equal(f->of_type[CLP_REC_BODY], 2);
    assert_int_equal(f->of_type[CLP_REC_METHOD], 2);
    assert_int_equal(f->of_type[CLP_REC_IMAGE], 3);
    assert_int_equal(f->definitions[11], 1);
    assert_int_equal(f->definitions[NATIVE_IMAGE], 1);
}

static void test_code_without_a_definition_is_unknown(void **state)
{
    struct fixture *f = *state;
    sample_of_body(f, 0, GONE_BODY);
    read_all(f);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0));
    uint64_t frame = clp_frame_make(CLP_FRAME_NATIVE, 4000, 1);
    sample(f, 0, &frame, 1);
    read_all(f);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0));
    assert_int_equal(f->of_type[CLP_REC_SAMPLE], 2);
}

static void test_a_new_name_is_told(void **state)
{
    struct fixture *f = *state;
    sample_of_body(f, 3, 1);
    read_all(f);
    assert_string_equal(f->last_name, "thread 3");
    strcpy(threads[3].name, "renamed");
    threads[3].name_version++;
    sample_of_body(f, 3, 1);
    read_all(f);
    assert_string_equal(f->last_name, "renamed");
    assert_int_equal(f->of_type[CLP_REC_THREAD], 2);
}

static void test_time_for_the_last_stack(void **state)
{
    struct fixture *f = *state;
    /* None yet: under its own word. */
    clp_feed_time(&f->feed, &threads[0], CLP_SPECIAL_NONE, 5, 1);
    read_all(f);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_UNSAMPLED, 0));
    assert_int_equal(f->last_flags, CLP_SAMPLE_NO_STACK);
    /* A word is no stack. */
    clp_feed_time(&f->feed, &threads[0], CLP_SPECIAL_SIGNALS_BLOCKED, 6, 1);
    clp_feed_time(&f->feed, &threads[0], CLP_SPECIAL_NONE, 7, 1);
    read_all(f);
    assert_int_equal(f->last_count, 1);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_UNSAMPLED, 0));
    sample_of_body(f, 0, 1);
    clp_feed_time(&f->feed, &threads[0], CLP_SPECIAL_NONE, 8, 1);
    read_all(f);
    assert_int_equal(f->last_count, 0);
    assert_int_equal(f->last_flags, 0);
    assert_int_equal(f->total_ns, 5 + 6 + 7 + 10 + 8);
    assert_int_equal(f->feed.counters[CLP_CTR_UNSAMPLED_CPU_NS], 5 + 7);
    assert_int_equal(f->feed.counters[CLP_CTR_SIGNALS_BLOCKED_CPU_NS], 6);
    assert_int_equal(f->feed.counters[CLP_CTR_SAMPLED_CPU_NS], 10 + 8);
}

/* Whatever room there is, no definition is lost or told twice, and no time is lost. */
static void test_a_ring_that_fills_at_any_place(void **state)
{
    struct fixture *f = *state;
    uint32_t samples = 0;
    for (uint32_t room = 0; room < 600; room += 8) {
        fill_ring(f, room);
        sample_of_body(f, 1, 100 + room);
        sample_of_body(f, 2, 100 + room);
        samples += 2;
        read_all(f);
        sample_of_body(f, 1, 100 + room);
        samples++;
        read_all(f);
        assert_int_equal(f->definitions[100 + room], 1);
    }
    assert_true(f->feed.counters[CLP_CTR_DROP_RING_FULL] > 50);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_MARK], 1);
    assert_int_equal(f->total_ns, samples * 10);
    assert_int_equal(f->feed.waiting_ns[0], 0);
}

static void test_a_mark_waits_for_what_waits(void **state)
{
    struct fixture *f = *state;
    sample_of_body(f, 1, 1);
    fill_ring(f, 16);
    sample_of_body(f, 1, 1);
    sample_of_body(f, 2, 1);
    assert_int_equal(f->feed.waiting_ns[0], 20);
    assert_false(clp_feed_mark(&f->feed, 9, 2));
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_MARK], 0);
    assert_true(clp_feed_mark(&f->feed, 9, 2));
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_MARK], 1);
    assert_int_equal(f->by_thread[2], 20); /* thread_id 2 is threads[1]: it had a stack before */
    assert_int_equal(f->by_thread[3], 10); /* this one had none: its own word */
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_UNSAMPLED, 0));
}

/* A thread ends, its slot goes to another, and all the while nobody reads. */
static void test_a_slot_changes_hands_while_the_ring_is_full(void **state)
{
    struct fixture *f = *state;
    fill_ring(f, 16);
    sample_of_body(f, 1, 1);
    struct clp_thread next = threads[1];
    next.thread_id = 50;
    struct clp_feed_sample s = {.thread = &next,
                                .kind = CLP_SAMPLE_CPU,
                                .value_ns = 3,
                                .time_ns = 1,
                                .count = 1,
                                .frames = &(uint64_t){0}};
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, 1, 1);
    s.frames = &frame;
    (void)clp_feed_stack(&f->feed, &s);
    assert_int_equal(f->feed.waiting_ns[0], 13);
    read_all(f);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_int_equal(f->total_ns, 13);
    /* With room the old one's time stays with it. */
    fill_ring(f, 16);
    (void)clp_feed_stack(&f->feed, &s);
    read_all(f);
    next.thread_id = 51;
    (void)clp_feed_stack(&f->feed, &s);
    read_all(f);
    assert_int_equal(f->by_thread[51], 3);
    assert_int_equal(f->total_ns, 19);
}

static void test_threads_without_a_slot(void **state)
{
    struct fixture *f = *state;
    struct clp_thread process = {
        .thread_id = 1, .slot = UINT32_MAX, .kind = CLP_THREAD_PROCESS, .name_version = 1};
    clp_feed_time(&f->feed, &process, CLP_SPECIAL_SHORT_LIVED, 40, 1);
    fill_ring(f, 16);
    clp_feed_time(&f->feed, &process, CLP_SPECIAL_SHORT_LIVED, 50, 1);
    read_all(f);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    clp_feed_time(&f->feed, &process, CLP_SPECIAL_SHORT_LIVED, 7, 1);
    read_all(f);
    assert_int_equal(f->by_thread[1], 97);
    assert_int_equal(clp_reader_marked(f->reader, CLP_CTR_SHORT_LIVED_CPU_NS), 90);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_SHORT_LIVED, 0));
    assert_int_equal(f->feed.counters[CLP_CTR_SHORT_LIVED_CPU_NS], 97);
    assert_int_equal(f->feed.slot_high, 0);
}

static void wall_sample_of_body(struct fixture *f, uint32_t thread, uint32_t body)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_MANAGED, body, 1);
    struct clp_feed_sample s = {.thread = &threads[thread],
                                .kind = CLP_SAMPLE_WALL,
                                .value_ns = 10,
                                .value2 = 203,
                                .time_ns = 1,
                                .count = 1,
                                .frames = &frame};
    (void)clp_feed_stack(&f->feed, &s);
}

/* Waits and CPU time of one thread have last stacks of their own. */
static void test_waits_have_their_own_last_stack(void **state)
{
    struct fixture *f = *state;
    const uint64_t unknown = clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_UNKNOWN_WAIT, 0);
    sample_of_body(f, 0, 1);
    waits(f, 0, CLP_SPECIAL_NONE, 0, 5);
    read_all(f);
    assert_int_equal(f->last_frame, unknown); /* a stack of kind CPU is none of kind WALL */
    assert_int_equal(f->last_flags, CLP_SAMPLE_NO_STACK);
    /* Time on the run queue goes where the thread ran. */
    waits(f, 0, CLP_SPECIAL_NONE, CLP_SAMPLE_CPU_WAIT, 6);
    read_all(f);
    assert_int_equal(f->last_count, 0);
    assert_int_equal(f->last_flags, CLP_SAMPLE_CPU_WAIT);
    /* Nothing is known of this one. */
    waits(f, 1, CLP_SPECIAL_NONE, CLP_SAMPLE_CPU_WAIT, 7);
    read_all(f);
    assert_int_equal(f->last_frame, unknown);
    wall_sample_of_body(f, 0, 2);
    waits(f, 0, CLP_SPECIAL_NONE, 0, 8);
    read_all(f);
    assert_int_equal(f->last_count, 0);
    assert_int_equal(f->last_flags, 0);
    waits(f, 0, CLP_SPECIAL_FROZEN, 0, 9);
    read_all(f);
    assert_int_equal(f->last_frame, clp_frame_make(CLP_FRAME_SPECIAL, CLP_SPECIAL_FROZEN, 0));
    assert_int_equal(f->feed.counters[CLP_CTR_WALL_UNKNOWN_NS], 5 + 7);
    assert_int_equal(f->feed.counters[CLP_CTR_WALL_WAIT_NS], 6 + 10 + 8 + 9);
    assert_int_equal(f->feed.counters[CLP_CTR_SAMPLED_CPU_NS], 10);
}

/* What found the ring full comes out as what it was: neither kind carries the other's time. */
static void test_kinds_wait_for_room_apart(void **state)
{
    struct fixture *f = *state;
    sample_of_body(f, 1, 1);
    wall_sample_of_body(f, 1, 1);
    fill_ring(f, 16);
    sample_of_body(f, 1, 1);
    wall_sample_of_body(f, 1, 2);
    waits(f, 1, CLP_SPECIAL_NONE, 0, 7);
    assert_int_equal(f->feed.waiting_ns[0], 10);
    assert_int_equal(f->feed.waiting_ns[1], 17);
    read_all(f);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_int_equal(f->total_ns, 20 + 27);
    assert_int_equal(f->feed.counters[CLP_CTR_SAMPLED_CPU_NS], 20);
    assert_int_equal(f->feed.counters[CLP_CTR_WALL_WAIT_NS], 27);
    assert_int_equal(f->feed.waiting_ns[0] + f->feed.waiting_ns[1], 0);
}

static void test_counters_begin_where_the_reader_joined(void **state)
{
    struct fixture *f = *state;
    struct clp_feed_totals at_join = {.process_cpu_ns = 1000, .capture_full = 5, .threads = 3};
    struct clp_feed_totals now = {.process_cpu_ns = 1700, .capture_full = 7, .threads = 4};
    f->feed.base = at_join;
    clp_feed_publish(&f->feed, &now, 99);
    assert_int_equal(clp_reader_counter(f->reader, CLP_CTR_PROCESS_CPU_NS), 700);
    assert_int_equal(clp_reader_counter(f->reader, CLP_CTR_DROP_CAPTURE_FULL), 2);
    assert_int_equal(clp_reader_counter(f->reader, CLP_CTR_THREADS), 4); /* a state, not a sum */
    assert_int_equal(clp_reader_heartbeat_ns(f->reader), 99);
    assert_int_equal(clp_reader_opened_ns(f->reader), 7);
}

static void test_idset(void **state)
{
    struct clp_idset s = {0};
    (void)state;
    assert_false(clp_idset_has(&s, 0));
    assert_false(clp_idset_has(&s, UINT32_MAX));
    for (uint32_t id = 1; id < 200000; id += 7)
        clp_idset_add(&s, id);
    for (uint32_t id = 0; id < 200000; id++)
        assert_int_equal(clp_idset_has(&s, id), id % 7 == 1);
    assert_true(clp_idset_bytes(&s) <= 65536);
    clp_idset_add(&s, CLP_IDSET_MAX); /* beyond: not remembered, no harm */
    assert_false(clp_idset_has(&s, CLP_IDSET_MAX));
    clp_idset_add(&s, CLP_IDSET_MAX - 1);
    assert_true(clp_idset_has(&s, CLP_IDSET_MAX - 1));
    assert_true(clp_idset_has(&s, 8));
    clp_idset_done(&s);
    assert_false(clp_idset_has(&s, 8));
}

#define WITH_FEED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void a_span_is_told_when_it_changes(void **state)
{
    struct fixture *f = *state;
    struct clp_span none = {0}, no_trace = {.span_id = 9};
    struct clp_span a = {
        .trace_high = 1, .trace_low = 2, .span_id = 3, .local_root_span_id = 4, .endpoint = 7};
    struct clp_span b = a;
    b.span_id = 5;
    for (int i = 0; i < 3; i++)
        sample_in_span(f, 0, &a);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_SPAN], 1);
    assert_int_equal(f->of_type[CLP_REC_ENDPOINT], 1);
    assert_string_equal(f->last_name, "endpoint 7");
    assert_int_equal(f->last_span.thread_id, 1);
    assert_int_equal(f->last_span.trace_high, 1);
    assert_int_equal(f->last_span.local_root_span_id, 4);
    assert_int_equal(f->last_flags, CLP_SAMPLE_IN_SPAN);
    sample_in_span(f, 0, &none);
    sample_in_span(f, 0, &no_trace);
    read_all(f);
    assert_int_equal(f->last_flags, 0);
    sample_in_span(f, 0, &b);
    sample_in_span(f, 1, &b);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_SPAN], 3); /* once for each thread */
    assert_int_equal(f->of_type[CLP_REC_ENDPOINT], 1);
    assert_int_equal(f->last_span.thread_id, 2);
    assert_int_equal(f->feed.counters[CLP_CTR_SPANS], 3);
    /* A wait for a CPU has a span of its own, a wait whose stack is known has that stack's. */
    struct clp_feed_waiting w = {.wait_ns = 4, .time_ns = 1, .span = &a};
    clp_feed_wait(&f->feed, &threads[1], &w);
    w.flags = CLP_SAMPLE_CPU_WAIT;
    clp_feed_wait(&f->feed, &threads[1], &w);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_SPAN], 4);
    assert_int_equal(f->last_span.span_id, 3);
    assert_int_equal(f->last_flags, CLP_SAMPLE_CPU_WAIT | CLP_SAMPLE_IN_SPAN);
}

static void an_endpoint_comes_before_its_root(void **state)
{
    struct fixture *f = *state;
    struct clp_span forgotten = {.trace_low = 2, .span_id = 3, .endpoint = 60};
    assert_true(clp_feed_root(&f->feed, 4, 8, 0));
    assert_true(clp_feed_root(&f->feed, 6, 60, 0)); /* nobody knows that name any more */
    sample_in_span(f, 0, &forgotten);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_ROOT], 1);
    assert_int_equal(f->last_root, 4);
    assert_int_equal(f->last_endpoint, 8);
    assert_int_equal(f->last_span.endpoint, 0);
    assert_int_equal(f->last_span.span_id, 3);
}

/* Not even the smallest record. */
static void fill_up(struct fixture *f)
{
    const struct clp_rec pad = {.size = sizeof(pad), .type = CLP_REC_PAD};
    fill_ring(f, 0);
    while (clp_ring_write(&f->feed.ring, &pad) == 0)
        continue;
}

static void event_of(struct fixture *f, uint16_t kind, double value, const char *a, const char *b)
{
    uint64_t frame = clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0);
    struct clp_feed_event e = {.thread = &threads[1],
                               .time_ns = 1,
                               .value = value,
                               .value2 = 8 * value,
                               .kind = kind,
                               .count = 1,
                               .frames = &frame,
                               .texts = {a, b},
                               .text_len = {(uint16_t)strlen(a), (uint16_t)strlen(b)}};
    clp_feed_event(&f->feed, &e);
}

static void event(struct fixture *f, uint16_t kind, const char *a, const char *b)
{
    event_of(f, kind, 1, a, b);
}

/* Each in a fixture of its own: what comes in front of the mark. */
static void assert_unsent(struct fixture *f, double value, const char *a, const char *b)
{
    double before = f->events;
    read_all(f);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_true(f->events - before == value);
    assert_string_equal(f->event_text[0], a);
    assert_string_equal(f->event_text[1], b);
    assert_int_equal(f->last_event.flags, CLP_SAMPLE_NO_STACK);
    assert_true(clp_feed_mark(&f->feed, 2, 3)); /* once */
    read_all(f);
    assert_true(f->events - before == value);
}

static void a_full_ring_takes_no_type_away(void **state)
{
    struct fixture *f = *state;
    event(f, CLP_SAMPLE_EXCEPTION, "T1", "message");
    read_all(f);
    assert_string_equal(f->event_text[1], "message");
    fill_up(f);
    event(f, CLP_SAMPLE_EXCEPTION, "T1", "one");
    event(f, CLP_SAMPLE_EXCEPTION, "T1", "another");
    assert_unsent(f, 2, "T1", "");
    fill_up(f);
    event(f, CLP_SAMPLE_ALLOC, "Class", "large");
    assert_unsent(f, 1, "Class", "large");
    fill_up(f);
    event(f, CLP_SAMPLE_LOCK, "owner", ""); /* whose it was is no type */
    assert_unsent(f, 1, "", "");
    fill_up(f);
    event_of(f, CLP_SAMPLE_LIVE, 0, "Class", "old"); /* nothing is lost with it */
    assert_int_equal(f->feed.counters[CLP_CTR_DROP_RING_FULL], 4);
    unsigned events = f->of_type[CLP_REC_EVENT];
    read_all(f);
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_EVENT], events);
}

static void types_without_end_are_counted_together(void **state)
{
    struct fixture *f = *state;
    char name[32];
    event(f, CLP_SAMPLE_EXCEPTION, "T", "");
    fill_up(f);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "Type%u", i);
        event(f, CLP_SAMPLE_EXCEPTION, name, "");
    }
    read_all(f);
    unsigned before = f->of_type[CLP_REC_EVENT];
    assert_true(clp_feed_mark(&f->feed, 1, 2));
    read_all(f);
    assert_true(f->events == 5001);
    assert_in_range(f->of_type[CLP_REC_EVENT] - before, 400, 600);
}

/* Once each, and a thread when its place goes to another. */
static void what_has_gone_is_told(void **state)
{
    struct fixture *f = *state;
    sample_of_body(f, 1, 5);
    sample_of_body(f, 1, 6);
    clp_feed_tell_gone(&f->feed);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_GONE], 0);
    unloaded_from = 1006; /* the method of body 6; images below stay */
    fill_up(f);
    clp_feed_tell_gone(&f->feed);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_GONE], 0);
    for (int i = 0; i < 2; i++)
        clp_feed_tell_gone(&f->feed);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_GONE], 1);
    assert_int_equal(f->last_gone.what, CLP_REC_METHOD);
    assert_int_equal(f->last_gone.id, 1006);
    threads[1].thread_id = 50;
    sample_of_body(f, 1, 5);
    read_all(f);
    assert_int_equal(f->of_type[CLP_REC_GONE], 2);
    assert_int_equal(f->last_gone.what, CLP_REC_THREAD);
    assert_int_equal(f->last_gone.id, 2);
    unloaded_from = UINT32_MAX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FEED(test_each_definition_once),
        WITH_FEED(a_span_is_told_when_it_changes),
        WITH_FEED(an_endpoint_comes_before_its_root),
        WITH_FEED(test_code_without_a_definition_is_unknown),
        WITH_FEED(test_a_new_name_is_told),
        WITH_FEED(test_time_for_the_last_stack),
        WITH_FEED(test_waits_have_their_own_last_stack),
        WITH_FEED(test_kinds_wait_for_room_apart),
        WITH_FEED(test_a_ring_that_fills_at_any_place),
        WITH_FEED(test_a_mark_waits_for_what_waits),
        WITH_FEED(test_a_slot_changes_hands_while_the_ring_is_full),
        WITH_FEED(test_threads_without_a_slot),
        WITH_FEED(test_counters_begin_where_the_reader_joined),
        WITH_FEED(a_full_ring_takes_no_type_away),
        WITH_FEED(types_without_end_are_counted_together),
        WITH_FEED(what_has_gone_is_told),
        cmocka_unit_test(test_idset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
