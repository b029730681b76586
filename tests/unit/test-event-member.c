/* Which frames of an event's stack are the runtime's own. */
#include "sampler/inproc/event_member.h"

#include "tests/unit/clp-cmocka.h"
#include "tests/unit/managed-double.h"

enum { NATIVE = CLP_WALK_NATIVE, METHOD = CLP_WALK_MANAGED, UNKNOWN_METHOD = CLP_WALK_STUB };

static uint32_t runtime_frames(const uint8_t *kinds, uint32_t count)
{
    struct clp_walk_frame frames[8] = {{0}};
    struct clp_event e = {.type = CLP_EVENT_EXCEPTION};
    for (uint32_t i = 0; i < count; i++)
        frames[i] = (struct clp_walk_frame){.kind = kinds[i], .id = MANAGED_LEAF_BODY};
    return clp_event_runtime_frames(&e, frames, count);
}

static void the_first_method_is_where_it_happened(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {NATIVE, NATIVE, METHOD, NATIVE, METHOD};
    assert_int_equal(runtime_frames(kinds, 5), 2);
}

/* Of which nothing is known (yet): whoever called it did not throw. */
static void nor_is_its_caller_named_for_a_method_that_is_not_known(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {NATIVE, NATIVE, UNKNOWN_METHOD, METHOD};
    assert_int_equal(runtime_frames(kinds, 4), 2);
}

static void native_frames_alone_stay(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {NATIVE, NATIVE, NATIVE};
    assert_int_equal(runtime_frames(kinds, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_method_is_where_it_happened),
        cmocka_unit_test(nor_is_its_caller_named_for_a_method_that_is_not_known),
        cmocka_unit_test(native_frames_alone_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
