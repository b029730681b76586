/* Acts on files as a target's user: what the agent makes for a target then belongs to it, and the
 * kernel refuses whatever the target could not have done itself. A hostile TMPDIR gains nothing.
 *
 * Only the calling thread's file system ids change (setfsuid): descriptors that are already open
 * keep their rights. Not to be nested. */
#ifndef CLP_AGENT_AS_USER_H
#define CLP_AGENT_AS_USER_H

#include "base/core/core.h"

#include <sys/types.h>

struct clp_as_user {
    uid_t uid; /* what was */
    gid_t gid;
};

/* 0, or -EPERM when this process may not (no CAP_SETUID, or ids that its user namespace does not
 * know); nothing has changed then. */
int clp_as_user_begin(struct clp_as_user *a, uid_t uid, gid_t gid) CLP_MUST_USE;
void clp_as_user_end(struct clp_as_user *a);

#endif
