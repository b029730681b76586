/* What an attach needs in the target's file system: a directory of its own with a listening socket,
 * and the library as a file that the target can read and execute.
 *
 * All of it is made with the target's user's rights (as_user.h) below the target's root, never
 * through a symlink, and is needed only until the library has connected: clp_place_remove takes it
 * away. */
#ifndef CLP_AGENT_PLACE_H
#define CLP_AGENT_PLACE_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "sampler/eventpipe/discover.h"
#include "wire/wire.h"

#include <sys/types.h>

#define CLP_PLACE_PATH_BYTES 4096u
/* Entries of a temp directory that are looked at for what killed agents have left: its owner may
 * have put in millions. */
#define CLP_PLACE_SWEEP_MOST 16384u

/* A fresh directory of mode 0700 inside the target. */
struct clp_place_dir {
    int parent_fd, fd; /* O_PATH; -1 when there is none */
    char name[40];
};

struct clp_place {
    uid_t uid;
    gid_t gid;
    struct clp_place_dir meet; /* holds the socket, and the copy where that can be executed */
    struct clp_place_dir copy; /* holds the copy otherwise */
    int listen_fd;             /* SOCK_SEQPACKET, non-blocking; the caller may take it */
    bool copied;
    char socket_path[CLP_SOCKET_PATH_MAX]; /* both paths as the target sees them */
    char library_path[CLP_PLACE_PATH_BYTES];
};

/* `library` is our own file, `maps` says where to look for one that the target has loaded already.
 * 0, or a fault with nothing left behind. */
int clp_place_make(struct clp_place *p, const struct clp_dotnet *target, const char *library,
                   struct clp_fault *fault) CLP_MUST_USE;
/* Where the library would be, without making anything: 1, the target sees our own file (its path);
 * 0, a copy would be made in a directory (its path); -EACCES, nowhere; or what else is in the way.
 */
int clp_place_look(const struct clp_dotnet *target, const char *library,
                   char ret_path[CLP_PLACE_PATH_BYTES]) CLP_MUST_USE;
/* Only the socket, in a private directory below our own TMPDIR, for a process that we start and
 * that loads the library by itself. 0, or a fault with nothing left behind. */
int clp_place_announce(struct clp_place *p, struct clp_fault *fault) CLP_MUST_USE;
/* Removes the files and directories, closes everything. A target that is gone is no error. May be
 * called again. */
void clp_place_remove(struct clp_place *p);

#endif
