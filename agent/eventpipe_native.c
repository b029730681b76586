#include "agent/eventpipe_native.h"

#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"
#include "sampler/symbols/managed_name.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAPS_MAX_BYTES (64u << 20)
#define SEGMENTS_MAX 64u

struct clp_native {
    struct clp_native_range range;
    uint64_t link_start; /* link-time address of range.start */
    struct clp_symbols_image *image;
};

bool clp_native_find_range(const char *maps, size_t len, const char *exe,
                           struct clp_native_range *ret)
{
    size_t exe_len = strlen(exe);
    for (const char *at = maps, *end = maps + len; at < end;) {
        struct clp_map_entry e;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        if (clp_proctext_map_line(at, n, &e) == 0 && e.executable && e.path_len == exe_len &&
            memcmp(e.path, exe, exe_len) == 0) {
            *ret = (struct clp_native_range){e.start, e.end, e.file_offset};
            return true;
        }
        at += n + 1;
    }
    return false;
}

/* The link-time address of a place in the file: of the segment that is loaded from there. */
static bool link_address(int fd, uint64_t offset, uint64_t *ret)
{
    Elf64_Ehdr e;
    Elf64_Phdr p;
    if (pread(fd, &e, sizeof(e), 0) != (ssize_t)sizeof(e) ||
        memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_phentsize != sizeof(p) ||
        e.e_phoff > INT64_MAX / 2)
        return false;
    for (unsigned i = 0; i < CLP_MIN(e.e_phnum, SEGMENTS_MAX); i++) {
        if (pread(fd, &p, sizeof(p), (off_t)(e.e_phoff + i * sizeof(p))) != (ssize_t)sizeof(p))
            return false;
        uint64_t first = p.p_offset & ~(uint64_t)4095;
        if (p.p_type != PT_LOAD || !(p.p_flags & PF_X) || offset < first ||
            offset >= p.p_offset + p.p_filesz)
            continue;
        *ret = p.p_vaddr - p.p_offset + offset;
        return true;
    }
    return false;
}

static int find_code(int32_t pid, char *exe, size_t cap, struct clp_native *n)
{
    char path[64];
    size_t maps_len;
    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    ssize_t len = readlink(path, exe, cap - 1);
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (len <= 0 || fd < 0)
        return -ENOENT;
    exe[len] = '\0';
    CLP_CLEANUP(clp_cleanup_free)
    char *maps = clp_file_read_proc(pid, "maps", MAPS_MAX_BYTES, &maps_len);
    if (!maps || !clp_native_find_range(maps, maps_len, exe, &n->range) ||
        !link_address(fd, n->range.offset, &n->link_start))
        return -ENOENT;
    return 0;
}

int clp_native_new(int32_t pid, int root_fd, struct clp_symbols *symbols, struct clp_native **ret)
{
    char exe[4096];
    struct clp_native *n = calloc(1, sizeof(*n));
    if (!n)
        return -ENOMEM;
    int r = find_code(pid, exe, sizeof(exe), n);
    struct clp_symbols_image_spec spec = {.root_fd = root_fd, .path = exe, .path_len = strlen(exe)};
    if (r == 0)
        r = clp_symbols_image_get(symbols, &spec, &n->image);
    if (r < 0) {
        free(n);
        return r;
    }
    *ret = n;
    return 0;
}

struct clp_native *clp_native_free(struct clp_native *n)
{
    if (!n)
        return NULL;
    clp_symbols_image_unref(n->image);
    free(n);
    return NULL;
}

bool clp_native_name(struct clp_native *n, uint64_t address, char *name, size_t cap)
{
    struct clp_symbol symbol;
    if (address < n->range.start || address >= n->range.end)
        return false;
    clp_symbols_find(n->image, address - n->range.start + n->link_start, &symbol);
    clp_symbols_name(n->image, &symbol, name, cap, NULL, 0);
    return true;
}
