#include "sampler/unwind/source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/arena.h"
#include "base/core/sys.h"

int clp_source_open_part(int fd, uint64_t from, struct clp_source *ret)
{
    struct stat st;
    if (clp_sys_fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < 0 || from > (uint64_t)st.st_size)
        return -EBADMSG;
    *ret = (struct clp_source){.fd = fd, .from = from, .size = (uint64_t)st.st_size - from};
    return 0;
}

int clp_source_open_fd(int fd, struct clp_source *ret)
{
    return clp_source_open_part(fd, 0, ret);
}

struct clp_source clp_source_of(const void *mem, size_t len)
{
    return (struct clp_source){.mem = mem, .size = len, .fd = -1};
}

struct clp_source clp_source_mapped(const struct clp_code_source *process, uint64_t bias)
{
    return (struct clp_source){.process = process, .bias = bias, .size = UINT32_MAX, .fd = -1};
}

static int read_process(const struct clp_source *s, uint64_t offset, void *buf, size_t len)
{
    int64_t n = s->process->read(s->process->user, s->bias + offset, buf, len);
    return n == (int64_t)len ? 0 : n < 0 ? (int)n : -EBADMSG;
}

static int read_fd(int fd, uint64_t offset, uint8_t *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = pread(fd, buf, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EBADMSG;
        buf += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int clp_source_read(const struct clp_source *s, uint64_t offset, void *buf, size_t len)
{
    if (offset > s->size || len > s->size - offset)
        return -EBADMSG;
    if (s->process)
        return read_process(s, offset, buf, len);
    if (!s->mem)
        return read_fd(s->fd, s->from + offset, buf, len);
    if (len)
        memcpy(buf, s->mem + offset, len);
    return 0;
}

int clp_scratch_alloc(size_t bytes, struct clp_scratch *ret)
{
    uint8_t *p = clp_pages_alloc(bytes ? bytes : 1);
    if (!p)
        return -ENOMEM;
    *ret = (struct clp_scratch){.at = p, .bytes = bytes ? bytes : 1};
    return 0;
}

int clp_scratch_load(const struct clp_source *s, uint64_t offset, uint64_t len, size_t ceiling,
                     struct clp_scratch *ret)
{
    if (len == 0 || len > ceiling || offset > s->size || len > s->size - offset)
        return -EBADMSG;
    struct clp_scratch got;
    int r = clp_scratch_alloc((size_t)len, &got);
    if (r < 0)
        return r;
    r = clp_source_read(s, offset, got.at, (size_t)len);
    if (r < 0) {
        clp_scratch_done(&got);
        return r;
    }
    *ret = got;
    return 0;
}

void clp_scratch_done(struct clp_scratch *s)
{
    clp_pages_free(s->at, s->bytes);
    *s = (struct clp_scratch){0};
}
