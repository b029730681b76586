/* Walks through handlers, over code and a stack that are made up here.
 *
 * The stack, leaf at the bottom; each method keeps an rbp frame:
 *   Root -> Method (its frame) -> Thrower -> the runtime -> Method's handler -> Leaf */
#include "tests/unit/clp-cmocka.h"

#include "sampler/unwind/walk.h"

#include <string.h>

enum { ROOT = 1, METHOD, THROWER, RUNTIME, LEAF, BODIES };

#define CODE(id) (0x100000ull * (id))
#define CODE_BYTES 0x1000u
#define HANDLER_AT 0x800u /* in Method's body */
#define STACK 0x7f0000000000ull
#define WORDS 128u

struct world {
    uint64_t words[WORDS];
    struct clp_regs regs;
    bool filter; /* what the runtime says of Method's handler */
    unsigned asked;
    struct clp_walk_state state;
    struct clp_walk_frame frames[32];
    struct clp_walk_result result;
};

/* ---- the code ---- */

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    uint64_t id = ip / CODE(1);
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (id < ROOT || id >= BODIES || ip - CODE(id) >= CODE_BYTES)
        return;
    *ret = (struct clp_code){.kind = id == RUNTIME ? CLP_CODE_NATIVE : CLP_CODE_MANAGED,
                             .id = (uint32_t)id,
                             .method_key = (uint32_t)id,
                             .start = CODE(id),
                             .end = CODE(id) + CODE_BYTES};
    ret->frame = (struct clp_managed_frame){.base = CLP_BASE_RBP,
                                            .prologue_bytes = 4,
                                            .push_count = 1,
                                            .exact = true,
                                            .frame_bytes = 8 + 32,
                                            .lea_disp = 32};
}

/* Everywhere: calls through a register, so that each address can be returned to. */
static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (address + i) % 2 ? 0xd0 : 0xff;
    return (int64_t)len;
}

static bool is_filter(void *user, const struct clp_code *code, uint64_t ip)
{
    struct world *w = user;
    assert_int_equal(code->id, METHOD);
    assert_int_equal(ip, CODE(METHOD) + HANDLER_AT + 0x10 - 1);
    w->asked++;
    return w->filter;
}

/* ---- the stack ---- */

static uint64_t place(unsigned word)
{
    return STACK + word * 8;
}

/* A frame whose saved rbp lies at `word`. */
static void frame(struct world *w, unsigned word, unsigned caller_word, uint64_t return_address)
{
    w->words[word] = caller_word ? place(caller_word) : 0;
    w->words[word + 1] = return_address;
}

/* On its own frame a method's stack pointer is four words below its rbp, six above its callee's. */
enum {
    LEAF_WORD = 6,
    HANDLER_WORD = 20, /* what the handler itself has pushed; its rbp is Method's */
    RUNTIME_WORD = 30,
    THROWER_WORD = 36,
    METHOD_WORD = 42,
    ROOT_WORD = 48
};

static void build(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->regs.r[CLP_REG_RIP] = CODE(LEAF) + 0x40;
    w->regs.r[CLP_REG_RSP] = place(LEAF_WORD - 4);
    w->regs.r[CLP_REG_RBP] = place(LEAF_WORD);
    /* Leaf was called by the handler, whose rbp is Method's. */
    frame(w, LEAF_WORD, METHOD_WORD, CODE(METHOD) + HANDLER_AT + 0x10);
    frame(w, HANDLER_WORD, RUNTIME_WORD, CODE(RUNTIME) + 0x20);
    frame(w, RUNTIME_WORD, THROWER_WORD, CODE(THROWER) + 0x20);
    frame(w, THROWER_WORD, METHOD_WORD, CODE(METHOD) + 0x20);
    frame(w, METHOD_WORD, ROOT_WORD, CODE(ROOT) + 0x20);
    frame(w, ROOT_WORD, 0, 0);
}

static void walk(struct world *w, bool can_ask)
{
    struct clp_code_source source = {
        .user = w, .find = find, .read = read_code, .is_filter = can_ask ? is_filter : NULL};
    struct clp_walk_input in = {
        .regs = w->regs,
        .stack = {.bytes = (const uint8_t *)w->words, .low = STACK, .high = place(WORDS)},
        .stack_top = place(WORDS),
    };
    clp_walk(&source, &w->state, &in, w->frames, CLP_ARRAY_LEN(w->frames), &w->result);
}

static void expect(const struct world *w, const uint8_t *ids, size_t count)
{
    assert_int_equal(w->result.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(w->frames[i].id, ids[i]);
}

static const uint8_t all[] = {LEAF, METHOD, RUNTIME, THROWER, METHOD, ROOT};
static const uint8_t handled[] = {LEAF, METHOD, ROOT};

static struct world world;

static void filter_shows_all(void **state)
{
    (void)state;
    build(&world);
    world.filter = true;
    walk(&world, true);
    expect(&world, all, sizeof(all));
    assert_int_equal(world.frames[1].cfa, place(HANDLER_WORD + 2));
}

static void handler_hides_what_is_over(void **state)
{
    (void)state;
    build(&world);
    walk(&world, true);
    expect(&world, handled, sizeof(handled));
    assert_int_equal(world.result.flags, 0);
    walk(&world, true);
    assert_int_equal(world.asked, 1); /* remembered */
    build(&world);
    walk(&world, false);
    expect(&world, handled, sizeof(handled));
}

/* A word in the filter's frame that looks like its return address and leads elsewhere. */
static void decoys(void **state)
{
    (void)state;
    build(&world);
    world.filter = true;
    world.words[HANDLER_WORD - 4] = place(ROOT_WORD);
    world.words[HANDLER_WORD - 3] = CODE(RUNTIME) + 0x60;
    world.words[HANDLER_WORD - 1] = CODE(RUNTIME) + 0x60;
    world.words[HANDLER_WORD - 2] = 0x1234;
    walk(&world, true);
    expect(&world, all, sizeof(all));
}

static void no_way_out(void **state)
{
    (void)state;
    build(&world);
    world.filter = true;
    world.words[HANDLER_WORD + 1] = 0;
    walk(&world, true);
    expect(&world, handled, sizeof(handled));
    assert_true(world.result.flags & CLP_WALK_INCOMPLETE);
}

/* On its own frame a method is in no handler that was called by the runtime. */
static void not_asked_on_the_own_frame(void **state)
{
    (void)state;
    build(&world);
    world.filter = true;
    world.regs.r[CLP_REG_RIP] = CODE(THROWER) + 0x40;
    world.regs.r[CLP_REG_RSP] = place(THROWER_WORD - 4);
    world.regs.r[CLP_REG_RBP] = place(THROWER_WORD);
    walk(&world, true);
    expect(&world, (const uint8_t[]){THROWER, METHOD, ROOT}, 3);
    assert_int_equal(world.asked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_shows_all),
        cmocka_unit_test(handler_hides_what_is_over),
        cmocka_unit_test(decoys),
        cmocka_unit_test(no_way_out),
        cmocka_unit_test(not_asked_on_the_own_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
