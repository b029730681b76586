/* Names of strata: found under their key alone, whoever writes and gives back meanwhile. */
#include "sampler/inproc/event_names.h"
#include "sampler/inproc/events.h"

#include "tests/unit/clp-cmocka.h"

#include <pthread.h>
#include <string.h>

#define STRATA 64u
#define WRITERS 4u
#define ROUNDS 20000u

static struct stratum {
    _Atomic uint64_t key;
    _Atomic uint32_t name;
} strata[CLP_EVENT_NAMES + STRATA];

static void keep(struct stratum *s, uint64_t key)
{
    uint16_t text[16];
    for (size_t i = 0; i < CLP_ARRAY_LEN(text); i++)
        text[i] = (uint16_t)(key + i);
    const struct clp_event_words words = {(const uint8_t *)text, CLP_ARRAY_LEN(text)};
    clp_event_name_keep((struct clp_event_named){&s->key, &s->name}, key, &words,
                        (uint16_t)(key % 7));
}

static void assert_is(const struct clp_event_name *n, uint64_t key)
{
    assert_int_equal(n->units, 16);
    assert_int_equal(n->detail, key % 7);
    for (uint16_t i = 0; i < n->units; i++)
        assert_int_equal(n->text[i], (uint16_t)(key + i));
}

static const struct clp_event_name *find(const struct stratum *s)
{
    return clp_event_name_find(&s->name, atomic_load(&s->key));
}

static int clean(void **state)
{
    (void)state;
    memset(strata, 0, sizeof(strata));
    clp_event_names_sweep();
    clp_event_names_sweep();
    return 0;
}

static void a_name_is_kept_for_its_key(void **state)
{
    struct stratum *s = &strata[0];
    (void)state;
    assert_null(find(s));
    s->key = 5;
    keep(s, 5);
    size_t bytes = clp_event_names_bytes();
    for (unsigned i = 0; i < 10; i++) {
        keep(s, 5);
        clp_event_names_sweep();
    }
    assert_is(find(s), 5);
    assert_int_equal(clp_event_names_bytes(), bytes);
    s->key = 6; /* another's now, which has not come to its name yet */
    assert_null(find(s));
    keep(s, 6);
    assert_is(find(s), 6);
}

static void a_long_name_is_cut(void **state)
{
    static uint16_t text[2 * CLP_EVENT_TEXT_UNITS];
    const struct clp_event_words words = {(const uint8_t *)text, CLP_ARRAY_LEN(text)};
    struct stratum *s = &strata[0];
    (void)state;
    s->key = 5;
    clp_event_name_keep((struct clp_event_named){&s->key, &s->name}, 5, &words, 0);
    assert_int_equal(find(s)->units, CLP_EVENT_TEXT_UNITS);
}

static void what_finds_no_place_has_no_name(void **state)
{
    unsigned named = 0;
    (void)state;
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(strata); i++) {
        strata[i].key = i + 1;
        keep(&strata[i], i + 1);
        named += find(&strata[i]) != NULL;
    }
    assert_int_equal(named, CLP_EVENT_NAMES);
    for (uint32_t i = 0; i < CLP_EVENT_NAMES; i++)
        strata[i].key = 0;
    struct stratum *late = &strata[CLP_ARRAY_LEN(strata) - 1];
    clp_event_names_sweep();
    keep(late, late->key);
    assert_null(find(late)); /* given back in the second sweep */
    clp_event_names_sweep();
    keep(late, late->key);
    assert_is(find(late), late->key);
}

static _Atomic unsigned done;

/* Strata change hands all the time, as where types come and go. */
static void *change(void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        struct stratum *s = &strata[(seed >> 33) % STRATA];
        uint64_t key = 1 + (seed >> 40) % 5;
        if (i % 8 == 0)
            atomic_store(&s->key, key);
        keep(s, key);
    }
    done++;
    return NULL;
}

static void everybody_at_once(void **state)
{
    pthread_t threads[WRITERS];
    (void)state;
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, change, (void *)(i + 1)), 0);
    while (done < WRITERS) {
        for (uint32_t i = 0; i < STRATA; i++) {
            uint64_t key = atomic_load(&strata[i].key);
            const struct clp_event_name *n = clp_event_name_find(&strata[i].name, key);
            if (n)
                assert_is(n, key);
        }
        clp_event_names_sweep();
    }
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < STRATA; i++) {
        strata[i].key = i % 5 + 1;
        clp_event_names_sweep();
        clp_event_names_sweep();
        keep(&strata[i], i % 5 + 1);
        assert_is(find(&strata[i]), i % 5 + 1);
    }
}

#define T(f) cmocka_unit_test_setup(f, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_name_is_kept_for_its_key),
        T(a_long_name_is_cut),
        T(what_finds_no_place_has_no_name),
        T(everybody_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
