#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/pe_images.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define IMAGE_BYTES (8 * PAGE)
#define TEXT_AT (2 * PAGE)

void clp_modules_use_locked(uint32_t number)
{
    (void)number;
}

void clp_modules_unuse_locked(uint32_t number)
{
    (void)number;
}

static void put(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

/* A file that begins like a PE32+ image of 8 pages; there is no code in it. */
static int make_file(void)
{
    uint8_t page[PAGE] = {'M', 'Z'};
    put(page + 0x3c, 0x80);
    memcpy(page + 0x80, "PE\0\0", 4);
    put(page + 0x80 + 24, 0x20b);
    put(page + 0x80 + 24 + 56, IMAGE_BYTES);
    char path[] = "/tmp/clp-pe-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
    assert_int_equal(ftruncate(fd, IMAGE_BYTES), 0);
    return fd;
}

/* As the runtime maps a composite image: the header, and behind it a first section whose file
 * offset, rounded down to a page, is 0 again. */
static uint64_t map_image(int fd)
{
    uint8_t *base = mmap(NULL, IMAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_ptr_not_equal(mmap(base, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), MAP_FAILED);
    assert_ptr_not_equal(
        mmap(base + TEXT_AT, 4 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0),
        MAP_FAILED);
    return (uint64_t)(uintptr_t)base;
}

static bool covers(uint64_t address)
{
    clp_code_lock();
    bool r = clp_pe_images_cover_locked(address);
    clp_code_unlock();
    return r;
}

static int set_up(void **state)
{
    (void)state;
    return clp_code_table_init() < 0 ? -1 : clp_pe_images_init();
}

static int tear_down(void **state)
{
    (void)state;
    clp_pe_images_done();
    clp_code_table_done();
    return 0;
}

static void finds_the_header_before_its_copy(void **state)
{
    (void)state;
    int fd = make_file();
    uint64_t base = map_image(fd);
    clp_pe_images_expect_composite();
    assert_true(clp_pe_images_discover(base + TEXT_AT + 16));
    assert_true(covers(base));
    assert_true(covers(base + IMAGE_BYTES - 1));
    assert_false(covers(base + IMAGE_BYTES));
    assert_false(clp_pe_images_discover(base + TEXT_AT + 16)); /* known */
    struct clp_r2r_function f;
    uint64_t found;
    assert_int_equal(clp_pe_images_find(base + TEXT_AT + 16, &found, &f), CLP_PE_OTHER);
    munmap((void *)(uintptr_t)base, IMAGE_BYTES);
    close(fd);
}

static void a_view_of_the_file_is_no_image(void **state)
{
    (void)state;
    int fd = make_file();
    void *view = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(view, MAP_FAILED);
    clp_pe_images_expect_composite();
    assert_false(clp_pe_images_discover((uint64_t)(uintptr_t)view + 16));
    munmap(view, PAGE);
    close(fd);
}

static void asks_nothing_unless_one_is_expected(void **state)
{
    (void)state;
    int fd = make_file();
    uint64_t base = map_image(fd);
    assert_false(clp_pe_images_discover(base + TEXT_AT + 16));
    munmap((void *)(uintptr_t)base, IMAGE_BYTES);
    close(fd);
}

static void other_memory_is_no_image(void **state)
{
    (void)state;
    clp_pe_images_expect_composite();
    assert_false(clp_pe_images_discover((uint64_t)(uintptr_t)&set_up)); /* ELF */
    assert_false(clp_pe_images_discover((uint64_t)(uintptr_t)state));   /* the stack */
    assert_false(clp_pe_images_discover(16));                           /* nothing */
}

static void images_come_and_go(void **state)
{
    (void)state;
    clp_code_lock();
    struct clp_string *path = clp_strings_take(clp_code_table_strings_locked(), "/x.dll", 6);
    for (uint64_t i = 1; i <= 100; i++)
        clp_pe_images_add_locked(((i * 37) % 101) << 20, (((i * 37) % 101) << 20) + 0x1000, path);
    clp_pe_images_add_locked(1u << 20, (1u << 20) + 0x9000, path); /* known: stays as it is */
    clp_code_unlock();
    for (uint64_t i = 1; i <= 100; i++) {
        assert_true(covers(i << 20));
        assert_true(covers((i << 20) + 0xfff));
        assert_false(covers((i << 20) + 0x1000));
    }
    clp_code_lock();
    clp_pe_images_remove_locked(50ull << 20);
    clp_pe_images_remove_locked(0);
    clp_code_unlock();
    assert_false(covers(50ull << 20));
    assert_true(covers(51ull << 20));
    assert_int_equal(path->uses, 1 + 99);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finds_the_header_before_its_copy),
        TEST(a_view_of_the_file_is_no_image),
        TEST(asks_nothing_unless_one_is_expected),
        TEST(other_memory_is_no_image),
        TEST(images_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
