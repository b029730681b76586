/* Any order of records that the ring's reader lets through, with ids that nothing defines, defined
 * twice, renamed: the total of the profile must be the sum of the samples' values, and it must
 * encode. */
#include "agent/profile_build.h"
#include "base/core/bytes.h"
#include "pprof/encode.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 64

static struct clp_build *build;
static double expected;

/* Up to 63 letters of the input; what is no ASCII becomes 'x', as the reader lets only UTF-8
 * through. */
static const char *text(struct clp_bytes *b, char *buf)
{
    size_t n = clp_bytes_u8(b) % TEXT_MAX, left = clp_bytes_left(b);
    const uint8_t *p = clp_bytes_take(b, CLP_MIN(n, left));
    n = p ? (size_t)(b->at - p) : 0;
    for (size_t i = 0; i < n; i++)
        buf[i] = p[i] >= 0x20 && p[i] < 0x7f ? (char)p[i] : 'x';
    buf[n] = '\0';
    return buf;
}

static void image(struct clp_bytes *b)
{
    char path[TEXT_MAX];
    struct clp_rec_image rec = {.image_id = clp_bytes_u8(b) % 8u + 1,
                                .kind = (uint16_t)(clp_bytes_u8(b) % 4u + 1),
                                .build_id_len = clp_bytes_u8(b) % 33u,
                                .start = clp_bytes_u32(b),
                                .end = clp_bytes_u64(b),
                                .bias = clp_bytes_u64(b)};
    static const uint8_t build_id[32] = {1, 2, 3};
    struct clp_reader_record r = {
        .type = CLP_REC_IMAGE, .image = {.rec = &rec, .build_id = build_id, .path = text(b, path)}};
    clp_build_record(build, &r);
}

static void method(struct clp_bytes *b)
{
    char t[5][TEXT_MAX];
    struct clp_rec_method rec = {.method_id = clp_bytes_u8(b) % 32u,
                                 .image_id = clp_bytes_u8(b) % 8u,
                                 .flags = clp_bytes_u8(b) & 0x3f};
    struct clp_reader_record r = {.type = CLP_REC_METHOD,
                                  .method = {.rec = &rec,
                                             .type = text(b, t[0]),
                                             .name = text(b, t[1]),
                                             .type_args = text(b, t[2]),
                                             .method_args = text(b, t[3]),
                                             .signature = text(b, t[4])}};
    clp_build_record(build, &r);
}

static void body(struct clp_bytes *b)
{
    struct clp_rec_body rec = {.body_id = clp_bytes_u8(b) % 64u,
                               .method_id = clp_bytes_u8(b) % 32u};
    struct clp_reader_record r = {.type = CLP_REC_BODY, .body = {.rec = &rec}};
    clp_build_record(build, &r);
}

static void thread(struct clp_bytes *b)
{
    char name[TEXT_MAX];
    struct clp_rec_thread rec = {.thread_id = clp_bytes_u8(b) % 16u,
                                 .tid = (int32_t)clp_bytes_u32(b),
                                 .kind = clp_bytes_u8(b) % 5u + 1};
    struct clp_reader_record r = {.type = CLP_REC_THREAD,
                                  .thread = {.rec = &rec, .name = text(b, name)}};
    clp_build_record(build, &r);
}

static void sample(struct clp_bytes *b)
{
    uint64_t frames[16];
    struct clp_rec_sample rec = {.thread_id = clp_bytes_u8(b) % 16u,
                                 .kind = CLP_SAMPLE_CPU,
                                 .flags = clp_bytes_u8(b) & CLP_SAMPLE_FLAGS_ALL,
                                 .value = clp_bytes_u16(b)};
    rec.rec.count = clp_bytes_u8(b) % 16u;
    for (unsigned i = 0; i < rec.rec.count; i++) {
        enum clp_frame_kind kind = (enum clp_frame_kind)(clp_bytes_u8(b) % 4u + 1);
        uint32_t id = clp_bytes_u8(b) % 64u;
        frames[i] = clp_frame_make(kind, id, clp_bytes_u16(b));
    }
    struct clp_reader_record r = {.type = CLP_REC_SAMPLE,
                                  .sample = {.rec = &rec, .frames = frames}};
    clp_build_record(build, &r);
    expected += (double)rec.value;
}

static void finish(struct clp_bytes *b)
{
    struct clp_build_window w = {.start_unix_ns = 1, .duration_ns = 2};
    struct clp_profile *p;
    struct clp_encoded e;
    for (unsigned c = 0; c < 4; c++)
        w.counters[c] = clp_bytes_u64(b);
    if (clp_build_finish(build, &w, &p) < 0)
        abort();
    if (clp_profile_total(p, 0) != expected || clp_profile_encode(p, NULL, &e) < 0)
        abort();
    clp_encoded_done(&e);
    clp_profile_free(p);
    expected = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ops[])(struct clp_bytes *) = {image, method, body, thread, sample, finish};
    struct clp_bytes b = clp_bytes_of(data, size);
    struct clp_symbols *symbols;
    struct clp_build_config c = {.root_fd = -1, .pid = 1, .ns_pid = 2, .main_binary = "/main"};
    if (clp_symbols_new(NULL, &symbols) < 0)
        return 0;
    c.symbols = symbols;
    if (clp_build_new(&c, &build) < 0)
        abort();
    expected = 0;
    while (clp_bytes_left(&b) > 0 && !b.bad)
        ops[clp_bytes_u8(&b) % CLP_ARRAY_LEN(ops)](&b);
    finish(&b);
    clp_build_free(build);
    clp_symbols_free(symbols);
    return 0;
}
