/* What keeps a machine, the settings or a process from being profiled, in words.
 *
 * Facts are gathered first (check_facts.c, the only part that looks at the system), then judged by
 * the rules of agent/checks.def, one sentence each. Judging is pure. */
#ifndef CLP_AGENT_CHECK_H
#define CLP_AGENT_CHECK_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"
#include "sampler/eventpipe/discover.h"

#include <stdbool.h>

enum clp_check_level {
    CLP_CHECK_NOTE,    /* worth knowing */
    CLP_CHECK_WARNING, /* works, with a loss or at a cost */
    CLP_CHECK_ERROR,   /* does not work */
};
const char *clp_check_level_name(enum clp_check_level level);

/* The machine and this user's rights. */
struct clp_check_machine {
    unsigned kernel_major, kernel_minor; /* 0: not known */
    char kernel[66];
    int yama_scope; /* -1: no yama */
    bool hides;     /* hidepid */
    uint32_t uid;
    uint64_t capabilities;                        /* effective */
    bool own_pid_namespace;                       /* not the machine's first one */
    uint64_t files, files_most;                   /* RLIMIT_NOFILE, soft and hard */
    struct clp_fault library, hook, state, spool; /* error 0: fine */
};

struct clp_check_process {
    struct clp_dotnet dotnet;                   /* asked and looked at closely */
    bool other_mounts, other_users, other_pids; /* namespaces; false where it cannot be seen */
    bool library_loaded, native_aot;
    uint32_t seccomp; /* 0 none, 1 strict, 2 filter */
    uint64_t signals_used, signals_limit;
    bool temp_noexec;
    int place;            /* as clp_place_look says; -ENOENT: there was no library to look for */
    char place_path[512]; /* where the library would be */
    char agent[256];      /* what a running agent says of it; "" */
    /* Its environment, where it may be read. */
    bool diagnostics_off, ipc_off, profiler_off, disabled, main_profiler, default_suspend;
    bool no_hooks;             /* its runtimeconfig.json switches start-up hooks off */
    char suspending_port[128]; /* a port of DOTNET_DiagnosticPorts that makes it wait; "" */
    char unwanted[256];        /* by which setting; "" */
};

/* The numbers of the rules, for tests. */
enum clp_check_rule {
#define CLP_MACHINE_CHECK(id, level, applies, ...) CLP_CHECK_MACHINE_##id,
#define CLP_PROCESS_CHECK(id, level, applies, ...)
#include "agent/checks.def"
#undef CLP_MACHINE_CHECK
#undef CLP_PROCESS_CHECK
#define CLP_MACHINE_CHECK(id, level, applies, ...)
#define CLP_PROCESS_CHECK(id, level, applies, ...) CLP_CHECK_PROCESS_##id,
#include "agent/checks.def"
#undef CLP_MACHINE_CHECK
#undef CLP_PROCESS_CHECK
    CLP_CHECK_RULES
};

/* Each finding; `text` is one sentence. */
typedef void clp_check_tell(void *context, enum clp_check_rule rule, enum clp_check_level level,
                            const char *text);
void clp_check_machine(const struct clp_check_machine *m, clp_check_tell *tell, void *context);
void clp_check_process(const struct clp_check_process *p, clp_check_tell *tell, void *context);

/* ---- facts ---- */

/* Whether the text of a runtimeconfig.json switches start-up hooks off. Pure. */
bool clp_check_no_hooks(const char *config);
void clp_check_look_machine(const struct clp_config *c, struct clp_check_machine *ret);
/* `d` is open; it is asked and belongs to *ret afterwards (clp_dotnet_done). */
void clp_check_look_process(const struct clp_config *c, const struct clp_dotnet *d,
                            struct clp_check_process *ret);
/* Whether a READY process still waits at its start for a tool to let it go, as its environment
 * makes it: it has no entry assembly yet. Then with a sentence. */
bool clp_check_waits(const struct clp_dotnet *d, char *buf, size_t cap);
/* The parts that read foreign text. */
void clp_check_environment(const char *block, size_t len, struct clp_check_process *ret);
void clp_check_maps(const char *maps, size_t len, struct clp_check_process *ret);

#endif
