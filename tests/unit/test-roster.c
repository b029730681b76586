/* States of known processes and the pauses between attempts. */
#include "tests/unit/clp-cmocka.h"

#include "agent/roster.h"

#include <errno.h>
#include <string.h>

#define SECOND CLP_NSEC_PER_SEC

static struct clp_roster roster;

static int tear_down(void **state)
{
    (void)state;
    clp_roster_done(&roster);
    memset(&roster, 0, sizeof(roster));
    return 0;
}

static struct clp_dotnet process(int32_t pid, uint64_t start)
{
    struct clp_dotnet d = {.pid = pid, .start_ticks = start, .state = CLP_DOTNET_READY};
    strcpy(d.comm, "app");
    d.info.cookie[0] = (uint8_t)(pid + 1);
    return d;
}

static struct clp_member *meet(int32_t pid, uint64_t start, uint64_t now_ns)
{
    struct clp_dotnet d = process(pid, start);
    return clp_roster_meet(&roster, &d, now_ns);
}

static void a_pid_used_again_is_another_process(void **state)
{
    (void)state;
    struct clp_member *m = meet(5, 100, SECOND);
    assert_non_null(m);
    assert_int_equal(m->state, CLP_MEMBER_SEEN);
    assert_ptr_equal(meet(5, 100, 2 * SECOND), m);
    assert_int_equal(m->since_ns, SECOND);
    assert_ptr_not_equal(meet(5, 101, 3 * SECOND), m);
    assert_int_equal(roster.count, 2);
}

/* A process that runs another program now is another runtime instance. */
static void another_instance_begins_anew(void **state)
{
    (void)state;
    struct clp_dotnet d = process(5, 100);
    struct clp_member *m = clp_roster_meet(&roster, &d, SECOND);
    m->totals.next_seq = 7;
    m->failures = 3;
    m->events = m->library_refused = true;
    assert_ptr_equal(clp_roster_meet(&roster, &d, SECOND), m);
    assert_int_equal(m->totals.next_seq, 7);
    assert_true(m->events && m->library_refused);
    d.info.cookie[3] = 9;
    assert_ptr_equal(clp_roster_meet(&roster, &d, SECOND), m);
    assert_int_equal(m->totals.next_seq, 0);
    assert_int_equal(m->failures, 0);
    assert_false(m->events || m->library_refused);
}

static void the_pause_grows_by_kind(void **state)
{
    (void)state;
    static const struct {
        int error;
        unsigned failures;
        uint64_t seconds;
    } table[] = {
        {-ETIMEDOUT, 1, 2},
        {-ETIMEDOUT, 2, 4},
        {-ETIMEDOUT, 8, 256},
        {-ETIMEDOUT, 9, 512},
        {-ETIMEDOUT, 10, 600},
        {-ETIMEDOUT, 4000000, 600},
        {CLP_FAULT_REFUSED, 1, 60},
        {CLP_FAULT_REFUSED, 3, 240},
        {CLP_FAULT_REFUSED, 5, 600},
        {-EACCES, 1, 60},
        {CLP_FAULT_FULL, 1, 2},
        {CLP_FAULT_FULL, 3, 8},
        {CLP_FAULT_FULL, 4, 15},
        {CLP_FAULT_FULL, 4000000, 15},
        {0, 1, 2},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++)
        assert_int_equal(clp_member_pause_ns(table[i].error, table[i].failures),
                         table[i].seconds * SECOND);
    assert_true(clp_member_pause_ns(-EBADMSG, 1) == UINT64_MAX);
}

static void failures_are_counted_and_told(void **state)
{
    (void)state;
    struct clp_member *m = meet(5, 100, SECOND);
    struct clp_fault f = {-ETIMEDOUT, "it does not answer"};
    clp_member_fail(m, &f, 10 * SECOND);
    assert_int_equal(m->state, CLP_MEMBER_REFUSED);
    assert_string_equal(m->reason, "it does not answer");
    assert_int_equal(m->retry_at_ns, 12 * SECOND);
    clp_member_fail(m, &f, 12 * SECOND);
    assert_int_equal(m->retry_at_ns, 16 * SECOND);
    assert_int_equal(m->since_ns, 10 * SECOND); /* refused since then */
    f.error = -EBADMSG;
    clp_member_fail(m, &f, 20 * SECOND);
    assert_true(m->retry_at_ns == UINT64_MAX);
}

static void gone_ones_make_room(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < CLP_ROSTER_MAX; i++)
        assert_non_null(meet((int32_t)i + 1, 1, SECOND));
    assert_null(meet(5000, 1, SECOND));
    assert_int_equal(roster.refused, 1);
    clp_member_set(roster.members[7], CLP_MEMBER_GONE, 3 * SECOND, "");
    clp_member_set(roster.members[3], CLP_MEMBER_GONE, 2 * SECOND, "");
    int32_t oldest = roster.members[3]->pid;
    assert_non_null(meet(5000, 1, 4 * SECOND));
    for (size_t i = 0; i < roster.count; i++)
        assert_int_not_equal(roster.members[i]->pid, oldest);
    assert_int_equal(roster.count, CLP_ROSTER_MAX);
}

static void tidying(void **state)
{
    (void)state;
    static const struct clp_discover_roots nothing = {.proc = "/no/such/proc", .root = "/"};
    struct clp_member *m = meet(5, 100, SECOND);
    clp_roster_tidy(&roster, &nothing, 10 * SECOND);
    assert_int_equal(m->state, CLP_MEMBER_GONE);
    clp_roster_tidy(&roster, &nothing, 10 * SECOND + CLP_ROSTER_GONE_NS - 1);
    assert_int_equal(roster.count, 1);
    clp_roster_tidy(&roster, &nothing, 10 * SECOND + CLP_ROSTER_GONE_NS);
    assert_int_equal(roster.count, 0);
}

/* Where processes come and go all the time, the latest are shown. */
static void only_the_latest_gone_ones_stay(void **state)
{
    (void)state;
    static const struct clp_discover_roots nothing = {.proc = "/no/such/proc", .root = "/"};
    for (int32_t i = 0; i < 200; i++)
        clp_member_set(meet(i + 1, 1, SECOND), CLP_MEMBER_GONE, (uint64_t)(i + 1) * SECOND, "");
    clp_roster_tidy(&roster, &nothing, 201 * SECOND);
    assert_int_equal(roster.count, CLP_ROSTER_GONE_MAX);
    for (size_t i = 0; i < roster.count; i++)
        assert_true(roster.members[i]->pid > 200 - (int32_t)CLP_ROSTER_GONE_MAX);
}

#define T(f) cmocka_unit_test_teardown(f, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_pid_used_again_is_another_process),
        T(another_instance_begins_anew),
        T(the_pause_grows_by_kind),
        T(failures_are_counted_and_told),
        T(gone_ones_make_room),
        T(tidying),
        T(only_the_latest_gone_ones_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
