/* Threads of this process with made-up Thread objects: what they have allocated, while they come,
 * go, and are freed. */
#include "sampler/inproc/alloc_totals.h"

#include "sampler/inproc/contract.h"
#include "sampler/inproc/event_thread.h"
#include "sampler/inproc/thread_table.h"
#include "tests/unit/capture-harness.h"
#include "tests/unit/clp-cmocka.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OS_ID 24u
#define LOCALS 8u
#define CONTEXT 16u
#define RUNTIME 1u /* asked for nothing: the contract is given */
#define PAGE 4096u

struct object { /* the runtime's, and behind it the thread's storage */
    uint64_t id, locals, other, os_id;
    uint64_t storage[2], ptr, limit, bytes, bytes_uoh;
};

static struct object *object_of(int32_t tid, uint64_t bytes, uint64_t rest, uint64_t large)
{
    struct object *o = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(o != MAP_FAILED);
    *o = (struct object){.locals = (uint64_t)(uintptr_t)o->storage, .os_id = (uint64_t)tid};
    o->ptr = 0x10000;
    o->limit = o->ptr + rest;
    o->bytes = bytes + rest;
    o->bytes_uoh = large;
    return o;
}

static uint64_t id_of(const struct object *o)
{
    return (uint64_t)(uintptr_t)o;
}

/* A thread that was there before: tid of nobody who calls. */
static struct object *older(int32_t tid, uint64_t bytes)
{
    struct object *o = object_of(tid, bytes, 100, 0);
    clp_threads_assigned(id_of(o), tid);
    return o;
}

static void begin(void)
{
    static const struct clp_contract contract = {OS_ID, LOCALS, CONTEXT};
    clp_alloc_totals_use(&contract);
    clp_alloc_totals_want(true, RUNTIME);
}

static void end(void)
{
    clp_alloc_totals_want(false, RUNTIME);
    clp_alloc_totals_use(NULL);
}

static void assert_taken(uint64_t bytes, uint64_t met)
{
    struct clp_alloc_counted c;
    assert_true(clp_alloc_totals_take(&c));
    assert_int_equal(c.bytes, bytes);
    assert_int_equal(c.met, met);
}

static void assert_unknown(void)
{
    struct clp_alloc_counted c;
    assert_false(clp_alloc_totals_take(&c));
}

/* What the callbacks of its samples have left. */
static void meet(const struct object *o, uint64_t bytes)
{
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (r && r->key_clr == id_of(o))
            atomic_fetch_add(&clp_table_slot(r)->alloc_met, bytes);
    }
}

static void leave(struct object *o)
{
    clp_threads_destroyed(id_of(o));
    assert_int_equal(munmap(o, PAGE), 0);
}

static void test_counts_from_the_beginning_on(void **state)
{
    struct object *a = older(1, 10ull << 30), *b = older(2, 500);
    (void)state;
    meet(a, 77);
    begin();
    assert_taken(0, 0);
    a->bytes += 1000;
    b->bytes_uoh += 200000;
    meet(b, 180000);
    assert_taken(201000, 180000);
    b->ptr += 60; /* out of what it had */
    assert_taken(60, 0);
    a->bytes -= a->limit - a->ptr; /* a collection takes buffers away */
    a->ptr = a->limit = 0;
    assert_taken(0, 0);
    end();
    a->bytes += 4000; /* not counted by anybody */
    meet(a, 4000);
    begin();
    a->bytes += 5;
    meet(a, 6);
    assert_taken(5, 6);
    end();
    leave(a);
    leave(b);
}

static void test_without_a_contract(void **state)
{
    (void)state;
    clp_alloc_totals_use(NULL);
    clp_alloc_totals_want(true, (uint64_t)(uintptr_t)&getpid); /* libc tells of no such thing */
    assert_unknown();
    clp_alloc_totals_want(false, 0);
}

/* Between two writes of the runtime numbers do not fit together: they are read the next time, and
 * so are the samples. */
static void test_a_moment_of_change(void **state)
{
    struct object *a = older(1, 1000);
    (void)state;
    begin();
    a->bytes += 8000;
    meet(a, 100);
    a->ptr = a->limit + 8; /* the new buffer's begin, the old one's end */
    assert_taken(0, 0);
    a->limit = a->ptr + 7900;
    assert_taken(8000 + 100 - 7900, 100);
    a->bytes -= 50; /* less than before is no number that was meant */
    meet(a, 1);
    assert_taken(0, 0);
    a->bytes += 60;
    assert_taken(10, 1);
    end();
    leave(a);
}

static void test_one_that_cannot_be_read_at_first(void **state)
{
    struct object *a = older(1, 1 << 20);
    uint64_t limit = a->limit;
    (void)state;
    a->limit = a->ptr - 1;
    begin();
    assert_taken(0, 0);
    a->limit = limit;
    a->bytes += 10;
    meet(a, 10);
    assert_taken(0, 0); /* how much of it is new is not known: an estimate */
    a->bytes += 10;
    meet(a, 20);
    assert_taken(10, 20);
    end();
    leave(a);
}

/* ---- threads that come and go ---- */

static void test_new_ones_count_from_nothing(void **state)
{
    (void)state;
    begin();
    struct object *a = older(1, 0);
    a->locals = 0; /* not set up yet */
    assert_taken(0, 0);
    a->locals = (uint64_t)(uintptr_t)a->storage;
    a->bytes += 3000;
    meet(a, 100);
    assert_taken(3000, 100);
    struct object *b = older(2, 70);
    assert_taken(70, 0);
    end();
    leave(a);
    leave(b);
}

/* Its storage is given back before its end is told: bytes and samples since the last look are left
 * out, both. */
static void test_one_that_ends(void **state)
{
    struct object *a = older(1, 1000), *b = older(2, 1000);
    (void)state;
    begin();
    a->bytes += 100;
    meet(a, 90);
    assert_taken(100, 90);
    a->bytes += 30;
    b->bytes += 7;
    meet(a, 30);
    a->locals = 0;
    assert_taken(7, 0);
    leave(a);
    b->bytes += 1;
    assert_taken(1, 0);
    a = older(1, 5); /* another thread has the number, and maybe the memory */
    assert_taken(5, 0);
    end();
    leave(a);
    leave(b);
}

/* The object's memory goes without a word, or is another's: nothing is believed. */
static void test_foreign_memory(void **state)
{
    struct object *a = older(1, 1000), *b = older(2, 1000), *c = older(3, 1000);
    (void)state;
    begin();
    memset(b, 0x5a, PAGE);
    c->locals = 8; /* nobody's memory */
    c->bytes += 100;
    assert_int_equal(munmap(a, PAGE), 0);
    assert_taken(0, 0);
    clp_threads_destroyed(id_of(a));
    end();
    leave(b);
    leave(c);
}

static void test_samples_of_nobody(void **state)
{
    struct object *a = older(1, 1000);
    (void)state;
    begin();
    a->bytes += 100;
    clp_alloc_totals_met(NULL, 100);
    assert_unknown();
    a->bytes += 10;
    assert_taken(10, 0);
    end();
    leave(a);
}

/* ---- while threads come and go ---- */

static _Atomic bool stop;
static _Atomic uint64_t lives, samples; /* that have begun */

/* As the runtime does it, with samples that are exact: storage goes first, then the word, then the
 * object's memory. Slow enough for looks to come amid it. */
static void *live(void *arg)
{
    (void)arg;
    struct object *o = object_of(harness_tid(), 0, 0, 0);
    clp_threads_assigned(id_of(o), harness_tid());
    clp_event_thread_begins();
    struct clp_event_thread *self = clp_event_thread_self();
    for (unsigned i = 0; i < 64 && !stop; i++) {
        samples++;
        __atomic_fetch_add(&o->bytes, 48, __ATOMIC_SEQ_CST);
        clp_alloc_totals_met(self, 48);
        if (i % 16 == 0)
            (void)sched_yield();
    }
    __atomic_store_n(&o->locals, 0, __ATOMIC_SEQ_CST);
    memset(o->storage, 0x77, sizeof(*o) - offsetof(struct object, storage));
    leave(o);
    lives++;
    return NULL;
}

static void *start_lives(void *arg)
{
    pthread_t t;
    (void)arg;
    while (!stop)
        if (pthread_create(&t, NULL, live, NULL) == 0)
            assert_int_equal(pthread_join(t, NULL), 0);
    return NULL;
}

/* Never a byte that was not told of, nor the other way round: but for samples that were under way
 * when a look began, one a thread, or that have begun since. */
static void test_a_storm_of_ends(void **state)
{
    enum { STARTERS = 3, LIVES = 200, MET = 200 * 48 };
    pthread_t t[STARTERS];
    struct clp_alloc_counted c;
    (void)state;
    assert_int_equal(clp_event_threads_init(), 0);
    stop = false;
    begin();
    for (unsigned i = 0; i < STARTERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, start_lives, NULL), 0);
    uint64_t bytes = 0, met = 0;
    while (lives < LIVES || met < MET) {
        uint64_t before = samples;
        assert_true(clp_alloc_totals_take(&c));
        assert_true((int64_t)(c.bytes - c.met) <= (int64_t)(48 * (samples - before + STARTERS)));
        bytes += c.bytes;
        met += c.met;
    }
    stop = true;
    for (unsigned i = 0; i < STARTERS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_true(bytes >= met && bytes <= 48 * samples);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_from_the_beginning_on),
        cmocka_unit_test(test_without_a_contract),
        cmocka_unit_test(test_a_moment_of_change),
        cmocka_unit_test(test_one_that_cannot_be_read_at_first),
        cmocka_unit_test(test_new_ones_count_from_nothing),
        cmocka_unit_test(test_one_that_ends),
        cmocka_unit_test(test_foreign_memory),
        cmocka_unit_test(test_samples_of_nobody),
        cmocka_unit_test(test_a_storm_of_ends),
    };
    harness_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
