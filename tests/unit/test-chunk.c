#include "tests/unit/clp-cmocka.h"

#include "tests/unit/alloc-fail.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/chunk.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t profile[] = "profile bytes";

static uint8_t *make(const struct clp_upload_header *h, size_t *len)
{
    uint8_t *data = NULL;
    assert_int_equal(clp_chunk_write(h, profile, sizeof(profile), &data, len), 0);
    return data;
}

static void comes_back_as_it_was(void **state)
{
    (void)state;
    struct clp_chunk c;
    size_t len;
    struct clp_upload_header h = header_of(3);
    h.container_id = NULL;
    h.service = "bad \xff utf-8";
    h.endpoints = (struct clp_upload_number[]){{"GET /a", 3}, {"GET /b", INFINITY}, {"GET /c", 4}};
    h.endpoint_count = 3;
    uint8_t *data = make(&h, &len);
    assert_memory_equal(data, "CLPCHUNK\1\0\0\0", 12);
    assert_int_equal(clp_chunk_read(data, len, &c, NULL), 0);
    assert_string_equal(c.header.service, "bad \xef\xbf\xbd utf-8");
    assert_string_equal(c.header.env, "production");
    assert_string_equal(c.header.version, "1.2.3");
    assert_string_equal(c.header.host, "node-1");
    assert_string_equal(c.header.runtime_id, FIXTURE_RUNTIME);
    assert_string_equal(c.header.runtime_version, "10.0.1");
    assert_string_equal(c.header.container_id, "");
    assert_int_equal(c.header.tag_count, 4);
    assert_string_equal(c.header.tags[3], "region:eu");
    assert_int_equal(c.header.pid, 4242);
    assert_int_equal(c.header.ns_pid, 7);
    assert_int_equal(c.header.seq, 3);
    assert_int_equal(c.header.start_unix_ns, h.start_unix_ns);
    assert_int_equal(c.header.duration_ns, h.duration_ns);
    assert_int_equal(c.header.endpoint_count, 2);
    assert_string_equal(c.header.endpoints[1].name, "GET /c");
    assert_true(c.header.endpoints[1].value == 4);
    assert_int_equal(c.profile_len, sizeof(profile));
    assert_memory_equal(c.profile, profile, sizeof(profile));
    clp_chunk_done(&c);
    clp_chunk_done(&c);
    free(data);
}

/* Whatever is cut off or turned over, it is never taken for a profile. */
static void damage_is_seen(void **state)
{
    (void)state;
    struct clp_chunk c;
    const char *why = NULL;
    size_t len;
    struct clp_upload_header h = header_of(3);
    uint8_t *data = make(&h, &len);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(clp_chunk_read(data, cut, &c, &why), -EBADMSG);
        assert_non_null(why);
    }
    for (size_t at = 0; at < len; at++)
        for (int bit = 0; bit < 8; bit++) {
            data[at] ^= (uint8_t)(1 << bit);
            assert_int_equal(clp_chunk_read(data, len, &c, NULL), -EBADMSG);
            data[at] ^= (uint8_t)(1 << bit);
        }
    uint8_t *longer = realloc(data, len + 1);
    longer[len] = 0;
    assert_int_equal(clp_chunk_read(longer, len + 1, &c, &why), -EBADMSG);
    assert_non_null(strstr(why, "longer"));
    free(longer);
}

static void ceilings_hold(void **state)
{
    (void)state;
    static char big[100000];
    static const char *tags[CLP_UPLOAD_TAGS_MAX + 1];
    uint8_t *data = NULL;
    size_t len;
    struct clp_chunk c;
    struct clp_upload_header h = header_of(0);
    memset(big, 'x', sizeof(big) - 1);
    for (size_t i = 0; i < CLP_ARRAY_LEN(tags); i++)
        tags[i] = big;
    h.service = big;
    h.tags = tags;
    h.tag_count = CLP_UPLOAD_TAGS_MAX + 1;
    assert_int_equal(clp_chunk_write(&h, profile, 1, &data, &len), -EFBIG);
    h.tag_count = CLP_UPLOAD_TAGS_MAX; /* texts are cut, and the last tags left out */
    h.endpoints = &(struct clp_upload_number){big, 3};
    h.endpoint_count = 1;
    assert_int_equal(clp_chunk_write(&h, profile, 1, &data, &len), 0);
    assert_int_equal(clp_chunk_read(data, len, &c, NULL), 0);
    assert_int_equal(strlen(c.header.service), 1023);
    assert_in_range(c.header.tag_count, 50, CLP_UPLOAD_TAGS_MAX - 1);
    assert_int_equal(c.header.endpoint_count, 0);
    clp_chunk_done(&c);
    free(data);
    h.tag_count = 8;
    assert_int_equal(clp_chunk_write(&h, profile, 1, &data, &len), 0);
    assert_int_equal(clp_chunk_read(data, len, &c, NULL), 0);
    assert_int_equal(c.header.tag_count, 8);
    assert_int_equal(strlen(c.header.endpoints[0].name), 255);
    clp_chunk_done(&c);
    free(data);
    assert_int_equal(
        clp_chunk_write(&h, profile, (size_t)CLP_CHUNK_PROFILE_MAX_BYTES + 1, &data, &len), -EFBIG);
}

static void memory_may_be_short(void **state)
{
    (void)state;
    struct clp_upload_header h = header_of(0);
    size_t len;
    uint64_t failed = 1;
    for (uint64_t allowed = 0; failed; allowed++) {
        uint8_t *data = NULL;
        struct clp_chunk c;
        alloc_fail_after(allowed, 1);
        int r = clp_chunk_write(&h, profile, sizeof(profile), &data, &len);
        int read = r == 0 ? clp_chunk_read(data, len, &c, NULL) : r;
        failed = alloc_fail_stop();
        assert_true(r == 0 || r == -ENOMEM);
        assert_true(read == 0 || failed);
        if (read == 0)
            clp_chunk_done(&c);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_as_it_was),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(ceilings_hold),
        cmocka_unit_test(memory_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
