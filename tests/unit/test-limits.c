/* Limits of control groups, and what follows from them. */
#include "tests/unit/clp-cmocka.h"

#include "agent/limits.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char base[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/clp-limits-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", base);
    return system(command);
}

static void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", base, dir);
    assert_int_equal(clp_file_mkdir_p(path, 0755), 0);
    snprintf(path, sizeof(path), "%s/%s/%s", base, dir, name);
    assert_int_equal(clp_file_write(path, text, strlen(text), 0644), 0);
}

static struct clp_limits limits(int32_t pid)
{
    char groups[128];
    struct clp_limits l;
    snprintf(groups, sizeof(groups), "%s/groups", base);
    clp_limits_read(base, groups, pid, &l);
    return l;
}

static void version_two(void **state)
{
    (void)state;
    put("7", "cgroup", "0::/pod/web\n");
    put("groups/pod/web", "cpu.max", "max 100000\n");
    put("groups/pod/web", "memory.max", "67108864\n");
    put("groups/pod", "cpu.max", "20000 100000\n");
    put("groups/pod", "memory.max", "max\n");
    struct clp_limits l = limits(7);
    assert_int_equal(l.millicores, 200);
    assert_int_equal(l.memory_bytes, 64u << 20);
}

static void version_one(void **state)
{
    (void)state;
    put("7", "cgroup", "4:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n1:name=systemd:/x\n0::/\n");
    put("groups/memory/docker/a", "memory.limit_in_bytes", "9223372036854771712\n");
    put("groups/memory/docker", "memory.limit_in_bytes", "134217728\n");
    put("groups/cpu,cpuacct/docker/a", "cpu.cfs_quota_us", "150000\n");
    put("groups/cpu,cpuacct/docker/a", "cpu.cfs_period_us", "100000\n");
    put("groups/cpu,cpuacct/docker", "cpu.cfs_quota_us", "-1\n");
    put("groups/cpu,cpuacct/docker", "cpu.cfs_period_us", "100000\n");
    struct clp_limits l = limits(7);
    assert_int_equal(l.millicores, 1500);
    assert_int_equal(l.memory_bytes, 128u << 20);
}

/* A container is shown its own group as the root, under a path of outside. */
static void the_root_of_a_container(void **state)
{
    (void)state;
    put("self", "cgroup", "0::/not/shown/here\n");
    put("groups", "cpu.max", "50000 100000\n");
    assert_int_equal(limits(0).millicores, 500);
    put("8", "cgroup", "0::/not/shown/here\n"); /* in the same container */
    assert_int_equal(limits(8).millicores, 500);
}

/* Whose group is not shown is not taken for one of ours. */
static void the_group_of_another_container(void **state)
{
    (void)state;
    static const char *const others[] = {"0::/../other\n", "0::/other/one\n", "0::/\n"};
    put("self", "cgroup", "0::/not/shown/here\n");
    put("groups", "cpu.max", "50000 100000\n");
    put("other", "cpu.max", "1000 100000\n");
    for (size_t i = 0; i < CLP_ARRAY_LEN(others); i++) {
        put("8", "cgroup", others[i]);
        if (limits(8).millicores != CLP_LIMITS_NO_CPU)
            fail_msg("taken: %s", others[i]);
    }
    put("self", "cgroup", "0::/\n"); /* a cgroup namespace of our own */
    put("8", "cgroup", "0::/../other\n");
    assert_int_equal(limits(8).millicores, CLP_LIMITS_NO_CPU);
    put("groups/below", "cpu.max", "25000 100000\n");
    put("8", "cgroup", "0::/below\n");
    assert_int_equal(limits(8).millicores, 250);
}

static void what_cannot_be_read_is_no_limit(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",        "max", "0 100000", "-5 100000",
                                        "1e300 1", "x y", "5 0"};
    struct clp_limits l = limits(9);
    assert_int_equal(l.millicores, CLP_LIMITS_NO_CPU);
    assert_true(l.memory_bytes == CLP_LIMITS_NO_MEMORY);
    put("7", "cgroup", "0::/a\nnonsense\n:\n::\n0::relative\n");
    for (size_t i = 0; i < CLP_ARRAY_LEN(wrong); i++) {
        put("groups/a", "cpu.max", wrong[i]);
        put("groups/a", "memory.max", wrong[i]);
        if (limits(7).millicores != CLP_LIMITS_NO_CPU)
            fail_msg("taken: '%s'", wrong[i]);
    }
}

static void less_than_a_core_lowers_what_is_done(void **state)
{
    (void)state;
    const struct clp_limits none = {CLP_LIMITS_NO_CPU, CLP_LIMITS_NO_MEMORY};
    const struct clp_limits small = {200, 64u << 20}, tiny = {1, 1u << 20};
    assert_int_equal(clp_limits_budget_ppm(&none, 5000), 5000);
    assert_int_equal(clp_limits_budget_ppm(&small, 5000), 1000);
    assert_int_equal(clp_limits_budget_ppm(&tiny, 5000), 100);
    assert_int_equal(clp_limits_cost_ns(&none, 1000), 1000);
    assert_int_equal(clp_limits_cost_ns(&small, 1000), 5000);
    assert_int_equal(clp_limits_share(&none, 0), 1);
    assert_int_equal(clp_limits_share(&none, 4), 1);
    assert_int_equal(clp_limits_share(&none, 5), 2);
    assert_int_equal(clp_limits_share(&small, 1), 2);
    assert_int_equal(clp_limits_share(&small, 4), 5);
    assert_int_equal(clp_limits_share(&tiny, 4), 20);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(version_two),
        T(version_one),
        T(the_root_of_a_container),
        T(the_group_of_another_container),
        T(what_cannot_be_read_is_no_limit),
        cmocka_unit_test(less_than_a_core_lowers_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
