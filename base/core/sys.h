/* System calls whose libc wrappers are younger than the libcs that the library is loaded beside:
 * fstat has been a symbol of its own since glibc 2.33, memfd_create since 2.27. Like the wrappers
 * they answer -1 and set errno. Any thread, signal-safe. */
#ifndef CLP_BASE_CORE_SYS_H
#define CLP_BASE_CORE_SYS_H

#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* On 64-bit machines the kernel's struct stat is libc's (glibc's and musl's). */
static inline int clp_sys_fstat(int fd, struct stat *ret)
{
    return (int)syscall(SYS_fstat, fd, ret);
}

static inline int clp_sys_memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* A device number from its parts, as in /proc/PID/maps: libc's makedev is a function on glibc and
 * none on musl. */
static inline dev_t clp_sys_device(uint64_t major, uint64_t minor)
{
    return (major & 0xfffff000) << 32 | (major & 0xfff) << 8 | (minor & 0xffffff00) << 12 |
           (minor & 0xff);
}

#endif
