#include "tests/unit/clp-cmocka.h"

#include "sampler/eventpipe/ipc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct clp_ipc_request req;

static void requests_without_payload(void **state)
{
    (void)state;
    clp_ipc_encode_process_info(&req, CLP_IPC_INFO_1);
    assert_int_equal(req.len, 20);
    assert_memory_equal(req.bytes, "DOTNET_IPC_V1\0\x14\0\x04\0\0\0", 20);
    clp_ipc_encode_process_info(&req, CLP_IPC_INFO_2);
    assert_memory_equal(req.bytes, "DOTNET_IPC_V1\0\x14\0\x04\x04\0\0", 20);
    /* A payload here makes runtimes answer with bytes that they never wrote. */
    clp_ipc_encode_process_info(&req, CLP_IPC_INFO_3);
    assert_int_equal(req.len, 20);
    assert_memory_equal(req.bytes, "DOTNET_IPC_V1\0\x14\0\x04\x08\0\0", 20);
    clp_ipc_encode_resume(&req);
    assert_int_equal(req.len, 20);
    assert_memory_equal(req.bytes, "DOTNET_IPC_V1\0\x14\0\x04\x01\0\0", 20);
}

static const uint8_t guid[CLP_GUID_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void attach_bytes(void **state)
{
    (void)state;
    /* /é😀: one unit, one unit, a surrogate pair, NUL. */
    static const uint8_t want[] = "DOTNET_IPC_V1\0"
                                  "\x3d\0\x03\x01\0\0"
                                  "\x88\x13\0\0"
                                  "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
                                  "\x05\0\0\0"
                                  "/\0\xe9\0\x3d\xd8\x00\xde\0\0"
                                  "\x03\0\0\0"
                                  "abc";
    assert_int_equal(clp_ipc_encode_attach(&req, 5000, guid, "/\xc3\xa9\xf0\x9f\x98\x80", "abc", 3),
                     0);
    assert_int_equal(req.len, sizeof(want) - 1);
    assert_memory_equal(req.bytes, want, req.len);
}

/* What may never be sent: a runtime of version 8 or 9 dies of an empty payload. */
static void attach_refuses_what_would_be_empty_or_wrong(void **state)
{
    (void)state;
    static char longer[CLP_IPC_PATH_MAX_BYTES + 10];
    static char data[CLP_IPC_CLIENT_DATA_MAX_BYTES + 1];
    memset(longer, 'x', sizeof(longer) - 1);
    const char *not_utf8[] = {"/\xff", "/\xc3", "/\xed\xa0\x80", "/\xc0\xaf", "/\xf4\x90\x80\x80"};
    assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, "", "a", 1), -EINVAL);
    assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, "/x", "a", 0), -EINVAL);
    assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, longer, "a", 1), -EMSGSIZE);
    assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, "/x", data, sizeof(data)), -EMSGSIZE);
    for (size_t i = 0; i < CLP_ARRAY_LEN(not_utf8); i++) {
        assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, not_utf8[i], "a", 1), -EINVAL);
        assert_int_equal(req.len, 0);
    }
}

static void attach_at_its_ceilings_fits(void **state)
{
    (void)state;
    static char path[CLP_IPC_PATH_MAX_BYTES];
    static char data[CLP_IPC_CLIENT_DATA_MAX_BYTES];
    memset(path, 'x', sizeof(path) - 1);
    assert_int_equal(clp_ipc_encode_attach(&req, 1, guid, path, data, sizeof(data)), 0);
    assert_true(req.len <= sizeof(req.bytes));
    assert_int_equal(req.len, 20 + 4 + 16 + 4 + 2 * sizeof(path) + 4 + sizeof(data));
}

/* ---- sessions ---- */

static const uint32_t ids[] = {80, 303};
static const struct clp_ipc_provider provider = {.name = "Ab",
                                                 .keywords = 0x8000,
                                                 .level = 2,
                                                 .arguments = "k=v",
                                                 .event_ids = ids,
                                                 .event_id_count = 2};

static struct clp_ipc_collect one_provider(void)
{
    return (struct clp_ipc_collect){.buffer_mb = 16,
                                    .rundown_keywords = 0x30,
                                    .stacks = true,
                                    .providers = &provider,
                                    .provider_count = 1};
}

#define PROVIDER_BYTES                                                                             \
    "\x01\0\0\0"                                                                                   \
    "\0\x80\0\0\0\0\0\0"                                                                           \
    "\x02\0\0\0"                                                                                   \
    "\x03\0\0\0A\0b\0\0\0"                                                                         \
    "\x04\0\0\0k\0=\0v\0\0\0"

/* Each runtime gets the layout that it knows: anything else may end .NET 8 and 9. */
static void collect_bytes_by_version(void **state)
{
    static const char v8[] = "DOTNET_IPC_V1\0\x43\0\x02\x03\0\0"
                             "\x10\0\0\0\x01\0\0\0\x01" PROVIDER_BYTES;
    static const char v9[] = "DOTNET_IPC_V1\0\x4b\0\x02\x05\0\0"
                             "\x10\0\0\0\x01\0\0\0\x30\0\0\0\0\0\0\0\x01" PROVIDER_BYTES;
    static const char v10[] = "DOTNET_IPC_V1\0\x5c\0\x02\x06\0\0"
                              "\0\0\0\0\x10\0\0\0\x01\0\0\0\x30\0\0\0\0\0\0\0\x01" PROVIDER_BYTES
                              "\x01\x02\0\0\0\x50\0\0\0\x2f\x01\0\0";
    struct clp_ipc_collect c = one_provider();
    (void)state;
    assert_int_equal(clp_ipc_encode_collect(&req, 8, &c), 0);
    assert_int_equal(req.len, sizeof(v8) - 1);
    assert_memory_equal(req.bytes, v8, req.len);
    assert_int_equal(clp_ipc_encode_collect(&req, 9, &c), 0);
    assert_int_equal(req.len, sizeof(v9) - 1);
    assert_memory_equal(req.bytes, v9, req.len);
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), 0);
    assert_int_equal(req.len, sizeof(v10) - 1);
    assert_memory_equal(req.bytes, v10, req.len);
    assert_int_equal(clp_ipc_encode_collect(&req, 11, &c), 0);
    assert_memory_equal(req.bytes, v10, req.len);
}

static void collect_refuses_what_would_harm(void **state)
{
    struct clp_ipc_collect c = one_provider();
    struct clp_ipc_provider bad = provider, many[20];
    static char longer[4000];
    (void)state;
    assert_int_equal(clp_ipc_encode_collect(&req, 7, &c), -EINVAL);
    c.buffer_mb = 0; /* ends .NET 8 and 9 */
    assert_int_equal(clp_ipc_encode_collect(&req, 8, &c), -EINVAL);
    assert_int_equal(req.len, 0);
    c = one_provider();
    c.provider_count = 0;
    assert_int_equal(clp_ipc_encode_collect(&req, 8, &c), -EINVAL);
    c = one_provider();
    c.providers = &bad;
    bad.level = 6;
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), -EINVAL);
    bad = provider;
    bad.name = "";
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), -EINVAL);
    bad.name = "\xff";
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), -EINVAL);
    assert_int_equal(req.len, 0);
    memset(longer, 'x', sizeof(longer) - 1);
    for (size_t i = 0; i < CLP_ARRAY_LEN(many); i++) {
        many[i] = provider;
        many[i].arguments = longer;
    }
    c.providers = many;
    c.provider_count = CLP_ARRAY_LEN(many);
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), -EMSGSIZE);
    c.provider_count = CLP_IPC_PROVIDERS_MAX + 1;
    assert_int_equal(clp_ipc_encode_collect(&req, 10, &c), -EMSGSIZE);
    assert_int_equal(req.len, 0);
}

static void stop_bytes(void **state)
{
    (void)state;
    clp_ipc_encode_stop(&req, 0x1122334455667788);
    assert_int_equal(req.len, 28);
    assert_memory_equal(req.bytes,
                        "DOTNET_IPC_V1\0\x1c\0\x02\x01\0\0\x88\x77\x66\x55\x44\x33\x22\x11", 28);
}

/* ---- replies ---- */

static uint8_t msg[4096];
static size_t msg_len;

static void add(const void *data, size_t n)
{
    memcpy(msg + msg_len, data, n);
    msg_len += n;
}

static void add_string(const char *s)
{
    uint32_t n = (uint32_t)strlen(s) + 1;
    add(&n, 4);
    for (uint32_t i = 0; i < n; i++)
        add((uint16_t[]){(uint16_t)s[i]}, 2);
}

static void begin_reply(uint8_t id)
{
    msg_len = 0;
    add("DOTNET_IPC_V1\0\0\0\xff", 17);
    add(&id, 1);
    add("\0", 2);
}

static struct clp_ipc_reply parse(void)
{
    struct clp_ipc_reply r;
    msg[14] = (uint8_t)msg_len;
    msg[15] = (uint8_t)(msg_len >> 8);
    assert_int_equal(clp_ipc_parse_reply(msg, msg_len, &r), 0);
    return r;
}

static void add_info(const char *version)
{
    add((uint64_t[]){42}, 8);
    add(guid, 16);
    add_string("/usr/bin/app /srv/app.dll");
    add_string("Linux");
    add_string("x64");
    add_string("app");
    add_string(version);
    add_string("linux-x64");
}

static void process_info_3(void **state)
{
    (void)state;
    struct clp_process_info p;
    begin_reply(0);
    add((uint32_t[]){1}, 4);
    add_info("10.0.12");
    struct clp_ipc_reply r = parse();
    assert_int_equal(clp_ipc_parse_process_info(&r, CLP_IPC_INFO_3, &p), 0);
    assert_int_equal(p.pid, 42);
    assert_memory_equal(p.cookie, guid, 16);
    assert_string_equal(p.command_line, "/usr/bin/app /srv/app.dll");
    assert_string_equal(p.entry_assembly, "app");
    assert_string_equal(p.runtime_version, "10.0.12");
    assert_true(p.major == 10 && p.minor == 0 && p.patch == 12);
}

static void process_info_cut_anywhere_is_refused(void **state)
{
    (void)state;
    struct clp_process_info p = {.pid = 7};
    begin_reply(0);
    add_info("9.0.0-rc.1");
    struct clp_ipc_reply r = parse();
    assert_int_equal(clp_ipc_parse_process_info(&r, CLP_IPC_INFO_2, &p), 0);
    assert_true(p.major == 9 && p.patch == 0);
    size_t after_version = r.len - (4 + 2 * sizeof("linux-x64"));
    p.pid = 7;
    for (size_t n = 0; n < after_version; n++) {
        struct clp_ipc_reply cut = {.ok = true, .len = n};
        uint8_t *copy = malloc(n ? n : 1);
        memcpy(copy, r.data, n);
        cut.data = copy;
        assert_int_equal(clp_ipc_parse_process_info(&cut, CLP_IPC_INFO_2, &p), -EPROTO);
        free(copy);
    }
    assert_int_equal(p.pid, 7);
}

static void long_text_is_cut_clean(void **state)
{
    (void)state;
    static char longer[1600];
    struct clp_process_info p;
    memset(longer, 'a', sizeof(longer) - 1);
    begin_reply(0);
    add((uint64_t[]){1}, 8);
    add(guid, 16);
    add_string(longer);
    add_string("");
    add((uint32_t[]){0}, 4); /* null string */
    struct clp_ipc_reply r = parse();
    assert_int_equal(clp_ipc_parse_process_info(&r, CLP_IPC_INFO_1, &p), 0);
    assert_int_equal(strlen(p.command_line), sizeof(p.command_line) - 1);
    assert_string_equal(p.arch, "");
    assert_int_equal(p.major, 0);
}

static void replies_that_are_none(void **state)
{
    (void)state;
    struct clp_ipc_reply r;
    begin_reply(0xff);
    add((uint32_t[]){0x8007007e}, 4);
    r = parse();
    uint32_t hr;
    assert_false(r.ok);
    assert_int_equal(clp_ipc_parse_hresult(&r, &hr), 0);
    assert_int_equal(hr, 0x8007007e);
    for (size_t n = 0; n < msg_len; n++)
        assert_int_equal(clp_ipc_parse_reply(msg, n, &r), -EPROTO);
    msg[16] = 0x04; /* not the server's command set */
    assert_int_equal(clp_ipc_parse_reply(msg, msg_len, &r), -EPROTO);
    msg[16] = 0xff;
    msg[0] = 'd';
    assert_int_equal(clp_ipc_parse_reply(msg, msg_len, &r), -EPROTO);
    begin_reply(0xff);
    r = parse();
    assert_int_equal(clp_ipc_parse_hresult(&r, &hr), -EPROTO);
}

static void hresults_in_words(void **state)
{
    (void)state;
    assert_non_null(strstr(clp_hresult_text(0x8007007e), "cannot load"));
    assert_non_null(strstr(clp_hresult_text(0x8007007f), "entry point"));
    assert_non_null(clp_hresult_text(CLP_HRESULT_UNKNOWN_COMMAND));
    assert_null(clp_hresult_text(0x12345678));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_without_payload),
        cmocka_unit_test(attach_bytes),
        cmocka_unit_test(attach_refuses_what_would_be_empty_or_wrong),
        cmocka_unit_test(attach_at_its_ceilings_fits),
        cmocka_unit_test(collect_bytes_by_version),
        cmocka_unit_test(collect_refuses_what_would_harm),
        cmocka_unit_test(stop_bytes),
        cmocka_unit_test(process_info_3),
        cmocka_unit_test(process_info_cut_anywhere_is_refused),
        cmocka_unit_test(long_text_is_cut_clean),
        cmocka_unit_test(replies_that_are_none),
        cmocka_unit_test(hresults_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
