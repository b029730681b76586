#include "tests/unit/clp-cmocka.h"

#include "agent/eventpipe_bodies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DYNAMIC 1u

static void load(struct clp_bodies *b, uint64_t start, uint32_t size, uint64_t ticks, bool listed,
                 const char *name)
{
    struct clp_body_told t = {.start = start,
                              .size = size,
                              .flags = DYNAMIC,
                              .ticks = ticks,
                              .type = "T",
                              .name = name,
                              .signature = ""};
    if (listed)
        clp_bodies_list(b, &t);
    else
        clp_bodies_load(b, &t);
}

static void unload(struct clp_bodies *b, uint64_t start, uint32_t size, uint64_t ticks,
                   const char *name)
{
    struct clp_body_told t = {.start = start,
                              .size = size,
                              .flags = DYNAMIC,
                              .ticks = ticks,
                              .type = "T",
                              .name = name,
                              .signature = ""};
    clp_bodies_unload(b, &t);
}

static const char *name_at(struct clp_bodies *b, uint64_t address, uint64_t ticks)
{
    uint32_t id = clp_bodies_find(b, address, ticks);
    if (id == CLP_BODY_NONE)
        return "none";
    if (id == CLP_BODY_GONE)
        return "gone";
    return clp_bodies_text(b, clp_bodies_at(b, id)->name);
}

static struct clp_bodies *make(void)
{
    struct clp_bodies *b;
    assert_int_equal(clp_bodies_new(&b), 0);
    return b;
}

static void addresses_and_moments(void **state)
{
    struct clp_bodies *b = make();
    (void)state;
    load(b, 0x1000, 0x100, 50, true, "listed");
    load(b, 0x2000, 0x10, 60, false, "first");
    assert_string_equal(name_at(b, 0x1000, 1), "listed"); /* older than we are */
    assert_string_equal(name_at(b, 0x10ff, 99), "listed");
    assert_string_equal(name_at(b, 0x1100, 99), "none");
    assert_string_equal(name_at(b, 0xfff, 99), "none");
    assert_string_equal(name_at(b, 0x2008, 59), "gone"); /* not there yet */
    assert_string_equal(name_at(b, 0x2008, 60), "first");
    unload(b, 0x2000, 0x10, 70, "first");
    assert_string_equal(name_at(b, 0x2008, 69), "first");
    assert_string_equal(name_at(b, 0x2008, 70), "gone");
    load(b, 0x1ff8, 0x20, 80, false, "second"); /* the same bytes, begun elsewhere */
    assert_string_equal(name_at(b, 0x2008, 69), "first");
    assert_string_equal(name_at(b, 0x2008, 75), "gone");
    assert_string_equal(name_at(b, 0x2008, 80), "second");
    clp_bodies_free(b);
}

static void what_is_told_twice_is_one(void **state)
{
    struct clp_bodies *b = make();
    (void)state;
    load(b, 0x1000, 0x10, 50, false, "m"); /* loaded, then listed at the end */
    load(b, 0x1000, 0x10, 90, true, "m");
    load(b, 0x3000, 0x10, 55, true, "n"); /* listed, and its load came late over the other stream */
    load(b, 0x3000, 0x10, 40, false, "n");
    assert_string_equal(name_at(b, 0x1000, 60), "m");
    assert_string_equal(name_at(b, 0x1000, 49), "gone");
    assert_string_equal(name_at(b, 0x3000, 45), "n");
    assert_string_equal(name_at(b, 0x3000, 39), "gone");
    clp_bodies_free(b);
}

/* An unload that the target dropped: the new body ends the old one; where only the list tells of
 * the new one, the time between is nobody's. */
static void replaced_without_a_word(void **state)
{
    struct clp_bodies *b = make();
    (void)state;
    load(b, 0x1000, 0x10, 50, false, "a");
    load(b, 0x1000, 0x10, 70, false, "b");
    assert_string_equal(name_at(b, 0x1000, 69), "a");
    assert_string_equal(name_at(b, 0x1000, 70), "b");
    load(b, 0x5000, 0x10, 50, false, "c");
    (void)name_at(b, 0x5000, 50);
    load(b, 0x5000, 0x10, 90, true, "d");
    assert_string_equal(name_at(b, 0x5000, 50), "c");
    assert_string_not_equal(name_at(b, 0x5000, 60), "c");
    clp_bodies_free(b);
}

/* 20,000 dynamic methods at 64 places, beside a steady one: never another's name. */
static void reuse_at_random(void **state)
{
    struct clp_bodies *b = make();
    uint64_t born[64] = {0};
    int number[64] = {0};
    char name[32];
    (void)state;
    srand(5);
    load(b, 0x900000, 0x100, 0, true, "steady");
    for (int i = 1; i <= 20000; i++) {
        unsigned place = (unsigned)rand() % 64;
        uint64_t now = (uint64_t)i * 10;
        if (born[place]) {
            snprintf(name, sizeof(name), "m%d", number[place]);
            unload(b, 0x1000 + place * 0x100, 0x80, now, name);
        }
        snprintf(name, sizeof(name), "m%d", i);
        load(b, 0x1000 + place * 0x100, 0x80, now + 5, false, name);
        if (i % 50 == 0 && born[place]) {
            char before[32];
            snprintf(before, sizeof(before), "m%d", number[place]);
            assert_string_equal(name_at(b, 0x1010 + place * 0x100, now - 1), before);
            assert_string_equal(name_at(b, 0x1010 + place * 0x100, now + 2), "gone");
            assert_string_equal(name_at(b, 0x1010 + place * 0x100, now + 5), name);
            assert_string_equal(name_at(b, 0x900010, now), "steady");
        }
        born[place] = now + 5;
        number[place] = i;
    }
    assert_int_equal(clp_bodies_refused(b), 0);
    clp_bodies_free(b);
}

static void nonsense_is_left_out(void **state)
{
    struct clp_bodies *b = make();
    (void)state;
    load(b, 0x1000, 0, 1, false, "empty");
    load(b, UINT64_MAX - 4, 0x10, 1, false, "around");
    assert_int_equal(clp_bodies_count(b), 0);
    assert_string_equal(name_at(b, 0x1000, 1), "none");
    unload(b, 0x1000, 0, 5, "empty");
    clp_bodies_free(b);
}

/* One history, told by two streams in every order that keeps the order inside each: the answers are
 * the same. */
struct told {
    enum { LOAD, LIST, UNLOAD } what;
    uint64_t start;
    uint32_t size;
    uint64_t ticks;
    const char *name;
};

static void tell(struct clp_bodies *b, const struct told *t)
{
    if (t->what == UNLOAD)
        unload(b, t->start, t->size, t->ticks, t->name);
    else
        load(b, t->start, t->size, t->ticks, t->what == LIST, t->name);
}

#define LIVE 5u
#define LISTED 3u

/* `order` has a bit for each of the calls: whether it is of the list. */
static void tell_in_order(struct clp_bodies *b, unsigned order)
{
    static const struct told live[LIVE] = {{LOAD, 0x1000, 0x20, 10, "a"},
                                           {UNLOAD, 0x1000, 0x20, 50, "a"},
                                           {LOAD, 0x1010, 0x20, 60, "b"},
                                           {UNLOAD, 0x3000, 0x10, 55, "old"},
                                           {LOAD, 0x3000, 0x10, 65, "new"}};
    /* "a" is listed, although freed before, because the list keeps what it goes through. */
    static const struct told list[LISTED] = {{LIST, 0x3000, 0x10, 40, "old"},
                                             {LIST, 0x1000, 0x20, 41, "a"},
                                             {LIST, 0x1000, 0x20, 52, "a"}};
    unsigned i = 0, k = 0;
    for (unsigned bit = 0; bit < LIVE + LISTED; bit++) {
        tell(b, order >> bit & 1 ? &list[k++] : &live[i++]);
        (void)name_at(b, 0x1010, 41 + bit); /* a look-up in between changes nothing */
    }
}

static void order_of_telling_does_not_matter(void **state)
{
    (void)state;
    for (unsigned order = 0; order < 1u << (LIVE + LISTED); order++) {
        if (__builtin_popcount(order) != (int)LISTED)
            continue;
        struct clp_bodies *b = make();
        tell_in_order(b, order);
        assert_string_equal(name_at(b, 0x1010, 41), "a");
        assert_string_equal(name_at(b, 0x1010, 49), "a");
        assert_string_equal(name_at(b, 0x1010, 55), "gone");
        assert_string_equal(name_at(b, 0x1010, 60), "b");
        assert_string_equal(name_at(b, 0x1010, 5000), "b");
        assert_string_equal(name_at(b, 0x3008, 1), "old");
        assert_string_equal(name_at(b, 0x3008, 54), "old");
        assert_string_equal(name_at(b, 0x3008, 60), "gone");
        assert_string_equal(name_at(b, 0x3008, 65), "new");
        clp_bodies_free(b);
    }
}

/* After a loss a dynamic body is only what it was said to be; told again it is trusted again. */
static void doubt(void **state)
{
    struct clp_bodies *b = make();
    (void)state;
    load(b, 0x1000, 0x10, 10, false, "a");
    load(b, 0x2000, 0x10, 20, false, "b");
    clp_bodies_doubt(b);
    assert_string_equal(name_at(b, 0x1000, 10), "a");
    assert_string_equal(name_at(b, 0x1000, 30), "gone");
    load(b, 0x1000, 0x10, 90, true, "c");
    load(b, 0x2000, 0x10, 90, true, "b");
    assert_string_equal(name_at(b, 0x1000, 95), "c");
    assert_string_not_equal(name_at(b, 0x1000, 60), "a");
    assert_string_equal(name_at(b, 0x2000, 60), "b");
    clp_bodies_free(b);
}

static void the_dead_are_forgotten(void **state)
{
    struct clp_bodies *b = make();
    char name[32];
    (void)state;
    load(b, 0x900000, 0x100, 1, true, "steady");
    for (unsigned i = 1; i <= 5000; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        load(b, 0x1000, 0x80, i * 10, false, name);
        unload(b, 0x1000, 0x80, i * 10 + 5, name);
    }
    load(b, 0x1000, 0x80, 60000, false, "last");
    clp_bodies_forget_dead(b, 60000);
    assert_int_equal(clp_bodies_count(b), 2);
    assert_string_equal(name_at(b, 0x1000, 60000), "last");
    assert_string_equal(name_at(b, 0x900000, 60000), "steady");
    unload(b, 0x1000, 0x80, 60010, "last");
    assert_string_equal(name_at(b, 0x1000, 60011), "gone");
    clp_bodies_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_and_moments),
        cmocka_unit_test(what_is_told_twice_is_one),
        cmocka_unit_test(replaced_without_a_word),
        cmocka_unit_test(reuse_at_random),
        cmocka_unit_test(nonsense_is_left_out),
        cmocka_unit_test(order_of_telling_does_not_matter),
        cmocka_unit_test(doubt),
        cmocka_unit_test(the_dead_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
