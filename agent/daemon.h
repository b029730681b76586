/* The agent's work: finds targets, keeps a session with each, cuts windows, hands profiles to the
 * outbox.
 *
 * One thread with poll; the outbox has its own. */
#ifndef CLP_AGENT_DAEMON_H
#define CLP_AGENT_DAEMON_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"

#include <stdbool.h>

#define CLP_DAEMON_TARGETS_MAX 256u

struct clp_daemon_options {
    const struct clp_config *config;
    int stop_fd; /* readable: stop */
    bool detach_on_exit;
};

/* Runs until told to stop; the last windows are delivered then. 0, or a fault that kept it from
 * starting. */
int clp_daemon_run(const struct clp_daemon_options *o, struct clp_fault *fault) CLP_MUST_USE;

#endif
