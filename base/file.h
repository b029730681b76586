/* Small files: read whole with a bound, written so that nobody ever sees half of one.
 *
 * All descriptors are opened with O_CLOEXEC. Thread-safe. */
#ifndef CLP_BASE_FILE_H
#define CLP_BASE_FILE_H

#include "base/core/core.h"

#include <dirent.h>
#include <sys/types.h>

/* Reads a whole file of at most `ceiling_bytes`: the contents with a NUL after them in *ret (free),
 * the length in *ret_len (may be NULL). Works on /proc, whose files have no size. Never waits for a
 * FIFO or a device: only regular files (-EINVAL otherwise). -EFBIG beyond the ceiling, -ENOMEM, or
 * what open and read said. */
int clp_file_read(const char *path, size_t ceiling_bytes, char **ret, size_t *ret_len) CLP_MUST_USE;
/* The same relative to `dirfd` (AT_FDCWD allowed). */
int clp_file_read_at(int dirfd, const char *path, size_t ceiling_bytes, char **ret,
                     size_t *ret_len) CLP_MUST_USE;
/* The same from an open descriptor, from its current offset to the end; `fd` stays the caller's. */
int clp_file_read_fd(int fd, size_t ceiling_bytes, char **ret, size_t *ret_len) CLP_MUST_USE;

/* The same of /proc/PID/`name`; `pid` 0 is the caller itself. NULL where it cannot be read. */
char *clp_file_read_proc(int32_t pid, const char *name, size_t ceiling_bytes,
                         size_t *ret_len) CLP_MUST_USE;

/* The entries of an open directory from the first on (an O_PATH descriptor will do); `dirfd` stays
 * the caller's, with its own position. NULL with errno. */
DIR *clp_file_list(int dirfd) CLP_MUST_USE;

/* Opens a path that somebody else may have arranged, as in a target's /proc/PID/root: `rootfd` acts
 * as
 * "/", no symlink is followed anywhere, no magic link either, and the open never blocks
 * (O_NONBLOCK). `path` may be absolute or relative; flags are those of open without O_CREAT. The
 * descriptor, or -ELOOP for a symlink, -ENOENT, -EACCES... On kernels without openat2 the walk is
 * done here. */
int clp_file_open_in(int rootfd, const char *path, int flags) CLP_MUST_USE;

/* Writes `name` in the directory `dirfd` (AT_FDCWD allowed): a temporary file beside it, fsync,
 * rename, fsync of the directory. After 0 the file is there, whole, also after a power cut; after
 * an error the old file, if any, is untouched and nothing is left behind. `name` has no '/'. */
int clp_file_write_at(int dirfd, const char *name, const void *data, size_t len,
                      mode_t mode) CLP_MUST_USE;
/* The same for a path that a person gave; its directory must exist. A symlink is followed; what is
 * no regular file (a device, a FIFO) is written into and stays what it is. */
int clp_file_write(const char *path, const void *data, size_t len, mode_t mode) CLP_MUST_USE;

/* Writes all of it, over short writes and EINTR. 0 or -errno. */
int clp_file_write_fd(int fd, const void *data, size_t len) CLP_MUST_USE;

/* Makes a directory and its missing parents with `mode`; 0 when it is there already as a directory.
 */
int clp_file_mkdir_p(const char *path, mode_t mode) CLP_MUST_USE;

#endif
