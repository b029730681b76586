#include "sampler/symbols/image_files.h"

#include "base/cleanup.h"
#include "base/core/text.h"
#include "base/file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define DEBUG_DIR "/usr/lib/debug/.build-id/"

/* From a descriptor that names a file without having it open, to one that reads it. */
static int reopen_regular(int path_fd)
{
    struct stat st;
    if (fstat(path_fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    char buf[32];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    clp_text_add(&t, "/proc/self/fd/");
    clp_text_dec(&t, (uint64_t)path_fd);
    int fd = open(buf, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int clp_image_open_regular(int root_fd, const char *path)
{
    CLP_CLEANUP(clp_cleanup_fd) int path_fd = clp_file_open_in(root_fd, path, O_PATH);
    return path_fd < 0 ? path_fd : reopen_regular(path_fd);
}

static bool same_build(int fd, const struct clp_symbols_image_spec *spec,
                       struct clp_symbols_stats *stats)
{
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = 0;
    struct clp_file_bytes bytes;
    int r = clp_file_bytes_of_fd(fd, &bytes);
    if (r == 0)
        r = clp_elf_build_id(&bytes, id, &len);
    if (r == -EBADMSG)
        stats->malformed++;
    if (r < 0 && r != -ENODATA)
        return false;
    if (len == spec->build_id_len && memcmp(id, spec->build_id, len) == 0)
        return true;
    stats->other_build++;
    return false;
}

/* `required`: a build id must be there and be equal. */
static int open_checked(int path_fd_or_error, const struct clp_symbols_image_spec *spec,
                        bool required, struct clp_symbols_stats *stats)
{
    if (path_fd_or_error < 0)
        return -1;
    CLP_CLEANUP(clp_cleanup_fd) int path_fd = path_fd_or_error;
    CLP_CLEANUP(clp_cleanup_fd) int fd = reopen_regular(path_fd);
    if (fd < 0)
        return -1;
    if ((required || spec->build_id_len) && !same_build(fd, spec, stats))
        return -1;
    return CLP_TAKE_FD(fd);
}

static int open_ours(const char *path)
{
    return open(path, O_PATH | O_CLOEXEC);
}

int clp_image_open_module(const struct clp_symbols_image_spec *spec, const char *path,
                          struct clp_symbols_stats *stats)
{
    if (path[0] != '/')
        return -1; /* [vdso], anonymous, memfd */
    int fd = -1;
    if (spec->root_fd >= 0)
        fd = open_checked(clp_file_open_in(spec->root_fd, path, O_PATH), spec, false, stats);
    if (fd < 0 && spec->build_id_len)
        fd = open_checked(open_ours(path), spec, true, stats);
    if (fd < 0)
        stats->not_found++;
    return fd;
}

int clp_image_open_debug(const struct clp_symbols_image_spec *spec, struct clp_symbols_stats *stats)
{
    char path[sizeof(DEBUG_DIR) + 2ul * CLP_ELF_BUILD_ID_MAX + 16];
    if (spec->build_id_len < 2)
        return -1;
    struct clp_text t = clp_text_in(path, sizeof(path));
    clp_text_add(&t, DEBUG_DIR);
    for (size_t i = 0; i < spec->build_id_len; i++) {
        clp_text_hex(&t, spec->build_id[i] >> 4);
        clp_text_hex(&t, spec->build_id[i] & 15);
        if (i == 0)
            clp_text_char(&t, '/');
    }
    clp_text_add(&t, ".debug");
    int fd = -1;
    if (spec->root_fd >= 0)
        fd = open_checked(clp_file_open_in(spec->root_fd, path, O_PATH), spec, true, stats);
    if (fd < 0)
        fd = open_checked(open_ours(path), spec, true, stats);
    return fd;
}
