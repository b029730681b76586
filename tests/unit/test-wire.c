/* The ring from both sides: round trips, wrap, a full ring, two processes, and a hostile target. */
#include "wire/memory.h"
#include "wire/message.h"
#include "wire/reader.h"
#include "wire/ring.h"
#include "wire/tables.h"

#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING CLP_WIRE_RING_MIN_BYTES

struct pair {
    int fd;
    void *mapping;
    struct clp_ring ring;
    struct clp_reader *reader;
};

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    assert_int_equal(clp_wire_memory_create(RING, &p->fd, &p->mapping), 0);
    assert_int_equal(clp_ring_open(&p->ring, p->mapping, CLP_WIRE_HEADER_BYTES + RING), 0);
    assert_int_equal(clp_reader_new(p->mapping, RING, &p->reader), 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    clp_reader_free(p->reader);
    munmap(p->mapping, CLP_WIRE_HEADER_BYTES + RING);
    close(p->fd);
    free(p);
    return 0;
}

static struct clp_wire_header *header(struct pair *p)
{
    return p->mapping;
}

static uint8_t *ring_bytes(struct pair *p)
{
    return (uint8_t *)p->mapping + CLP_WIRE_HEADER_BYTES;
}

/* A sample whose frames and value follow from `seed`, so that the reader can tell what it must see.
 */
static struct clp_rec_sample *put_sample(struct clp_ring *ring, uint32_t seed, uint16_t frames)
{
    uint32_t size = (uint32_t)sizeof(struct clp_rec_sample) + 8u * frames;
    struct clp_rec_sample *s = clp_ring_reserve(ring, size);
    if (!s)
        return NULL;
    *s = (struct clp_rec_sample){.rec = {.size = size, .type = CLP_REC_SAMPLE, .count = frames},
                                 .time_ns = seed,
                                 .value = seed,
                                 .thread_id = 1 + seed % 7,
                                 .kind = CLP_SAMPLE_CPU};
    uint64_t *f = (uint64_t *)(s + 1);
    for (uint16_t i = 0; i < frames; i++)
        f[i] = clp_frame_make(CLP_FRAME_MANAGED, 1 + seed % 1000, seed + i);
    clp_ring_commit(ring);
    return s;
}

static void check_sample(const struct clp_reader_record *rec, uint32_t seed, uint16_t frames)
{
    assert_int_equal(rec->type, CLP_REC_SAMPLE);
    assert_int_equal(rec->sample.rec->value, seed);
    assert_int_equal(rec->sample.rec->rec.count, frames);
    for (uint16_t i = 0; i < frames; i++)
        assert_int_equal(rec->sample.frames[i],
                         clp_frame_make(CLP_FRAME_MANAGED, 1 + seed % 1000, seed + i));
}

/* A record of a fixed part and texts, padded. */
static int put_texts(struct clp_ring *ring, void *fixed, size_t fixed_bytes, const char *texts)
{
    union clp_rec_any any = {0};
    size_t n = strlen(texts);
    memcpy(&any, fixed, fixed_bytes);
    memcpy(any.bytes + fixed_bytes, texts, n);
    any.rec.size = (uint32_t)CLP_ALIGN_UP(fixed_bytes + n, 8);
    return clp_ring_write(ring, &any.rec);
}

static void expect_next(struct pair *p, enum clp_rec_type type, struct clp_reader_record *ret)
{
    assert_int_equal(clp_reader_next(p->reader, ret), 1);
    assert_int_equal(ret->type, type);
}

static void test_round_trip_of_every_record(void **state)
{
    struct pair *p = *state;
    struct clp_rec_image image = {.rec.type = CLP_REC_IMAGE,
                                  .image_id = 3,
                                  .kind = CLP_IMAGE_ELF,
                                  .build_id_len = 4,
                                  .start = 0x1000,
                                  .end = 0x2000,
                                  .bias = 0x400,
                                  .path_len = 9};
    struct clp_rec_method method = {.rec.type = CLP_REC_METHOD,
                                    .method_id = 7,
                                    .image_id = 3,
                                    .token = 0x06000001,
                                    .type_len = 4,
                                    .name_len = 3,
                                    .signature_len = 2};
    struct clp_rec_body body = {.rec = {.size = sizeof(body), .type = CLP_REC_BODY},
                                .body_id = 9,
                                .method_id = 7,
                                .start = 0x7f0000,
                                .code_bytes = 64};
    struct clp_rec_thread thread = {.rec.type = CLP_REC_THREAD,
                                    .thread_id = 5,
                                    .tid = 77,
                                    .kind = CLP_THREAD_MANAGED,
                                    .name_len = 6};
    struct clp_rec_mark mark = {
        .rec = {.size = sizeof(mark), .type = CLP_REC_MARK}, .flush_id = 42, .time_ns = 43};
    assert_int_equal(put_texts(&p->ring, &image, sizeof(image), "\1\2\3\4/lib/a.so"), 0);
    assert_int_equal(put_texts(&p->ring, &method, sizeof(method), "Ns.TRun!0"), 0);
    assert_int_equal(clp_ring_write(&p->ring, &body.rec), 0);
    assert_int_equal(put_texts(&p->ring, &thread, sizeof(thread), "na\xc3\xafve"), 0);
    assert_non_null(put_sample(&p->ring, 11, 3));
    assert_int_equal(clp_ring_write(&p->ring, &mark.rec), 0);

    struct clp_reader_record rec;
    assert_int_equal(clp_reader_next(p->reader, &rec), 0); /* nothing before a poll */
    assert_true(clp_reader_poll(p->reader) > 0);
    expect_next(p, CLP_REC_IMAGE, &rec);
    assert_int_equal(rec.image.rec->bias, 0x400);
    assert_memory_equal(rec.image.build_id, "\1\2\3\4", 4);
    assert_string_equal(rec.image.path, "/lib/a.so");
    expect_next(p, CLP_REC_METHOD, &rec);
    assert_string_equal(rec.method.type, "Ns.T");
    assert_string_equal(rec.method.name, "Run");
    assert_string_equal(rec.method.type_args, "");
    assert_string_equal(rec.method.signature, "!0");
    expect_next(p, CLP_REC_BODY, &rec);
    assert_int_equal(rec.body.rec->code_bytes, 64);
    expect_next(p, CLP_REC_THREAD, &rec);
    assert_string_equal(rec.thread.name, "na\xc3\xafve");
    expect_next(p, CLP_REC_SAMPLE, &rec);
    check_sample(&rec, 11, 3);
    expect_next(p, CLP_REC_MARK, &rec);
    assert_int_equal(rec.mark.rec->flush_id, 42);
    assert_int_equal(clp_reader_next(p->reader, &rec), 0);
    assert_int_equal(atomic_load(&header(p)->tail), atomic_load(&header(p)->head));
}

static void test_texts_are_cleaned(void **state)
{
    struct pair *p = *state;
    struct clp_rec_thread thread = {
        .rec = {.size = 32, .type = CLP_REC_THREAD}, .thread_id = 1, .kind = 1, .name_len = 5};
    union clp_rec_any any = {.thread = thread};
    memcpy(any.bytes + sizeof(thread), "a\xff\0\xc3z", 5);
    assert_int_equal(clp_ring_write(&p->ring, &any.rec), 0);
    struct clp_reader_record rec;
    assert_true(clp_reader_poll(p->reader) > 0);
    expect_next(p, CLP_REC_THREAD, &rec);
    assert_string_equal(rec.thread.name, "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
}

/* An event of one frame and two texts. */
static struct clp_rec_event event_of(double value)
{
    return (struct clp_rec_event){.rec = {.type = CLP_REC_EVENT, .count = 1},
                                  .time_ns = 5,
                                  .value = value,
                                  .value2 = 2.5,
                                  .number = 77,
                                  .thread_id = 3,
                                  .kind = CLP_SAMPLE_EXCEPTION,
                                  .text_len = {3, 2}};
}

static void put_event(struct pair *p, const struct clp_rec_event *e, const char *texts)
{
    union clp_rec_any any = {0};
    any.event = *e;
    any.words[sizeof(*e) / 8] = clp_frame_make(CLP_FRAME_MANAGED, 4, 12);
    memcpy(any.bytes + sizeof(*e) + 8, texts, strlen(texts));
    any.rec.size = (uint32_t)CLP_ALIGN_UP(sizeof(*e) + 8 + strlen(texts), 8);
    assert_int_equal(clp_ring_write(&p->ring, &any.rec), 0);
    assert_true(clp_reader_poll(p->reader) > 0);
}

static void test_event_round_trip(void **state)
{
    struct pair *p = *state;
    struct clp_rec_event e = event_of(1.25);
    struct clp_reader_record rec;
    put_event(p, &e, "A.Bxy");
    expect_next(p, CLP_REC_EVENT, &rec);
    assert_true(rec.event.rec->value == 1.25 && rec.event.rec->value2 == 2.5);
    assert_int_equal(rec.event.rec->number, 77);
    assert_int_equal(rec.event.frames[0], clp_frame_make(CLP_FRAME_MANAGED, 4, 12));
    assert_string_equal(rec.event.texts[0], "A.B");
    assert_string_equal(rec.event.texts[1], "xy");
}

static void expect_bad_event(struct pair *p, const struct clp_rec_event *e)
{
    struct clp_reader_record rec;
    put_event(p, e, "A.Bxy");
    assert_int_equal(clp_reader_next(p->reader, &rec), -EBADMSG);
}

static void test_event_with_a_bad_value(void **state)
{
    struct clp_rec_event e = event_of(-1);
    expect_bad_event(*state, &e);
}

static void test_event_that_is_not_a_number(void **state)
{
    struct clp_rec_event e = event_of(0.0);
    e.value2 = __builtin_nan("");
    expect_bad_event(*state, &e);
}

static void test_event_of_a_kind_that_is_none(void **state)
{
    struct clp_rec_event e = event_of(1);
    e.kind = CLP_SAMPLE_CPU;
    expect_bad_event(*state, &e);
}

static void test_event_with_texts_too_long(void **state)
{
    struct clp_rec_event e = event_of(1);
    e.text_len[1] = 100;
    expect_bad_event(*state, &e);
}

static void test_event_with_only_another_threads_frames(void **state)
{
    struct clp_rec_event e = event_of(1);
    e.other_count = 1;
    expect_bad_event(*state, &e);
}

static void test_event_without_frames(void **state)
{
    struct clp_rec_event e = event_of(1);
    e.rec.count = 0;
    expect_bad_event(*state, &e);
}

/* Sizes that divide nothing, over many laps: each record comes out as it went in. */
static void test_wrap(void **state)
{
    struct pair *p = *state;
    uint32_t written = 0, read = 0;
    struct clp_reader_record rec;
    while (read < 20000) {
        while (written - read < 50 && put_sample(&p->ring, written, written * 37 % 700))
            written++;
        assert_true(clp_reader_poll(p->reader) >= 0);
        while (clp_reader_next(p->reader, &rec) == 1) {
            check_sample(&rec, read, read * 37 % 700);
            read++;
        }
    }
    assert_true(atomic_load(&header(p)->head) > 20ull * RING);
    assert_string_equal(clp_reader_error(p->reader), "");
}

static void test_full_ring_refuses_and_recovers(void **state)
{
    struct pair *p = *state;
    uint32_t n = 0;
    while (put_sample(&p->ring, n, 100))
        n++;
    assert_int_equal(n, RING / 840);
    assert_true(clp_ring_room(&p->ring) < 840);
    uint64_t head = atomic_load(&header(p)->head);
    assert_null(put_sample(&p->ring, n, 100));
    clp_ring_commit(&p->ring); /* a commit without a record publishes nothing */
    assert_int_equal(atomic_load(&header(p)->head), head);
    struct clp_reader_record rec;
    assert_true(clp_reader_poll(p->reader) > 0);
    for (uint32_t i = 0; i < 2; i++)
        expect_next(p, CLP_REC_SAMPLE, &rec);
    assert_non_null(put_sample(&p->ring, n, 100));
    /* What was written after the poll is left to the next one. */
    for (uint32_t i = 2; i < n; i++)
        expect_next(p, CLP_REC_SAMPLE, &rec);
    assert_int_equal(clp_reader_next(p->reader, &rec), 0);
    assert_true(clp_reader_poll(p->reader) > 0);
    expect_next(p, CLP_REC_SAMPLE, &rec);
    check_sample(&rec, n, 100);
}

static void test_largest_record_always_fits_an_empty_ring(void **state)
{
    struct pair *p = *state;
    struct clp_reader_record rec;
    for (uint32_t i = 0; i < 40; i++) {
        assert_non_null(put_sample(&p->ring, i, CLP_WIRE_FRAMES_MAX));
        assert_non_null(put_sample(&p->ring, i, (uint16_t)i));
        assert_true(clp_reader_poll(p->reader) > 0);
        expect_next(p, CLP_REC_SAMPLE, &rec);
        check_sample(&rec, i, CLP_WIRE_FRAMES_MAX);
        expect_next(p, CLP_REC_SAMPLE, &rec);
    }
    assert_null(clp_ring_reserve(&p->ring, CLP_WIRE_RECORD_MAX_BYTES + 8));
    assert_null(clp_ring_reserve(&p->ring, 12));
    assert_null(clp_ring_reserve(&p->ring, 0));
}

/* ---- hostile ---- */

static void test_writer_doubts_the_tail(void **state)
{
    struct pair *p = *state;
    assert_non_null(put_sample(&p->ring, 1, 1));
    atomic_store(&header(p)->tail, 1ull << 40);
    assert_int_equal(clp_ring_room(&p->ring), 0);
    assert_null(put_sample(&p->ring, 2, 1));
    header(p)->ring_bytes = 8; /* the size is a private copy */
    atomic_store(&header(p)->tail, atomic_load(&header(p)->head));
    for (int i = 0; i < 100; i++)
        assert_non_null(put_sample(&p->ring, 3, 100));
}

static void expect_bad(struct pair *p)
{
    struct clp_reader_record rec;
    assert_int_equal(clp_reader_next(p->reader, &rec), -EBADMSG);
    assert_int_not_equal(strlen(clp_reader_error(p->reader)), 0);
    /* For good, also when the target mends its ways. */
    memset(ring_bytes(p), 0, 64);
    assert_int_equal(clp_reader_poll(p->reader), -EBADMSG);
    assert_int_equal(clp_reader_next(p->reader, &rec), -EBADMSG);
}

static void test_reader_doubts_the_head(void **state)
{
    static const uint64_t heads[] = {RING + 8, 12, UINT64_MAX - 7, 1ull << 63};
    for (size_t i = 0; i < CLP_ARRAY_LEN(heads); i++) {
        struct pair *p;
        setup(state);
        p = *state;
        atomic_store(&header(p)->head, heads[i]);
        assert_int_equal(clp_reader_poll(p->reader), -EBADMSG);
        expect_bad(p);
        teardown(state);
    }
    /* Backwards, behind what was seen before. */
    setup(state);
    struct pair *p = *state;
    assert_non_null(put_sample(&p->ring, 1, 1));
    assert_true(clp_reader_poll(p->reader) > 0);
    atomic_store(&header(p)->head, 8);
    assert_int_equal(clp_reader_poll(p->reader), -EBADMSG);
    teardown(state);
}

struct hostile {
    const char *what;
    size_t bytes; /* that are published */
    uint64_t words[8];
};

#define REC(size, type, count) ((uint64_t)(size) | (uint64_t)(type) << 32 | (uint64_t)(count) << 48)

static void test_malformed_records_are_refused(void **state)
{
    static const struct hostile cases[] = {
        {"size 0", 64, {REC(0, CLP_REC_PAD, 0)}},
        {"size not a multiple of 8", 64, {REC(12, CLP_REC_PAD, 0)}},
        {"size beyond what is published", 64, {REC(72, CLP_REC_PAD, 0)}},
        {"size beyond a record", RING, {REC(CLP_WIRE_RECORD_MAX_BYTES + 8, CLP_REC_PAD, 0)}},
        {"size beyond all", RING, {REC(0xfffffff8u, CLP_REC_SAMPLE, 0)}},
        {"type 0", 64, {REC(64, 0, 0)}},
        {"unknown type", 64, {REC(64, CLP_REC_TYPE_COUNT, 0)}},
        {"image too short", 64, {REC(8, CLP_REC_IMAGE, 0)}},
        {"image id 0", 64, {REC(64, CLP_REC_IMAGE, 0), 0 | 1ull << 32}},
        {"image kind", 64, {REC(64, CLP_REC_IMAGE, 0), 1 | 9ull << 32}},
        {"image range", 64, {REC(64, CLP_REC_IMAGE, 0), 1 | 1ull << 32, 9, 8}},
        {"build id", 64, {REC(64, CLP_REC_IMAGE, 0), 1 | 1ull << 32 | 33ull << 48}},
        {"build id beyond the record",
         64,
         {REC(64, CLP_REC_IMAGE, 0), 1 | 1ull << 32 | 9ull << 48}},
        {"path beyond the record", 64, {REC(64, CLP_REC_IMAGE, 0), 1 | 1ull << 32, 0, 0, 0, 0, 9}},
        {"method too short", 64, {REC(24, CLP_REC_METHOD, 0)}},
        {"method id 0", 64, {REC(64, CLP_REC_METHOD, 0)}},
        {"names beyond the record", 64, {REC(64, CLP_REC_METHOD, 0), 1, 0, 0xffffull << 48}},
        {"body of another size", 64, {REC(40, CLP_REC_BODY, 0), 1 | 1ull << 32}},
        {"body id 0", 64, {REC(32, CLP_REC_BODY, 0), 1ull << 32}},
        {"body wraps", 64, {REC(32, CLP_REC_BODY, 0), 1 | 1ull << 32, UINT64_MAX, 9}},
        {"thread id 0", 64, {REC(24, CLP_REC_THREAD, 0), 0, 1}},
        {"thread kind", 64, {REC(24, CLP_REC_THREAD, 0), 1, 6}},
        {"thread name", 64, {REC(24, CLP_REC_THREAD, 0), 1, 1 | 1ull << 32}},
        {"sample count", 64, {REC(40, CLP_REC_SAMPLE, 1), 0, 1, 0, 1 | 1ull << 32}},
        {"sample thread 0", 64, {REC(40, CLP_REC_SAMPLE, 0), 0, 1, 0, 1ull << 32}},
        {"sample kind", 64, {REC(40, CLP_REC_SAMPLE, 0), 0, 1, 0, 1 | 3ull << 32}},
        {"negative value", 64, {REC(40, CLP_REC_SAMPLE, 0), 0, UINT64_MAX, 0, 1 | 1ull << 32}},
        {"huge value", 64, {REC(40, CLP_REC_SAMPLE, 0), 0, 1ull << 60, 0, 1 | 1ull << 32}},
        {"span too short", 64, {REC(40, CLP_REC_SPAN, 0), 1, 1, 1, 1}},
        {"span of thread 0", 64, {REC(48, CLP_REC_SPAN, 0), 0, 1, 1, 1, 1}},
        {"span without trace", 64, {REC(48, CLP_REC_SPAN, 0), 1, 0, 0, 1, 1}},
        {"span id 0", 64, {REC(48, CLP_REC_SPAN, 0), 1, 1, 1, 0, 1}},
        {"endpoint [other]", 64, {REC(24, CLP_REC_ENDPOINT, 0), 1 | 1ull << 32}},
        {"endpoint without name", 64, {REC(24, CLP_REC_ENDPOINT, 0), 2}},
        {"endpoint name beyond the record", 64, {REC(24, CLP_REC_ENDPOINT, 0), 2 | 9ull << 32}},
        {"endpoint name too long", RING, {REC(512, CLP_REC_ENDPOINT, 0), 2 | 201ull << 32}},
        {"root 0 that counts nothing", 64, {REC(24, CLP_REC_ROOT, 0), 0, 2}},
        {"root without endpoint", 64, {REC(24, CLP_REC_ROOT, 0), 1, 0}},
        {"root too long", 64, {REC(32, CLP_REC_ROOT, 0), 1, 2}},
        {"end of a body", 64, {REC(16, CLP_REC_GONE, 0), 4 | 1ull << 32}},
        {"end of nothing", 64, {REC(16, CLP_REC_GONE, 0), 3}},
        {"end too long", 64, {REC(24, CLP_REC_GONE, 0), 3 | 1ull << 32}},
        {"frame kind 0", 64, {REC(48, CLP_REC_SAMPLE, 1), 0, 1, 0, 1 | 1ull << 32, 1}},
        {"frame kind 9", 64, {REC(48, CLP_REC_SAMPLE, 1), 0, 1, 0, 1 | 1ull << 32, 9ull << 60}},
        {"native frame without image",
         64,
         {REC(48, CLP_REC_SAMPLE, 1), 0, 1, 0, 1 | 1ull << 32, 2ull << 60}},
        {"special of nothing",
         64,
         {REC(48, CLP_REC_SAMPLE, 1), 0, 1, 0, 1 | 1ull << 32, 3ull << 60 | 4000ull << 32}},
        {"mark of another size", 64, {REC(32, CLP_REC_MARK, 0)}},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        setup(state);
        struct pair *p = *state;
        memcpy(ring_bytes(p), cases[i].words, sizeof(cases[i].words));
        atomic_store(&header(p)->head, cases[i].bytes);
        assert_int_equal(clp_reader_poll(p->reader), cases[i].bytes);
        struct clp_reader_record rec;
        if (clp_reader_next(p->reader, &rec) != -EBADMSG)
            fail_msg("accepted: %s", cases[i].what);
        expect_bad(p);
        teardown(state);
    }
}

/* A record may not run over the ring's end even when enough bytes are published. */
static void test_record_over_the_end_is_refused(void **state)
{
    struct pair *p = *state;
    struct clp_reader_record rec;
    for (int i = 0; i < 4; i++) {
        uint32_t size = i < 3 ? CLP_WIRE_RECORD_MAX_BYTES : CLP_WIRE_RECORD_MAX_BYTES - 16;
        uint64_t pad = REC(size, CLP_REC_PAD, 0);
        memcpy(ring_bytes(p) + i * CLP_WIRE_RECORD_MAX_BYTES, &pad, 8);
    }
    uint64_t over = REC(24, CLP_REC_MARK, 0);
    memcpy(ring_bytes(p) + RING - 16, &over, 8);
    atomic_store(&header(p)->head, RING - 16);
    assert_int_equal(clp_reader_poll(p->reader), RING - 16);
    assert_int_equal(clp_reader_next(p->reader, &rec), 0); /* padding alone is nothing */
    atomic_store(&header(p)->head, RING + 64);
    assert_int_equal(clp_reader_poll(p->reader), 80);
    expect_bad(p);
}

struct scribbler {
    struct pair *pair;
    _Atomic bool stop;
};

/* Writes valid and random bytes over everything while the reader reads. */
static void *scribble(void *arg)
{
    struct scribbler *s = arg;
    uint64_t x = 88172645463325252ull, head = 0;
    uint64_t *words = (uint64_t *)ring_bytes(s->pair);
    while (!atomic_load(&s->stop)) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint32_t at = (uint32_t)(x >> 20) % (RING / 8);
        uint32_t size = 8 * (uint32_t)(x % 64);
        atomic_store((_Atomic uint64_t *)&words[at], x & 1 ? x : REC(size, (x >> 9) % 8, x % 5));
        head += 8 * (x % 512);
        atomic_store(&header(s->pair)->head, head);
    }
    return NULL;
}

static void test_bytes_that_change_meanwhile(void **state)
{
    for (int round = 0; round < 200; round++) {
        setup(state);
        struct pair *p = *state;
        struct scribbler s = {.pair = p};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, scribble, &s), 0);
        struct clp_reader_record rec;
        uint64_t seen = 0;
        for (int i = 0; i < 50 && clp_reader_poll(p->reader) >= 0; i++)
            while (clp_reader_next(p->reader, &rec) == 1)
                if (rec.type == CLP_REC_SAMPLE)
                    for (uint16_t f = 0; f < rec.sample.rec->rec.count; f++)
                        seen += rec.sample.frames[f] >> 60 <= CLP_FRAME_UNKNOWN;
        assert_true(seen < RING * 200ull);
        atomic_store(&s.stop, true);
        pthread_join(thread, NULL);
        teardown(state);
    }
}

/* ---- two processes ---- */

static void send_fd(int sock, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(int));
    assert_int_equal(sendmsg(sock, &m, 0), 1);
}

static int receive_fd(int sock)
{
    char control[CMSG_SPACE(sizeof(int))];
    char byte;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    int fd = -1;
    if (recvmsg(sock, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return fd;
}

enum { TRANSFERS = 60000 };

static void write_from_another_process(int sock)
{
    size_t bytes;
    struct clp_ring ring;
    int fd = receive_fd(sock);
    if (fd < 0 || clp_wire_memory_check(fd, &bytes) < 0)
        _exit(2);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || clp_ring_open(&ring, p, bytes) < 0)
        _exit(3);
    for (uint32_t i = 0; i < TRANSFERS; i++)
        while (!put_sample(&ring, i, i % 90))
            usleep(100);
    _exit(ftruncate(fd, 4096) == 0 ? 4 : 0); /* the seal must hold against the target as well */
}

static void test_two_processes(void **state)
{
    int socks[2], fd, status;
    void *mapping;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        write_from_another_process(socks[1]);
    assert_int_equal(clp_wire_memory_create(RING, &fd, &mapping), 0);
    send_fd(socks[0], fd);
    struct clp_reader *reader;
    struct clp_reader_record rec;
    assert_int_equal(clp_reader_new(mapping, RING, &reader), 0);
    for (uint32_t n = 0, idle = 0; n < TRANSFERS;) {
        assert_true(clp_reader_poll(reader) >= 0);
        uint32_t before = n;
        for (; clp_reader_next(reader, &rec) == 1; n++)
            check_sample(&rec, n, n % 90);
        idle = n == before ? idle + 1 : 0;
        assert_true(idle < 100000);
        if (n == before)
            usleep(100);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    clp_reader_free(reader);
    munmap(mapping, CLP_WIRE_HEADER_BYTES + RING);
    close(fd);
    close(socks[0]);
    close(socks[1]);
}

/* ---- memory and messages ---- */

static void test_memory_that_is_not_sealed_or_not_whole(void **state)
{
    size_t bytes = 0;
    (void)state;
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    const off_t size = CLP_WIRE_HEADER_BYTES + RING;
    static const struct {
        int seals;
        off_t size;
        bool allocate;
        int expect;
    } cases[] = {
        {seals, size, true, 0},
        {0, size, true, -EPERM},
        {F_SEAL_GROW, size, true, -EPERM},
        {seals, size, false, -ENOSPC},
        {seals, size - 8, true, -EINVAL},
        {seals, 4096, true, -EINVAL},
        {seals, CLP_WIRE_HEADER_BYTES + RING / 2, true, -EINVAL},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        int fd = memfd_create("t", MFD_ALLOW_SEALING);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, cases[i].size), 0);
        if (cases[i].allocate)
            assert_int_equal(fallocate(fd, 0, 0, cases[i].size), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, cases[i].seals), 0);
        assert_int_equal(clp_wire_memory_check(fd, &bytes), cases[i].expect);
        close(fd);
    }
    assert_int_equal(bytes, size);
    int fd = open("/dev/null", O_RDWR);
    assert_int_equal(clp_wire_memory_check(fd, &bytes), -EPERM);
    close(fd);
    void *p;
    assert_int_equal(clp_wire_memory_create(RING + 8, &fd, &p), -EINVAL);
    assert_int_equal(clp_wire_memory_create(CLP_WIRE_RING_MAX_BYTES * 2, &fd, &p), -EINVAL);
}

static void test_ring_of_another_version_is_refused(void **state)
{
    struct pair *p = *state;
    struct clp_ring ring;
    const size_t bytes = CLP_WIRE_HEADER_BYTES + RING;
    header(p)->version++;
    assert_int_equal(clp_ring_open(&ring, p->mapping, bytes), -EPROTO);
    header(p)->version--;
    header(p)->ring_bytes = RING * 2;
    assert_int_equal(clp_ring_open(&ring, p->mapping, bytes), -EPROTO);
    header(p)->ring_bytes = RING;
    header(p)->magic ^= 1;
    assert_int_equal(clp_ring_open(&ring, p->mapping, bytes), -EPROTO);
    header(p)->magic ^= 1;
    assert_int_equal(clp_ring_open(&ring, p->mapping, bytes), 0);
}

static void test_messages(void **state)
{
    struct clp_msg_hello hello = {.msg = {sizeof(hello), CLP_MSG_HELLO, 0},
                                  .magic = CLP_WIRE_MAGIC,
                                  .version = CLP_WIRE_VERSION,
                                  .library_nonce = "0123456789abcde"};
    char version[16];
    (void)state;
    memset(hello.library_version, 'x', sizeof(hello.library_version)); /* not terminated */
    assert_int_equal(clp_msg_check(&hello, sizeof(hello)), CLP_MSG_HELLO);
    assert_int_equal(clp_msg_check(&hello, sizeof(hello) - 1), -EBADMSG);
    assert_int_equal(clp_msg_check(&hello, 4), -EBADMSG);
    assert_int_equal(clp_msg_hello_check(&hello, hello.library_nonce, version, sizeof(version)), 0);
    assert_string_equal(version, "xxxxxxxxxxxxxxx");
    uint8_t nonce[CLP_NONCE_BYTES];
    memcpy(nonce, hello.library_nonce, sizeof(nonce));
    nonce[15] ^= 1;
    assert_int_equal(clp_msg_hello_check(&hello, nonce, version, sizeof(version)), -EACCES);
    hello.version++;
    assert_int_equal(clp_msg_hello_check(&hello, hello.library_nonce, version, sizeof(version)),
                     -EPROTO);
    struct clp_msg bye = {sizeof(bye), CLP_MSG_BYE, CLP_BYE_DETACH_IF_LAST};
    assert_int_equal(clp_msg_check(&bye, sizeof(bye)), CLP_MSG_BYE);
    bye.type = CLP_MSG_TYPE_COUNT;
    assert_int_equal(clp_msg_check(&bye, sizeof(bye)), -EBADMSG);
}

static void test_attach_data_and_settings(void **state)
{
    struct clp_attach_data d = {.magic = CLP_WIRE_MAGIC, .version = CLP_WIRE_VERSION}, out;
    (void)state;
    strcpy(d.socket_path, "/tmp/x");
    assert_int_equal(clp_attach_data_check(&d, sizeof(d), &out), 0);
    assert_string_equal(out.socket_path, "/tmp/x");
    assert_int_equal(clp_attach_data_check(&d, sizeof(d) - 1, &out), -EINVAL);
    assert_int_equal(clp_attach_data_check(NULL, sizeof(d), &out), -EINVAL);
    memset(d.socket_path, '/', sizeof(d.socket_path));
    assert_int_equal(clp_attach_data_check(&d, sizeof(d), &out), -EINVAL);
    d.socket_path[0] = 0;
    assert_int_equal(clp_attach_data_check(&d, sizeof(d), &out), -EINVAL);

    struct clp_settings wild = {.sample_kinds = UINT32_MAX,
                                .flags = UINT32_MAX,
                                .cpu_interval_ns = 1,
                                .wall_budget_ppm = UINT32_MAX};
    struct clp_settings s = clp_settings_clamp(&wild);
    assert_int_equal(s.sample_kinds,
                     1u << CLP_SAMPLE_CPU | 1u << CLP_SAMPLE_WALL | CLP_SAMPLE_KINDS_EVENT);
    assert_int_equal(s.wall_budget_ppm, CLP_WALL_BUDGET_MAX_PPM);
    assert_int_equal(s.flags, CLP_SETTINGS_NATIVE_STACKS);
    assert_int_equal(s.cpu_interval_ns, CLP_CPU_INTERVAL_MIN_NS);
    wild.cpu_interval_ns = UINT64_MAX;
    assert_int_equal(clp_settings_clamp(&wild).cpu_interval_ns, CLP_CPU_INTERVAL_MAX_NS);
}

static void test_tables_have_a_text_for_everything(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLP_CTR_COUNT; i++) {
        assert_true(strlen(clp_counter_info(i)->name) > 2);
        assert_true(strlen(clp_counter_info(i)->text) > 10);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(clp_counter_info(i)->name, clp_counter_info(k)->name);
    }
    assert_string_equal(clp_counter_info(CLP_CTR_COUNT)->name, "");
    for (uint32_t i = 1; i < CLP_SPECIAL_COUNT; i++)
        assert_int_equal(clp_special_text(i)[0], '[');
    assert_string_equal(clp_special_text(CLP_SPECIAL_TRUNCATED), "[truncated]");
    assert_string_equal(clp_special_text(0), "");
    assert_string_equal(clp_special_text(CLP_SPECIAL_COUNT), "");
}

#define WITH_PAIR(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PAIR(test_round_trip_of_every_record),
        WITH_PAIR(test_texts_are_cleaned),
        WITH_PAIR(test_event_round_trip),
        WITH_PAIR(test_event_with_a_bad_value),
        WITH_PAIR(test_event_that_is_not_a_number),
        WITH_PAIR(test_event_of_a_kind_that_is_none),
        WITH_PAIR(test_event_with_texts_too_long),
        WITH_PAIR(test_event_without_frames),
        WITH_PAIR(test_event_with_only_another_threads_frames),
        WITH_PAIR(test_wrap),
        WITH_PAIR(test_full_ring_refuses_and_recovers),
        WITH_PAIR(test_largest_record_always_fits_an_empty_ring),
        WITH_PAIR(test_writer_doubts_the_tail),
        cmocka_unit_test(test_reader_doubts_the_head),
        cmocka_unit_test(test_malformed_records_are_refused),
        WITH_PAIR(test_record_over_the_end_is_refused),
        cmocka_unit_test(test_bytes_that_change_meanwhile),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_memory_that_is_not_sealed_or_not_whole),
        WITH_PAIR(test_ring_of_another_version_is_refused),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_attach_data_and_settings),
        cmocka_unit_test(test_tables_have_a_text_for_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
