/* The subcommands: one file each. Each answers an exit code. */
#ifndef CLP_AGENT_CLI_CLI_H
#define CLP_AGENT_CLI_CLI_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/cli.h"
#include "sampler/eventpipe/discover.h"

enum clp_exit {
    CLP_EXIT_DONE = 0,
    CLP_EXIT_FAILED = 1,
    CLP_EXIT_USE = 2,
    CLP_EXIT_NO_PROCESS = 3, /* no such process, or not .NET */
    CLP_EXIT_PERMISSION = 4,
    CLP_EXIT_REFUSED = 5, /* by the runtime */
};

int clp_command_ps(const struct clp_cli *cli);
int clp_command_record(const struct clp_cli *cli);
int clp_command_agent(const struct clp_cli *cli);
int clp_command_events(const struct clp_cli *cli);

/* A process that can be profiled: READY and of a supported version. Waits for one that is just
 * starting, until `stop_fd` is readable (-1: never). 0, or a fault with *ret untouched; release
 * with clp_dotnet_done. */
int clp_find_process(int32_t pid, int stop_fd, struct clp_dotnet *ret,
                     struct clp_fault *f) CLP_MUST_USE;
/* Prints "clrpulse: <sentence>" and answers the exit code of an errno (fault.h). */
int clp_exit_fault(const struct clp_fault *f);
/* Blocks SIGINT and SIGTERM, ignores SIGPIPE; a descriptor that is readable when one came, or
 * -errno. */
int clp_stop_signals(void) CLP_MUST_USE;

#endif
