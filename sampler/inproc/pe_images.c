#include "sampler/inproc/pe_images.h"

#include "sampler/inproc/code_table.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/maps.h"
#include "sampler/inproc/pe_layout.h"
#include "sampler/inproc/code_lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define TABLES_CEILING (16u << 20)
#define PATH_BYTES 4096u
#define OTHERS 64u
static_assert(PATH_BYTES > CLP_STRING_MAX_BYTES, "the paths that modules keep fit");

struct pe_image {
    uint64_t base, end;
    struct clp_string *path;
    const struct clp_r2r_table *table;
    bool asked; /* the table was built, or cannot be */
};

/* Sorted by base. Entries are added and removed under the leaf lock; tables are built and read by
 * the loop thread alone and live until done(). */
static struct pe_image *images;
static uint32_t count;
static struct clp_arena tables;
static uint64_t refused;
static _Atomic bool composite_expected;

/* Mappings that are no composite image, in a ring. Loop thread. */
static struct {
    uint64_t start, end;
} others[OTHERS];
static uint32_t next_other;

static size_t list_bytes(void)
{
    return CLP_PE_IMAGES_MAX * sizeof(struct pe_image);
}

int clp_pe_images_init(void)
{
    count = 0;
    refused = 0;
    atomic_store(&composite_expected, false);
    memset(others, 0, sizeof(others));
    clp_arena_init(&tables, TABLES_CEILING);
    images = clp_pages_alloc(list_bytes());
    return images ? 0 : -ENOMEM;
}

void clp_pe_images_done(void)
{
    clp_pages_free(images, list_bytes());
    images = NULL;
    count = 0;
    clp_arena_done(&tables);
}

/* Position of the first image with base > address. */
static uint32_t above(uint64_t address)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (images[mid].base <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void clp_pe_images_add_locked(uint64_t base, uint64_t end, struct clp_string *path)
{
    uint32_t at = above(base);
    if (at > 0 && images[at - 1].base == base)
        return;
    if (count == CLP_PE_IMAGES_MAX || !path) {
        refused++;
        return;
    }
    memmove(&images[at + 1], &images[at], (count - at) * sizeof(*images));
    images[at] = (struct pe_image){.base = base, .end = end, .path = clp_strings_again(path)};
    count++;
    clp_code_table_changed_locked(base, end);
}

void clp_pe_images_remove_locked(uint64_t base)
{
    uint32_t at = above(base);
    if (!base || at == 0 || images[at - 1].base != base)
        return;
    clp_strings_give(clp_code_table_strings_locked(), images[at - 1].path);
    memmove(&images[at - 1], &images[at], (count - at) * sizeof(*images));
    count--;
}

bool clp_pe_images_cover_locked(uint64_t address)
{
    uint32_t at = above(address);
    return at > 0 && address < images[at - 1].end;
}

/* ---- tables, loop thread ------------------------------------------------------------------- */

static int64_t read_memory(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    return clp_images_read(address, buf, len);
}

/* Where an image's bytes are kept. */
struct place {
    uint64_t from; /* in the file: not 0 inside a single-file program */
    char path[PATH_BYTES];
};

struct file_part {
    int fd;
    uint64_t from;
};

static int64_t read_file(void *user, uint64_t address, void *buf, size_t len)
{
    const struct file_part *f = user;
    ssize_t n = pread(f->fd, buf, len, (off_t)(f->from + address));
    return n < 0 ? -errno : n;
}

/* A file that was replaced since it was mapped would describe other code. */
static bool same_image(int fd, uint64_t from, uint64_t base)
{
    struct file_part part = {fd, from};
    struct clp_pe_layout file, memory;
    if (clp_pe_layout(0, read_file, &part, &file) < 0 ||
        clp_pe_layout(base, read_memory, NULL, &memory) < 0)
        return false;
    return file.image_bytes == memory.image_bytes && file.time_stamp == memory.time_stamp;
}

static const struct clp_r2r_table *build(const struct place *place, uint64_t base)
{
    const struct clp_r2r_table *table = NULL;
    int fd = open(place->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (!same_image(fd, place->from, base) ||
        clp_r2r_table_build_part(fd, place->from, &tables, &table) < 0)
        table = NULL;
    (void)close(fd);
    return table;
}

/* The file that is mapped says more than the path that the runtime knows: inside a single-file
 * program that one does not exist. An image that was copied to memory has only the path. */
static const struct clp_r2r_table *build_from_mapping(struct place *place, uint64_t base)
{
    struct clp_map_entry e;
    struct place mapped;
    if (clp_maps_find(base, &e, mapped.path, sizeof(mapped.path)) == 0 && e.inode != 0) {
        mapped.from = e.file_offset + (base - e.start);
        const struct clp_r2r_table *table = build(&mapped, base);
        if (table)
            return table;
    }
    return build(place, base);
}

/* A copy of the image that covers `ip`, with its path. */
static bool lookup(uint64_t ip, struct pe_image *ret, struct place *place)
{
    clp_code_lock();
    uint32_t at = above(ip);
    bool hit = at > 0 && ip < images[at - 1].end;
    if (hit) {
        *ret = images[at - 1];
        if (!ret->asked) {
            place->from = 0;
            memcpy(place->path, ret->path->text, ret->path->len);
            place->path[ret->path->len] = '\0';
        }
    }
    clp_code_unlock();
    return hit;
}

static void store(uint64_t base, const struct clp_r2r_table *table)
{
    clp_code_lock();
    uint32_t at = above(base);
    if (at > 0 && images[at - 1].base == base) {
        images[at - 1].table = table;
        images[at - 1].asked = true;
    }
    clp_code_unlock();
}

static void ask(struct pe_image *image, struct place *place)
{
    if (image->asked)
        return;
    image->table = build_from_mapping(place, image->base);
    store(image->base, image->table);
}

static bool is_named(const struct pe_image *image, const char *name)
{
    size_t n = strlen(name), len = image->path->len;
    const char *text = image->path->text;
    return len > n && text[len - n - 1] == '/' && memcmp(text + len - n, name, n) == 0;
}

void clp_pe_images_prepare(const char *name)
{
    struct pe_image image;
    struct place place;
    uint64_t base = 0;
    clp_code_lock();
    for (uint32_t i = 0; i < count && !base; i++)
        base = is_named(&images[i], name) ? images[i].base : 0;
    clp_code_unlock();
    if (base && lookup(base, &image, &place))
        ask(&image, &place);
}

enum clp_pe_find clp_pe_images_find(uint64_t ip, uint64_t *ret_base, struct clp_r2r_function *ret)
{
    struct pe_image image;
    struct place place;
    if (!lookup(ip, &image, &place))
        return CLP_PE_NONE;
    ask(&image, &place);
    if (!image.table || clp_r2r_find(image.table, (uint32_t)(ip - image.base), ret) < 0)
        return CLP_PE_OTHER;
    *ret_base = image.base;
    return CLP_PE_FUNCTION;
}

/* ---- images that no module announces ------------------------------------------------------- */

struct search {
    uint64_t ip;
    uint64_t inode; /* of the mapping that holds ip */
    uint32_t dev_major, dev_minor;
    uint64_t base;
    uint32_t image_bytes;
    char path[PATH_BYTES];
};

/* The image begins with its header.  Its first section may begin with a copy of the same page, so
 * the first mapping from which the header's size reaches ip is the one. Files that are only read
 * are mapped shared. */
static bool take_beginning(void *user, const struct clp_map_entry *e)
{
    struct search *s = user;
    struct clp_pe_layout layout;
    if (e->start > s->ip)
        return false;
    if (e->file_offset != 0 || e->shared || e->inode != s->inode || e->dev_major != s->dev_major ||
        e->dev_minor != s->dev_minor)
        return true;
    if (clp_pe_layout(e->start, read_memory, NULL, &layout) < 0 ||
        s->ip - e->start >= layout.image_bytes)
        return true;
    s->base = e->start;
    s->image_bytes = layout.image_bytes;
    return false;
}

static bool find_beginning(struct search *s, const struct clp_map_entry *e)
{
    if (e->inode == 0 || !e->executable)
        return false;
    s->inode = e->inode;
    s->dev_major = e->dev_major;
    s->dev_minor = e->dev_minor;
    return clp_maps_each(take_beginning, s) == 0 && s->base != 0;
}

static bool add_image(const struct search *s)
{
    clp_code_lock();
    uint32_t before = count;
    struct clp_strings *strings = clp_code_table_strings_locked();
    struct clp_string *path = clp_strings_take(strings, s->path, strlen(s->path));
    clp_pe_images_add_locked(s->base, s->base + s->image_bytes, path);
    clp_strings_give(strings, path);
    bool added = count > before;
    clp_code_unlock();
    return added;
}

static bool is_other(uint64_t ip)
{
    for (uint32_t i = 0; i < OTHERS; i++)
        if (ip >= others[i].start && ip < others[i].end)
            return true;
    return false;
}

void clp_pe_images_expect_composite(void)
{
    atomic_store(&composite_expected, true);
}

bool clp_pe_images_discover(uint64_t ip)
{
    struct search s = {.ip = ip};
    struct clp_map_entry e;
    if (!atomic_load(&composite_expected) || is_other(ip) ||
        clp_maps_find(ip, &e, s.path, sizeof(s.path)) < 0)
        return false;
    if (find_beginning(&s, &e) && add_image(&s))
        return true;
    others[next_other].start = e.start;
    others[next_other].end = e.end;
    next_other = (next_other + 1) % OTHERS;
    return false;
}

size_t clp_pe_images_bytes(void)
{
    return (images ? list_bytes() : 0) + tables.mapped_bytes;
}

uint64_t clp_pe_images_refused(void)
{
    return refused + tables.refused;
}
