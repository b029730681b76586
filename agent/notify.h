/* What a service manager wants to hear (the protocol of sd_notify(3)): one datagram of
 * VARIABLE=value lines to the socket in NOTIFY_SOCKET. Without that variable nothing is sent. One
 * thread. */
#ifndef CLP_AGENT_NOTIFY_H
#define CLP_AGENT_NOTIFY_H

#include "base/core/core.h"

#include <sys/socket.h>
#include <sys/un.h>

struct clp_notify {
    int fd; /* -1: nobody listens */
    struct sockaddr_un to;
    socklen_t to_len;
    uint64_t every_ns;     /* a sign of life; 0: not wanted */
    uint64_t next_sign_ns; /* CLOCK_MONOTONIC */
    char status[128];      /* the last one that was sent */
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and takes them out of the environment. */
void clp_notify_init(struct clp_notify *n);
void clp_notify_done(struct clp_notify *n);
/* "READY=1", "STOPPING=1"... A manager that is gone is no error. */
void clp_notify_send(struct clp_notify *n, const char *state);
/* "RELOADING=1" with its time; READY=1 has to follow. */
void clp_notify_reloading(struct clp_notify *n);
/* One line for people; sent when it is another one than before. */
void clp_notify_status(struct clp_notify *n, const char *fmt, ...) CLP_PRINTF(2, 3);
/* The sign of life, when it is due: twice as often as the manager wants it. */
void clp_notify_alive(struct clp_notify *n, uint64_t now_ns);

#endif
