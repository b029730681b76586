/* What a target may answer on its diagnostics port, and what a path and client data may do to our
 * own encoder: whatever it lets out must be whole. */
#include "sampler/eventpipe/ipc.h"

#include <stdlib.h>
#include <string.h>

static void replies(const uint8_t *data, size_t size)
{
    struct clp_ipc_reply reply;
    struct clp_process_info info;
    uint32_t hr;
    if (clp_ipc_parse_reply(data, size, &reply) < 0)
        return;
    (void)!clp_ipc_parse_hresult(&reply, &hr);
    uint64_t id;
    (void)!clp_ipc_parse_session(&reply, &id);
    for (enum clp_ipc_info_version v = CLP_IPC_INFO_1; v <= CLP_IPC_INFO_3; v++)
        if (clp_ipc_parse_process_info(&reply, v, &info) == 0 &&
            strnlen(info.command_line, sizeof(info.command_line)) == sizeof(info.command_line))
            abort();
}

/* Providers whose texts, level and filter are anything: what is let out is whole. */
static void sessions(const uint8_t *data, size_t size, const char *text)
{
    static struct clp_ipc_request request;
    uint32_t ids[4] = {1, 2, 3, 4};
    if (size < 8)
        return;
    struct clp_ipc_provider p = {.name = text,
                                 .keywords = data[0],
                                 .level = data[1] % 8,
                                 .arguments = data[2] & 1 ? text : NULL,
                                 .event_ids = ids,
                                 .event_id_count = data[3] % 5};
    struct clp_ipc_collect c = {.buffer_mb = data[4],
                                .rundown_keywords = data[5],
                                .stacks = data[6] & 1,
                                .providers = &p,
                                .provider_count = data[7] % 2};
    for (unsigned major = 7; major <= 11; major++) {
        uint16_t length = 0;
        int r = clp_ipc_encode_collect(&request, major, &c);
        memcpy(&length, request.bytes + 14, 2);
        if (r == 0 ? length != request.len || length < 40 || c.buffer_mb == 0 || p.level > 5 ||
                         major < 8
                   : request.len != 0)
            abort();
    }
}

/* size field = message; path count x 2 and client data length add up to the rest. */
static void check_attach(const struct clp_ipc_request *r, size_t data_len)
{
    uint16_t size;
    uint32_t units, n;
    memcpy(&size, r->bytes + 14, 2);
    memcpy(&units, r->bytes + 40, 4);
    memcpy(&n, r->bytes + 44 + 2 * (size_t)units, 4);
    if (size != r->len || units < 2 || n != data_len || 48 + 2 * (size_t)units + n != r->len)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t guid[CLP_GUID_BYTES];
    static struct clp_ipc_request request;
    static char path[8192];
    replies(data, size);
    size_t path_len = CLP_MIN(size, sizeof(path) - 1);
    memcpy(path, data, path_len);
    path[path_len] = '\0';
    sessions(data, size, path);
    int r = clp_ipc_encode_attach(&request, 1000, guid, path, data, size);
    if (r == 0)
        check_attach(&request, size);
    else if (request.len != 0)
        abort();
    return 0;
}
