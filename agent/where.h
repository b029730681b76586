/* Directories of a target in which a file can be made and then executed.
 *
 * First the usual ones, then what is mounted there: a container with a read-only root and a temp
 * directory that is mounted noexec often has a volume of its own. Mounts of the network and of user
 * space (FUSE) are left alone, because they may keep us waiting. Pure reading. */
#ifndef CLP_AGENT_WHERE_H
#define CLP_AGENT_WHERE_H

#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"

#include <stdbool.h>
#include <sys/types.h>

#define CLP_WHERE_MOUNTS_MAX 256u /* of a mount table that are looked at */
#define CLP_WHERE_PATH_BYTES 1024u

/* Gives each one to `take` until that answers 0: an O_PATH descriptor, the callee's only during the
 * call, and the path as the target sees it. As the target's user (as_user.h). 0, or the last answer
 * (-EACCES when there is no such directory). */
int clp_where(const struct clp_dotnet *t, int (*take)(void *context, int dir_fd, const char *path),
              void *context) CLP_MUST_USE;

/* Mounted read-only, or without the right to execute. */
bool clp_where_noexec(int fd);
/* Whether the user may make something here by its own right: the kernel asks the same when we act
 * as that user; asked again for an agent that has rights of its own beside its uid. */
bool clp_where_may_write(int fd, uid_t uid, gid_t gid);

/* One line of /proc/PID/mountinfo: the mount point where files may be executed. 0; -ENOENT when it
 * is none of those; -EINVAL. Foreign text. */
int clp_where_mount_line(const char *line, size_t len,
                         char ret_path[CLP_WHERE_PATH_BYTES]) CLP_MUST_USE;

#endif
