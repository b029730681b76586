/* Small files of /proc/self, read with raw system calls into the caller's buffer.
 *
 * Files are opened for each read: the library keeps no descriptor that the application could see.
 * Loop thread and callbacks; no allocation. */
#ifndef CLP_SAMPLER_INPROC_PROCFILE_H
#define CLP_SAMPLER_INPROC_PROCFILE_H

#include "base/core/core.h"

#include <stdbool.h>

/* Reads at most cap - 1 bytes and terminates them. Bytes read or -errno. */
int64_t clp_procfile_read(const char *path, char *buf, size_t cap);

/* Calls `line` for each complete line of a file of any length (longer lines than the buffer are
 * dropped); stops when it answers false. 0 or -errno. */
int clp_procfile_lines(const char *path, char *buf, size_t cap,
                       bool (*line)(void *user, const char *text, size_t len), void *user);

#endif
