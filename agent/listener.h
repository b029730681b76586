/* A listening Unix socket with a name, of which there is one at a time: the status socket and the
 * diagnostic port.
 *
 * The socket of an agent that was killed is replaced; one that answers, and a file that is no
 * socket, stay.  Two that begin at once take turns: only one of them gets the name. Not
 * thread-safe. */
#ifndef CLP_AGENT_LISTENER_H
#define CLP_AGENT_LISTENER_H

#include "base/core/core.h"

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

struct clp_listener {
    int dir_fd, fd;   /* -1: none */
    const char *name; /* the caller's, for as long as it listens */
    dev_t dev;
    ino_t inode;  /* of the name: at the end it may be another's */
    bool starved; /* accepting failed for want of descriptors or memory */
};

#define CLP_LISTENER_NONE                                                                          \
    {                                                                                              \
        .dir_fd = -1, .fd = -1                                                                     \
    }

/* The address of `name` in the open directory, for paths of any length. 0 or -ENAMETOOLONG. */
int clp_listener_address(int dir_fd, const char *name, struct sockaddr_un *ret) CLP_MUST_USE;
/* A stream socket `name` with `mode` in the directory `dir`, which must exist. 0; -EADDRINUSE:
 * somebody answers there, or it is no socket; or what the system said. *l is CLP_LISTENER_NONE
 * before, and after an error. */
int clp_listener_open(struct clp_listener *l, const char *dir, const char *name, mode_t mode,
                      int backlog) CLP_MUST_USE;
/* Removes the name, if it is still this socket's, and closes. Again is fine. */
void clp_listener_close(struct clp_listener *l);
/* What to poll: -1, which poll passes over, while accepting cannot succeed. A try of accept, which
 * the owner makes in every round, ends that; its rounds must not depend on this descriptor. */
int clp_listener_fd(const struct clp_listener *l);
/* The next connection, non-blocking, or a negative errno: -EAGAIN when there is none. */
int clp_listener_accept(struct clp_listener *l) CLP_MUST_USE;

#endif
