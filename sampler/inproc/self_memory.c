/* clp_images_read: memory of this process that may be gone or unreadable at any moment. */
#include "sampler/inproc/images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic bool no_vm_readv;

void clp_images_forbid_vm_readv(void)
{
    no_vm_readv = true;
}

/* Opened each time: a number that is kept could be closed by the application and be another file.
 */
static int64_t read_through_proc(uint64_t address, void *buf, size_t len)
{
    if (address > INT64_MAX)
        return -EFAULT;
    int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = pread(fd, buf, len, (off_t)address);
    int64_t r = n > 0 ? n : n == 0 || errno == EIO ? -EFAULT : -errno;
    (void)close(fd);
    return r;
}

int64_t clp_images_read(uint64_t address, void *buf, size_t len)
{
    if (len == 0)
        return 0;
    if (!no_vm_readv) {
        struct iovec to = {buf, len};
        struct iovec from = {(void *)(uintptr_t)address, len};
        ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
        if (n >= 0)
            return n > 0 ? n : -EFAULT;
        if (errno != EPERM && errno != ENOSYS)
            return -errno;
        no_vm_readv = true;
    }
    return read_through_proc(address, buf, len);
}

/* The kernel stops at the first that it cannot read. */
static bool read_all(const struct clp_read *reads, size_t n)
{
    struct iovec to[CLP_READS_MAX], from[CLP_READS_MAX];
    ssize_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct iovec){reads[i].to, reads[i].bytes};
        from[i] = (struct iovec){(void *)(uintptr_t)reads[i].address, reads[i].bytes};
        bytes += reads[i].bytes;
    }
    return process_vm_readv(getpid(), to, n, from, n, 0) == bytes;
}

void clp_images_read_many(struct clp_read *reads, size_t n)
{
    n = CLP_MIN(n, (size_t)CLP_READS_MAX);
    bool all = n > 0 && !no_vm_readv && read_all(reads, n);
    for (size_t i = 0; i < n; i++) {
        struct clp_read *r = &reads[i];
        r->done = all || clp_images_read(r->address, r->to, r->bytes) == (int64_t)r->bytes;
    }
}
