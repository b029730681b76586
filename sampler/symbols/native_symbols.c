#include "sampler/symbols/native_symbols.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/arena.h"
#include "base/core/proctext.h"
#include "base/core/text.h"
#include "sampler/symbols/demangle.h"
#include "sampler/symbols/elf_symbols.h"
#include "sampler/symbols/image_files.h"
#include "sampler/symbols/managed_name.h"
#include "sampler/symbols/text_guard.h"
#include "sampler/unwind/native.h"

#include <elf.h>
#include <limits.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#define DEFAULT_TABLES_BYTES (8u << 20)
#define DEFAULT_IMAGE_BYTES (4u << 20)
#define DEFAULT_SYMTAB_BYTES (32u << 20)
#define DEFAULT_OPEN_FILES 256u
#define DEFAULT_IMAGES 4096u
#define DEFAULT_LOAD_NS (5 * CLP_NSEC_PER_SEC)
#define DEFAULT_LOAD_SHARE 10u
#define MODULE_NAME_MAX 128
#define VDSO_MAX_BYTES (64u << 10)
#define GIVE_UPS_MAX 32 /* of the demangler; then names stay mangled (demangle.c says why) */

/* What an open file was when it was checked: a file that is written over no longer has our names.
 */
struct file_id {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct clp_symbols_image {
    struct clp_symbols *owner;
    struct clp_symbols_image *next; /* of all images */
    uint32_t refs;
    bool vdso;
    uint8_t build_id[CLP_ELF_BUILD_ID_MAX];
    size_t build_id_len;
    char module[MODULE_NAME_MAX]; /* base name of the path */
    int fd, debug_fd;             /* -1: not there */
    struct file_id id, debug_id;
    uint64_t last_used;

    bool symbols_tried, fdes_tried;
    bool symbols_in_debug_file;
    struct clp_elf_symbols symbols;
    struct clp_elf_strings strings; /* of symbols; stays when the table goes */
    struct clp_arena arena;         /* holds fdes */
    const struct clp_native_table *fdes;
};

struct clp_symbols {
    struct clp_symbols_limits limits;
    struct clp_symbols_stats stats;
    struct clp_symbols_image *images;
    uint64_t clock;
    uint64_t load_left_ns, load_left_at_ns;
};

/* ---- cache ---------------------------------------------------------------------------------- */

int clp_symbols_new(const struct clp_symbols_limits *limits, struct clp_symbols **ret)
{
    struct clp_symbols *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    if (limits)
        s->limits = *limits;
    if (!s->limits.tables_bytes)
        s->limits.tables_bytes = DEFAULT_TABLES_BYTES;
    if (!s->limits.image_bytes)
        s->limits.image_bytes = DEFAULT_IMAGE_BYTES;
    if (!s->limits.symtab_bytes)
        s->limits.symtab_bytes = DEFAULT_SYMTAB_BYTES;
    if (!s->limits.open_files)
        s->limits.open_files = DEFAULT_OPEN_FILES;
    if (!s->limits.images)
        s->limits.images = DEFAULT_IMAGES;
    if (!s->limits.load_ns)
        s->limits.load_ns = DEFAULT_LOAD_NS;
    if (!s->limits.load_share)
        s->limits.load_share = DEFAULT_LOAD_SHARE;
    s->load_left_ns = s->limits.load_ns;
    s->load_left_at_ns = clp_clock_monotonic_ns();
    *ret = s;
    return 0;
}

static size_t table_bytes(const struct clp_symbols_image *m)
{
    return m->symbols.count * sizeof(*m->symbols.at) + m->arena.mapped_bytes;
}

static void drop_tables(struct clp_symbols_image *m)
{
    m->owner->stats.tables_bytes_now -= table_bytes(m);
    clp_elf_symbols_done(&m->symbols);
    clp_arena_done(&m->arena);
    m->fdes = NULL;
    m->symbols_tried = m->fdes_tried = false;
}

static void close_files(struct clp_symbols_image *m)
{
    m->owner->stats.open_now -= (m->fd >= 0) + (m->debug_fd >= 0);
    clp_cleanup_fd(&m->fd);
    clp_cleanup_fd(&m->debug_fd);
    m->fd = m->debug_fd = -1;
}

static void image_free(struct clp_symbols_image *m)
{
    struct clp_symbols *s = m->owner;
    struct clp_symbols_image **at = &s->images;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    drop_tables(m);
    close_files(m);
    s->stats.images_now--;
    free(m);
}

struct clp_symbols *clp_symbols_free(struct clp_symbols *s)
{
    while (s && s->images)
        image_free(s->images);
    free(s);
    return NULL;
}

void clp_symbols_get_stats(const struct clp_symbols *s, struct clp_symbols_stats *ret)
{
    *ret = s->stats;
}

/* The image, other than `not_this`, that was used longest ago. */
static struct clp_symbols_image *oldest(const struct clp_symbols *s,
                                        const struct clp_symbols_image *not_this, bool unused_only)
{
    struct clp_symbols_image *found = NULL;
    for (struct clp_symbols_image *m = s->images; m; m = m->next) {
        bool fits = unused_only ? m->refs == 0 : table_bytes(m) > 0;
        if (m != not_this && fits && (!found || m->last_used < found->last_used))
            found = m;
    }
    return found;
}

static void make_room_for_tables(struct clp_symbols_image *m)
{
    struct clp_symbols *s = m->owner;
    struct clp_symbols_image *victim;
    while (s->stats.tables_bytes_now > s->limits.tables_bytes && (victim = oldest(s, m, false))) {
        drop_tables(victim);
        s->stats.evictions++;
    }
}

/* Files of images that nobody uses go first; if all are in use, the new one gets none. */
static bool make_room_for_file(struct clp_symbols *s)
{
    struct clp_symbols_image *victim;
    while (s->stats.open_now >= s->limits.open_files && (victim = oldest(s, NULL, true)))
        image_free(victim);
    return s->stats.open_now < s->limits.open_files;
}

/* ---- images --------------------------------------------------------------------------------- */

static int file_id_of(int fd, struct file_id *ret)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -EBADF;
    *ret = (struct file_id){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
    return 0;
}

static bool same_file(const struct file_id *a, const struct file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* The base name, cleaned. `path` is as the kernel's maps have it. */
static void module_name(const char *path, char ret[MODULE_NAME_MAX])
{
    const struct clp_map_entry mapped = {.path = path, .path_len = strlen(path)};
    const char *end = path + clp_proctext_map_path_len(&mapped), *base = end;
    while (base > path && base[-1] != '/')
        base--;
    char work[MODULE_NAME_MAX];
    struct clp_text t = clp_text_in(work, sizeof(work));
    clp_text_addn(&t, base, (size_t)(end - base));
    clp_text_guard(&t, ret, MODULE_NAME_MAX);
}

static struct clp_symbols_image *find_image(const struct clp_symbols *s,
                                            const struct clp_symbols_image *key)
{
    for (struct clp_symbols_image *m = s->images; m; m = m->next) {
        if (m->vdso != key->vdso || m->build_id_len != key->build_id_len ||
            memcmp(m->build_id, key->build_id, key->build_id_len) != 0 ||
            strcmp(m->module, key->module) != 0)
            continue;
        /* Without a build id only the file itself says that two images are one. */
        if (key->build_id_len || (m->fd >= 0 && key->fd >= 0 && same_file(&m->id, &key->id)))
            return m;
    }
    return NULL;
}

static void open_module(struct clp_symbols *s, struct clp_symbols_image *m,
                        const struct clp_symbols_image_spec *spec, const char *path)
{
    if (spec->vdso || m->fd >= 0 || !make_room_for_file(s))
        return;
    m->fd = clp_image_open_module(spec, path, &s->stats);
    if (file_id_of(m->fd, &m->id) < 0)
        clp_cleanup_fd(&m->fd);
    else
        s->stats.open_now++;
}

static void open_debug(struct clp_symbols *s, struct clp_symbols_image *m,
                       const struct clp_symbols_image_spec *spec)
{
    if (spec->vdso || m->debug_fd >= 0 || !make_room_for_file(s))
        return;
    m->debug_fd = clp_image_open_debug(spec, &s->stats);
    if (file_id_of(m->debug_fd, &m->debug_id) < 0)
        clp_cleanup_fd(&m->debug_fd);
    else
        s->stats.open_now++;
}

static int image_new(struct clp_symbols *s, const struct clp_symbols_image *key,
                     struct clp_symbols_image **ret)
{
    struct clp_symbols_image *victim;
    while (s->stats.images_now >= s->limits.images && (victim = oldest(s, NULL, true)))
        image_free(victim);
    if (s->stats.images_now >= s->limits.images)
        return -ENOSPC;
    struct clp_symbols_image *m = malloc(sizeof(*m));
    if (!m)
        return -ENOMEM;
    *m = *key;
    m->next = s->images;
    s->images = m;
    s->stats.images_now++;
    *ret = m;
    return 0;
}

int clp_symbols_image_get(struct clp_symbols *s, const struct clp_symbols_image_spec *spec,
                          struct clp_symbols_image **ret)
{
    char path[PATH_MAX];
    if (spec->path_len >= sizeof(path) || spec->build_id_len > CLP_ELF_BUILD_ID_MAX ||
        (spec->path_len && memchr(spec->path, '\0', spec->path_len)))
        return -EINVAL;
    if (spec->path_len)
        memcpy(path, spec->path, spec->path_len);
    path[spec->path_len] = '\0';

    struct clp_symbols_image key = {.owner = s,
                                    .vdso = spec->vdso,
                                    .build_id_len = spec->build_id_len,
                                    .fd = -1,
                                    .debug_fd = -1};
    if (spec->build_id_len)
        memcpy(key.build_id, spec->build_id, spec->build_id_len);
    module_name(path, key.module);
    clp_arena_init(&key.arena, s->limits.image_bytes);
    if (!spec->build_id_len)
        open_module(s, &key, spec, path);

    struct clp_symbols_image *m = find_image(s, &key);
    int r = m ? 1 : image_new(s, &key, &m);
    if (r != 0)
        close_files(&key); /* else they are the image's now */
    if (r < 0)
        return r;
    m->refs++; /* before making room: it is in use from now on */
    m->last_used = ++s->clock;
    if (spec->build_id_len) {
        bool had_files = m->fd >= 0 || m->debug_fd >= 0;
        open_module(s, m, spec, path);
        open_debug(s, m, spec);
        if (!had_files && (m->fd >= 0 || m->debug_fd >= 0))
            drop_tables(m); /* an earlier target could not show the file, this one can */
    }
    *ret = m;
    return 0;
}

struct clp_symbols_image *clp_symbols_image_unref(struct clp_symbols_image *image)
{
    if (image && image->refs > 0)
        image->refs--;
    return NULL;
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Our own vdso, as the kernel mapped it: trusted, but read like any file. */
static struct clp_file_bytes own_vdso(void)
{
    const void *at = (const void *)getauxval(AT_SYSINFO_EHDR);
    struct clp_file_bytes none = clp_file_bytes_of_mem(NULL, 0);
    if (!at)
        return none;
    Elf64_Ehdr h;
    memcpy(&h, at, sizeof(h));
    uint64_t size = h.e_shoff + (uint64_t)h.e_shnum * h.e_shentsize; /* they stand at the end */
    return size > sizeof(h) && size <= VDSO_MAX_BYTES ? clp_file_bytes_of_mem(at, size) : none;
}

static bool vdso_is_ours(const struct clp_symbols_image *m, const struct clp_file_bytes *vdso)
{
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = 0;
    return m->build_id_len && clp_elf_build_id(vdso, id, &len) == 0 && len == m->build_id_len &&
           memcmp(id, m->build_id, len) == 0;
}

/* The bytes of the module or of its debug file; false when they are not there any more. */
static bool image_bytes(const struct clp_symbols_image *m, bool debug, struct clp_file_bytes *ret)
{
    if (m->vdso) {
        *ret = own_vdso();
        return !debug && ret->mem && vdso_is_ours(m, ret);
    }
    struct file_id now;
    int fd = debug ? m->debug_fd : m->fd;
    return file_id_of(fd, &now) == 0 && same_file(&now, debug ? &m->debug_id : &m->id) &&
           clp_file_bytes_of_fd(fd, ret) == 0;
}

static bool may_load(struct clp_symbols *s)
{
    uint64_t now = clp_clock_monotonic_ns();
    s->load_left_ns += (now - s->load_left_at_ns) / s->limits.load_share;
    s->load_left_ns = CLP_MIN(s->load_left_ns, s->limits.load_ns);
    s->load_left_at_ns = now;
    if (s->load_left_ns == 0)
        s->stats.put_off++;
    return s->load_left_ns > 0;
}

/* Since may_load. */
static void account_load(struct clp_symbols *s)
{
    uint64_t now = clp_clock_monotonic_ns();
    s->load_left_ns -= CLP_MIN(s->load_left_ns, now - s->load_left_at_ns);
    s->load_left_at_ns = now;
}

static int load_from(struct clp_symbols_image *m, bool debug, enum clp_elf_table which)
{
    const struct clp_symbols_limits *limits = &m->owner->limits;
    struct clp_elf_limits elf_limits = {.table_bytes = limits->image_bytes,
                                        .section_bytes = limits->symtab_bytes};
    struct clp_file_bytes bytes;
    if (!image_bytes(m, debug, &bytes))
        return -ENOENT;
    int r = clp_elf_symbols_read(&bytes, which, &elf_limits, &m->symbols);
    if (r == -EBADMSG)
        m->owner->stats.malformed++;
    if (r == -EFBIG)
        m->owner->stats.too_big++;
    if (r == 0) {
        m->strings = m->symbols.strings;
        m->symbols_in_debug_file = debug;
    }
    return r;
}

static void load_symbols(struct clp_symbols_image *m)
{
    if (m->symbols_tried || !may_load(m->owner))
        return;
    m->owner->stats.loads++;
    int r = load_from(m, false, CLP_ELF_SYMTAB);
    if (r < 0 && r != -ENOMEM)
        r = load_from(m, true, CLP_ELF_SYMTAB);
    if (r < 0 && r != -ENOMEM)
        r = load_from(m, false, CLP_ELF_DYNSYM);
    account_load(m->owner);
    m->symbols_tried = r != -ENOMEM; /* else the next look-up tries again */
    if (r < 0)
        return;
    m->owner->stats.tables_bytes_now += m->symbols.count * sizeof(*m->symbols.at);
    make_room_for_tables(m);
}

static int build_fdes(struct clp_symbols_image *m)
{
    struct clp_file_bytes bytes;
    if (!image_bytes(m, false, &bytes))
        return -ENOENT;
    return bytes.fd >= 0 ? clp_native_table_build(bytes.fd, &m->arena, &m->fdes)
                         : clp_native_table_build_mem(bytes.mem, bytes.size, &m->arena, &m->fdes);
}

static void load_fdes(struct clp_symbols_image *m)
{
    if (m->fdes_tried || !may_load(m->owner))
        return;
    m->fdes_tried = true;
    int r = build_fdes(m);
    account_load(m->owner);
    if (r < 0) {
        m->fdes = NULL;
        clp_arena_done(&m->arena);
    }
    if (r == -EBADMSG)
        m->owner->stats.malformed++;
    if (r == -ENOMEM)
        m->owner->stats.too_big++;
    m->owner->stats.tables_bytes_now += m->arena.mapped_bytes;
    make_room_for_tables(m);
}

/* ---- look-up -------------------------------------------------------------------------------- */

/* A symbol of assembly without a size, if the unwind entry of the address begins at it or before
 * it. */
static bool find_sizeless(const struct clp_symbols_image *m, uint64_t address, uint64_t fde_start,
                          uint64_t fde_end, struct clp_symbol *ret)
{
    uint64_t next;
    const struct clp_elf_symbol *sym = clp_elf_symbols_sizeless(&m->symbols, address, &next);
    if (!sym || sym->start < fde_start)
        return false;
    *ret = (struct clp_symbol){.start = sym->start,
                               .end = CLP_MIN(next, fde_end),
                               .source = CLP_SYMBOL_ELF,
                               .name = sym->name};
    return true;
}

void clp_symbols_find(struct clp_symbols_image *m, uint64_t address, struct clp_symbol *ret)
{
    *ret = (struct clp_symbol){.source = CLP_SYMBOL_NONE};
    m->last_used = ++m->owner->clock;
    load_symbols(m);
    const struct clp_elf_symbol *sym = clp_elf_symbols_cover(&m->symbols, address);
    if (sym) {
        *ret = (struct clp_symbol){.start = sym->start,
                                   .end = (uint64_t)sym->start + sym->size,
                                   .source = CLP_SYMBOL_ELF,
                                   .name = sym->name};
        return;
    }
    uint64_t start, end;
    load_fdes(m);
    if (!m->fdes || clp_native_function(m->fdes, address, &start, &end) < 0)
        return;
    if (!find_sizeless(m, address, start, end, ret))
        *ret = (struct clp_symbol){.start = start, .end = end, .source = CLP_SYMBOL_FDE};
}

static void write_module_name(const struct clp_symbols_image *m, const struct clp_symbol *sym,
                              struct clp_text *out)
{
    clp_text_add(out, m->module[0] ? m->module : "[unknown module]");
    clp_text_char(out, '!');
    if (sym->source == CLP_SYMBOL_NONE) {
        clp_text_add(out, "[unknown]");
        return;
    }
    clp_text_add(out, "0x");
    clp_text_hex(out, sym->start);
}

/* Debug files write versions into names: memcpy@@GLIBC_2.14. */
static void cut_version(char *name)
{
    char *at = strchr(name, '@');
    if (at && at != name)
        *at = '\0';
}

static bool read_elf_name(const struct clp_symbols_image *m, const struct clp_symbol *sym,
                          char raw[CLP_NAME_MAX])
{
    struct clp_file_bytes bytes;
    return sym->source == CLP_SYMBOL_ELF && image_bytes(m, m->symbols_in_debug_file, &bytes) &&
           clp_elf_string(&bytes, &m->strings, sym->name, raw, CLP_NAME_MAX) == 0 && raw[0];
}

static void write_demangled(struct clp_symbols *s, const char *raw, struct clp_text *out)
{
    int r = 0;
    if (s->stats.demangle_given_up < GIVE_UPS_MAX)
        r = clp_demangle(out, raw);
    if (r == -E2BIG)
        s->stats.demangle_given_up++;
    if (r != 1)
        clp_text_add(out, raw);
}

void clp_symbols_name(struct clp_symbols_image *m, const struct clp_symbol *sym, char *name,
                      size_t name_cap, char *system_name, size_t system_name_cap)
{
    char raw[CLP_NAME_MAX], work[CLP_NAME_MAX];
    struct clp_text out = clp_text_in(work, sizeof(work));
    bool elf = read_elf_name(m, sym, raw);
    if (elf)
        clp_text_add(&out, raw);
    else
        write_module_name(m, sym, &out);
    if (system_name)
        clp_text_guard(&out, system_name, system_name_cap);
    if (elf) {
        out = clp_text_in(work, sizeof(work));
        cut_version(raw);
        write_demangled(m->owner, raw, &out);
    }
    clp_text_guard(&out, name, name_cap);
}
