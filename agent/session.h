/* One profiled target as the agent sees it: attach, hand-shake, ring, farewell.
 *
 * A session never blocks longer than its own file operations: the caller polls its descriptors and
 * calls clp_session_step.  Everything that comes from the target is foreign; whatever is wrong ends
 * the session with a sentence. One thread. */
#ifndef CLP_AGENT_SESSION_H
#define CLP_AGENT_SESSION_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"
#include "wire/reader.h"
#include "wire/wire.h"

#include <poll.h>
#include <stdbool.h>

#define CLP_SESSION_ATTACH_NS (10 * CLP_NSEC_PER_SEC) /* from start to the library's HELLO */
/* For each CPU of the machine, within bounds: what a target can write grows with what it can run.
 */
#define CLP_SESSION_RING_CPU_BYTES (64u << 10)
#define CLP_SESSION_RING_LEAST_BYTES (256u << 10)
#define CLP_SESSION_RING_MOST_BYTES (1u << 20)
#define CLP_SESSION_DRAIN_NS (100 * CLP_NSEC_PER_MSEC) /* how often to drain, at best */
#define CLP_SESSION_FDS 5u

struct clp_session;

struct clp_session_config {
    const char *library; /* our libclrpulse.so, absolute, without symlinks */
    struct clp_settings settings;
    /* Why there is no start-up hook; NULL: send it, or for a session that is announced, expect it:
     * the caller has it in the program's environment. Copied. */
    const char *no_hook;
    /* Other sessions go on when this one is freed: it does not wait for its hook's answer. */
    bool one_of_many;
    uint32_t ring_bytes; /* 0: by the number of CPUs */
    uint64_t attach_ns;  /* 0: CLP_SESSION_ATTACH_NS */
    /* Each record in its order, MARK included; during clp_session_step and clp_session_drain. */
    void (*record)(void *context, const struct clp_reader_record *record);
    void *context;
};

enum clp_session_state {
    CLP_SESSION_ATTACHING,
    CLP_SESSION_LIVE,
    CLP_SESSION_ENDED,  /* the target exited or the library left; everything was drained */
    CLP_SESSION_FAILED, /* clp_session_fault says why */
};

/* Begins to attach to a process in state CLP_DOTNET_READY (clp_session_step goes on). Keeps its own
 * references; *target stays the caller's. 0, or a fault. */
int clp_session_start(const struct clp_dotnet *target, const struct clp_session_config *config,
                      struct clp_session **ret, struct clp_fault *fault) CLP_MUST_USE;
/* Waits for a library that a process of ours loads when it starts: *ret_announcement is what the
 * variable CLRPULSE_ATTACH has to say in that process. The first one that shows the nonce is taken,
 * the process started or one of its children. Before the first step, name the process with
 * clp_session_watch: when it ends, the wait ends. */
#define CLP_ANNOUNCEMENT_BYTES (2 * sizeof(struct clp_attach_data) + 1)
int clp_session_announce(const struct clp_session_config *config, struct clp_session **ret,
                         char ret_announcement[CLP_ANNOUNCEMENT_BYTES],
                         struct clp_fault *fault) CLP_MUST_USE;
/* 0 or -errno: there is no such process. */
int clp_session_watch(struct clp_session *s, int32_t pid) CLP_MUST_USE;
/* The process; of an announced session known once it is LIVE. The session's. */
const struct clp_dotnet *clp_session_process(const struct clp_session *s);
/* Takes the placed files away, leaves the library (which then goes idle). Accepts NULL; returns
 * NULL. */
struct clp_session *clp_session_free(struct clp_session *s);

/* Descriptors to poll, at most CLP_SESSION_FDS; the number of them. */
size_t clp_session_fds(const struct clp_session *s, struct pollfd *ret);
/* Does what can be done now: hand-shake, socket. Drains when the session has ended meanwhile. */
enum clp_session_state clp_session_step(struct clp_session *s, uint64_t now_ns);
/* Reads what is in the ring. */
enum clp_session_state clp_session_drain(struct clp_session *s);
uint64_t clp_session_drained_bytes(const struct clp_session *s); /* by the last of these calls */
uint32_t clp_session_ring_bytes(const struct clp_session *s);

enum clp_session_state clp_session_state(const struct clp_session *s);
/* The fault of a FAILED session; of an ENDED one its reason in words, error 0. */
const struct clp_fault *clp_session_fault(const struct clp_session *s);

/* Asks for a MARK with this number (not 0): everything before it is then in the ring. 0, or -errno
 * when the library cannot be told; the session then ends at its next step. */
int clp_session_flush(struct clp_session *s, uint64_t flush_id) CLP_MUST_USE;
/* Says goodbye; `detach`: the library may detach from the runtime if no other reader is left. */
void clp_session_bye(struct clp_session *s, bool detach);

uint64_t clp_session_counter(const struct clp_session *s, enum clp_counter counter);
/* The same as of the last MARK: totals of exactly the samples in front of it. */
uint64_t clp_session_marked(const struct clp_session *s, enum clp_counter counter);
/* clp_reader_opened_ns; 0 without a ring. */
uint64_t clp_session_opened_ns(const struct clp_session *s);
/* The number that the process's next profile had with the agent before; 0 before that is known. The
 * library's word: foreign. */
uint64_t clp_session_kept_seq(const struct clp_session *s);
/* Leaves the number of the next profile for the agent after this one. */
void clp_session_leave_seq(struct clp_session *s, uint64_t next);
/* New settings for the library. 0, or -errno when it cannot be told now. */
int clp_session_set(struct clp_session *s, const struct clp_settings *settings) CLP_MUST_USE;
/* Whether the target's spans are followed; else *ret_reason says why not, "" while that is being
 * arranged. */
bool clp_session_has_spans(const struct clp_session *s, const char **ret_reason);
/* What the library may not do in this target, and what that costs, in words; "" for nothing. */
void clp_session_limits(const struct clp_session *s, char *buf, size_t cap);
/* The target's root for reading its images; the session's. */
int clp_session_root_fd(const struct clp_session *s);

#endif
