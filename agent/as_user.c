#include "agent/as_user.h"

#include <errno.h>
#include <sys/fsuid.h>

/* setfsuid tells no errors: it answers the id before, and an id that cannot be changes nothing. */
static uid_t current_fsuid(void)
{
    return (uid_t)setfsuid((uid_t)-1);
}

static gid_t current_fsgid(void)
{
    return (gid_t)setfsgid((gid_t)-1);
}

int clp_as_user_begin(struct clp_as_user *a, uid_t uid, gid_t gid)
{
    a->uid = current_fsuid();
    a->gid = current_fsgid();
    (void)setfsgid(gid); /* first: afterwards there is no right to */
    if (uid != a->uid)
        (void)setfsuid(uid);
    if (current_fsuid() == uid && (current_fsgid() == gid || uid == a->uid))
        return 0;
    clp_as_user_end(a);
    return -EPERM;
}

void clp_as_user_end(struct clp_as_user *a)
{
    (void)setfsuid(a->uid);
    (void)setfsgid(a->gid);
}
