#include "agent/listener.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

/* Others may hold a lock on a directory that they can read, as long as they like. */
#define TURN_TRIES 50
#define TURN_PAUSE_NS (20 * CLP_NSEC_PER_MSEC)

int clp_listener_address(int dir_fd, const char *name, struct sockaddr_un *ret)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
    if (n < 0 || (size_t)n >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    *ret = a;
    return 0;
}

/* Between the question whether a socket is dead and its replacement nobody else may replace it.
 * The lock ends with the descriptor. Where there are no locks all goes on without. */
static int take_turn(int dir_fd)
{
    const struct timespec pause = {.tv_nsec = TURN_PAUSE_NS};
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < TURN_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            break;
        (void)nanosleep(&pause, NULL);
    }
    return fd;
}

static int new_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

/* The kernel refuses a connection to a file that is no socket in the same way: such a file is
 * somebody's, and stays. */
static int remove_dead(const struct clp_listener *l, const struct sockaddr_un *a)
{
    struct stat st;
    CLP_CLEANUP(clp_cleanup_fd) int fd = new_socket();
    if (fd < 0)
        return fd;
    if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno == EAGAIN)
        return -EADDRINUSE;
    if (errno == ECONNREFUSED && fstatat(l->dir_fd, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISSOCK(st.st_mode))
        (void)unlinkat(l->dir_fd, l->name, 0);
    return 0;
}

static int listen_at(struct clp_listener *l, const struct sockaddr_un *a, mode_t mode, int backlog)
{
    struct stat st;
    l->fd = new_socket();
    if (l->fd < 0)
        return l->fd;
    (void)fchmod(l->fd, mode); /* before it can be seen: bind makes the file with this mode */
    if (bind(l->fd, (const struct sockaddr *)a, sizeof(*a)) < 0)
        return -errno;
    if (fstatat(l->dir_fd, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        l->dev = st.st_dev;
        l->inode = st.st_ino;
    }
    return listen(l->fd, backlog) < 0 ? -errno : 0;
}

int clp_listener_open(struct clp_listener *l, const char *dir, const char *name, mode_t mode,
                      int backlog)
{
    struct sockaddr_un a;
    l->name = name;
    l->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = l->dir_fd < 0 ? -errno : clp_listener_address(l->dir_fd, name, &a);
    if (r == 0) {
        CLP_CLEANUP(clp_cleanup_fd) int turn_fd = take_turn(l->dir_fd);
        (void)turn_fd; /* held until we listen */
        r = remove_dead(l, &a);
        if (r == 0)
            r = listen_at(l, &a, mode, backlog);
    }
    if (r < 0)
        clp_listener_close(l);
    return r;
}

void clp_listener_close(struct clp_listener *l)
{
    struct stat st;
    if (l->inode && fstatat(l->dir_fd, l->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == l->dev && st.st_ino == l->inode)
        (void)unlinkat(l->dir_fd, l->name, 0);
    clp_cleanup_fd(&l->fd);
    clp_cleanup_fd(&l->dir_fd);
    *l = (struct clp_listener)CLP_LISTENER_NONE;
}

int clp_listener_fd(const struct clp_listener *l)
{
    return l->starved ? -1 : l->fd;
}

/* Want of descriptors or memory leaves the connection where it is, and poll would tell of it again
 * at once. */
int clp_listener_accept(struct clp_listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int r = fd < 0 ? -errno : fd;
    l->starved = r == -EMFILE || r == -ENFILE || r == -ENOBUFS || r == -ENOMEM;
    return r;
}
