/* Messages of the .NET diagnostics port ("DOTNET_IPC_V1", dotnet/diagnostics, ipc-protocol.md).
 *
 * A malformed or empty request can end the target (.NET 8 and 9), so all requests come from the
 * encoders here: a payload is written whole or the encoder fails.  Replies are foreign bytes:
 * bounded and checked. No I/O (ipc_call.h has it); thread-safe. */
#ifndef CLP_SAMPLER_EVENTPIPE_IPC_H
#define CLP_SAMPLER_EVENTPIPE_IPC_H

#include "base/core/bytes.h"
#include "base/core/core.h"

#include <stdbool.h>

#define CLP_IPC_HEADER_BYTES 20u
#define CLP_IPC_PATH_MAX_BYTES 4096u
#define CLP_IPC_CLIENT_DATA_MAX_BYTES 4096u
#define CLP_IPC_REQUEST_MAX_BYTES                                                                  \
    (2 * CLP_IPC_PATH_MAX_BYTES + CLP_IPC_CLIENT_DATA_MAX_BYTES + 256u)
#define CLP_IPC_REPLY_MAX_BYTES 65535u /* the size field is 16 bits wide */
#define CLP_GUID_BYTES 16u

/* ---- requests ------------------------------------------------------------------------------ */

struct clp_ipc_request {
    uint8_t bytes[CLP_IPC_REQUEST_MAX_BYTES];
    size_t len; /* of the whole message, header included */
};

enum clp_ipc_info_version {
    CLP_IPC_INFO_1 = 1, /* .NET 5: pid, cookie, command line, system, architecture */
    CLP_IPC_INFO_2,     /* .NET 6 or 7: + entry assembly, runtime version */
    CLP_IPC_INFO_3,     /* .NET 8: + portable runtime identifier */
};
void clp_ipc_encode_process_info(struct clp_ipc_request *ret, enum clp_ipc_info_version version);
/* Lets a runtime go on that waits at its start. */
void clp_ipc_encode_resume(struct clp_ipc_request *ret);
/* `path` is UTF-8, as the target sees it. `guid` in its byte layout (little-endian fields). -EINVAL
 * for an empty path, no client data, or text that is no UTF-8; -EMSGSIZE beyond the ceilings. */
int clp_ipc_encode_attach(struct clp_ipc_request *ret, uint32_t timeout_ms,
                          const uint8_t guid[CLP_GUID_BYTES], const char *path, const void *data,
                          size_t data_len) CLP_MUST_USE;

/* Loads the assembly at `path`, as the target sees it, and runs its StartupHook (.NET 8). On .NET 9
 * and 10 a file that is not there, or not the right one, ends the target: agent/hook.h. -EINVAL,
 * -EMSGSIZE as above. */
int clp_ipc_encode_startup_hook(struct clp_ipc_request *ret, const char *path) CLP_MUST_USE;

#define CLP_IPC_PROVIDERS_MAX 32u
#define CLP_IPC_EVENT_IDS_MAX 64u /* of one provider's filter */
#define CLP_IPC_LEVEL_MAX 5u

/* What a session wants of one provider. */
struct clp_ipc_provider {
    const char *name; /* UTF-8 */
    uint64_t keywords;
    uint32_t level;        /* 0 (always) to 5 (verbose) */
    const char *arguments; /* NULL: none */
    /* Only these events, where the runtime can (.NET 10); elsewhere more come. NULL: all. */
    const uint32_t *event_ids;
    size_t event_id_count;
};

struct clp_ipc_collect {
    uint32_t
        buffer_mb; /* at least 1: what the target may keep unread; beyond it, it drops events */
    /* What the runtime lists when the session stops; 0: nothing. .NET 8 only knows all or nothing.
     */
    uint64_t rundown_keywords;
    bool stacks; /* .NET 9 and later can do without them */
    const struct clp_ipc_provider *providers;
    size_t provider_count;
};
/* CollectTracing in the version that a runtime of this major version has: 2 (.NET 8), 4 (9), 5 (10
 * and later). An older or newer layout could end the target. -EINVAL for what a runtime refuses or
 * dies of: no provider, an empty name, a level over 5, no buffer, a runtime before 8, text that is
 * no UTF-8; -EMSGSIZE beyond the ceilings. The request is empty then. */
int clp_ipc_encode_collect(struct clp_ipc_request *ret, unsigned runtime_major,
                           const struct clp_ipc_collect *c) CLP_MUST_USE;
/* Ends a session. The reply comes when its stream is drained: read on meanwhile. */
void clp_ipc_encode_stop(struct clp_ipc_request *ret, uint64_t session_id);

/* ---- replies ------------------------------------------------------------------------------- */

struct clp_ipc_reply {
    bool ok;             /* the runtime's own word, command set 0xff id 0 */
    const uint8_t *data; /* payload, inside the bytes that were parsed */
    size_t len;
};
/* Whole message in, payload out. -EPROTO when it is no reply of this protocol. */
int clp_ipc_parse_reply(const void *bytes, size_t len, struct clp_ipc_reply *ret) CLP_MUST_USE;
/* The payload of an error reply, and of an OK reply of those commands that answer with one.
 * -EPROTO when there is none. */
int clp_ipc_parse_hresult(const struct clp_ipc_reply *r, uint32_t *ret) CLP_MUST_USE;

/* The session's id, which an OK reply to CollectTracing and StopTracing carries. */
int clp_ipc_parse_session(const struct clp_ipc_reply *r, uint64_t *ret) CLP_MUST_USE;

struct clp_process_info {
    uint64_t pid;                   /* in the target's own pid namespace */
    uint8_t cookie[CLP_GUID_BYTES]; /* names this runtime instance */
    /* UTF-8, cleaned, cut at their size; empty when the runtime is too old to tell. */
    char command_line[1024];
    char os[32];
    char arch[32];
    char entry_assembly[256];
    char runtime_version[64];     /* "10.0.1" or "10.0.0-rc.1.2" */
    uint16_t major, minor, patch; /* of runtime_version; 0 when unknown */
};
int clp_ipc_parse_process_info(const struct clp_ipc_reply *r, enum clp_ipc_info_version version,
                               struct clp_process_info *ret) CLP_MUST_USE;

#define CLP_HRESULT_CANCEL_ACTIVATION 0x80131375u /* a live library took the new reader */
#define CLP_HRESULT_UNKNOWN_COMMAND 0x80131385u

/* What an HRESULT of the diagnostics port means: the second half of "the runtime refused: ...", or
 * NULL for one that is not known. Static. */
const char *clp_hresult_text(uint32_t hresult);

#endif
