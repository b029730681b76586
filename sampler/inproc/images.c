#include "sampler/inproc/images.h"

#include "base/core/arena.h"
#include "base/core/text.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/maps.h"
#include "sampler/unwind/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define RANGES_MAX 16384u
#define FILES_MAX 1024u
#define IMAGES_MAX 2048u
#define CACHE_SLOTS 1024u
#define ARENA_BYTES                                                                                \
    (8u << 20)             /* unwind tables and paths; a .NET process with its libraries: 1 MB */
#define HEADER_BYTES 4096u /* an ELF file's first page: header, segments, notes */
#define VDSO_BYTES_MAX (64u << 10)
#define TRUST_NS (100 * CLP_NSEC_PER_MSEC) /* so long a mapping is taken to be still there, */
#define TRUST_BLIND_NS CLP_NSEC_PER_SEC    /* or so long where only the whole list can tell */
#define REFRESH_COST_SHARE 50              /* at least 50 times as long apart as one takes: 2 % */
#define REFRESH_FREE                                                                               \
    20 /* the first ones are never put off: the list grows while a process starts */
#define NO_FILE UINT32_MAX

enum file_state {
    FILE_NEW = 0,
    FILE_ELF = 1,   /* info is filled; table where one could be built */
    FILE_OTHER = 2, /* executable, but no ELF: thunks in a PE image, a generated file */
};

/* A file that is mapped executable somewhere. */
struct file {
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    uint64_t first_page; /* where its offset 0 is mapped, or 0 */
    uint64_t exec_start, exec_end;
    const char *path; /* in the arena */
    uint16_t path_len;
    uint8_t state; /* enum file_state */
    bool deleted, vdso;
    struct clp_elf_info info;
    const struct clp_native_table *table;
};

/* A file at a place: what the wire calls an image. */
struct image {
    uint32_t id;
    uint32_t file;
    uint64_t bias;
    uint64_t start, end, file_offset;
};

/* An executable mapping; sorted by address. */
struct range {
    uint64_t start, end, file_offset;
    uint64_t seen_ns; /* when the kernel last said so */
    uint32_t file;    /* index, or NO_FILE: anonymous */
    uint32_t image;   /* index + 1, 0 = not yet asked for */
};

struct range_list {
    struct range *at;
    uint32_t count;
};

static struct {
    bool ready;
    struct clp_arena arena;
    struct range_list ranges, next; /* `next` is filled by a refresh, then they change places */
    struct file *files;
    struct image *images;
    uint32_t file_count, image_count;
    uint32_t cache[CACHE_SLOTS]; /* by page: range index + 1 */
    uint64_t pass, now_ns;       /* the round, and when it began */
    bool looked;                 /* the list was read in this round */
    uint64_t refresh_allowed_ns;
    uint64_t refreshes;
    uint64_t refused;
    uint8_t page_memory[HEADER_BYTES], page_file[HEADER_BYTES];
    char path[4096];
} I;

static _Atomic uint32_t last_id;

uint32_t clp_images_next_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

int clp_images_init(void)
{
    if (I.ready)
        return 0;
    clp_arena_init(&I.arena, ARENA_BYTES);
    I.ranges.at = clp_pages_alloc(RANGES_MAX * sizeof(struct range));
    I.next.at = clp_pages_alloc(RANGES_MAX * sizeof(struct range));
    I.files = clp_pages_alloc(FILES_MAX * sizeof(struct file));
    I.images = clp_pages_alloc(IMAGES_MAX * sizeof(struct image));
    if (!I.ranges.at || !I.next.at || !I.files || !I.images)
        return -ENOMEM;
    I.pass = UINT64_MAX;
    I.ready = true;
    return 0;
}

/* ---- the list of mappings ---- */

static const char *arena_text(const char *s, size_t n)
{
    char *p = clp_arena_alloc(&I.arena, n + 1);
    if (p)
        memcpy(p, s, n);
    return p;
}

static bool ends_with(const char *s, size_t n, const char *suffix)
{
    size_t k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

static bool starts_with(const char *s, size_t n, const char *prefix)
{
    size_t k = strlen(prefix);
    return n >= k && memcmp(s, prefix, k) == 0;
}

/* The path without the kernel's remark on a file that has no name any more. */
static size_t plain_path_len(const struct clp_map_entry *e)
{
    static const char suffix[] = " (deleted)";
    bool gone = ends_with(e->path, e->path_len, suffix);
    return e->path_len - (gone ? sizeof(suffix) - 1 : 0);
}

/* Path and inode: the number of a deleted file is soon given to another. */
static bool same_file(const struct file *f, const struct clp_map_entry *e, size_t path_len)
{
    return f->inode == e->inode && f->dev_major == e->dev_major && f->dev_minor == e->dev_minor &&
           f->path_len == path_len && memcmp(f->path, e->path, path_len) == 0;
}

/* The file of a mapping, known or new; NO_FILE where there is none or no room. */
static uint32_t file_of(const struct clp_map_entry *e)
{
    size_t path_len = plain_path_len(e);
    bool deleted = path_len < e->path_len;
    for (uint32_t i = I.file_count; i-- > 0;)
        if (same_file(&I.files[i], e, path_len)) {
            I.files[i].deleted = deleted;
            return i;
        }
    if (I.file_count == FILES_MAX || path_len > UINT16_MAX) {
        I.refused++;
        return NO_FILE;
    }
    const char *path = arena_text(e->path, path_len);
    if (!path)
        return NO_FILE;
    I.files[I.file_count] = (struct file){.inode = e->inode,
                                          .dev_major = e->dev_major,
                                          .dev_minor = e->dev_minor,
                                          .path = path,
                                          .path_len = (uint16_t)path_len,
                                          .deleted = deleted};
    return I.file_count++;
}

/* Memory that the JIT writes to through another mapping is a memfd on Linux: not an image. */
static bool is_image(const struct clp_map_entry *e)
{
    if (e->inode == 0)
        return e->path_len == 6 && memcmp(e->path, "[vdso]", 6) == 0;
    return !starts_with(e->path, e->path_len, "/memfd:doublemapper");
}

/* The image that an unchanged mapping had before the refresh. */
static uint32_t known_image(const struct range *r)
{
    const struct range_list *old = &I.ranges;
    uint32_t low = 0, high = old->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (old->at[mid].start < r->start)
            low = mid + 1;
        else
            high = mid;
    }
    bool same = low < old->count && old->at[low].start == r->start &&
                old->at[low].file == r->file && old->at[low].file_offset == r->file_offset;
    return same ? old->at[low].image : 0;
}

static void add_range(struct range_list *l, struct range r)
{
    struct range *last = l->count ? &l->at[l->count - 1] : NULL;
    if (r.file == NO_FILE && last && last->file == NO_FILE && last->end == r.start) {
        last->end = r.end;
        return;
    }
    if (l->count == RANGES_MAX) {
        I.refused++;
        return;
    }
    l->at[l->count++] = r;
}

/* The last mapping of a file's beginning, on the way to the executable one behind it. */
struct refresh {
    uint64_t first_page;
    uint64_t inode;
    uint32_t dev_major, dev_minor;
};

static bool take_mapping(void *user, const struct clp_map_entry *e)
{
    struct refresh *s = user;
    if (e->file_offset == 0 && e->inode != 0 && e->readable)
        *s = (struct refresh){e->start, e->inode, e->dev_major, e->dev_minor};
    if (!e->executable || starts_with(e->path, e->path_len, "[vsyscall]"))
        return true;
    struct range r = {.start = e->start,
                      .end = e->end,
                      .file_offset = e->file_offset,
                      .seen_ns = I.now_ns,
                      .file = NO_FILE};
    if (is_image(e)) {
        r.file = file_of(e);
        if (r.file == NO_FILE)
            return true; /* unknown is better than a stub that it is not */
        struct file *f = &I.files[r.file];
        f->vdso = e->inode == 0;
        f->exec_start = e->start;
        f->exec_end = e->end;
        bool begun =
            s->inode == e->inode && s->dev_major == e->dev_major && s->dev_minor == e->dev_minor;
        f->first_page = f->vdso ? e->start : begun ? s->first_page : 0;
        r.image = known_image(&r);
    }
    add_range(&I.next, r);
    return true;
}

static void forget_places(void)
{
    memset(I.cache, 0, sizeof(I.cache));
}

static void refresh(void)
{
    struct refresh s = {0};
    uint64_t began = clp_clock_monotonic_ns();
    I.looked = true;
    I.next.count = 0;
    if (clp_maps_each(take_mapping, &s) == 0) {
        struct range_list old = I.ranges;
        I.ranges = I.next;
        I.next = old;
        forget_places();
    }
    uint64_t ended = clp_clock_monotonic_ns();
    I.refreshes++;
    I.refresh_allowed_ns =
        I.refreshes < REFRESH_FREE ? 0 : ended + REFRESH_COST_SHARE * (ended - began);
}

/* ---- look-up ---- */

/* The first range that ends behind `ip`. */
static uint32_t place_of(uint64_t ip)
{
    uint32_t low = 0, high = I.ranges.count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (I.ranges.at[mid].end <= ip)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct range *search(uint64_t ip)
{
    uint32_t *slot = &I.cache[(ip >> 12) % CACHE_SLOTS];
    if (*slot) {
        struct range *r = &I.ranges.at[*slot - 1];
        if (ip >= r->start && ip < r->end)
            return r;
    }
    uint32_t at = place_of(ip);
    if (at == I.ranges.count || ip < I.ranges.at[at].start)
        return NULL;
    *slot = at + 1;
    return &I.ranges.at[at];
}

static bool same_mapping(const struct range *r, const struct clp_map_entry *e)
{
    if (!e->executable)
        return false;
    if (r->file == NO_FILE)
        return !is_image(e);
    return e->start == r->start && e->end == r->end && e->file_offset == r->file_offset &&
           same_file(&I.files[r->file], e, plain_path_len(e));
}

/* An address that was a library's may be something else by now. */
static bool still_there(struct range *r)
{
    struct clp_map_entry e;
    uint64_t age = I.now_ns - r->seen_ns;
    if (age < TRUST_NS)
        return true;
    if (!clp_maps_find_is_cheap())
        return age < TRUST_BLIND_NS;
    if (clp_maps_find(r->start, &e, I.path, sizeof(I.path)) < 0 || !same_mapping(r, &e))
        return false;
    r->seen_ns = I.now_ns;
    return true;
}

/* Memory of stubs that is new goes in without reading the list. */
static void add_stubs(uint64_t ip, const struct clp_map_entry *e)
{
    uint32_t at = place_of(ip);
    if (I.ranges.count == RANGES_MAX) {
        I.refused++;
        return;
    }
    /* Neighbours that grew keep their part; the rest is the list's affair. */
    uint64_t low = at > 0 ? I.ranges.at[at - 1].end : 0;
    uint64_t high = at < I.ranges.count ? I.ranges.at[at].start : UINT64_MAX;
    memmove(&I.ranges.at[at + 1], &I.ranges.at[at], (I.ranges.count - at) * sizeof(struct range));
    I.ranges.at[at] = (struct range){.start = CLP_MAX(e->start, low),
                                     .end = CLP_MIN(e->end, high),
                                     .seen_ns = I.now_ns,
                                     .file = NO_FILE};
    I.ranges.count++;
    forget_places();
}

/* An address that no range covers: what the kernel says of it alone. true: reading the list may
 * tell more. */
static bool ask_for_one(uint64_t ip)
{
    struct clp_map_entry e;
    if (!clp_maps_find_is_cheap())
        return true;
    if (clp_maps_find(ip, &e, I.path, sizeof(I.path)) < 0 || !e.executable)
        return false;
    if (is_image(&e))
        return true;
    add_stubs(ip, &e);
    return false;
}

static void begin_pass(uint64_t pass)
{
    I.pass = pass;
    I.now_ns = clp_clock_monotonic_ns();
    I.looked = false;
}

static struct range *search_fresh(uint64_t ip, uint64_t pass)
{
    if (pass != I.pass)
        begin_pass(pass);
    struct range *r = search(ip);
    if (r && still_there(r))
        return r;
    if (!r && !ask_for_one(ip))
        return search(ip);
    /* Better unknown than what used to be there. */
    if (I.looked || I.now_ns < I.refresh_allowed_ns)
        return NULL;
    refresh();
    return search(ip);
}

/* ---- files and images ---- */

/* An ELF header as the loader mapped it: for files that are gone, and to compare with the file. */
static int info_from_memory(struct file *f)
{
    struct clp_elf_layout layout;
    if (f->first_page == 0)
        return -ENOENT;
    int64_t n = clp_images_read(f->first_page, I.page_memory, HEADER_BYTES);
    if (n <= 0)
        return (int)n;
    struct clp_source s = clp_source_of(I.page_memory, (size_t)n);
    int r = clp_elf_layout(&s, &layout);
    if (r == 0)
        f->info = layout.info;
    return r;
}

static bool is_the_mapped_file(const struct file *f, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    if (f->first_page == 0)
        return st.st_ino == f->inode && st.st_dev == makedev(f->dev_major, f->dev_minor);
    ssize_t n = pread(fd, I.page_file, HEADER_BYTES, 0);
    return n > 0 && clp_images_read(f->first_page, I.page_memory, (size_t)n) == n &&
           memcmp(I.page_file, I.page_memory, (size_t)n) == 0;
}

/* The file's name among the kernel's own links: works for a deleted file, where it is allowed. */
static int open_map_file(const struct file *f)
{
    char path[64];
    struct clp_text t = clp_text_in(path, sizeof(path));
    clp_text_add(&t, "/proc/self/map_files/");
    clp_text_hex(&t, f->exec_start);
    clp_text_add(&t, "-");
    clp_text_hex(&t, f->exec_end);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static int open_file(const struct file *f)
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

static void load_from_fd(struct file *f, int fd)
{
    if (clp_elf_info(fd, &f->info) < 0)
        return;
    f->state = FILE_ELF;
    /* Without a table the image has its name and no rules; a full arena counts for itself. */
    if (clp_native_table_build(fd, &I.arena, &f->table) < 0)
        f->table = NULL;
}

static void load_vdso(struct file *f)
{
    size_t len = CLP_MIN(f->exec_end - f->exec_start, VDSO_BYTES_MAX);
    void *copy = clp_pages_alloc(VDSO_BYTES_MAX);
    if (!copy)
        return;
    int64_t n = clp_images_read(f->exec_start, copy, len);
    if (n > 0 && info_from_memory(f) == 0) {
        f->state = FILE_ELF;
        if (clp_native_table_build_mem(copy, (size_t)n, &I.arena, &f->table) < 0)
            f->table = NULL;
    }
    clp_pages_free(copy, VDSO_BYTES_MAX);
}

static void load_file(struct file *f)
{
    f->state = FILE_OTHER;
    if (f->vdso) {
        load_vdso(f);
        return;
    }
    int fd = open_file(f);
    if (fd >= 0) {
        load_from_fd(f, fd);
        (void)close(fd);
    } else if (info_from_memory(f) == 0) {
        f->state = FILE_ELF;
    }
}

static uint32_t image_at(uint32_t file, uint64_t bias, const struct range *r)
{
    for (uint32_t i = I.image_count; i-- > 0;)
        if (I.images[i].file == file && I.images[i].bias == bias)
            return i + 1;
    if (I.image_count == IMAGES_MAX) {
        I.refused++;
        return 0;
    }
    I.images[I.image_count] = (struct image){.id = clp_images_next_id(),
                                             .file = file,
                                             .bias = bias,
                                             .start = r->start,
                                             .end = r->end,
                                             .file_offset = r->file_offset};
    return ++I.image_count;
}

/* The image of a mapping, or NULL: no ELF, or beyond the ceiling. */
static const struct image *resolve(struct range *r)
{
    struct file *f = &I.files[r->file];
    if (f->state == FILE_NEW)
        load_file(f);
    if (r->image == 0 && f->state == FILE_ELF) {
        uint64_t bias =
            r->start - r->file_offset + f->info.first_load_offset - f->info.first_load_vaddr;
        r->image = image_at(r->file, bias, r);
    }
    return r->image ? &I.images[r->image - 1] : NULL;
}

void clp_images_find(uint64_t ip, uint64_t pass, struct clp_code *ret)
{
    *ret = (struct clp_code){.kind = CLP_CODE_UNKNOWN};
    struct range *r = search_fresh(ip, pass);
    if (!r)
        return;
    ret->kind = CLP_CODE_STUB;
    ret->start = r->start;
    ret->end = r->end;
    if (r->file == NO_FILE)
        return;
    const struct image *image = resolve(r);
    if (image) {
        ret->kind = CLP_CODE_NATIVE;
        ret->id = image->id;
        ret->start = image->bias;
        ret->native = I.files[image->file].table;
    } else if (I.files[r->file].state == FILE_ELF) {
        ret->kind = CLP_CODE_UNKNOWN;
    }
}

int clp_images_record(uint32_t image_id, void *buf, size_t cap)
{
    const struct image *image = NULL;
    for (uint32_t i = 0; i < I.image_count && !image; i++)
        if (I.images[i].id == image_id)
            image = &I.images[i];
    if (!image)
        return -ENOENT;
    const struct file *f = &I.files[image->file];
    size_t text = sizeof(struct clp_rec_image) + f->info.build_id_len;
    uint32_t size = (uint32_t)CLP_ALIGN_UP(text + f->path_len, 8);
    if (size > cap || size > CLP_WIRE_RECORD_MAX_BYTES)
        return -ENOSPC;
    struct clp_rec_image *rec = buf;
    memset(buf, 0, size);
    *rec = (struct clp_rec_image){
        .rec = {.size = size, .type = CLP_REC_IMAGE},
        .image_id = image->id,
        .kind = f->vdso ? CLP_IMAGE_VDSO : CLP_IMAGE_ELF,
        .build_id_len = f->info.build_id_len,
        .start = image->start,
        .end = image->end,
        .bias = image->bias,
        .file_offset = image->file_offset,
        .path_len = f->path_len,
    };
    memcpy(rec + 1, f->info.build_id, f->info.build_id_len);
    memcpy((char *)buf + text, f->path, f->path_len);
    return (int)size;
}

int clp_images_mapping(uint64_t address, uint64_t *ret_start, uint64_t *ret_end, bool *ret_stack)
{
    struct clp_map_entry e;
    char path[256];
    int r = clp_maps_find(address, &e, path, sizeof(path));
    if (r < 0)
        return r;
    *ret_start = e.start;
    *ret_end = e.end;
    *ret_stack = e.path_len == 7 && memcmp(e.path, "[stack]", 7) == 0;
    return 0;
}

uint64_t clp_images_refused(void)
{
    return I.refused + I.arena.refused;
}

size_t clp_images_bytes(void)
{
    return I.arena.mapped_bytes + (I.ranges.count + I.next.count) * sizeof(struct range) +
           I.file_count * sizeof(struct file) + I.image_count * sizeof(struct image);
}
