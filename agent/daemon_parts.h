/* The daemon's own state, shared by its three parts: daemon.c (life and loop), daemon_targets.c
 * (processes and sessions), daemon_windows.c (profiles). Nobody else includes this. */
#ifndef CLP_AGENT_DAEMON_PARTS_H
#define CLP_AGENT_DAEMON_PARTS_H

#include "agent/daemon.h"
#include "agent/health.h"
#include "agent/limits.h"
#include "agent/notify.h"
#include "agent/outbox.h"
#include "agent/port.h"
#include "agent/roster.h"
#include "agent/scan.h"
#include "agent/seq.h"
#include "agent/status_socket.h"
#include "agent/walltime.h"

struct clp_daemon {
    struct clp_daemon_options options;
    uint64_t started_ns, trimmed_ns, tidied_ns;
    uint64_t handed_ns; /* the first profile since memory was given back; 0: none */
    char *library;
    struct clp_symbols *symbols;
    struct clp_outbox *outbox;
    struct clp_scan *scan;
    struct clp_seq *seq;
    struct clp_status_socket *status;
    struct clp_port *port;
    struct clp_health *health;
    struct clp_notify notify;
    struct clp_walltime walltime;
    struct clp_journal *journal; /* of EventPipe sessions; NULL: none can be kept */
    struct clp_limits limits;    /* our own */
    struct clp_roster roster;
    size_t targets; /* members with a target */
    bool stopping;
    int scan_error; /* of the last round over /proc; 0 or negative errno */
};

/* ---- daemon_targets.c ---- */

/* A round over /proc; new targets are begun. */
void clp_daemon_scan(struct clp_daemon *d);
/* When something is to be done for a member with a target that no descriptor tells. */
uint64_t clp_daemon_due_ns(const struct clp_daemon *d, const struct clp_member *m);
/* Does what can be done with every session that has work: woken, or due. */
void clp_daemon_step(struct clp_daemon *d);
/* The settings have changed: tells the libraries, leaves those that are not wanted any more. */
void clp_daemon_resettle(struct clp_daemon *d);
/* Leaves every target; `detach`: the library too. */
void clp_daemon_leave_all(struct clp_daemon *d, bool detach);

/* ---- daemon_windows.c ---- */

/* clp_target_config.window, with the daemon as its context. */
void clp_daemon_take_window(void *daemon, struct clp_target *t, const struct clp_window *w);
/* Takes over what the library has counted up to now. */
void clp_daemon_count(struct clp_member *m);

#endif
