#include "sampler/inproc/exported.h"

#include "tests/unit/clp-cmocka.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* This process's own libc, against what the loader says. */
static void test_finds_what_the_loader_finds(void **state)
{
    static const char *const names[] = {"getpid", "getppid", "lldiv", "environ", "l64a"};
    uint64_t inside = (uint64_t)(uintptr_t)dlsym(RTLD_NEXT, "getpid");
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t found = 0;
        void *at = dlsym(RTLD_NEXT, names[i]);
        assert_non_null(at);
        assert_int_equal(clp_exported_find(inside, names[i], &found), 0);
        assert_true(found == (uint64_t)(uintptr_t)at);
    }
}

static void test_what_is_not_there(void **state)
{
    uint64_t found = 7;
    void *heap = malloc(64);
    (void)state;
    assert_int_equal(clp_exported_find((uint64_t)(uintptr_t)dlsym(RTLD_NEXT, "getpid"),
                                       "DotNetRuntimeContractDescriptor", &found),
                     -ENOENT);
    assert_int_equal(clp_exported_find((uint64_t)(uintptr_t)heap, "getpid", &found), -EBADMSG);
    assert_int_equal(clp_exported_find(0, "getpid", &found), -EBADMSG);
    assert_int_equal(clp_exported_find(UINT64_MAX, "getpid", &found), -EBADMSG);
    assert_true(found == 7);
    free(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_the_loader_finds),
        cmocka_unit_test(test_what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
