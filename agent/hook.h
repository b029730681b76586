/* Brings Clrpulse.Spans.dll into a running process, so that its samples carry spans.
 *
 * ApplyStartupHook is the one command whose failure can end the target: on .NET 9 and 10 a file
 * that is missing, unreadable or not the right one does. So it is sent only when the very bytes
 * that the target will read are known to be ours, and as its user sees them in its own mount
 * namespace; and the file stays where it is until the runtime has answered. The answer alone proves
 * nothing (an application that was trimmed answers 0 and runs nothing): the library tells when the
 * hook runs.
 *
 * Part of a session; one thread. */
#ifndef CLP_AGENT_HOOK_H
#define CLP_AGENT_HOOK_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"
#include "sampler/eventpipe/ipc_call.h"

#include <stdbool.h>

#define CLP_HOOK_NAME "Clrpulse.Spans.dll"
#define CLP_HOOK_ANSWER_NS (10 * CLP_NSEC_PER_SEC)
#define CLP_HOOK_CONFIRM_NS (5 * CLP_NSEC_PER_SEC)

enum clp_hook_state {
    CLP_HOOK_NEW = 0,
    CLP_HOOK_ASKED,    /* the runtime has the command */
    CLP_HOOK_ANSWERED, /* it said yes; the hook has not said that it runs */
    CLP_HOOK_RUNS,
    CLP_HOOK_OFF, /* `reason` says why there are no spans */
};

struct clp_hook {
    enum clp_hook_state state;
    char reason[256];
    char path[4096];       /* as the target sees it */
    int dir_fd, parent_fd; /* of the copy; -1 when the target sees our own file */
    char dir_name[80];
    uint32_t uid, gid;
    uint64_t confirm_until_ns;
    bool kept;        /* by a runtime that had not started when it answered, for later */
    bool unconfirmed; /* the confirmation did not come in time */
    struct clp_ipc_request request;
    struct clp_ipc_call call;
};

/* `reason` NULL: on. Else off from the beginning, for that reason. */
void clp_hook_init(struct clp_hook *h, const char *reason);
/* Takes a copy away; it stays, for clp_hook_sweep, where a process may still come to read it.
 * `wait`: first waits for an answer that is still due, CLP_HOOK_ANSWER_NS at most. `exited`: the
 * process will read nothing more. */
void clp_hook_done(struct clp_hook *h, bool wait, bool exited);

/* Checks everything and sends the command. `library` is our libclrpulse.so: the hook lies beside
 * it. */
void clp_hook_send(struct clp_hook *h, const struct clp_dotnet *target, const char *library);
/* Takes away what agents that were killed have left for this process, if it is from well before
 * `before_s` (wall time of our own connection): its port is served in the order of connections, so
 * once the process has answered us it reads none of that any more. */
void clp_hook_sweep(const struct clp_dotnet *target, int64_t before_s);
/* Goes on; `runs`: the library says that the hook runs. `started`: managed code runs there. A
 * runtime that is told of a hook before keeps it until then, however long it takes to start. */
void clp_hook_step(struct clp_hook *h, uint64_t now_ns, bool runs, bool started);

/* Whether `file` is the hook that was built with this program: 0, or -errno with a sentence. The
 * open file in *ret_fd. */
int clp_hook_open(const char *library, char *ret_path, size_t cap, int *ret_fd, char *reason,
                  size_t reason_cap) CLP_MUST_USE;

/* Whether the bytes of an open file are those that were built with this program: 0, -EBADMSG or
 * another -errno. */
int clp_hook_check_bytes(int fd) CLP_MUST_USE;

/* A runtime refuses a second assembly of one name that differs from the first, and .NET 9 and 10
 * end with that. 0: the process has no other build of it: loaded, beside its program, or among its
 * DOTNET_STARTUP_HOOKS. -EBADMSG: it has one; another -errno: it has a file of that name which
 * could not be read (or may not: a symlink). Then its path is in `ret`, cut to `cap`. */
int clp_hook_find_other(const struct clp_dotnet *target, char *ret, size_t cap) CLP_MUST_USE;

#endif
