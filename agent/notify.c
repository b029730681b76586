#include "agent/notify.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A path, or with '@' a name in the abstract namespace. */
static bool take_address(struct clp_notify *n, const char *path)
{
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof(n->to.sun_path) || (*path != '/' && *path != '@'))
        return false;
    n->to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(n->to.sun_path, path, len);
    if (*path == '@')
        n->to.sun_path[0] = '\0';
    n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'));
    return true;
}

/* The watchdog may be meant for another process of the service. */
static uint64_t watchdog_ns(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *us = getenv("WATCHDOG_USEC");
    if (!us || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    uint64_t n = strtoull(us, NULL, 10);
    return n < UINT64_MAX / CLP_NSEC_PER_USEC ? n * CLP_NSEC_PER_USEC : 0;
}

void clp_notify_init(struct clp_notify *n)
{
    *n = (struct clp_notify){.fd = -1};
    if (take_address(n, getenv("NOTIFY_SOCKET")))
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    n->every_ns = watchdog_ns() / 2;
    (void)unsetenv("NOTIFY_SOCKET");
    (void)unsetenv("WATCHDOG_USEC");
    (void)unsetenv("WATCHDOG_PID");
}

void clp_notify_done(struct clp_notify *n)
{
    clp_cleanup_fd(&n->fd);
    n->fd = -1;
}

void clp_notify_send(struct clp_notify *n, const char *state)
{
    if (n->fd >= 0)
        (void)sendto(n->fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                     (const struct sockaddr *)&n->to, n->to_len);
}

void clp_notify_reloading(struct clp_notify *n)
{
    char text[64];
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(clp_clock_monotonic_ns() / CLP_NSEC_PER_USEC));
    clp_notify_send(n, text);
}

void clp_notify_status(struct clp_notify *n, const char *fmt, ...)
{
    char text[sizeof(n->status)] = "STATUS=";
    size_t used = strlen(text);
    va_list args;
    if (n->fd < 0)
        return;
    va_start(args, fmt);
    vsnprintf(text + used, sizeof(text) - used, fmt, args);
    va_end(args);
    if (strcmp(text, n->status) == 0)
        return;
    memcpy(n->status, text, sizeof(text));
    clp_notify_send(n, text);
}

void clp_notify_alive(struct clp_notify *n, uint64_t now_ns)
{
    if (n->every_ns == 0 || now_ns < n->next_sign_ns)
        return;
    n->next_sign_ns = now_ns + n->every_ns;
    clp_notify_send(n, "WATCHDOG=1");
}
