/* What `record` and `run` share: one target, one window, one file (or one for each type). */
#ifndef CLP_AGENT_CLI_RECORDING_H
#define CLP_AGENT_CLI_RECORDING_H

#include "agent/fault.h"
#include "agent/target.h"
#include "agent/walltime.h"
#include "base/core/core.h"

#define CLP_RECORDING_PATH_BYTES 4096
/* Unless others are asked for. */
#define CLP_RECORDING_TYPES (1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL)

struct clp_recording {
    /* The caller's wishes. */
    const char *output; /* NULL: a name from pid and time; "-": standard output */
    bool to_stdout;
    uint64_t whole_ns; /* UINT64_MAX: until the target ends */
    uint32_t types;    /* bit (1 << enum clp_profile_type) */
    bool types_given;  /* by the user; else they are CLP_RECORDING_TYPES */
    bool leave_out_idle;
    bool split;
    bool no_startup_hook;
    bool ends_with_target; /* its end is no surprise */
    int stop_fd;           /* readable: end early */

    int32_t pid; /* of the target; 0: not known yet */
    char path[CLP_RECORDING_PATH_BYTES];
    bool interrupted, terminal;
    struct clp_walltime walltime;
    struct clp_symbols *symbols;
    struct clp_target *target;
    bool have_profile;
    struct clp_fault write_fault; /* of the files */
    uint64_t samples;
    double cpu_ns, wall_ns;
    /* Called at each step, may be NULL: what else the caller has to see to. */
    void (*at_step)(void *context);
    void *context;
};

/* The value of --idle (NULL: not given). False, with a sentence on stderr, when it is none. */
bool clp_recording_take_idle(struct clp_recording *r, const char *value) CLP_MUST_USE;
/* Whether the file can be written: better now than after the recording. 0 or a fault. */
int clp_recording_check_path(struct clp_recording *r, struct clp_fault *f) CLP_MUST_USE;
/* What a target needs to know; makes the symbol cache. 0 or a fault. */
int clp_recording_prepare(struct clp_recording *r, const char *library,
                          struct clp_target_config *ret, struct clp_fault *f) CLP_MUST_USE;
/* Writes the one profile of a recording that is no target's: clp_recording_run does it by itself.
 * Failures are in r->write_fault. */
void clp_recording_write(struct clp_recording *r, const struct clp_dotnet *process,
                         struct clp_profile *profile);
/* With r->target begun: attaches, collects, writes. 0, or a fault. */
int clp_recording_run(struct clp_recording *r, struct clp_fault *f) CLP_MUST_USE;
void clp_recording_done(struct clp_recording *r);

#endif
