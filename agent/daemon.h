/* The agent's work: finds targets, keeps a session with each, cuts windows, hands profiles to the
 * outbox.
 *
 * One thread with poll; the outbox and the diagnostic port have their own. */
#ifndef CLP_AGENT_DAEMON_H
#define CLP_AGENT_DAEMON_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "config/config.h"

#include <stdbool.h>

#define CLP_DAEMON_TARGETS_MAX 256u

struct clp_daemon_options {
    struct clp_config *config; /* exchanged by a reload; the caller's again at the end */
    const char *config_path;   /* for status; "" when no file was read */
    int stop_fd;               /* a signalfd of the signals that end it */
    int reload_fd;             /* a signalfd: read the settings anew; -1: never */
    /* Reads and checks all settings. 0, or -errno with the sentence; *ret is done with then. */
    int (*reread)(void *context, struct clp_config *ret, struct clp_config_error *error);
    void *context;
    bool detach_on_exit;
};

/* Runs until told to stop; the last windows are delivered then, within five seconds. 0, or a fault
 * that kept it from starting. */
int clp_daemon_run(const struct clp_daemon_options *o, struct clp_fault *fault) CLP_MUST_USE;

#endif
