/* The bytes of a foreign file: an open file, read with pread so that one that is truncated under us
 * raises no SIGBUS, or a whole file in memory.  Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_FILE_BYTES_H
#define CLP_SAMPLER_SYMBOLS_FILE_BYTES_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_file_bytes {
    int fd; /* -1: memory */
    const uint8_t *mem;
    uint64_t size;
};

/* Only regular files: -EINVAL for others. The descriptor stays the caller's. */
int clp_file_bytes_of_fd(int fd, struct clp_file_bytes *ret) CLP_MUST_USE;
struct clp_file_bytes clp_file_bytes_of_mem(const void *mem, size_t len);

/* Whether [offset, offset + len) lies in the file. */
bool clp_file_bytes_inside(const struct clp_file_bytes *b, uint64_t offset, uint64_t len);
/* Exactly `len` bytes: 0, -EBADMSG beyond the end, -errno. */
int clp_file_bytes_read(const struct clp_file_bytes *b, uint64_t offset, void *buf,
                        size_t len) CLP_MUST_USE;

#endif
