#include "sampler/eventpipe/ipc.h"

#include "base/core/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char MAGIC[14] = "DOTNET_IPC_V1"; /* with its NUL */

enum {
    SET_EVENTPIPE = 0x02,
    SET_PROFILER = 0x03,
    SET_PROCESS = 0x04,
    SET_SERVER = 0xff,
};
enum {
    EVENTPIPE_STOP = 0x01,
    EVENTPIPE_COLLECT_2 = 0x03,
    EVENTPIPE_COLLECT_4 = 0x05,
    EVENTPIPE_COLLECT_5 = 0x06,
    PROFILER_ATTACH = 0x01,
    PROCESS_INFO_1 = 0x00,
    PROCESS_RESUME = 0x01,
    PROCESS_INFO_2 = 0x04,
    PROCESS_INFO_3 = 0x08,
    PROCESS_STARTUP_HOOK = 0x07,
    SERVER_OK = 0x00,
    SERVER_ERROR = 0xff,
};

/* ---- writing ------------------------------------------------------------------------------- */

static void put(struct clp_ipc_request *r, const void *data, size_t n)
{
    memcpy(r->bytes + r->len, data, n); /* callers keep to the ceilings that size `bytes` */
    r->len += n;
}

static void put_u16(struct clp_ipc_request *r, uint16_t v)
{
    put(r, &v, sizeof(v));
}

static void put_u32(struct clp_ipc_request *r, uint32_t v)
{
    put(r, &v, sizeof(v));
}

static void begin(struct clp_ipc_request *r, uint8_t set, uint8_t id)
{
    r->len = 0;
    put(r, MAGIC, sizeof(MAGIC));
    put_u16(r, 0); /* size: finish() */
    put(r, &set, 1);
    put(r, &id, 1);
    put_u16(r, 0);
}

static void finish(struct clp_ipc_request *r)
{
    uint16_t size = (uint16_t)r->len;
    memcpy(r->bytes + sizeof(MAGIC), &size, sizeof(size));
}

void clp_ipc_encode_process_info(struct clp_ipc_request *ret, enum clp_ipc_info_version version)
{
    static const uint8_t id[] = {
        [CLP_IPC_INFO_1] = PROCESS_INFO_1,
        [CLP_IPC_INFO_2] = PROCESS_INFO_2,
        [CLP_IPC_INFO_3] = PROCESS_INFO_3,
    };
    begin(ret, SET_PROCESS, id[version]);
    finish(ret);
}

void clp_ipc_encode_resume(struct clp_ipc_request *ret)
{
    begin(ret, SET_PROCESS, PROCESS_RESUME);
    finish(ret);
}

/* Code point at `s`, its bytes in *ret_len; 0 at the end, UINT32_MAX when it is no UTF-8. */
static uint32_t utf8_next(const char *s, size_t *ret_len)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t len = u[0] < 0x80 ? 1 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = len == 1 ? u[0] : u[0] & (0x7fu >> len);
    if ((u[0] >= 0x80 && u[0] < 0xc2) || u[0] > 0xf4)
        return UINT32_MAX;
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (u[i] & 0x3fu);
    }
    if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return UINT32_MAX;
    *ret_len = len;
    return c;
}

/* u32 count of units with the closing NUL, then the units. */
static int put_string(struct clp_ipc_request *r, const char *s)
{
    size_t count_at = r->len;
    uint32_t units = 0;
    put_u32(r, 0);
    for (size_t len; *s; s += len) {
        uint32_t c = utf8_next(s, &len);
        if (c == UINT32_MAX)
            return -EINVAL;
        if (c >= 0x10000) {
            put_u16(r, (uint16_t)(0xd800 + ((c - 0x10000) >> 10)));
            c = 0xdc00 + ((c - 0x10000) & 0x3ff);
            units++;
        }
        put_u16(r, (uint16_t)c);
        units++;
    }
    put_u16(r, 0);
    units++;
    memcpy(r->bytes + count_at, &units, sizeof(units));
    return 0;
}

int clp_ipc_encode_attach(struct clp_ipc_request *ret, uint32_t timeout_ms,
                          const uint8_t guid[CLP_GUID_BYTES], const char *path, const void *data,
                          size_t data_len)
{
    size_t path_len = strnlen(path, CLP_IPC_PATH_MAX_BYTES);
    ret->len = 0;
    if (path_len == 0 || data_len == 0)
        return -EINVAL;
    if (path_len == CLP_IPC_PATH_MAX_BYTES || data_len > CLP_IPC_CLIENT_DATA_MAX_BYTES)
        return -EMSGSIZE;
    begin(ret, SET_PROFILER, PROFILER_ATTACH);
    put_u32(ret, timeout_ms);
    put(ret, guid, CLP_GUID_BYTES);
    int r = put_string(ret, path);
    if (r < 0) {
        ret->len = 0; /* nothing that could be sent by mistake */
        return r;
    }
    put_u32(ret, (uint32_t)data_len);
    put(ret, data, data_len);
    finish(ret);
    return 0;
}

int clp_ipc_encode_startup_hook(struct clp_ipc_request *ret, const char *path)
{
    size_t path_len = strnlen(path, CLP_IPC_PATH_MAX_BYTES);
    ret->len = 0;
    if (path_len == 0)
        return -EINVAL;
    if (path_len == CLP_IPC_PATH_MAX_BYTES)
        return -EMSGSIZE;
    begin(ret, SET_PROCESS, PROCESS_STARTUP_HOOK);
    int r = put_string(ret, path);
    if (r < 0) {
        ret->len = 0;
        return r;
    }
    finish(ret);
    return 0;
}

/* ---- sessions ------------------------------------------------------------------------------ */

enum { COLLECT_STREAM = 0, FORMAT_NETTRACE = 1 };
/* Bytes of a provider besides its texts, and of the session besides its providers. */
#define PROVIDER_FIXED_BYTES (8u + 4 + 4 + 4 + 1 + 4)
#define COLLECT_FIXED_BYTES (CLP_IPC_HEADER_BYTES + 32u)

static void put_u64(struct clp_ipc_request *r, uint64_t v)
{
    put(r, &v, sizeof(v));
}

static void put_bool(struct clp_ipc_request *r, bool v)
{
    uint8_t byte = v;
    put(r, &byte, 1);
}

static int check_provider(const struct clp_ipc_provider *p, size_t *bytes)
{
    size_t name = p->name ? strlen(p->name) : 0;
    size_t arguments = p->arguments ? strlen(p->arguments) : 0;
    if (name == 0 || p->level > CLP_IPC_LEVEL_MAX)
        return -EINVAL;
    if (name > CLP_IPC_PATH_MAX_BYTES || arguments > CLP_IPC_PATH_MAX_BYTES ||
        p->event_id_count > CLP_IPC_EVENT_IDS_MAX)
        return -EMSGSIZE;
    *bytes += PROVIDER_FIXED_BYTES + 2 * (name + arguments + 2) + 4 * p->event_id_count;
    return 0;
}

static int check_collect(unsigned major, const struct clp_ipc_collect *c)
{
    size_t bytes = COLLECT_FIXED_BYTES;
    if (major < 8 || c->buffer_mb == 0 || c->provider_count == 0)
        return -EINVAL;
    if (c->provider_count > CLP_IPC_PROVIDERS_MAX)
        return -EMSGSIZE;
    for (size_t i = 0; i < c->provider_count; i++) {
        int r = check_provider(&c->providers[i], &bytes);
        if (r < 0)
            return r;
    }
    return bytes > CLP_IPC_REQUEST_MAX_BYTES ? -EMSGSIZE : 0;
}

static int put_provider(struct clp_ipc_request *r, unsigned major, const struct clp_ipc_provider *p)
{
    put_u64(r, p->keywords);
    put_u32(r, p->level);
    int e = put_string(r, p->name);
    if (e < 0)
        return e;
    if (!p->arguments || !*p->arguments)
        put_u32(r, 0);
    else if ((e = put_string(r, p->arguments)) < 0)
        return e;
    if (major < 10)
        return 0;
    put_bool(r, p->event_id_count > 0); /* the list says which to enable; none: all */
    put_u32(r, (uint32_t)p->event_id_count);
    for (size_t i = 0; i < p->event_id_count; i++)
        put_u32(r, p->event_ids[i]);
    return 0;
}

static void put_session(struct clp_ipc_request *r, unsigned major, const struct clp_ipc_collect *c)
{
    begin(r, SET_EVENTPIPE,
          major >= 10  ? EVENTPIPE_COLLECT_5
          : major == 9 ? EVENTPIPE_COLLECT_4
                       : EVENTPIPE_COLLECT_2);
    if (major >= 10)
        put_u32(r, COLLECT_STREAM);
    put_u32(r, c->buffer_mb);
    put_u32(r, FORMAT_NETTRACE);
    if (major >= 9) {
        put_u64(r, c->rundown_keywords);
        put_bool(r, c->stacks);
    } else {
        put_bool(r, c->rundown_keywords != 0);
    }
    put_u32(r, (uint32_t)c->provider_count);
}

int clp_ipc_encode_collect(struct clp_ipc_request *ret, unsigned runtime_major,
                           const struct clp_ipc_collect *c)
{
    ret->len = 0;
    int r = check_collect(runtime_major, c);
    if (r < 0)
        return r;
    put_session(ret, runtime_major, c);
    for (size_t i = 0; i < c->provider_count; i++) {
        r = put_provider(ret, runtime_major, &c->providers[i]);
        if (r < 0) {
            ret->len = 0; /* nothing that could be sent by mistake */
            return r;
        }
    }
    finish(ret);
    return 0;
}

void clp_ipc_encode_stop(struct clp_ipc_request *ret, uint64_t session_id)
{
    begin(ret, SET_EVENTPIPE, EVENTPIPE_STOP);
    put_u64(ret, session_id);
    finish(ret);
}

/* ---- reading ------------------------------------------------------------------------------- */

int clp_ipc_parse_reply(const void *bytes, size_t len, struct clp_ipc_reply *ret)
{
    struct clp_bytes b = clp_bytes_of(bytes, len);
    const uint8_t *magic = clp_bytes_take(&b, sizeof(MAGIC));
    uint16_t size = clp_bytes_u16(&b);
    uint8_t set = clp_bytes_u8(&b);
    uint8_t id = clp_bytes_u8(&b);
    (void)clp_bytes_u16(&b);
    if (b.bad || memcmp(magic, MAGIC, sizeof(MAGIC)) != 0 || size != len || set != SET_SERVER ||
        (id != SERVER_OK && id != SERVER_ERROR))
        return -EPROTO;
    *ret = (struct clp_ipc_reply){.ok = id == SERVER_OK, .data = b.at, .len = clp_bytes_left(&b)};
    return 0;
}

int clp_ipc_parse_session(const struct clp_ipc_reply *r, uint64_t *ret)
{
    struct clp_bytes b = clp_bytes_of(r->data, r->len);
    uint64_t id = clp_bytes_u64(&b);
    if (b.bad || !r->ok)
        return -EPROTO;
    *ret = id;
    return 0;
}

int clp_ipc_parse_hresult(const struct clp_ipc_reply *r, uint32_t *ret)
{
    struct clp_bytes b = clp_bytes_of(r->data, r->len);
    uint32_t hr = clp_bytes_u32(&b);
    if (b.bad)
        return -EPROTO;
    *ret = hr;
    return 0;
}

/* Longest text that any field keeps: more units than bytes of storage are never needed. */
#define UNITS_MAX 1024u

static void take_string(struct clp_bytes *b, char *buf, size_t cap)
{
    uint16_t units[UNITS_MAX]; /* the payload has no alignment */
    uint32_t count = clp_bytes_u32(b);
    const uint8_t *data = clp_bytes_take(b, (size_t)count * 2);
    struct clp_text t = clp_text_in(buf, cap);
    if (!data)
        return;
    size_t n = CLP_MIN(count, UNITS_MAX);
    memcpy(units, data, n * 2);
    size_t used = 0;
    while (used < n && units[used])
        used++;
    clp_text_utf16(&t, units, used);
}

static void parse_version(struct clp_process_info *p)
{
    unsigned major, minor = 0, patch = 0;
    if (sscanf(p->runtime_version, "%5u.%5u.%5u", &major, &minor, &patch) < 2 ||
        major > UINT16_MAX || minor > UINT16_MAX || patch > UINT16_MAX)
        return;
    p->major = (uint16_t)major;
    p->minor = (uint16_t)minor;
    p->patch = (uint16_t)patch;
}

int clp_ipc_parse_process_info(const struct clp_ipc_reply *r, enum clp_ipc_info_version version,
                               struct clp_process_info *ret)
{
    struct clp_bytes b = clp_bytes_of(r->data, r->len);
    struct clp_process_info p = {0};
    if (!r->ok)
        return -EPROTO;
    if (version == CLP_IPC_INFO_3)
        (void)clp_bytes_u32(&b); /* version of this layout; later ones only append */
    p.pid = clp_bytes_u64(&b);
    const uint8_t *cookie = clp_bytes_take(&b, CLP_GUID_BYTES);
    if (cookie)
        memcpy(p.cookie, cookie, CLP_GUID_BYTES);
    take_string(&b, p.command_line, sizeof(p.command_line));
    take_string(&b, p.os, sizeof(p.os));
    take_string(&b, p.arch, sizeof(p.arch));
    if (version >= CLP_IPC_INFO_2) {
        take_string(&b, p.entry_assembly, sizeof(p.entry_assembly));
        take_string(&b, p.runtime_version, sizeof(p.runtime_version));
        parse_version(&p);
    }
    if (b.bad)
        return -EPROTO;
    *ret = p;
    return 0;
}

/* ---- HRESULTs ------------------------------------------------------------------------------ */

static const struct {
    uint32_t hresult;
    const char *text;
} hresults[] = {
#define CLP_HRESULT(value, text) {value, text},
#include "sampler/eventpipe/hresults.def"
#undef CLP_HRESULT
};

const char *clp_hresult_text(uint32_t hresult)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(hresults); i++)
        if (hresults[i].hresult == hresult)
            return hresults[i].text;
    return NULL;
}
