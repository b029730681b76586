/* Finds .NET processes: everything that /proc says about one, its temp directory and its
 * diagnostics port, asked with a deadline.
 *
 * The port of process P is the socket dotnet-diagnostic-<pid in P's namespace>-<P's start
 * time>-socket in P's temp directory (TMPDIR of its first environment, else /tmp), in P's own mount
 * namespace.  So the name is computed, never searched: left-over sockets of dead processes and
 * plants cost nothing.
 *
 * All paths of a target are opened below its root without following symlinks. Each function is for
 * one thread at a time. */
#ifndef CLP_SAMPLER_EVENTPIPE_DISCOVER_H
#define CLP_SAMPLER_EVENTPIPE_DISCOVER_H

#include "base/core/core.h"
#include "sampler/eventpipe/ipc.h"

#include <stdbool.h>

/* Where to look; tests give their own. */
struct clp_discover_roots {
    const char *proc; /* "/proc" */
    const char *root; /* "/": root of a process whose own root may not be read */
};
extern const struct clp_discover_roots clp_discover_system;

#define CLP_DISCOVER_ASK_NS (100 * CLP_NSEC_PER_MSEC) /* a port's time to answer */
#define CLP_TEMP_PATH_BYTES 256u

enum clp_dotnet_state {
    CLP_DOTNET_NO,      /* no .NET process, as far as can be seen */
    CLP_DOTNET_HIDDEN,  /* no port found, but its directories are closed to us: cannot tell */
    CLP_DOTNET_NO_PORT, /* runs the runtime, has no diagnostics port (yet, or switched off) */
    CLP_DOTNET_STALE,   /* the socket is there, nobody listens */
    CLP_DOTNET_PORT,    /* the socket is there; not asked yet */
    CLP_DOTNET_DENIED,  /* is one, and only its user or root may talk to it */
    CLP_DOTNET_SILENT,  /* did not answer in time: stopped, frozen, or its port is in use */
    CLP_DOTNET_BROKEN,  /* answered something that is no answer, or is not the process it should be
                         */
    CLP_DOTNET_READY,   /* answered: info is filled */
};

struct clp_dotnet {
    int32_t pid;
    int32_t ns_pid;       /* in its own pid namespace */
    uint64_t start_ticks; /* since boot; pid and this name a process for ever */
    uint32_t uid, gid;    /* effective: the owner of its port */
    char run_state;       /* as in /proc/PID/stat: 'T' is stopped */
    bool kernel_thread;   /* NO for ever, whatever it is called */
    char comm[64];
    char service[128]; /* DD_SERVICE or OTEL_SERVICE_NAME of its environment, or empty */
    char temp_path[CLP_TEMP_PATH_BYTES]; /* as the process sees it */
    char socket_name[80];
    int root_fd;   /* O_PATH of its root; of ours when its own may not be read */
    int temp_fd;   /* O_PATH of its temp directory; -1 when it cannot be opened */
    bool own_root; /* root_fd was read from the process */
    /* Its environment makes it wait for a tool at its start (DefaultDiagnosticPortSuspend); it may
     * have been let go since. */
    bool suspended;
    enum clp_dotnet_state state;
    int error; /* the errno behind the state, negative, or 0 */
    struct clp_process_info info;
};

/* Looks at one process without talking to it; state is NO, HIDDEN or PORT, and *ret is filled in
 * each case. -ESRCH when there is no such process (a thread's number is none), -EACCES when /proc
 * hides it (hidepid); *ret untouched then. Release with clp_dotnet_done. */
int clp_dotnet_open(const struct clp_discover_roots *roots, int32_t pid,
                    struct clp_dotnet *ret) CLP_MUST_USE;
/* The same for a scan of many: of a process with one thread nothing but that is read, and its state
 * is NO. A runtime has a thread of its own for its port. With -ESRCH for a thread's number, its
 * process is in *ret_owner, which is untouched otherwise. */
int clp_dotnet_open_threaded(const struct clp_discover_roots *roots, int32_t pid,
                             struct clp_dotnet *ret, int32_t *ret_owner) CLP_MUST_USE;
void clp_dotnet_done(struct clp_dotnet *d);
/* Looks closer at one in state NO or HIDDEN, by its threads' names, which everybody may read:
 * NO_PORT or DENIED when the runtime is in it. Costs a file per thread, so not for every process of
 * a scan. */
void clp_dotnet_look_closer(const struct clp_discover_roots *roots, struct clp_dotnet *d);

/* Asks the ports of all those in state PORT at once, each with its own deadline from now on, so
 * that one that is stopped delays nobody. Afterwards each is READY, STALE, DENIED, SILENT or
 * BROKEN. */
void clp_dotnet_ask(struct clp_dotnet *d, size_t count, uint64_t deadline_ns);

/* Lets a READY process go on that waits at its start; for one that does not wait it changes
 * nothing. 0 or what the call said. Blocks no longer than `deadline_ns` from now. */
int clp_dotnet_resume(const struct clp_dotnet *d, uint64_t deadline_ns) CLP_MUST_USE;

/* How long ago a process with that start time began; UINT64_MAX when that cannot be told. */
uint64_t clp_dotnet_age_ns(uint64_t start_ticks);
/* A .NET 8 program in its first moments can lock itself up for good when a session enables its
 * managed event sources: they and the program's classes are being set up at the same time. */
#define CLP_DOTNET_GROWN_UP_NS (3 * CLP_NSEC_PER_SEC)

/* Whether the process is still there and still the same one. */
bool clp_dotnet_alive(const struct clp_discover_roots *roots, const struct clp_dotnet *d);

/* One sentence for people: why the process cannot be profiled and what to do. For READY "". */
void clp_dotnet_explain(const struct clp_dotnet *d, char *buf, size_t cap);

/* Whether a READY process runs a version that cannot be profiled; then the sentence in `buf`, which
 * is untouched otherwise. */
bool clp_dotnet_unsupported(const struct clp_dotnet *d, char *buf, size_t cap);

/* Calls `found` for each pid in /proc, in the directory's order, until it answers other than 0;
 * that answer, or -errno when /proc cannot be read. */
int clp_discover_pids(const struct clp_discover_roots *roots,
                      int (*found)(void *context, int32_t pid), void *context) CLP_MUST_USE;
/* Whether /proc shows this user only its own processes. */
bool clp_discover_hides(const struct clp_discover_roots *roots);

#endif
