#include "tests/unit/clp-cmocka.h"

#include "base/core/core.h"
#include "sampler/inproc/bounds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t control_block(void)
{
    uint64_t tcb;
    __asm__("mov %%fs:0, %0" : "=r"(tcb));
    return tcb;
}

struct ends {
    uint64_t fs_base, low, high, low_found, high_found, sp;
    bool known;
};

static void *look(void *arg)
{
    struct ends *e = arg;
    volatile char here = 0;
    e->sp = (uint64_t)(uintptr_t)&here;
    e->fs_base = control_block();
    e->known = clp_bounds_own(&e->low, &e->high);
    struct clp_bounds b = {.fs_base = e->fs_base};
    if (clp_bounds_find(&b, 1) == 0) {
        e->low_found = b.low;
        e->high_found = b.high;
    }
    return NULL;
}

/* What a thread knows of itself and what is found from outside are the same. */
static void both_ways_agree(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 64 << 10, 1 << 20, 16 << 20};
    for (size_t i = 0; i < CLP_ARRAY_LEN(sizes); i++) {
        pthread_attr_t attr;
        pthread_t t;
        struct ends e = {0};
        pthread_attr_init(&attr);
        if (sizes[i])
            assert_int_equal(pthread_attr_setstacksize(&attr, sizes[i]), 0);
        assert_int_equal(pthread_create(&t, &attr, look, &e), 0);
        pthread_join(t, NULL);
        pthread_attr_destroy(&attr);
        assert_true(e.known);
        assert_int_equal(e.high, e.fs_base);
        assert_int_equal(e.high_found, e.high);
        /* libc may or may not count the guard page: the thread's own view may be one page short. */
        assert_in_range(e.low, e.low_found, e.low_found + 4096);
        assert_in_range(e.sp, e.low, e.high - 1);
    }
}

/* Memory of others right above the stack belongs to the same mapping; the control block ends it. */
static void a_merged_mapping_is_cut(void **state)
{
    (void)state;
    const size_t part = 1 << 20;
    uint8_t *all = mmap(NULL, 3 * part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    pthread_attr_t attr;
    pthread_t t;
    struct ends e = {0};
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstack(&attr, all + part, part), 0);
    assert_int_equal(pthread_create(&t, &attr, look, &e), 0);
    pthread_join(t, NULL);
    pthread_attr_destroy(&attr);
    assert_in_range(e.high_found, (uint64_t)(uintptr_t)all + part,
                    (uint64_t)(uintptr_t)all + 2 * part);
    assert_int_equal(e.high_found, e.fs_base);
    munmap(all, 3 * part);
}

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* glibc 2.42 marks guard pages without splitting the mapping; simulated with our own stack. */
static void a_marked_guard_is_found(void **state)
{
    (void)state;
    const size_t part = 1 << 20;
    uint8_t *all = mmap(NULL, 2 * part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    if (madvise(all + part, 2 * 4096, MADV_GUARD_INSTALL) < 0) {
        munmap(all, 2 * part);
        skip(); /* before kernel 6.13 */
    }
    struct clp_bounds b = {.fs_base = (uint64_t)(uintptr_t)all + 2 * part - 4096};
    assert_int_equal(clp_bounds_find(&b, 1), 0);
    assert_int_equal(b.high, b.fs_base);
    assert_int_equal(b.low, (uint64_t)(uintptr_t)all + part + 2 * 4096);
    munmap(all, 2 * part);
}

static void finds_many_at_once_and_says_what_it_cannot(void **state)
{
    (void)state;
    volatile char here = 0;
    struct ends e = {0};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, look, &e), 0);
    pthread_join(t, NULL); /* glibc keeps the stack for the next thread */
    struct clp_bounds b[4] = {
        {.main_thread = true},
        {.fs_base = 0},
        {.fs_base = 0x10},
        {.fs_base = (uint64_t)(uintptr_t)&both_ways_agree}, /* code is no stack */
    };
    assert_int_equal(clp_bounds_find(b, 4), 0);
    uint64_t sp = (uint64_t)(uintptr_t)&here;
    assert_in_range(sp, b[0].low, b[0].high - 1);
    assert_true(b[0].high - b[0].low >= 1 << 20); /* room to grow, not only what is mapped now */
    assert_true(b[0].high > (uint64_t)(uintptr_t)environ);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(b[i].low, 0);
        assert_int_equal(b[i].high, 0);
    }
    uint64_t low, high;
    assert_false(clp_bounds_own(&low, &high)); /* the main thread's are found, not told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_agree),
        cmocka_unit_test(a_merged_mapping_is_cut),
        cmocka_unit_test(a_marked_guard_is_found),
        cmocka_unit_test(finds_many_at_once_and_says_what_it_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
