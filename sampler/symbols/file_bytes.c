#include "sampler/symbols/file_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int clp_file_bytes_of_fd(int fd, struct clp_file_bytes *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    *ret = (struct clp_file_bytes){.fd = fd, .size = (uint64_t)st.st_size};
    return 0;
}

struct clp_file_bytes clp_file_bytes_of_mem(const void *mem, size_t len)
{
    return (struct clp_file_bytes){.fd = -1, .mem = mem, .size = len};
}

bool clp_file_bytes_inside(const struct clp_file_bytes *b, uint64_t offset, uint64_t len)
{
    return offset <= b->size && len <= b->size - offset;
}

int clp_file_bytes_read(const struct clp_file_bytes *b, uint64_t offset, void *buf, size_t len)
{
    if (!clp_file_bytes_inside(b, offset, len))
        return -EBADMSG;
    if (b->fd < 0) {
        if (len)
            memcpy(buf, b->mem + offset, len);
        return 0;
    }
    uint8_t *at = buf;
    while (len > 0) {
        ssize_t n = pread(b->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EBADMSG; /* truncated since */
        at += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}
