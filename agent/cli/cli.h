/* The subcommands: one file each. Each answers an exit code. */
#ifndef CLP_AGENT_CLI_CLI_H
#define CLP_AGENT_CLI_CLI_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/cli.h"
#include "sampler/eventpipe/discover.h"

#include <stdarg.h>
#include <stdio.h>

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
int clp_command_spool(const struct clp_cli *cli);
int clp_command_agent(const struct clp_cli *cli);
int clp_command_run(const struct clp_cli *cli);
int clp_command_status(const struct clp_cli *cli);
int clp_command_check(const struct clp_cli *cli);
int clp_command_events(const struct clp_cli *cli);

/* Of one that was asked: 0 when it is READY and of a supported version, else the fault that it
 * cannot be profiled with. */
int clp_find_error(const struct clp_dotnet *d, struct clp_fault *f);
/* A process that can be profiled: READY and of a supported version. Waits for one that is just
 * starting, until `stop_fd` is readable (-1: never). 0, or a fault with *ret untouched; release
 * with clp_dotnet_done. */
int clp_find_process(int32_t pid, int stop_fd, struct clp_dotnet *ret,
                     struct clp_fault *f) CLP_MUST_USE;
/* Prints what others have written, at most `most` bytes of it, without codes for the terminal. */
void clp_print_foreign(FILE *out, const char *text, size_t most);
/* Prints "clrpulse: <sentence>" on stderr: words of the command line and of targets may be in it,
 * and come without codes for the terminal. */
void clp_print_sentence(const char *fmt, ...) CLP_PRINTF(1, 2);
void clp_vprint_sentence(const char *fmt, va_list args) CLP_PRINTF(1, 0);
/* The exit code of an errno, or another error of fault.h. */
int clp_exit_code(int error);
/* Prints a fault's sentence; answers the exit code of its error. */
int clp_exit_fault(const struct clp_fault *f);
/* Blocks SIGINT and SIGTERM, ignores SIGPIPE; a descriptor that is readable when one came, or
 * -errno. */
int clp_stop_signals(void) CLP_MUST_USE;
/* The same for one signal, which is blocked as well. */
int clp_signal_fd(int signal) CLP_MUST_USE;

/* What the running agent answers (free). The agent is found by its configuration (NULL: the usual
 * one). 0, or a fault: -EINVAL for the configuration. */
int clp_ask_agent(const char *config_path, const char *question, char **ret,
                  struct clp_fault *fault) CLP_MUST_USE;

/* All settings: defaults, `path` (NULL: the usual file, if it is there), environment, `assignments`
 * (may be NULL); checked. *ret_path (may be NULL) is the file that was read, or "". 0, or -errno
 * with the sentence; *ret is to be done with in both cases. */
int clp_read_settings(struct clp_config *ret, const char *path,
                      const struct clp_cli_texts *assignments, const char **ret_path,
                      struct clp_config_error *error) CLP_MUST_USE;

#endif
