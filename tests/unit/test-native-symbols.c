#include "tests/unit/clp-cmocka.h"

#include "base/file.h"
#include "sampler/symbols/elf_symbols.h"
#include "sampler/symbols/managed_name.h"
#include "sampler/symbols/native_symbols.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/fixtures/symbols-library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHOLE CLP_FIXTURE ".so"
#define STRIPPED CLP_FIXTURE "-stripped.so"
#define DEBUG_FILE CLP_FIXTURE ".debug"

/* ---- the fixture's addresses ---------------------------------------------------------------- */

static const struct clp_fixture_entry *entries;
static uint64_t fixture_base;

static uint64_t address_of(const char *name)
{
    for (const struct clp_fixture_entry *e = entries; e->name; e++)
        if (strcmp(e->name, name) == 0)
            return (uint64_t)e->at - fixture_base;
    fail_msg("no fixture entry %s", name);
    return 0;
}

static int load_fixture(void **state)
{
    (void)state;
    void *lib = dlopen(WHOLE, RTLD_NOW | RTLD_LOCAL);
    Dl_info info;
    if (!lib)
        return -1;
    entries = dlsym(lib, "clp_fixture_entries");
    if (!entries || !dladdr(entries, &info))
        return -1;
    fixture_base = (uint64_t)info.dli_fbase;
    return 0;
}

/* ---- a root directory of a target ----------------------------------------------------------- */

struct root {
    char path[64];
    int fd;
};

static void root_init(struct root *r)
{
    strcpy(r->path, "/tmp/clp-symbols-XXXXXX");
    assert_non_null(mkdtemp(r->path));
    r->fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(r->fd >= 0);
}

static void root_done(struct root *r)
{
    char command[128];
    close(r->fd);
    snprintf(command, sizeof(command), "rm -rf %s", r->path);
    assert_int_equal(system(command), 0);
}

static void root_copy(const struct root *r, const char *from, const char *to)
{
    char command[1024];
    snprintf(command, sizeof(command), "mkdir -p $(dirname %s/%s) && cp %s %s/%s", r->path, to,
             from, r->path, to);
    assert_int_equal(system(command), 0);
}

static size_t build_id_of(const char *path, uint8_t id[CLP_ELF_BUILD_ID_MAX])
{
    struct clp_file_bytes bytes;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(clp_file_bytes_of_fd(fd, &bytes), 0);
    assert_int_equal(clp_elf_build_id(&bytes, id, &len), 0);
    close(fd);
    return len;
}

static void debug_path_of(const char *path, char *buf, size_t cap)
{
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = build_id_of(path, id);
    size_t n = (size_t)snprintf(buf, cap, "usr/lib/debug/.build-id/%02x/", id[0]);
    for (size_t i = 1; i < len; i++)
        n += (size_t)snprintf(buf + n, cap - n, "%02x", id[i]);
    snprintf(buf + n, cap - n, ".debug");
}

static struct clp_symbols_image *get(struct clp_symbols *s, int root_fd, const char *path,
                                     const uint8_t *id, size_t id_len)
{
    struct clp_symbols_image *m = NULL;
    struct clp_symbols_image_spec spec = {.root_fd = root_fd,
                                          .path = path,
                                          .path_len = strlen(path),
                                          .build_id = id,
                                          .build_id_len = id_len};
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), 0);
    assert_non_null(m);
    return m;
}

static const char *name_at(struct clp_symbols_image *m, uint64_t address)
{
    static char name[CLP_NAME_MAX];
    struct clp_symbol sym;
    clp_symbols_find(m, address, &sym);
    if (sym.source != CLP_SYMBOL_NONE)
        assert_in_range(address, sym.start, sym.end - 1);
    clp_symbols_name(m, &sym, name, sizeof(name), NULL, 0);
    return name;
}

static const char *module_and_start(const char *module, uint64_t start)
{
    static char name[CLP_NAME_MAX];
    snprintf(name, sizeof(name), "%s!0x%llx", module, (unsigned long long)start);
    return name;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void names_from_symtab(void **state)
{
    (void)state;
    struct clp_symbols *s;
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    int root = open("/", O_RDONLY | O_DIRECTORY);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, root, WHOLE, id, build_id_of(WHOLE, id));
    close(root);
    assert_string_equal(name_at(m, address_of("exported")), "clp_fixture_exported");
    assert_string_equal(name_at(m, address_of("exported") + 1), "clp_fixture_exported");
    assert_string_equal(name_at(m, address_of("local")), "clp_fixture_local");
    assert_string_equal(name_at(m, address_of("alias")), "clp_fixture_alias");
    assert_string_equal(name_at(m, address_of("cxx")), "shop::Order::total");
    assert_string_equal(name_at(m, address_of("rust v0")), "shop::total");
    assert_string_equal(name_at(m, address_of("rust legacy")), "shop::order::total");

    struct clp_symbol sym;
    char name[CLP_NAME_MAX], raw[CLP_NAME_MAX];
    clp_symbols_find(m, address_of("cxx") + 2, &sym);
    assert_int_equal(sym.source, CLP_SYMBOL_ELF);
    assert_int_equal(sym.start, address_of("cxx"));
    clp_symbols_name(m, &sym, name, sizeof(name), raw, sizeof(raw));
    assert_string_equal(raw, "_ZN4shop5Order5totalERKSt6vectorIiSaIiEE");

    clp_symbols_image_unref(m);
    assert_null(clp_symbols_free(s));
}

/* Assembly has names without sizes: they reach to the next one and never out of their unwind entry.
 */
static void sizeless_symbols_stay_in_their_unwind_entry(void **state)
{
    (void)state;
    struct clp_symbols *s;
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, -1, WHOLE, id, build_id_of(WHOLE, id));
    uint64_t at = address_of("sizeless"), inner = address_of("inner label");
    assert_string_equal(name_at(m, at), "clp_fixture_sizeless");
    assert_string_equal(name_at(m, inner - 1), "clp_fixture_sizeless");
    assert_string_equal(name_at(m, inner), "clp_fixture_inner_label");
    assert_string_equal(name_at(m, inner + 3), "clp_fixture_inner_label");
    /* Past the entry lies padding, then a function that has no entry at all. */
    const char *nothing = "symbols-fixture.so![unknown]";
    assert_string_equal(name_at(m, inner + 5), nothing);
    assert_string_equal(name_at(m, address_of("no unwind")), nothing);
    assert_string_equal(name_at(m, UINT64_MAX), nothing);
    assert_string_equal(name_at(m, 0), nothing);
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
}

static void stripped_gives_function_starts(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct root r;
    root_init(&r);
    root_copy(&r, STRIPPED, "opt/app/libshop.so");
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m =
        get(s, r.fd, "/opt/app/libshop.so", id, build_id_of(STRIPPED, id));
    root_done(&r); /* the target may go: the file is open */
    assert_string_equal(name_at(m, address_of("exported") + 3), "clp_fixture_exported");
    assert_string_equal(name_at(m, address_of("local") + 3),
                        module_and_start("libshop.so", address_of("local")));
    struct clp_symbol sym;
    clp_symbols_find(m, address_of("local") + 3, &sym);
    assert_int_equal(sym.source, CLP_SYMBOL_FDE);
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
}

static void debug_file_gives_local_names(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct root r;
    char debug[160];
    root_init(&r);
    root_copy(&r, STRIPPED, "lib/libshop.so");
    debug_path_of(STRIPPED, debug, sizeof(debug));
    root_copy(&r, DEBUG_FILE, debug);
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, r.fd, "/lib/libshop.so", id, build_id_of(STRIPPED, id));
    assert_string_equal(name_at(m, address_of("local") + 3), "clp_fixture_local");
    assert_string_equal(name_at(m, address_of("inner label") + 1), "clp_fixture_inner_label");
    clp_symbols_image_unref(m);
    clp_symbols_free(s);

    /* The debug file alone still has the names, when the module is gone from the disk. */
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    m = get(s, r.fd, "/lib/gone.so (deleted)", id, build_id_of(STRIPPED, id));
    assert_string_equal(name_at(m, address_of("local") + 3), "clp_fixture_local");
    assert_string_equal(name_at(m, address_of("no unwind")), "gone.so![unknown]");
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
    root_done(&r);
}

static void another_build_is_not_used(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    struct root r;
    char debug[160];
    root_init(&r);
    root_copy(&r, WHOLE, "lib/libshop.so");
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = build_id_of(WHOLE, id);
    id[len - 1] ^= 1;
    /* Also a debug file that lies under the right name and is of another build. */
    size_t n = (size_t)snprintf(debug, sizeof(debug), "usr/lib/debug/.build-id/%02x/", id[0]);
    for (size_t i = 1; i < len; i++)
        n += (size_t)snprintf(debug + n, sizeof(debug) - n, "%02x", id[i]);
    snprintf(debug + n, sizeof(debug) - n, ".debug");
    root_copy(&r, DEBUG_FILE, debug);
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    struct clp_symbols_image *m = get(s, r.fd, "/lib/libshop.so", id, len);
    assert_string_equal(name_at(m, address_of("exported")), "libshop.so![unknown]");
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.other_build, 2);
    assert_int_equal(stats.open_now, 0);
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
    root_done(&r);
}

static void without_build_id_only_the_targets_own_file_counts(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct root r;
    root_init(&r);
    root_copy(&r, WHOLE, "lib/libshop.so");
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    struct clp_symbols_image *m = get(s, r.fd, "/lib/libshop.so", NULL, 0);
    struct clp_symbols_image *again = get(s, r.fd, "/lib/libshop.so", NULL, 0);
    assert_ptr_equal(m, again);
    assert_string_equal(name_at(m, address_of("local")), "clp_fixture_local");
    struct clp_symbols_image *ours = get(s, -1, WHOLE, NULL, 0);
    assert_string_equal(name_at(ours, address_of("local")), "symbols-fixture.so![unknown]");
    clp_symbols_image_unref(m);
    clp_symbols_image_unref(again);
    clp_symbols_image_unref(ours);
    clp_symbols_free(s);
    root_done(&r);
}

/* A target may arrange its root as it likes. */
static void hostile_roots(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    struct root r;
    char path[128];
    root_init(&r);
    snprintf(path, sizeof(path), "%s/link.so", r.path);
    assert_int_equal(symlink(WHOLE, path), 0);
    snprintf(path, sizeof(path), "%s/fifo.so", r.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/directory.so", r.path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/text.so", r.path);
    assert_int_equal(clp_file_write(path, "no ELF file", 11, 0600), 0);
    snprintf(path, sizeof(path), "%s/empty.so", r.path);
    assert_int_equal(clp_file_write(path, "", 0, 0600), 0);
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    static const char *const names[] = {"/link.so",  "/fifo.so", "/directory.so",     "/text.so",
                                        "/empty.so", "/none.so", "/../../..",         "relative.so",
                                        "[vdso]",    "",         "/memfd:x (deleted)"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++) {
        struct clp_symbols_image *m = get(s, r.fd, names[i], NULL, 0);
        struct clp_symbol sym;
        clp_symbols_find(m, address_of("exported"), &sym);
        assert_int_equal(sym.source, CLP_SYMBOL_NONE);
        clp_symbols_image_unref(m);
    }
    clp_symbols_get_stats(s, &stats);
    assert_true(stats.malformed >= 2);
    struct clp_symbols_image *m = NULL;
    struct clp_symbols_image_spec spec = {.root_fd = r.fd, .path = "/a\0b", .path_len = 4};
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), -EINVAL);
    static char longest[5000];
    spec.path = memset(longest, 'a', sizeof(longest));
    spec.path_len = sizeof(longest);
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), -EINVAL);
    assert_null(m);
    clp_symbols_free(s);
    root_done(&r);
}

/* A file that is written over while it is open must not lend its new bytes as names. */
static void overwritten_file_has_no_names(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct root r;
    char path[128], name[CLP_NAME_MAX];
    root_init(&r);
    root_copy(&r, WHOLE, "libshop.so");
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, r.fd, "/libshop.so", id, build_id_of(WHOLE, id));
    struct clp_symbol sym;
    clp_symbols_find(m, address_of("local"), &sym);
    assert_int_equal(sym.source, CLP_SYMBOL_ELF);
    snprintf(path, sizeof(path), "%s/libshop.so", r.path);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 100), 0);
    close(fd);
    clp_symbols_name(m, &sym, name, sizeof(name), NULL, 0);
    assert_string_equal(name, module_and_start("libshop.so", address_of("local")));
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
    root_done(&r);
}

static void images_are_shared_and_tables_evicted(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    struct clp_symbols_limits limits = {.tables_bytes = 1, .images = 2};
    struct root r;
    root_init(&r);
    root_copy(&r, WHOLE, "libshop.so");
    assert_int_equal(clp_symbols_new(&limits, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = build_id_of(WHOLE, id);
    struct clp_symbols_image *a = get(s, r.fd, "/libshop.so", id, len);
    struct clp_symbols_image *b = get(s, -1, "/elsewhere/libshop.so", id, len);
    assert_ptr_equal(a, b); /* another target, the same build */
    struct clp_symbols_image *c = get(s, -1, WHOLE, id, len);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(name_at(a, address_of("local")), "clp_fixture_local");
        assert_string_equal(name_at(c, address_of("local")), "clp_fixture_local");
    }
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.loads, 6);
    assert_int_equal(stats.evictions, 5);
    assert_int_equal(stats.images_now, 2);

    struct clp_symbols_image *m = NULL;
    struct clp_symbols_image_spec spec = {.root_fd = -1, .path = "/x", .path_len = 2};
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), -ENOSPC);
    clp_symbols_image_unref(c);
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), 0); /* in the place of c */
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.images_now, 2);
    clp_symbols_image_unref(m);
    clp_symbols_image_unref(a);
    clp_symbols_image_unref(b);
    clp_symbols_free(s);
    root_done(&r);
}

static void open_files_have_a_ceiling(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_limits limits = {.open_files = 1};
    struct clp_symbols_stats stats;
    struct root r;
    root_init(&r);
    root_copy(&r, WHOLE, "a.so");
    root_copy(&r, WHOLE, "b.so");
    assert_int_equal(clp_symbols_new(&limits, &s), 0);
    struct clp_symbols_image *a = get(s, r.fd, "/a.so", NULL, 0);
    struct clp_symbols_image *b = get(s, r.fd, "/b.so", NULL, 0);
    assert_string_equal(name_at(a, address_of("local")), "clp_fixture_local");
    assert_string_equal(name_at(b, address_of("local")), "b.so![unknown]");
    clp_symbols_image_unref(a);
    clp_symbols_image_unref(b);
    b = get(s, r.fd, "/b.so", NULL, 0);
    assert_string_equal(name_at(b, address_of("local")), "clp_fixture_local");
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.open_now, 1);
    clp_symbols_image_unref(b);
    clp_symbols_free(s);
    root_done(&r);
}

/* A symbol section beyond the limit is not read; unwind entries still name functions. */
static void too_big_falls_back(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    struct clp_symbols_limits limits = {.symtab_bytes = 64};
    assert_int_equal(clp_symbols_new(&limits, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, -1, WHOLE, id, build_id_of(WHOLE, id));
    assert_string_equal(name_at(m, address_of("exported") + 1),
                        module_and_start("symbols-fixture.so", address_of("exported")));
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.too_big, 2);
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
}

/* Reading files has a budget of time: beyond it names come later, and the agent goes on. */
static void loading_has_a_budget(void **state)
{
    (void)state;
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    struct clp_symbols_limits limits = {.load_ns = 1, .load_share = UINT32_MAX};
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = build_id_of(WHOLE, id);
    assert_int_equal(clp_symbols_new(&limits, &s), 0);
    struct clp_symbols_image *m = get(s, -1, WHOLE, id, len);
    struct clp_symbols_image *other = get(s, -1, STRIPPED, id, len);
    assert_string_equal(name_at(m, address_of("local")), "clp_fixture_local");
    assert_string_equal(name_at(other, address_of("exported")),
                        "symbols-fixture-stripped.so![unknown]");
    clp_symbols_get_stats(s, &stats);
    assert_int_equal(stats.loads, 1);
    assert_int_equal(stats.put_off, 2); /* symbols and unwind entries */
    clp_symbols_free(s);

    limits.load_share = 1;
    assert_int_equal(clp_symbols_new(&limits, &s), 0);
    m = get(s, -1, WHOLE, id, len);
    other = get(s, -1, STRIPPED, id, len);
    assert_string_equal(name_at(m, address_of("local")), "clp_fixture_local");
    usleep(1);
    assert_string_equal(name_at(other, address_of("exported")), "clp_fixture_exported");
    clp_symbols_free(s);
}

static struct clp_symbols_image *image_of(struct clp_symbols *s, const void *code,
                                          uint64_t *ret_address)
{
    Dl_info info;
    char path[4096];
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    assert_int_not_equal(dladdr(code, &info), 0);
    assert_non_null(realpath(info.dli_fname, path));
    *ret_address = (uint64_t)code - (uint64_t)info.dli_fbase;
    return get(s, -1, path, id, build_id_of(path, id));
}

static void libc_names(void **state)
{
    (void)state;
    struct clp_symbols *s;
    uint64_t at;
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    /* By dlsym, so that a sanitizer's own function is not taken. */
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(libc);
    struct clp_symbols_image *m = image_of(s, dlsym(libc, "qsort"), &at);
    assert_string_equal(name_at(m, at + 4), "qsort");
    (void)image_of(s, dlsym(libc, "poll"), &at);
    assert_string_equal(name_at(m, at + 4), "poll"); /* also __poll */
    clp_symbols_free(s);
}

static void vdso_names_come_from_ours(void **state)
{
    (void)state;
    const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
    if (!vdso)
        skip();
    const ElfW(Ehdr) *h = (const void *)vdso;
    struct clp_file_bytes bytes =
        clp_file_bytes_of_mem(vdso, h->e_shoff + (size_t)h->e_shnum * h->e_shentsize);
    struct clp_elf_limits limits = {.table_bytes = 1 << 20, .section_bytes = 1 << 20};
    struct clp_elf_symbols symbols;
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len;
    assert_int_equal(clp_elf_build_id(&bytes, id, &len), 0);
    assert_int_equal(clp_elf_symbols_read(&bytes, CLP_ELF_DYNSYM, &limits, &symbols), 0);
    assert_true(symbols.count > 0);

    struct clp_symbols *s;
    struct clp_symbols_image *m;
    struct clp_symbols_image_spec spec = {.root_fd = -1,
                                          .vdso = true,
                                          .path = "[vdso]",
                                          .path_len = 6,
                                          .build_id = id,
                                          .build_id_len = len};
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    assert_int_equal(clp_symbols_image_get(s, &spec, &m), 0);
    bool found = false;
    for (uint32_t i = 0; i < symbols.count; i++)
        found |= strcmp(name_at(m, symbols.at[i].start), "clock_gettime") == 0;
    assert_true(found);
    id[0] ^= 1; /* the vdso of another kernel or architecture */
    struct clp_symbols_image *other;
    assert_int_equal(clp_symbols_image_get(s, &spec, &other), 0);
    assert_ptr_not_equal(m, other);
    assert_string_equal(name_at(other, symbols.at[0].start), "[vdso]![unknown]");
    clp_elf_symbols_done(&symbols);
    clp_symbols_free(s);
}

/* The newest runtime of the machine, as `dotnet --list-runtimes` tells it. */
static bool find_coreclr(char path[4096])
{
    char line[1024], version[64], dir[512];
    bool found = false;
    FILE *f = popen("dotnet --list-runtimes 2>/dev/null", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Microsoft.NETCore.App %63s [%511[^]]]", version, dir) == 2) {
            snprintf(path, 4096, "%s/%s/libcoreclr.so", dir, version);
            found = access(path, R_OK) == 0;
        }
    if (f)
        pclose(f);
    return found;
}

static void coreclr_gives_function_starts(void **state)
{
    (void)state;
    char path[4096];
    if (!find_coreclr(path))
        skip();
    struct clp_symbols *s;
    struct clp_symbols_stats stats;
    assert_int_equal(clp_symbols_new(NULL, &s), 0);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    struct clp_symbols_image *m = get(s, -1, path, id, build_id_of(path, id));
    unsigned starts = 0, symbols = 0;
    for (uint64_t at = 0x200000; at < 0x300000; at += 256) {
        struct clp_symbol sym, again;
        clp_symbols_find(m, at, &sym);
        starts += sym.source == CLP_SYMBOL_FDE;
        symbols += sym.source == CLP_SYMBOL_ELF;
        if (sym.source != CLP_SYMBOL_FDE)
            continue;
        assert_in_range(at, sym.start, sym.end - 1);
        clp_symbols_find(m, sym.start, &again);
        assert_int_equal(again.start, sym.start);
        assert_string_equal(name_at(m, at), module_and_start("libcoreclr.so", sym.start));
    }
    assert_true(starts > 1000);
    assert_true(symbols < 100); /* it ships with eleven dynamic symbols */
    clp_symbols_get_stats(s, &stats);
    assert_true(stats.tables_bytes_now < 2u << 20);
    clp_symbols_free(s);
}

/* Every allocation fails once: an error or a poorer name, never a crash or a leak. */
static void survives_allocation_failure(void **state)
{
    (void)state;
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = build_id_of(WHOLE, id);
    unsigned named = 0;
    for (uint64_t allowed = 0; allowed < 20; allowed++) {
        struct clp_symbols *s = NULL;
        struct clp_symbols_image *m = NULL;
        struct clp_symbols_image_spec spec = {.root_fd = -1,
                                              .path = WHOLE,
                                              .path_len = strlen(WHOLE),
                                              .build_id = id,
                                              .build_id_len = len};
        alloc_fail_after(allowed, 0);
        int r = clp_symbols_new(NULL, &s);
        if (r == 0)
            r = clp_symbols_image_get(s, &spec, &m);
        struct clp_symbol sym = {0};
        if (r == 0)
            clp_symbols_find(m, address_of("local"), &sym);
        uint64_t failures = alloc_fail_stop();
        assert_true(r == 0 || r == -ENOMEM);
        if (r == 0) { /* memory is back: so is the name */
            assert_string_equal(name_at(m, address_of("local")), "clp_fixture_local");
            named++;
        } else {
            assert_int_equal(failures, 1);
        }
        clp_symbols_free(s);
    }
    assert_true(named > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_from_symtab),
        cmocka_unit_test(sizeless_symbols_stay_in_their_unwind_entry),
        cmocka_unit_test(stripped_gives_function_starts),
        cmocka_unit_test(debug_file_gives_local_names),
        cmocka_unit_test(another_build_is_not_used),
        cmocka_unit_test(without_build_id_only_the_targets_own_file_counts),
        cmocka_unit_test(hostile_roots),
        cmocka_unit_test(overwritten_file_has_no_names),
        cmocka_unit_test(images_are_shared_and_tables_evicted),
        cmocka_unit_test(open_files_have_a_ceiling),
        cmocka_unit_test(too_big_falls_back),
        cmocka_unit_test(loading_has_a_budget),
        cmocka_unit_test(libc_names),
        cmocka_unit_test(vdso_names_come_from_ours),
        cmocka_unit_test(coreclr_gives_function_starts),
        cmocka_unit_test(survives_allocation_failure),
    };
    return cmocka_run_group_tests(tests, load_fixture, NULL);
}
