#include "tests/unit/clp-cmocka.h"

#include "sampler/inproc/bodies.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/graveyard.h"
#include "sampler/inproc/modules.h"

#include <stdio.h>
#include <string.h>

#define SECOND CLP_NSEC_PER_SEC

/* The table tells modules that they are referred to; who owns the modules is not its affair. */
static int module_uses[CLP_MODULES_MAX + 1];

void clp_modules_use_locked(uint32_t number)
{
    module_uses[number]++;
}

void clp_modules_unuse_locked(uint32_t number)
{
    module_uses[number]--;
}

static int set_up(void **state)
{
    (void)state;
    memset(module_uses, 0, sizeof(module_uses));
    return clp_code_table_init();
}

static int tear_down(void **state)
{
    (void)state;
    clp_code_table_done();
    return 0;
}

static void set_text(struct clp_text *t, char *bytes, size_t cap, const char *s)
{
    *t = clp_text_in(bytes, cap);
    clp_text_add(t, s);
}

static void name_method(uint32_t method, uint32_t module, const char *name)
{
    struct clp_method_texts t = {.token = 0x06000001, .module = module};
    set_text(&t.type, t.type_bytes, sizeof(t.type_bytes), "Ns.Type");
    set_text(&t.name, t.name_bytes, sizeof(t.name_bytes), name);
    set_text(&t.type_args, t.type_args_bytes, sizeof(t.type_args_bytes), "");
    set_text(&t.method_args, t.method_args_bytes, sizeof(t.method_args_bytes), "");
    set_text(&t.signature, t.signature_bytes, sizeof(t.signature_bytes), "System.Int32");
    clp_code_table_method_name_locked(method, &t);
}

static uint32_t method(clr_function_id function, uint32_t owner)
{
    uint32_t m = clp_code_table_method_add_locked(function, owner, 0);
    assert_int_not_equal(m, 0);
    return m;
}

static uint32_t body(uint32_t m, uint64_t start, uint32_t bytes, uint64_t birth)
{
    return clp_code_table_body_add_locked(m, start, bytes, birth, 0);
}

static void finds_methods_by_function(void **state)
{
    (void)state;
    uint32_t numbers[3000];
    for (uint32_t i = 0; i < 3000; i++)
        numbers[i] = method(0x7f0000001000 + i * 8ull, 0);
    for (uint32_t i = 0; i < 3000; i++)
        assert_int_equal(clp_code_table_method_find_locked(0x7f0000001000 + i * 8ull), numbers[i]);
    assert_int_equal(clp_code_table_method_find_locked(0x7f0000000000), 0);
}

static void finds_bodies_by_address_and_time(void **state)
{
    (void)state;
    uint32_t m = method(8, 0);
    uint32_t old = body(m, 0x1000, 0x100, 0), late = body(m, 0x1100, 0x80, 50);
    assert_int_equal(clp_code_table_find_locked(0x1000, 1), old);
    assert_int_equal(clp_code_table_find_locked(0x10ff, 1), old);
    assert_int_equal(clp_code_table_find_locked(0x1100, 50), late);
    assert_int_equal(clp_code_table_find_locked(0x1100, 49), 0);
    assert_int_equal(clp_code_table_find_locked(0xfff, 60), 0);
    assert_int_equal(clp_code_table_find_locked(0x1180, 60), 0);
}

static void the_dead_are_found_for_their_time(void **state)
{
    (void)state;
    uint32_t a = method(8, 0), b = method(16, 0);
    uint32_t first = body(a, 0x2000, 0x200, 100);
    clp_code_table_method_kill_locked(a, 200);
    uint32_t second = body(b, 0x2080, 0x40, 300);
    assert_int_equal(clp_code_table_find_locked(0x2090, 150), first);
    assert_int_equal(clp_code_table_find_locked(0x2090, 199), first);
    assert_int_equal(clp_code_table_find_locked(0x2090, 200), 0);
    assert_int_equal(clp_code_table_find_locked(0x2090, 299), 0);
    assert_int_equal(clp_code_table_find_locked(0x2090, 300), second);
    assert_int_equal(clp_code_table_find_locked(0x2010, 150), first);
    assert_int_equal(clp_code_table_method_find_locked(8), 0);
}

/* A large body dies, small ones take its place and die as well: who covered an address when? */
static void the_dead_may_lie_inside_one_another(void **state)
{
    (void)state;
    uint32_t large = method(8, 0), small = method(16, 0), tiny = method(24, 0);
    uint32_t l = body(large, 0x3000, 0x1000, 10);
    clp_code_table_method_kill_locked(large, 20);
    uint32_t s = body(small, 0x3000, 0x100, 30);
    clp_code_table_method_kill_locked(small, 40);
    uint32_t t = body(tiny, 0x3080, 0x10, 50);
    clp_code_table_method_kill_locked(tiny, 60);
    assert_int_equal(clp_code_table_find_locked(0x3088, 15), l);
    assert_int_equal(clp_code_table_find_locked(0x3088, 35), s);
    assert_int_equal(clp_code_table_find_locked(0x3088, 55), t);
    assert_int_equal(clp_code_table_find_locked(0x3f00, 15), l);
    assert_int_equal(clp_code_table_find_locked(0x3f00, 35), 0);
}

static void younger_code_ends_what_lay_there(void **state)
{
    (void)state;
    uint32_t a = method(8, 0), b = method(16, 0), c = method(24, 0);
    uint32_t first = body(a, 0x4000, 0x100, 10), next = body(a, 0x4100, 0x100, 10);
    uint32_t over = body(b, 0x40f0, 0x20, 20);
    assert_int_equal(clp_code_table_find_locked(0x4000, 15), first);
    assert_int_equal(clp_code_table_find_locked(0x4000, 25), 0);
    assert_int_equal(clp_code_table_find_locked(0x4180, 15), next);
    assert_int_equal(clp_code_table_find_locked(0x4180, 25), 0);
    assert_int_equal(clp_code_table_find_locked(0x40ff, 25), over);
    /* An older one comes late: it changes nothing. */
    assert_int_equal(body(c, 0x4000, 0x200, 20), 0);
    assert_int_equal(body(c, 0x4000, 0x200, 0), 0);
    assert_int_equal(clp_code_table_find_locked(0x40ff, 25), over);
}

static void the_same_body_is_added_once(void **state)
{
    (void)state;
    uint32_t m = method(8, 0);
    assert_int_not_equal(body(m, 0x5000, 0x40, 10), 0);
    assert_int_equal(body(m, 0x5000, 0x40, 20), 0);
    assert_true(clp_code_table_body_known_locked(m, 0x5000));
    assert_false(clp_code_table_body_known_locked(m, 0x5040));
    assert_int_equal(body(m, 0x5040, 0, 20), 0);
    assert_int_equal(clp_code_table_body_count_locked(), 1);
}

static void all_of_a_module_dies_with_it(void **state)
{
    (void)state;
    uint32_t mine[50], other = method(4, 3);
    for (uint32_t i = 0; i < 50; i++) {
        mine[i] = method(8 + i * 8, 2);
        assert_int_not_equal(body(mine[i], 0x6000 + i * 0x10, 0x10, 10), 0);
    }
    uint32_t kept = body(other, 0x8000, 0x10, 10);
    clp_code_table_method_kill_locked(mine[20], 20); /* alone, before its module */
    assert_int_equal(module_uses[2], 50);
    clp_code_table_owner_kill_locked(2, 30);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(clp_code_table_find_locked(0x6008 + i * 0x10, 40), 0);
    assert_int_not_equal(clp_code_table_find_locked(0x6008, 29), 0);
    assert_int_equal(clp_code_table_find_locked(0x6008 + 20 * 0x10, 25), 0);
    assert_int_equal(clp_code_table_find_locked(0x8000, 40), kept);
}

static void only_what_may_unload_is_given_up(void **state)
{
    (void)state;
    uint32_t stays = clp_code_table_method_add_locked(8, 0, 0);
    uint32_t dynamic = clp_code_table_method_add_locked(16, 0, CLP_METHOD_STATE_MORTAL);
    uint32_t owned = clp_code_table_method_add_locked(24, 2, CLP_METHOD_STATE_MORTAL);
    uint32_t kept = body(stays, 0x6000, 0x10, 10);
    assert_int_not_equal(body(dynamic, 0x7000, 0x10, 10), 0);
    assert_int_not_equal(body(owned, 0x8000, 0x10, 10), 0);
    clp_code_table_mortal_kill_locked(20);
    clp_code_table_mortal_kill_locked(21); /* the dead do not die again */
    assert_int_equal(clp_code_table_find_locked(0x6000, 30), kept);
    assert_int_equal(clp_code_table_find_locked(0x7000, 30), 0);
    assert_int_equal(clp_code_table_find_locked(0x8000, 30), 0);
    assert_int_not_equal(clp_code_table_find_locked(0x8000, 19), 0); /* older samples keep it */
    assert_int_equal(clp_code_table_method_find_locked(16), 0);
    assert_int_equal(clp_code_table_method_find_locked(8), stays);
    clp_code_table_owner_kill_locked(2, 30); /* its list does not hold the dead */
}

/* Dynamic methods come and go for hours: neither entries nor names may pile up. */
static void memory_does_not_grow_with_churn(void **state)
{
    (void)state;
    size_t bytes = 0;
    char name[64];
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t now = SECOND + i * (SECOND / 1000);
        uint32_t m = method(0x1000 + (i % 7) * 8, 1);
        snprintf(name, sizeof(name), "lambda_method%u", i);
        name_method(m, 1, name);
        uint32_t b = body(m, 0x10000 + (i % 300) * 0x40, 0x40, now);
        assert_int_not_equal(b, 0);
        assert_int_equal(clp_code_table_find_locked(0x10020 + (i % 300) * 0x40, now), b);
        clp_code_table_method_kill_locked(m, now + 1);
        if (i == 50000)
            bytes = clp_code_table_bytes_locked();
    }
    assert_int_equal(clp_code_table_bytes_locked(), bytes);
    /* Ten seconds of a thousand deaths each, and a few. */
    assert_in_range(clp_code_table_body_count_locked(), 9000, 11000);
    assert_int_equal(module_uses[1], 2 * (int)clp_code_table_body_count_locked());
}

/* Nobody samples: the dead are forgotten by the clock, and never more than the ceiling are kept. */
static void the_graveyard_has_a_ceiling(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3 * CLP_GRAVEYARD_MAX; i++) {
        uint32_t m = method(8, 0);
        assert_int_not_equal(body(m, 0x100000 + i * 0x40ull, 0x40, SECOND + i), 0);
        clp_code_table_method_kill_locked(m, SECOND + i + 1);
    }
    assert_int_equal(clp_code_table_body_count_locked(), CLP_GRAVEYARD_MAX);
    assert_int_equal(clp_graveyard_refused(), 2 * CLP_GRAVEYARD_MAX);
    uint32_t m = method(8, 0);
    assert_int_not_equal(body(m, 0x1000, 0x40, 100 * SECOND), 0);
    for (unsigned i = 0; i < 1000; i++) {
        clp_code_table_method_kill_locked(m, (100 + i) * SECOND);
        m = method(8, 0);
        assert_int_not_equal(body(m, 0x1000, 0x40, (100 + i) * SECOND + 1), 0);
    }
    assert_in_range(clp_code_table_body_count_locked(), 1, 100);
}

static void wire_numbers_come_on_first_use_and_stay(void **state)
{
    (void)state;
    uint32_t m = method(8, 0), n = method(16, 0);
    uint32_t a = body(m, 0x1000, 0x10, 1), b = body(n, 0x2000, 0x10, 1);
    assert_int_equal(clp_code_table_body_wire_count_locked(), 0);
    assert_int_equal(clp_code_table_body_wire_id_locked(b), 1);
    assert_int_equal(clp_code_table_body_wire_id_locked(a), 2);
    assert_int_equal(clp_code_table_body_wire_id_locked(b), 1);
    assert_int_equal(clp_code_table_method_wire_id_locked(m), 1);
    assert_int_equal(clp_code_table_body_of_wire_locked(2), a);
    assert_int_equal(clp_code_table_method_of_wire_locked(1), m);
    assert_int_equal(clp_code_table_body_of_wire_locked(0), 0);
    assert_int_equal(clp_code_table_body_of_wire_locked(3), 0);
}

/* A forgotten body's entry serves another body; its wire number never does. */
static void wire_numbers_are_not_used_again(void **state)
{
    (void)state;
    uint32_t m = method(8, 0);
    uint32_t b = body(m, 0x1000, 0x10, SECOND);
    uint32_t id = clp_code_table_body_wire_id_locked(b);
    uint32_t method_id = clp_code_table_method_wire_id_locked(m);
    clp_code_table_method_kill_locked(m, 2 * SECOND);
    assert_int_equal(clp_code_table_body_of_wire_locked(id), b);
    uint32_t other = method(16, 0);
    assert_int_not_equal(body(other, 0x3000, 0x10, 3 * SECOND), 0);
    clp_code_table_method_kill_locked(other, 200 * SECOND);
    assert_int_equal(clp_code_table_body_of_wire_locked(id), 0);
    assert_int_equal(clp_code_table_method_of_wire_locked(method_id), 0);
    m = method(24, 0);
    b = body(m, 0x4000, 0x10, 201 * SECOND);
    assert_int_not_equal(clp_code_table_body_wire_id_locked(b), id);
}

/* Who remembers that an address is not covered has to learn when it may be. */
static void the_version_changes_where_code_comes(void **state)
{
    (void)state;
    uint64_t heap = 0x7f0010000000, library = 0x7f5500001000;
    uint32_t of_heap = clp_code_table_version(heap), of_library = clp_code_table_version(library);
    uint32_t m = method(8, 0);
    assert_false(clp_code_table_covered_locked(heap + 0x100));
    assert_int_not_equal(body(m, heap, 0x200, 10), 0);
    assert_int_not_equal(clp_code_table_version(heap + 0x100), of_heap);
    assert_int_equal(clp_code_table_version(library), of_library);
    assert_true(clp_code_table_covered_locked(heap + 0x100));
    clp_code_table_method_kill_locked(m, 20);
    assert_true(clp_code_table_covered_locked(heap + 0x100)); /* for samples before */
    assert_false(clp_code_table_covered_locked(heap + 0x200));
    clp_code_table_changed_locked(library - 0x1000, library + (20u << 20));
    assert_int_not_equal(clp_code_table_version(library), of_library);
    assert_int_not_equal(clp_code_table_version(library + (19u << 20)), 0);
}

/* Another thread ran it before its birth was told. */
static void what_was_seen_is_as_old_as_that(void **state)
{
    (void)state;
    uint32_t old = body(method(8, 0), 0x4000, 0x100, 10 * SECOND);
    assert_int_not_equal(old, 0);
    clp_code_table_method_kill_locked(clp_code_table_method_find_locked(8), 20 * SECOND);
    uint32_t b = body(method(16, 0), 0x4000, 0x100, 30 * SECOND);
    clp_code_table_seen_locked(0x4050, 40 * SECOND);
    assert_int_equal(clp_code_table_find_locked(0x4050, 29 * SECOND), 0);
    clp_code_table_seen_locked(0x4100, 25 * SECOND); /* behind it */
    assert_int_equal(clp_code_table_find_locked(0x4050, 29 * SECOND), 0);
    clp_code_table_seen_locked(0x40ff, 28 * SECOND);
    assert_int_equal(clp_code_table_find_locked(0x4050, 29 * SECOND), b);
    assert_int_equal(clp_code_table_find_locked(0x4050, 28 * SECOND), b);
    assert_int_equal(clp_code_table_find_locked(0x4050, 27 * SECOND), 0);
    assert_int_equal(clp_code_table_find_locked(0x4050, 15 * SECOND), old);
}

/* Modules 10 and 12 may unload; an unsure method may belong to those that were there before it. */
static void unsure_methods_are_suspect_after_an_unload(void **state)
{
    (void)state;
    uint32_t early = method(8, 0), late = method(16, 0), sure = method(24, 0);
    assert_int_equal(clp_code_table_set_unsure_locked(early, 10), 0);
    assert_int_equal(clp_code_table_set_unsure_locked(late, 12), 0);
    uint32_t b = body(late, 0x1000, 0x10, 1);
    assert_true(clp_code_table_body_locked(b)->state & CLP_BODY_STATE_UNSURE);
    clp_code_table_suspect_locked(12, 50);
    assert_int_equal(clp_code_table_suspect_ns_locked(early), 0);
    assert_int_equal(clp_code_table_suspect_ns_locked(late), 50);
    assert_int_equal(clp_code_table_suspect_ns_locked(sure), 0);
    clp_code_table_trust_locked(late);
    assert_int_equal(clp_code_table_suspect_ns_locked(late), 0);
    clp_code_table_suspect_locked(10, 60);
    assert_int_equal(clp_code_table_suspect_ns_locked(early), 60);
    assert_int_equal(clp_code_table_suspect_ns_locked(late), 60);
    clp_code_table_set_sure_locked(early);
    clp_code_table_set_sure_locked(sure);
    clp_code_table_method_kill_locked(late, 70);
    clp_code_table_suspect_locked(1, 80);
    assert_int_equal(clp_code_table_suspect_ns_locked(early), 0);
}

static void frames_survive_their_packing(void **state)
{
    (void)state;
    const struct clp_managed_frame in = {.base = CLP_BASE_RBP,
                                         .prologue_bytes = 21,
                                         .push_count = 6,
                                         .osr = true,
                                         .funclet = false,
                                         .exact = true,
                                         .frame_bytes = 70000,
                                         .lea_disp = 1234567};
    struct clp_managed_frame out;
    uint32_t b = body(method(8, 0), 0x1000, 0x10, 1);
    clp_code_table_body_set_frame_locked(b, &in);
    clp_code_table_body_get_frame(clp_code_table_body_locked(b), &out);
    assert_int_equal(out.base, in.base);
    assert_int_equal(out.prologue_bytes, in.prologue_bytes);
    assert_int_equal(out.push_count, in.push_count);
    assert_true(out.osr);
    assert_false(out.funclet);
    assert_true(out.exact);
    assert_int_equal(out.frame_bytes, in.frame_bytes);
    assert_int_equal(out.lea_disp, in.lea_disp);
    assert_true(clp_code_table_body_locked(b)->state & CLP_BODY_STATE_DECODED);
}

/* The budget of design: 20,000 methods, half of them compiled twice, with names, in about 3 MB. */
static void twenty_thousand_methods_fit(void **state)
{
    (void)state;
    char name[64];
    uint64_t at = 0x7f0000000000;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t m = method(0x7f1000000000 + i * 24ull, 0);
        snprintf(name, sizeof(name), "SomeMethodName%u", i % 9000);
        name_method(m, 1, name);
        for (uint32_t k = 0; k <= i % 2; k++, at += 0x180)
            assert_int_not_equal(body(m, at, 0x160, 1), 0);
    }
    size_t bytes = clp_code_table_bytes_locked();
    print_message("20,000 methods, 30,000 bodies: %zu bytes\n", bytes);
    assert_true(bytes < 5u << 20);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(finds_methods_by_function),
        TEST(finds_bodies_by_address_and_time),
        TEST(the_dead_are_found_for_their_time),
        TEST(the_dead_may_lie_inside_one_another),
        TEST(younger_code_ends_what_lay_there),
        TEST(the_same_body_is_added_once),
        TEST(all_of_a_module_dies_with_it),
        TEST(only_what_may_unload_is_given_up),
        TEST(memory_does_not_grow_with_churn),
        TEST(the_graveyard_has_a_ceiling),
        TEST(wire_numbers_come_on_first_use_and_stay),
        TEST(wire_numbers_are_not_used_again),
        TEST(the_version_changes_where_code_comes),
        TEST(what_was_seen_is_as_old_as_that),
        TEST(unsure_methods_are_suspect_after_an_unload),
        TEST(frames_survive_their_packing),
        TEST(twenty_thousand_methods_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
