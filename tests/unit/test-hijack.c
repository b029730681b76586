/* The place of the hijack pair in a Thread object, learnt from a walk that met an unrepaired stub.
 */
#include "sampler/inproc/hijack.h"
#include "sampler/inproc/images.h"

#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <string.h>

static uint32_t offset_set;
static bool was_set;

void clp_capture_set_hijack_offset(uint32_t offset)
{
    offset_set = offset;
    was_set = true;
}

int64_t clp_images_read(uint64_t address, void *buf, size_t len)
{
    if (address < 4096)
        return -EFAULT;
    memcpy(buf, (const void *)(uintptr_t)address, len);
    return (int64_t)len;
}

bool clp_stack_u64(const struct clp_stack_view *s, uint64_t address, uint64_t *ret)
{
    if (address < s->low || address + 8 > s->high)
        return false;
    memcpy(ret, s->bytes + (address - s->low), 8);
    return true;
}

#define STUB 0x7f0000001000ull
#define STACK_LOW 0x7ffe00000000ull

static uint64_t object[93], stack[16];
static struct clp_thread_slot slot;
static struct clp_stack_view view;
static struct clp_walk_frame frames[3];

static int setup(void **state)
{
    (void)state;
    memset(object, 0, sizeof(object));
    memset(stack, 0, sizeof(stack));
    was_set = false;
    atomic_store(&slot.thread_object, (uintptr_t)object);
    view = (struct clp_stack_view){(const uint8_t *)stack, STACK_LOW, STACK_LOW + sizeof(stack)};
    /* The leaf's return address at [low + 40] is the stub; its frame ends at low + 48. */
    stack[5] = STUB;
    frames[0] = (struct clp_walk_frame){.kind = CLP_WALK_MANAGED, .cfa = STACK_LOW + 48};
    frames[1] = (struct clp_walk_frame){.kind = CLP_WALK_HIJACKED_CALLER};
    frames[2] = (struct clp_walk_frame){.kind = CLP_WALK_NATIVE, .cfa = STACK_LOW + 96};
    return 0;
}

static void learn(void)
{
    clp_hijack_learn(&slot, &view, STUB, frames, 3);
}

static void test_learns_the_place(void **state)
{
    (void)state;
    object[21] = 0x7f1234;
    object[22] = STACK_LOW + 40;
    learn();
    assert_true(was_set);
    assert_int_equal(offset_set, 21 * 8);
}

static void test_only_with_all_the_evidence(void **state)
{
    (void)state;
    object[21] = 0x7f1234;
    object[22] = STACK_LOW + 32; /* another slot: a hijacking that is over */
    learn();
    assert_false(was_set);
    object[22] = STACK_LOW + 40;
    object[21] = STUB; /* the stub itself is no return address */
    learn();
    object[21] = 0;
    learn();
    assert_false(was_set);
    object[21] = 0x7f1234;
    stack[5] = STUB + 1; /* the slot held something else */
    learn();
    stack[5] = STUB;
    atomic_store(&slot.thread_object, 0); /* a native thread */
    learn();
    atomic_store(&slot.thread_object, 8); /* an object that is gone */
    learn();
    clp_hijack_learn(NULL, &view, STUB, frames, 3);
    atomic_store(&slot.thread_object, (uintptr_t)object);
    clp_hijack_learn(&slot, &view, 0, frames, 3); /* no stub known */
    frames[0].cfa = 0;
    learn();
    frames[0].cfa = STACK_LOW + 4096; /* outside of the copy */
    learn();
    frames[1].kind = CLP_WALK_MANAGED; /* nothing is missing */
    learn();
    assert_false(was_set);
}

static void test_begins_with_what_is_known_of_the_version(void **state)
{
    (void)state;
    clp_hijack_reset(8);
    assert_int_equal(offset_set, 0x118);
    clp_hijack_reset(9);
    assert_int_equal(offset_set, 0x98);
    clp_hijack_reset(10);
    assert_int_equal(offset_set, 0x98);
    clp_hijack_reset(0);
    assert_int_equal(offset_set, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_learns_the_place, setup),
        cmocka_unit_test_setup(test_only_with_all_the_evidence, setup),
        cmocka_unit_test_setup(test_begins_with_what_is_known_of_the_version, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
