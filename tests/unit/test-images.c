/* The native images of this very process, against what the loader says. */
#include "sampler/inproc/images.h"
#include "sampler/inproc/maps.h"
#include "sampler/unwind/native.h"

#include "tests/unit/clp-cmocka.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t pass = 1;

/* Of libc itself, not of a sanitizer that stands in front of it. */
static const void *libc_function(const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(libc);
    return dlsym(libc, name);
}

static int setup(void **state)
{
    (void)state;
    return clp_images_init();
}

static struct clp_code find(const void *address)
{
    struct clp_code code;
    clp_images_find((uint64_t)(uintptr_t)address, pass++, &code);
    return code;
}

static uint64_t loader_bias(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    assert_int_not_equal(dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP), 0);
    return map->l_addr;
}

static const struct clp_rec_image *record(uint32_t id, char *ret_path, size_t cap)
{
    static union clp_rec_any any;
    int n = clp_images_record(id, &any, sizeof(any));
    assert_true(n >= (int)sizeof(struct clp_rec_image));
    const struct clp_rec_image *rec = &any.image;
    assert_int_equal(rec->rec.size, n);
    assert_int_equal(rec->image_id, id);
    assert_true(rec->path_len < cap);
    memcpy(ret_path, (const char *)(rec + 1) + rec->build_id_len, rec->path_len);
    ret_path[rec->path_len] = '\0';
    return rec;
}

static void expect_native(const void *address, const char *path_part)
{
    char path[4096];
    struct clp_code code = find(address);
    assert_int_equal(code.kind, CLP_CODE_NATIVE);
    assert_int_equal(code.start, loader_bias(address));
    assert_non_null(code.native);
    const struct clp_rec_image *rec = record(code.id, path, sizeof(path));
    assert_int_equal(rec->kind, CLP_IMAGE_ELF);
    assert_int_equal(rec->bias, code.start);
    assert_true(rec->start <= (uintptr_t)address && (uintptr_t)address < rec->end);
    assert_non_null(strstr(path, path_part));
}

static void test_own_program_and_libc(void **state)
{
    uint64_t start, end;
    (void)state;
    expect_native((const void *)(uintptr_t)expect_native, "test-images");
    expect_native(libc_function("qsort"), "libc.so");
    struct clp_code code = find((const void *)(uintptr_t)expect_native);
    assert_int_equal(
        clp_native_function(code.native, (uintptr_t)expect_native - code.start, &start, &end), 0);
    assert_int_equal(start + code.start, (uintptr_t)expect_native);
}

static void test_one_image_has_one_id(void **state)
{
    (void)state;
    uint32_t a = find(libc_function("qsort")).id;
    uint32_t b = find(libc_function("printf")).id;
    assert_int_equal(a, b);
    assert_int_not_equal(a, find((const void *)(uintptr_t)setup).id);
    uint64_t buf[8];
    assert_int_equal(clp_images_record(a, buf, sizeof(buf)), -ENOSPC);
    assert_int_equal(clp_images_record(clp_images_next_id(), buf, sizeof(buf)), -ENOENT);
}

static void test_vdso(void **state)
{
    char path[64];
    (void)state;
    uint64_t base = getauxval(AT_SYSINFO_EHDR);
    const ElfW(Ehdr) *eh = (const void *)(uintptr_t)base;
    struct clp_code code = find((const void *)(uintptr_t)(base + eh->e_entry));
    assert_int_equal(code.kind, CLP_CODE_NATIVE);
    assert_int_equal(code.start, base);
    assert_non_null(code.native);
    const struct clp_rec_image *rec = record(code.id, path, sizeof(path));
    assert_int_equal(rec->kind, CLP_IMAGE_VDSO);
    assert_true(rec->build_id_len > 0);
    assert_string_equal(path, "[vdso]");
}

static void test_memory_without_a_file(void **state)
{
    (void)state;
    void *p = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(find((char *)p + 100).kind, CLP_CODE_STUB);
    int fd = memfd_create("doublemapper", 0);
    assert_int_equal(ftruncate(fd, 8192), 0);
    void *q = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    assert_int_equal(find(q).kind, CLP_CODE_STUB);
    close(fd);
    assert_int_equal(find(&pass).kind, CLP_CODE_UNKNOWN); /* data */
    assert_int_equal(find(NULL).kind, CLP_CODE_UNKNOWN);
    assert_int_equal(find((void *)0xffffffffff600000ull).kind, CLP_CODE_UNKNOWN);
    munmap(p, 8192);
    munmap(q, 8192);
}

/* At most one look at the maps in a pass, whatever is asked. */
static void test_a_pass_looks_once(void **state)
{
    struct clp_code code;
    (void)state;
    clp_maps_forbid_query(true);
    uint64_t now = pass++;
    clp_images_find(1, now, &code); /* uses up the look of this pass */
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    clp_images_find((uintptr_t)p, now, &code);
    assert_int_equal(code.kind, CLP_CODE_UNKNOWN);
    for (int i = 0; i < 500 && code.kind == CLP_CODE_UNKNOWN; i++, usleep(1000))
        clp_images_find((uintptr_t)p, pass++, &code);
    assert_int_equal(code.kind, CLP_CODE_STUB);
    munmap(p, 4096);
    clp_maps_forbid_query(false);
}

static void copy_file(const char *from, const char *to)
{
    static char buf[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, buf, sizeof(buf))) > 0;)
        assert_int_equal(write(out, buf, (size_t)n), n);
    close(in);
    close(out);
}

/* After the time for which an old mapping is trusted. */
static struct clp_code find_later(const void *address)
{
    usleep(clp_maps_find_is_cheap() ? 110000 : 1010000);
    struct clp_code code = find(address);
    for (int i = 0; i < 2000 && code.kind != CLP_CODE_NATIVE; i++) {
        usleep(1000);
        code = find(address);
    }
    return code;
}

/* A library that was replaced on disk, then one that was deleted, while they are mapped: the right
 * place and name, and never the unwind table of another file. */
static void files_that_are_gone(void)
{
    char dir[] = "/tmp/clp-images-XXXXXX", path[64], other[64], text[4096];
    Dl_info z;
    void *libz = dlopen("libz.so.1", RTLD_NOW);
    assert_non_null(libz);
    assert_int_not_equal(dladdr(dlsym(libz, "adler32"), &z), 0);
    size_t expected_bytes = clp_native_table_bytes(find_later(dlsym(libz, "adler32")).native);
    assert_non_null(mkdtemp(dir));
    for (int deleted = 0; deleted < 2; deleted++) {
        snprintf(path, sizeof(path), "%s/libgone%d.so", dir, deleted);
        snprintf(other, sizeof(other), "%s/other", dir);
        copy_file(z.dli_fname, path);
        void *lib = dlopen(path, RTLD_NOW);
        assert_non_null(lib);
        const void *function = dlsym(lib, "adler32");
        copy_file("/proc/self/exe", other);
        assert_int_equal(deleted ? unlink(path) : rename(other, path), 0);
        struct clp_code code = find_later(function);
        assert_int_equal(code.kind, CLP_CODE_NATIVE);
        assert_int_equal(code.start, loader_bias(function));
        const struct clp_rec_image *rec = record(code.id, text, sizeof(text));
        assert_true(rec->build_id_len > 0);
        assert_string_equal(text, path);
        uint64_t start, end;
        assert_non_null(code.native);
        assert_int_equal(
            clp_native_function(code.native, (uintptr_t)function - code.start, &start, &end), 0);
        assert_int_equal(start + code.start, (uintptr_t)function);
        assert_int_equal(clp_native_table_bytes(code.native), expected_bytes);
        dlclose(lib);
        unlink(path);
    }
    unlink(other);
    rmdir(dir);
}

/* Takes away what root may do more than others, or gives it back. */
static void set_privileges(bool on)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    assert_int_equal(syscall(SYS_capget, &head, data), 0);
    for (int i = 0; i < 2; i++)
        data[i].effective = on ? data[i].permitted : 0;
    assert_int_equal(syscall(SYS_capset, &head, data), 0);
}

/* Without privileges the kernel's own links to the files are closed: the table comes from memory.
 */
static void test_files_that_are_gone(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        clp_maps_forbid_query(way & 1);
        set_privileges(!(way & 2));
        files_that_are_gone();
    }
    clp_maps_forbid_query(false);
    set_privileges(true);
}

static void test_loading_and_unloading_does_not_grow(void **state)
{
    char dir[] = "/tmp/clp-images-XXXXXX", path[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/libagain.so", dir);
    Dl_info z;
    assert_int_not_equal(dladdr(dlsym(dlopen("libz.so.1", RTLD_NOW), "adler32"), &z), 0);
    copy_file(z.dli_fname, path);
    uint32_t first = 0;
    for (int i = 0; i < 20; i++) {
        void *lib = dlopen(path, RTLD_NOW);
        assert_non_null(lib);
        struct clp_code code = find_later(dlsym(lib, "crc32"));
        assert_int_equal(code.kind, CLP_CODE_NATIVE);
        first = first ? first : code.id;
        assert_true(code.id - first < 20);
        dlclose(lib);
    }
    size_t bytes = clp_images_bytes();
    void *lib = dlopen(path, RTLD_NOW);
    (void)find_later(dlsym(lib, "crc32"));
    assert_true(clp_images_bytes() - bytes < 4096); /* the table is not built again */
    dlclose(lib);
    unlink(path);
    rmdir(dir);
    assert_int_equal(clp_images_refused(), 0);
}

static void test_one_mapping(void **state)
{
    struct clp_map_entry e;
    char path[256];
    int here = 0;
    (void)state;
    for (int forbid = 0; forbid < 2; forbid++) {
        clp_maps_forbid_query(forbid);
        assert_int_equal(clp_maps_find((uintptr_t)&here, &e, path, sizeof(path)), 0);
        assert_string_equal(path, "[stack]");
        assert_true(e.start <= (uintptr_t)&here && (uintptr_t)&here < e.end);
        assert_true(e.readable && e.writable && !e.executable && !e.shared);
        assert_int_equal(clp_maps_find((uintptr_t)setup, &e, path, sizeof(path)), 0);
        assert_true(e.executable && e.inode != 0);
        assert_non_null(strstr(path, "test-images"));
        assert_int_equal(clp_maps_find(8, &e, path, sizeof(path)), -ENOENT);
    }
    clp_maps_forbid_query(false);
}

struct lookup {
    uint64_t address;
    uint64_t start, end;
};

static bool covers(void *user, const struct clp_map_entry *e)
{
    struct lookup *l = user;
    if (l->address < e->start || l->address >= e->end)
        return true;
    l->start = e->start;
    l->end = e->end;
    return false;
}

/* The kernel's answer for one address is that of the whole list. */
static void test_one_mapping_as_in_the_list(void **state)
{
    const void *some[] = {(void *)(uintptr_t)setup, (void *)(uintptr_t)&pass, &some,
                          libc_function("qsort"), stdout};
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(some); i++) {
        struct lookup l = {.address = (uintptr_t)some[i]};
        struct clp_map_entry e;
        char path[4096];
        assert_int_equal(clp_maps_each(covers, &l), 0);
        assert_int_equal(clp_maps_find(l.address, &e, path, sizeof(path)), 0);
        assert_int_equal(e.start, l.start);
        assert_int_equal(e.end, l.end);
        char tiny[4];
        assert_int_equal(clp_maps_find(l.address, &e, tiny, sizeof(tiny)), 0);
        assert_int_equal(e.start, l.start);
    }
}

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    return fd;
}

static void assert_found(void)
{
    struct clp_map_entry e;
    char path[256];
    assert_int_equal(clp_maps_find((uintptr_t)setup, &e, path, sizeof(path)), 0);
    assert_non_null(strstr(path, "test-images"));
}

/* Where the file is kept open, its number may be closed, and another's, before the next question.
 */
static void test_a_file_that_is_kept(void **state)
{
    (void)state;
    if (!clp_maps_find_is_cheap())
        skip();
    int fd = next_descriptor();
    clp_maps_keep_open(true);
    assert_found();
    assert_found();
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(close(fd), 0);
    assert_found();
    int other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(dup2(other, fd), fd);
    assert_found();
    assert_true(fcntl(fd, F_GETFD) >= 0); /* not ours to close */
    assert_true(clp_maps_find_is_cheap());
    clp_maps_keep_open(false);
    (void)close(other);
    (void)close(fd);
    assert_found();
    assert_int_equal(next_descriptor(), fd);
}

static void read_all_ways(void)
{
    uint64_t value = 0x1122334455667788ull, copy = 0;
    assert_int_equal(clp_images_read((uintptr_t)&value, &copy, sizeof(copy)), sizeof(copy));
    assert_int_equal(copy, value);
    assert_true(clp_images_read(0, &copy, sizeof(copy)) < 0);
    assert_true(clp_images_read(UINT64_MAX - 4, &copy, sizeof(copy)) < 0);
    /* Up to the last readable byte, not beyond. */
    char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char buf[256];
    munmap(p + 4096, 4096);
    assert_int_equal(clp_images_read((uintptr_t)p + 4000, buf, sizeof(buf)), 96);
    assert_true(clp_images_read((uintptr_t)p + 4096, buf, sizeof(buf)) < 0);
    munmap(p, 4096);
}

static void test_reading_memory_that_may_be_gone(void **state)
{
    (void)state;
    read_all_ways();
    clp_images_forbid_vm_readv();
    read_all_ways();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_program_and_libc),
        cmocka_unit_test(test_one_image_has_one_id),
        cmocka_unit_test(test_vdso),
        cmocka_unit_test(test_memory_without_a_file),
        cmocka_unit_test(test_a_pass_looks_once),
        cmocka_unit_test(test_files_that_are_gone),
        cmocka_unit_test(test_loading_and_unloading_does_not_grow),
        cmocka_unit_test(test_one_mapping),
        cmocka_unit_test(test_one_mapping_as_in_the_list),
        cmocka_unit_test(test_a_file_that_is_kept),
        cmocka_unit_test(test_reading_memory_that_may_be_gone),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
