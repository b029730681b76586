#include "sampler/inproc/image_files.h"
#include "sampler/inproc/clock.h"

#include "base/core/arena.h"
#include "base/core/sys.h"
#include "base/core/text.h"
#include "sampler/inproc/images.h"
#include "sampler/unwind/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BYTES                                                                                \
    (8u << 20)             /* unwind tables and paths; a .NET process with its libraries: 1 MB */
#define HEADER_BYTES 4096u /* an ELF file's first page: header, segments, notes */
#define VDSO_BYTES_MAX (64u << 10)
#define MEMORY_BYTES_MAX (64u << 20) /* of a file that is put together from memory */

static struct {
    struct clp_arena arena;
    struct clp_image_file *files;
    uint32_t count;
    uint64_t refused;
    uint64_t load_ns;
    _Alignas(8) uint8_t page_memory[HEADER_BYTES];
    uint8_t page_file[HEADER_BYTES];
} F;

int clp_image_files_init(void)
{
    if (F.files)
        return 0;
    clp_arena_init(&F.arena, ARENA_BYTES);
    F.files = clp_pages_alloc(CLP_IMAGE_FILES_MAX * sizeof(struct clp_image_file));
    return F.files ? 0 : -ENOMEM;
}

struct clp_image_file *clp_image_files_at(uint32_t file)
{
    return &F.files[file];
}

uint64_t clp_image_files_refused(void)
{
    return F.refused + F.arena.refused;
}

size_t clp_image_files_bytes(void)
{
    return F.arena.mapped_bytes + F.count * sizeof(struct clp_image_file);
}

/* ---- identity ---- */

bool clp_image_files_is_image(const struct clp_map_entry *e)
{
    if (e->inode == 0)
        return e->path_len == 6 && memcmp(e->path, "[vdso]", 6) == 0;
    static const char jit[] = "/memfd:doublemapper";
    return e->path_len < sizeof(jit) - 1 || memcmp(e->path, jit, sizeof(jit) - 1) != 0;
}

static bool same_file(const struct clp_image_file *f, const struct clp_map_entry *e,
                      size_t path_len)
{
    return f->inode == e->inode && f->dev_major == e->dev_major && f->dev_minor == e->dev_minor &&
           f->path_len == path_len && memcmp(f->path, e->path, path_len) == 0;
}

bool clp_image_files_same(uint32_t file, const struct clp_map_entry *e)
{
    return same_file(&F.files[file], e, clp_proctext_map_path_len(e));
}

static const char *keep_text(const char *s, size_t n)
{
    char *p = clp_arena_alloc(&F.arena, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

uint32_t clp_image_files_of(const struct clp_map_entry *e)
{
    size_t path_len = clp_proctext_map_path_len(e);
    bool deleted = path_len < e->path_len;
    for (uint32_t i = F.count; i-- > 0;)
        if (same_file(&F.files[i], e, path_len)) {
            F.files[i].deleted = deleted;
            return i;
        }
    if (F.count == CLP_IMAGE_FILES_MAX || path_len > UINT16_MAX) {
        F.refused++;
        return CLP_NO_FILE;
    }
    const char *path = keep_text(e->path, path_len);
    if (!path)
        return CLP_NO_FILE;
    F.files[F.count] = (struct clp_image_file){.inode = e->inode,
                                               .dev_major = e->dev_major,
                                               .dev_minor = e->dev_minor,
                                               .path = path,
                                               .path_len = (uint16_t)path_len,
                                               .deleted = deleted};
    return F.count++;
}

/* ---- contents ---- */

/* An ELF header as the loader mapped it: for files that are gone, and to compare with the file. */
static int info_from_memory(struct clp_image_file *f)
{
    struct clp_elf_layout layout;
    if (f->first_page == 0)
        return -ENOENT;
    int64_t n = clp_images_read(f->first_page, F.page_memory, HEADER_BYTES);
    if (n <= 0)
        return (int)n;
    struct clp_source s = clp_source_of(F.page_memory, (size_t)n);
    int r = clp_elf_layout(&s, &layout);
    if (r == 0)
        f->info = layout.info;
    return r;
}

static bool is_the_mapped_file(const struct clp_image_file *f, int fd)
{
    struct stat st;
    if (clp_sys_fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    if (f->first_page == 0)
        return st.st_ino == f->inode && st.st_dev == clp_sys_device(f->dev_major, f->dev_minor);
    ssize_t n = pread(fd, F.page_file, HEADER_BYTES, 0);
    return n > 0 && clp_images_read(f->first_page, F.page_memory, (size_t)n) == n &&
           memcmp(F.page_file, F.page_memory, (size_t)n) == 0;
}

/* The file's name among the kernel's own links: works for a deleted file, where it is allowed. */
static int open_map_file(const struct clp_image_file *f)
{
    char path[64];
    struct clp_text t = clp_text_in(path, sizeof(path));
    clp_text_add(&t, "/proc/self/map_files/");
    clp_text_hex(&t, f->exec_start);
    clp_text_add(&t, "-");
    clp_text_hex(&t, f->exec_end);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int open_file(const struct clp_image_file *f)
{
    int fd = -1;
    if (!f->deleted && f->path_len > 0 && f->path[0] == '/')
        fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd >= 0 && !is_the_mapped_file(f, fd)) {
        (void)close(fd);
        fd = -1;
    }
    if (fd < 0)
        fd = open_map_file(f);
    return fd < 0 ? -errno : fd;
}

static void load_from_fd(struct clp_image_file *f, int fd)
{
    if (clp_elf_info(fd, &f->info) < 0)
        return;
    f->state = CLP_FILE_ELF;
    /* Without a table the image has its name and no rules; a full arena counts for itself. */
    if (clp_native_table_build(fd, &F.arena, &f->table) < 0)
        f->table = NULL;
}

static void load_vdso(struct clp_image_file *f)
{
    size_t len = CLP_MIN(f->exec_end - f->exec_start, VDSO_BYTES_MAX);
    void *copy = clp_pages_alloc(VDSO_BYTES_MAX);
    if (!copy)
        return;
    int64_t n = clp_images_read(f->exec_start, copy, len);
    if (n > 0 && info_from_memory(f) == 0) {
        f->state = CLP_FILE_ELF;
        if (clp_native_table_build_mem(copy, (size_t)n, &F.arena, &f->table) < 0)
            f->table = NULL;
    }
    clp_pages_free(copy, VDSO_BYTES_MAX);
}

/* The program headers of the page that info_from_memory has read; their number. */
static size_t segments(const Elf64_Phdr **ret)
{
    Elf64_Ehdr eh;
    memcpy(&eh, F.page_memory, sizeof(eh));
    if (eh.e_phoff % 8 != 0 || eh.e_phoff > HEADER_BYTES ||
        eh.e_phnum > (HEADER_BYTES - eh.e_phoff) / sizeof(Elf64_Phdr))
        return 0;
    *ret = (const Elf64_Phdr *)(const void *)(F.page_memory + eh.e_phoff);
    return eh.e_phnum;
}

static bool is_constant(const Elf64_Phdr *p)
{
    return p->p_type == PT_LOAD && !(p->p_flags & PF_W) && p->p_filesz < MEMORY_BYTES_MAX &&
           p->p_offset < MEMORY_BYTES_MAX;
}

/* Up to the first page that is not there; what is missing stays zero, as past the end of a table.
 */
static void copy_memory(uint64_t from, uint8_t *to, uint64_t bytes)
{
    for (int64_t n; bytes > 0; from += (uint64_t)n, to += n, bytes -= (uint64_t)n) {
        n = clp_images_read(from, to, bytes);
        if (n <= 0)
            return;
    }
}

/* A file that was replaced or deleted, as after an update of the system, cannot be opened without
 * privileges; what the loader mapped of it is still the truth. Writable segments hold no tables. */
static void table_from_memory(struct clp_image_file *f)
{
    const Elf64_Phdr *ph = NULL;
    size_t n = segments(&ph);
    uint64_t bytes = HEADER_BYTES, base = f->first_page;
    for (size_t i = 0; i < n; i++) {
        if (is_constant(&ph[i]))
            bytes = CLP_MAX(bytes, ph[i].p_offset + ph[i].p_filesz);
        if (ph[i].p_type == PT_LOAD && ph[i].p_offset == 0)
            base = f->first_page - ph[i].p_vaddr;
    }
    uint8_t *copy = bytes <= MEMORY_BYTES_MAX ? clp_pages_alloc(bytes) : NULL;
    if (!copy)
        return;
    for (size_t i = 0; i < n; i++)
        if (is_constant(&ph[i]))
            copy_memory(base + ph[i].p_vaddr, copy + ph[i].p_offset, ph[i].p_filesz);
    if (clp_native_table_build_mem(copy, bytes, &F.arena, &f->table) < 0)
        f->table = NULL;
    clp_pages_free(copy, bytes);
}

static void load(struct clp_image_file *f)
{
    f->state = CLP_FILE_OTHER;
    if (f->inode == 0) {
        load_vdso(f);
        return;
    }
    int fd = open_file(f);
    if (fd >= 0) {
        load_from_fd(f, fd);
        (void)close(fd);
    } else if (info_from_memory(f) == 0) {
        f->state = CLP_FILE_ELF;
        table_from_memory(f);
    }
}

void clp_image_files_load(struct clp_image_file *f)
{
    if (f->state != CLP_FILE_NEW)
        return;
    uint64_t began = clp_clock_self_ns();
    load(f);
    F.load_ns += clp_clock_self_ns() - began;
}

uint64_t clp_image_files_cost_ns(void)
{
    return clp_clock_self_ns() - F.load_ns;
}
