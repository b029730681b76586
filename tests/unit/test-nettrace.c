#include "tests/unit/clp-cmocka.h"

#include "base/strbuf.h"
#include "sampler/nettrace/payload.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/nettrace-writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNTIME "Microsoft-Windows-DotNETRuntime"
#define SEEN_MAX 64

/* What came out: the first ones in detail. */
struct seen {
    uint64_t count, order_broken, last_ticks;
    uint64_t ticks[SEEN_MAX], threads[SEEN_MAX], captures[SEEN_MAX], leaf[SEEN_MAX];
    uint32_t stack_len[SEEN_MAX];
    uint8_t activity[SEEN_MAX][16];
    char text[SEEN_MAX][256];
    uint64_t gaps, gap_thread;
    uint32_t pointer_bytes;
};

static void take_event(void *context, const struct clp_nettrace_event *e)
{
    struct seen *s = context;
    struct clp_strbuf out;
    s->order_broken += e->ticks < s->last_ticks;
    s->last_ticks = e->ticks;
    uint64_t i = s->count++;
    if (i >= SEEN_MAX)
        return;
    s->ticks[i] = e->ticks;
    s->threads[i] = e->thread_id;
    s->captures[i] = e->capture_thread;
    s->stack_len[i] = e->stack_len;
    s->leaf[i] = e->stack_len ? e->stack[0] : 0;
    memcpy(s->activity[i], e->activity, 16);
    clp_strbuf_init(&out, 4096);
    clp_nettrace_print_payload(e, s->pointer_bytes, true, &out);
    snprintf(s->text[i], sizeof(s->text[i]), "%s/%s %s", e->meta->provider, e->meta->name,
             clp_strbuf_text(&out));
    clp_strbuf_done(&out);
}

static void take_gap(void *context, uint64_t capture_thread, uint64_t lost)
{
    struct seen *s = context;
    s->gaps += lost;
    s->gap_thread = capture_thread;
}

static struct seen seen;

static struct clp_nettrace *new_reader(void)
{
    struct clp_nettrace *r;
    struct clp_nettrace_config c = {.event = take_event, .gap = take_gap, .context = &seen};
    seen = (struct seen){.pointer_bytes = 8};
    assert_int_equal(clp_nettrace_new(&c, &r), 0);
    return r;
}

static struct clp_nettrace *read_all(const struct ntw *w, size_t piece)
{
    struct clp_nettrace *r = new_reader();
    for (size_t at = 0; at < w->len; at += piece)
        assert_int_equal(
            clp_nettrace_feed(r, w->bytes + at, at + piece < w->len ? piece : w->len - at), 0);
    return r;
}

static void one_kind(struct ntw *w)
{
    static const struct ntw_field fields[] = {{CLP_FIELD_U32, "Number"}};
    ntw_metadata(w, 1, "Test", 7, "Tick", fields, 1);
}

static void tick(struct ntw *w, uint64_t capture, uint32_t sequence, uint64_t ticks, bool sorted)
{
    uint32_t number = (uint32_t)ticks;
    struct ntw_event e = {.metadata = 1,
                          .sequence = sequence,
                          .thread = capture,
                          .capture = capture,
                          .ticks = ticks,
                          .sorted = sorted,
                          .payload = &number,
                          .payload_len = 4};
    ntw_event(w, &e);
}

/* ---- order ---------------------------------------------------------------------------------- */

static void sorted_events_let_go_of_what_is_older(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    tick(&w, 1, 1, 100, false);
    tick(&w, 1, 2, 300, false);
    tick(&w, 2, 1, 200, false);
    struct clp_nettrace *r = read_all(&w, w.len);
    assert_int_equal(seen.count, 0); /* something older may still come */
    size_t before = w.len;
    tick(&w, 2, 2, 250, true);
    assert_int_equal(clp_nettrace_feed(r, w.bytes + before, w.len - before), 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.ticks[0], 100);
    assert_int_equal(seen.ticks[1], 200);
    assert_int_equal(seen.ticks[2], 250);
    clp_nettrace_finish(r);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.ticks[3], 300);
    assert_int_equal(seen.order_broken, 0);
    assert_false(clp_nettrace_is_complete(r));
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void many_threads_come_out_sorted(void **state)
{
    struct ntw w;
    uint32_t sequence[8] = {0};
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    srand(7);
    for (unsigned batch = 0; batch < 40; batch++) {
        for (unsigned t = 0; t < 8; t++) {
            uint64_t ticks = 1000 + batch * 1000;
            for (unsigned i = 0; i < 50; i++)
                tick(&w, t + 1, ++sequence[t], ticks += (unsigned)rand() % 20, false);
        }
        tick(&w, 1, ++sequence[0], 1990 + batch * 1000, true);
    }
    ntw_end(&w);
    struct clp_nettrace *r = read_all(&w, 1000);
    assert_true(seen.count >= 39 * 401);
    clp_nettrace_finish(r);
    assert_int_equal(seen.count, 40 * 401);
    assert_int_equal(seen.order_broken, 0);
    assert_int_equal(clp_nettrace_counts(r)->late, 0);
    assert_int_equal(clp_nettrace_counts(r)->lost, 0);
    assert_true(clp_nettrace_is_complete(r));
    clp_nettrace_free(r);
    ntw_done(&w);
}

/* A writer that never says what is certain: the ceiling holds, and it is told. */
static void what_is_held_has_a_ceiling(void **state)
{
    struct ntw w;
    size_t high = 0;
    (void)state;
    ntw_begin(&w, 6, 8);
    one_kind(&w);
    struct clp_nettrace *r = read_all(&w, w.len);
    for (uint32_t i = 1; i <= 400000; i += 100) {
        w.len = 0;
        ntw_open(&w, "", 2);
        ntw_block_header(&w, true);
        ntw_put(&w, "\x83\x01", 2); /* metadata, capture, size */
        ntw_uleb(&w, i - 1);
        ntw_put(&w, "\x01\x00", 2);
        ntw_uleb(&w, i);
        ntw_put(&w, "\x00", 1);
        for (unsigned k = 1; k < 100; k++)
            ntw_put(&w, "\x00\x01", 2); /* one tick later, the rest as before */
        ntw_close(&w);
        assert_int_equal(clp_nettrace_feed(r, w.bytes, w.len), 0);
        high = clp_nettrace_bytes(r) > high ? clp_nettrace_bytes(r) : high;
    }
    clp_nettrace_finish(r);
    assert_int_equal(seen.count, 400000);
    assert_int_equal(seen.order_broken, 0); /* it was in order by chance */
    assert_true(clp_nettrace_counts(r)->forced > 0);
    assert_int_equal(clp_nettrace_counts(r)->lost, 0);
    assert_true(high < 50u << 20);
    clp_nettrace_free(r);
    ntw_done(&w);
}

/* ---- what is missing ------------------------------------------------------------------------ */

static void gaps_are_counted_by_thread(void **state)
{
    const uint64_t threads[] = {1, 2, 3};
    const uint32_t sequences[] = {6, 2, 9};
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    tick(&w, 1, 1, 10, false);
    tick(&w, 1, 5, 11, false);                        /* 2, 3, 4 are missing */
    tick(&w, 2, 2, 12, false);                        /* so is the first of thread 2 */
    ntw_sequence_point(&w, 0, threads, sequences, 3); /* one of thread 1, all nine of thread 3 */
    tick(&w, 1, 1, 20, true);                         /* a new thread with an old number */
    struct clp_nettrace *r = read_all(&w, 3);
    assert_int_equal(clp_nettrace_counts(r)->lost, 3 + 1 + 1 + 9);
    assert_int_equal(seen.gaps, 14);
    assert_int_equal(seen.gap_thread, 3);
    assert_int_equal(clp_nettrace_thread_lost(r, 1), 4);
    assert_int_equal(clp_nettrace_thread_lost(r, 2), 1);
    assert_int_equal(clp_nettrace_thread_lost(r, 3), 9);
    assert_int_equal(seen.count, 4);
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void a_cut_stream_gives_all_whole_blocks(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    tick(&w, 1, 1, 10, false);
    tick(&w, 1, 2, 11, false);
    size_t two = w.len - 1; /* without the end tag of the second block */
    tick(&w, 1, 3, 12, false);
    ntw_end(&w);
    for (size_t len = two; len <= w.len; len++) {
        struct clp_nettrace *r = new_reader();
        assert_int_equal(clp_nettrace_feed(r, w.bytes, len), 0);
        clp_nettrace_finish(r);
        assert_int_equal(seen.count, len >= w.len - 2 ? 3 : 2);
        assert_int_equal(clp_nettrace_is_complete(r), len == w.len);
        assert_int_equal(clp_nettrace_counts(r)->bad_blocks, 0);
        clp_nettrace_free(r);
    }
    ntw_done(&w);
}

/* ---- contents ------------------------------------------------------------------------------- */

static void pieces_of_any_size_are_the_same(void **state)
{
    (void)state;
    for (unsigned version = 4; version <= 6; version++) {
        const uint64_t frames[] = {0xa1, 0xa2, 0xb1, 0xb2};
        const uint64_t thread = 5;
        const uint32_t sequence = 2;
        struct seen whole = {0};
        struct ntw w;
        ntw_begin(&w, version, 8);
        one_kind(&w);
        ntw_stacks(&w, 1, frames, 2, 2);
        struct ntw_event e = {.metadata = 1, .sequence = 1, .stack = 2, .capture = 5, .ticks = 9};
        ntw_event(&w, &e);
        ntw_sequence_point(&w, 0, &thread, &sequence, 1);
        ntw_end(&w);
        for (size_t piece = w.len; piece >= 1; piece--) {
            struct clp_nettrace *r = read_all(&w, piece);
            assert_true(clp_nettrace_is_complete(r));
            assert_int_equal(clp_nettrace_info(r)->version, version);
            assert_int_equal(clp_nettrace_info(r)->pid, 4711);
            assert_int_equal(clp_nettrace_counts(r)->lost, 1);
            assert_int_equal(seen.count, 1);
            assert_int_equal(seen.leaf[0], 0xb1);
            if (piece == w.len)
                whole = seen;
            assert_memory_equal(&whole, &seen, sizeof(seen));
            clp_nettrace_free(r);
        }
        ntw_done(&w);
    }
}

static void stacks_begin_anew_at_a_sequence_point(void **state)
{
    const uint64_t first[] = {0x1000}, second[] = {0x2000};
    struct ntw w;
    struct ntw_event e = {.metadata = 1, .sequence = 1, .stack = 1, .capture = 1, .ticks = 1};
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    ntw_stacks(&w, 1, first, 1, 1);
    ntw_event(&w, &e);
    ntw_sequence_point(&w, 0, NULL, NULL, 0);
    ntw_stacks(&w, 1, second, 1, 1);
    e.sequence = 2;
    ntw_event(&w, &e);
    e.sequence = 3;
    e.stack = 2; /* is not there */
    ntw_event(&w, &e);
    struct clp_nettrace *r = read_all(&w, w.len);
    clp_nettrace_finish(r);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.leaf[0], 0x1000);
    assert_int_equal(seen.leaf[1], 0x2000);
    assert_int_equal(seen.stack_len[2], 0);
    assert_int_equal(clp_nettrace_counts(r)->no_stack, 1);
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void plain_headers_and_narrow_frames(void **state)
{
    const uint64_t frames[] = {0x0000000200000001ull}; /* two of 4 bytes */
    struct ntw w;
    uint32_t number = 42;
    struct ntw_event e = {.metadata = 1,
                          .sequence = 1,
                          .stack = 1,
                          .capture = 3,
                          .thread = 4,
                          .ticks = 77,
                          .payload = &number,
                          .payload_len = 4};
    (void)state;
    ntw_begin(&w, 4, 4);
    one_kind(&w);
    ntw_stacks(&w, 1, frames, 1, 1);
    ntw_open(&w, "EventBlock", 2);
    ntw_block_header(&w, false);
    ntw_event_plain(&w, &e);
    e.sequence = 2;
    e.sorted = true;
    ntw_event_plain(&w, &e);
    ntw_close(&w);
    struct clp_nettrace *r = read_all(&w, w.len);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.threads[0], 4);
    assert_int_equal(seen.captures[0], 3);
    assert_int_equal(seen.stack_len[1], 2);
    assert_int_equal(seen.leaf[1], 1);
    assert_string_equal(seen.text[1], "Test/Tick {\"Number\":42}");
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void the_runtimes_events_are_known_by_the_table(void **state)
{
    static const uint8_t activity[16] = {1, 2, 3};
    struct ntw w, p = {.version = 4, .bytes = malloc(NTW_MAX_BYTES)};
    (void)state;
    ntw_begin(&w, 4, 8);
    ntw_metadata(&w, 9, RUNTIME, 80, "", NULL, 0);
    ntw_metadata(&w, 10, RUNTIME, 15, "", NULL, 0);
    ntw_text16(&p, "System.Exception");
    ntw_text16(&p, "a \"b\"");
    ntw_u64(&p, 0x1234);
    ntw_u32(&p, 0x80131500);
    ntw_u16(&p, 3); /* an older version: ClrInstanceID is not there */
    struct ntw_event e = {.metadata = 9,
                          .sequence = 1,
                          .capture = 1,
                          .ticks = 5,
                          .sorted = true,
                          .activity = activity,
                          .payload = p.bytes,
                          .payload_len = (uint32_t)p.len};
    ntw_event(&w, &e);
    p.len = 0;
    ntw_u32(&p, 1); /* rows with rows of their own, and more behind than the table knows */
    ntw_u16(&p, 0);
    ntw_u64(&p, 11);
    ntw_u64(&p, 12);
    ntw_u32(&p, 13);
    ntw_u32(&p, 14);
    ntw_put(&p, "\x0f", 1);
    ntw_text16(&p, "T");
    ntw_u32(&p, 2);
    ntw_u64(&p, 21);
    ntw_u64(&p, 22);
    ntw_put(&p, "\xab\xcd", 2);
    e = (struct ntw_event){.metadata = 10,
                           .sequence = 2,
                           .capture = 1,
                           .ticks = 6,
                           .sorted = true,
                           .payload = p.bytes,
                           .payload_len = (uint32_t)p.len};
    ntw_event(&w, &e);
    struct clp_nettrace *r = read_all(&w, w.len);
    assert_int_equal(seen.count, 2);
    assert_string_equal(seen.text[0],
                        RUNTIME "/ExceptionThrown {\"ExceptionType\":\"System.Exception\","
                                "\"ExceptionMessage\":\"a \\\"b\\\"\",\"ExceptionEIP\":\"0x1234\","
                                "\"ExceptionHRESULT\":2148734208,\"ExceptionFlags\":3}");
    assert_memory_equal(seen.activity[0], activity, 16);
    assert_string_equal(seen.text[1], RUNTIME
                        "/BulkType {\"Count\":1,\"ClrInstanceID\":0,\"Values\":[{\"TypeID\":11,"
                        "\"ModuleID\":12,\"TypeNameID\":13,\"Flags\":14,"
                        "\"CorElementType\":15,\"Name\":\"T\",\"TypeParameterCount\":2,"
                        "\"TypeParameters\":[21,22]}],\"rest\":\"abcd\"}");
    clp_nettrace_free(r);
    ntw_done(&w);
    ntw_done(&p);
}

/* Version 6: threads have indexes, labels carry the activity, metadata may be flushed. */
static void version_6(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 6, 8);
    one_kind(&w);
    ntw_open(&w, "", 6);
    ntw_u16(&w, 9);
    ntw_put(&w, "\x01\x01\x04main\x03\x63", 9); /* index 1: "main", number 99 */
    ntw_close(&w);
    ntw_open(&w, "", 8);
    ntw_u32(&w, 1);
    ntw_u32(&w, 2);
    ntw_put(&w, "\x84\1\2\3\4\5\6\7\x08", 9); /* a span: nothing for us */
    ntw_put(&w,
            "\x81"
            "0123456789abcdef",
            17);
    ntw_close(&w);
    ntw_open(&w, "", 77); /* of a later version */
    ntw_u32(&w, 5);
    ntw_close(&w);
    struct ntw_event e = {.metadata = 1,
                          .sequence = 1,
                          .thread = 1,
                          .capture = 1,
                          .ticks = 3,
                          .labels = 2,
                          .processor = 1};
    ntw_event(&w, &e);
    ntw_open(&w, "", 7);
    ntw_put(&w, "\x01\x03", 2); /* thread 1 ends with number 3: two are missing */
    ntw_close(&w);
    ntw_sequence_point(&w, 2, NULL, NULL, 0);
    e.sequence = 1;
    e.labels = 0;
    ntw_event(&w, &e); /* its metadata is gone */
    ntw_end(&w);
    struct clp_nettrace *r = read_all(&w, w.len);
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.threads[0], 99);
    assert_int_equal(seen.captures[0], 99);
    assert_memory_equal(seen.activity[0], "0123456789abcdef", 16);
    assert_int_equal(clp_nettrace_counts(r)->lost, 2);
    assert_int_equal(clp_nettrace_counts(r)->no_metadata, 1);
    assert_true(clp_nettrace_is_complete(r));
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void time_of_the_stream(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    struct clp_nettrace *r = read_all(&w, w.len);
    /* 2026-02-03 04:05:06.007 UTC at tick 1000. */
    assert_int_equal(clp_nettrace_unix_ns(r, 1000), 1770091506007000000ull);
    assert_int_equal(clp_nettrace_unix_ns(r, 1001), 1770091506007000001ull);
    assert_int_equal(clp_nettrace_unix_ns(r, 0), 1770091506007000000ull - 1000);
    clp_nettrace_free(r);
    ntw_done(&w);
}

/* ---- what does not hold --------------------------------------------------------------------- */

static void broken_frames_end_the_stream(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"GIF89a..", 8},
        {"Nettrace\0\0\0\0\x05\0\0\0\0\0\0\0", 20},
        {"Nettrace\0\0\0\0\x07\0\0\0\0\0\0\0", 20},
        {"Nettrace\x14\0\0\0!FastSerialization.9", 32},
        {"Nettrace\x14\0\0\0!FastSerialization.1\x07\x05\x01\0\0\0\0\0\0\0\0\0\0\0\0", 47},
        {"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0\x02\0\0\x02\0\0", 26}, /* events first */
        {"Nettrace\0\0\0\0\x06\0\0\0\0\0\0\0\x02\0\0\x01\0\0", 26}, /* no room for a trace */
    };
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad); i++) {
        struct clp_nettrace *r = new_reader();
        assert_int_equal(clp_nettrace_feed(r, bad[i].bytes, bad[i].len), -EPROTO);
        assert_true(strlen(clp_nettrace_problem(r)) > 10);
        assert_int_equal(clp_nettrace_feed(r, "x", 1), -EPROTO);
        clp_nettrace_finish(r);
        assert_int_equal(seen.count, 0);
        clp_nettrace_free(r);
    }
}

static void a_bad_block_costs_no_other(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    ntw_open(&w, "EventBlock", 2);
    ntw_block_header(&w, true);
    ntw_put(&w, "\x81\x01\x05\xff\x7f", 5); /* a payload longer than the block */
    ntw_close(&w);
    tick(&w, 1, 1, 9, true);
    struct clp_nettrace *r = read_all(&w, w.len);
    assert_int_equal(seen.count, 1);
    assert_int_equal(clp_nettrace_counts(r)->bad_blocks, 1);
    clp_nettrace_free(r);
    ntw_done(&w);
}

static void memory_that_is_refused_is_an_error(void **state)
{
    struct ntw w;
    (void)state;
    ntw_begin(&w, 4, 8);
    one_kind(&w);
    for (uint32_t i = 1; i < 3000; i++)
        tick(&w, i % 50 + 1, i / 50 + 1, i, false);
    ntw_end(&w);
    for (uint64_t allowed = 0; allowed < 60; allowed++) {
        struct clp_nettrace *r = NULL;
        struct clp_nettrace_config c = {.event = take_event, .context = &seen};
        seen = (struct seen){.pointer_bytes = 8};
        alloc_fail_after(allowed, 1);
        int e = clp_nettrace_new(&c, &r);
        if (e == 0)
            e = clp_nettrace_feed(r, w.bytes, w.len);
        uint64_t failures = alloc_fail_stop();
        if (failures == 0)
            assert_int_equal(e, 0);
        else
            assert_true(e == -ENOMEM || (e == 0 && clp_nettrace_counts(r)->threads_refused > 0));
        if (r)
            clp_nettrace_finish(r);
        clp_nettrace_free(r);
    }
    ntw_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorted_events_let_go_of_what_is_older),
        cmocka_unit_test(many_threads_come_out_sorted),
        cmocka_unit_test(what_is_held_has_a_ceiling),
        cmocka_unit_test(gaps_are_counted_by_thread),
        cmocka_unit_test(a_cut_stream_gives_all_whole_blocks),
        cmocka_unit_test(pieces_of_any_size_are_the_same),
        cmocka_unit_test(stacks_begin_anew_at_a_sequence_point),
        cmocka_unit_test(plain_headers_and_narrow_frames),
        cmocka_unit_test(the_runtimes_events_are_known_by_the_table),
        cmocka_unit_test(version_6),
        cmocka_unit_test(time_of_the_stream),
        cmocka_unit_test(broken_frames_end_the_stream),
        cmocka_unit_test(a_bad_block_costs_no_other),
        cmocka_unit_test(memory_that_is_refused_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
