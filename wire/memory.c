#include "wire/memory.h"

#include "base/core/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

static bool ring_size_fits(uint64_t ring_bytes)
{
    return ring_bytes >= CLP_WIRE_RING_MIN_BYTES && ring_bytes <= CLP_WIRE_RING_MAX_BYTES &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

static int allocate_and_map(int fd, size_t bytes, void **ret)
{
    if (ftruncate(fd, (off_t)bytes) < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0)
        return -errno;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    /* F_SEAL_SEAL: nobody may add F_SEAL_WRITE later and make the library's mapping fail. */
    if (fcntl(fd, F_ADD_SEALS, SEALS_NEEDED | F_SEAL_SEAL) < 0) {
        int r = -errno;
        (void)munmap(p, bytes);
        return r;
    }
    *ret = p;
    return 0;
}

int clp_wire_memory_create(uint32_t ring_bytes, int *ret_fd, void **ret_mapping)
{
    if (!ring_size_fits(ring_bytes))
        return -EINVAL;
    int fd = clp_sys_memfd_create("clrpulse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    void *p = NULL;
    int r = allocate_and_map(fd, (size_t)CLP_WIRE_HEADER_BYTES + ring_bytes, &p);
    if (r < 0 || !p) {
        (void)close(fd);
        return r;
    }
    struct clp_wire_header *h = p;
    h->version = CLP_WIRE_VERSION;
    h->ring_bytes = ring_bytes;
    atomic_thread_fence(memory_order_release);
    h->magic = CLP_WIRE_MAGIC;
    *ret_fd = fd;
    *ret_mapping = p;
    return 0;
}

int clp_wire_memory_check(int fd, size_t *ret_bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED)
        return -EPERM;
    if (clp_sys_fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= CLP_WIRE_HEADER_BYTES ||
        !ring_size_fits((uint64_t)st.st_size - CLP_WIRE_HEADER_BYTES))
        return -EINVAL;
    if (st.st_blocks * 512 < st.st_size)
        return -ENOSPC;
    *ret_bytes = (size_t)st.st_size;
    return 0;
}
