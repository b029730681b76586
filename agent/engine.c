#include "agent/engine.h"

#include "agent/check.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ENVIRON_MAX_BYTES (4u << 20)
#define SECTION_NAMES_MAX_BYTES 65536u

static bool read_at(int fd, void *to, size_t len, uint64_t at)
{
    return at <= INT64_MAX && pread(fd, to, len, (off_t)at) == (ssize_t)len;
}

/* The names of an ELF file's sections; 0 when it has none or is no such file. */
static size_t read_section_names(int fd, char *names, size_t cap)
{
    Elf64_Ehdr e;
    Elf64_Shdr s;
    if (!read_at(fd, &e, sizeof(e), 0) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_shentsize != sizeof(s) ||
        e.e_shoff > INT64_MAX / 2)
        return 0;
    if (!read_at(fd, &s, sizeof(s), e.e_shoff + (uint64_t)e.e_shstrndx * sizeof(s)) ||
        s.sh_size > cap || !read_at(fd, names, s.sh_size, s.sh_offset))
        return 0;
    return s.sh_size;
}

/* The compiler puts all code into a section of this name; stripping keeps it. */
bool clp_engine_is_native_aot(int32_t pid)
{
    static const char section[] = "\0__managedcode";
    char path[64], names[SECTION_NAMES_MAX_BYTES];
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    size_t len = read_section_names(fd, names, sizeof(names));
    return memmem(names, len, section, sizeof(section)) != NULL;
}

bool clp_engine_needs_events(const struct clp_dotnet *d, char *why, size_t cap)
{
    struct clp_check_process p = {.dotnet = *d};
    size_t environ_len = 0;
    CLP_CLEANUP(clp_cleanup_free)
    char *environment = clp_file_read_proc(d->pid, "environ", ENVIRON_MAX_BYTES, &environ_len);
    if (environment)
        clp_check_environment(environment, environ_len, &p);
    if (p.profiler_off)
        snprintf(why, cap,
                 "process %d was started with DOTNET_EnableDiagnostics_Profiler=0, which keeps "
                 "libraries out",
                 d->pid);
    else if (clp_engine_is_native_aot(d->pid))
        snprintf(why, cap,
                 "process %d is compiled ahead of time (NativeAOT), and its runtime loads no "
                 "libraries",
                 d->pid);
    else
        return false;
    return true;
}
