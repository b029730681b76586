/* Scope-bound release of what a function owns, and TAKE to hand it on.
 *
 *     CLP_CLEANUP(clp_cleanup_fd) int fd = open(...);
 *     ...
 *     *ret_fd = CLP_TAKE_FD(fd);      the caller owns it now, nothing is closed here
 *
 * Every helper leaves errno as it was, so an error path may return -errno after the scope ends. */
#ifndef CLP_BASE_CLEANUP_H
#define CLP_BASE_CLEANUP_H

#include "base/core/core.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* The pointer's value; the variable becomes NULL. */
#define CLP_TAKE(p)                                                                                \
    ({                                                                                             \
        __auto_type clp_take_at_ = &(p);                                                           \
        __auto_type clp_take_value_ = *clp_take_at_;                                               \
        *clp_take_at_ = NULL;                                                                      \
        clp_take_value_;                                                                           \
    })

/* The descriptor's value; the variable becomes -1. */
#define CLP_TAKE_FD(fd)                                                                            \
    ({                                                                                             \
        int *clp_take_at_ = &(fd);                                                                 \
        int clp_take_value_ = *clp_take_at_;                                                       \
        *clp_take_at_ = -1;                                                                        \
        clp_take_value_;                                                                           \
    })

/* For CLP_CLEANUP on any pointer from malloc: `p` is the address of the pointer variable. */
static inline void clp_cleanup_free(void *p)
{
    free(*(void **)p); /* glibc >= 2.33 keeps errno in free */
}

static inline void clp_cleanup_fd(int *fd)
{
    int saved = errno;
    if (*fd >= 0)
        (void)close(*fd);
    errno = saved;
}

static inline void clp_cleanup_dir(DIR **d)
{
    int saved = errno;
    if (*d)
        (void)closedir(*d);
    errno = saved;
}

#endif
