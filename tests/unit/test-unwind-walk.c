/* The walk's rules one by one, on stacks and code made here. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sampler/unwind/walk.h"
#include "tests/unit/clp-cmocka.h"

#define STACK_LOW 0x700000u
#define SLOTS 128u
#define CODES_MAX 16
#define NATIVE_BIAS 0x400000u
#define STUB_VADDR 0x2000u
#define CALL_RAX "\xff\xd0"

/* ---- a process ---- */

struct code {
    uint64_t start, end;
    struct clp_code answer;
};

static struct process {
    struct code code[CODES_MAX];
    size_t codes;
    uint8_t bytes[0x40000]; /* code bytes at CODE_BASE */
    uint64_t stack[SLOTS];
    struct clp_walk_input in;
    struct clp_walk_state state;
    struct clp_walk_frame frames[64];
    struct clp_walk_result r;
    unsigned reads;
} p;

#define CODE_BASE 0x10000u

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    assert_int_equal(time_ns, 77);
    *ret = (struct clp_code){0};
    for (size_t i = 0; i < p.codes; i++)
        if (ip >= p.code[i].start && ip < p.code[i].end)
            *ret = p.code[i].answer;
}

static uint8_t *byte_at(uint64_t address)
{
    if (address >= CODE_BASE && address < CODE_BASE + sizeof(p.bytes))
        return &p.bytes[address - CODE_BASE];
    return NULL;
}

static uint8_t native_bytes[0x8000]; /* of the native image, by link-time address */

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    p.reads++;
    if (address - NATIVE_BIAS < sizeof(native_bytes)) {
        size_t left = sizeof(native_bytes) - (size_t)(address - NATIVE_BIAS);
        memcpy(buf, native_bytes + (address - NATIVE_BIAS), CLP_MIN(len, left));
        return (int64_t)CLP_MIN(len, left);
    }
    if (!byte_at(address))
        return -EFAULT;
    size_t left = CODE_BASE + sizeof(p.bytes) - address;
    memcpy(buf, byte_at(address), CLP_MIN(len, left));
    return (int64_t)CLP_MIN(len, left);
}

static const struct clp_code_source source = {.find = find, .read = read_code};

static void begin(void)
{
    memset(&p, 0, sizeof(p));
    memset(native_bytes, 0, sizeof(native_bytes));
    memset(p.bytes, 0x90, sizeof(p.bytes)); /* nop */
    p.in.stack =
        (struct clp_stack_view){(const uint8_t *)p.stack, STACK_LOW, STACK_LOW + sizeof(p.stack)};
    p.in.stack_top = p.in.stack.high;
    p.in.time_ns = 77;
    p.in.regs.r[CLP_REG_RSP] = STACK_LOW;
}

static uint64_t slot(unsigned i)
{
    return STACK_LOW + i * 8;
}

/* A managed body of 0x100 bytes at CODE_BASE + 0x100 * n. */
static uint64_t body(unsigned n, uint32_t method, struct clp_managed_frame frame)
{
    uint64_t start = CODE_BASE + 0x100 * n;
    p.code[p.codes++] = (struct code){start,
                                      start + 0x100,
                                      {.kind = CLP_CODE_MANAGED,
                                       .id = n,
                                       .method_key = method,
                                       .start = start,
                                       .end = start + 0x100,
                                       .frame = frame}};
    return start;
}

/* A return address in a body: a call ends there. */
static uint64_t after_call(uint64_t at)
{
    memcpy(byte_at(at - 2), CALL_RAX, 2);
    return at;
}

static void walk_to(uint32_t cap)
{
    clp_walk(&source, &p.state, &p.in, p.frames, cap, &p.r);
}

static void walk(void)
{
    walk_to(CLP_ARRAY_LEN(p.frames));
}

static void expect(const uint64_t *addresses, size_t n, uint32_t flags)
{
    assert_int_equal(p.r.flags, flags);
    assert_int_equal(p.r.count, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p.frames[i].address, addresses[i]);
}
#define EXPECT(flags, ...)                                                                         \
    do {                                                                                           \
        const uint64_t expected[] = {__VA_ARGS__};                                                 \
        expect(expected, CLP_ARRAY_LEN(expected), flags);                                          \
    } while (0)

static const struct clp_managed_frame framed = {.base = CLP_BASE_RBP,
                                                .prologue_bytes = 8,
                                                .push_count = 1,
                                                .exact = true,
                                                .frame_bytes = 24,
                                                .lea_disp = 16};
static const struct clp_managed_frame frameless = {
    .base = CLP_BASE_RSP, .prologue_bytes = 4, .exact = true, .frame_bytes = 24};

/* rbp frame at `at`: saved rbp, return address. */
static void frame_at(unsigned at, uint64_t saved_rbp, uint64_t ra)
{
    p.stack[at] = saved_rbp;
    p.stack[at + 1] = ra;
}

/* ---- frames ---- */

static void rbp_frames_to_the_root(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed), b = body(2, 2, framed), c = body(3, 3, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(10), after_call(b + 0x30));
    frame_at(10, slot(20), after_call(c + 0x40));
    frame_at(20, 0, 0);
    walk();
    EXPECT(0, a + 0x20, b + 0x2f, c + 0x3f);
    assert_int_equal(p.frames[0].cfa, slot(6));
    assert_int_equal(p.frames[1].cfa, slot(12));
    assert_int_equal(p.frames[1].base, b);
    assert_int_equal(p.frames[1].kind, CLP_WALK_MANAGED);
}

/* A frame pointer walk would lose the frameless method's caller. */
static void frameless_in_the_middle(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed), b = body(2, 2, frameless), c = body(3, 3, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(20), after_call(b + 0x30));
    p.stack[6 + 3] = after_call(c + 0x40); /* three words of b's frame */
    frame_at(20, 0, 0);
    walk();
    EXPECT(0, a + 0x20, b + 0x2f, c + 0x3f);
}

static void leaf_in_prologue_and_epilogue(void **state)
{
    static const uint8_t prologue[] = "\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x10";
    (void)state;
    begin();
    struct clp_managed_frame f;
    clp_prologue_decode(prologue, sizeof(prologue) - 1, &f);
    uint64_t a = body(1, 1, f), c = body(3, 3, framed);
    memcpy(byte_at(a), prologue, sizeof(prologue) - 1);
    p.in.regs.r[CLP_REG_RBP] = slot(20);
    frame_at(20, 0, 0);
    p.stack[0] = after_call(c + 0x40);
    p.in.regs.r[CLP_REG_RIP] = a; /* nothing done yet */
    walk();
    EXPECT(0, a, c + 0x3f);
    p.stack[0] = slot(20);
    p.stack[1] = c + 0x40;
    p.in.regs.r[CLP_REG_RIP] = a + 1; /* rbp pushed */
    walk();
    EXPECT(0, a + 1, c + 0x3f);
    memcpy(byte_at(a + 0x80), "\x48\x83\xc4\x10\x5d\xc3", 6); /* add rsp,16; pop rbp; ret */
    p.in.regs.r[CLP_REG_RIP] = a + 0x84;
    walk();
    EXPECT(0, a + 0x84, c + 0x3f);
    p.stack[0] = c + 0x40;
    p.in.regs.r[CLP_REG_RIP] = a + 0x85;
    walk();
    EXPECT(0, a + 0x85, c + 0x3f);
    unsigned reads = p.reads;
    walk(); /* the answer is remembered */
    EXPECT(0, a + 0x85, c + 0x3f);
    assert_int_equal(p.reads, reads);
}

/* The probe helper of a large frame is called before the frame stands. */
static void called_from_prologue(void **state)
{
    static const uint8_t prologue[] = "\x55\x4c\x8d\x9c\x24\x00\x40\xff\xff\xe8\x00\x00\x00\x00"
                                      "\x49\x8b\xe3\x48\x8d\xac\x24\x00\xc0\x00\x00";
    (void)state;
    begin();
    struct clp_managed_frame f;
    clp_prologue_decode(prologue, sizeof(prologue) - 1, &f);
    assert_true(f.exact);
    uint64_t a = body(1, 1, f), c = body(3, 3, framed);
    memcpy(byte_at(a), prologue, sizeof(prologue) - 1);
    p.in.leaf_is_caller = true;
    p.in.regs.r[CLP_REG_RIP] = a + 14;
    p.in.regs.r[CLP_REG_RBP] = slot(20);
    p.stack[0] = slot(20);
    p.stack[1] = after_call(c + 0x40);
    frame_at(20, 0, 0);
    walk();
    EXPECT(0, a + 13, c + 0x3f);
}

static void funclet_is_its_parent(void **state)
{
    struct clp_managed_frame f = {.base = CLP_BASE_RSP,
                                  .exact = true,
                                  .funclet = true,
                                  .prologue_bytes = 1,
                                  .frame_bytes = 8};
    (void)state;
    begin();
    uint64_t a = body(1, 1, f), c = body(3, 3, framed);
    p.in.regs.r[CLP_REG_RIP] = a; /* in its prologue too */
    p.in.regs.r[CLP_REG_RBP] = slot(30);
    frame_at(30, slot(40), after_call(c + 0x40));
    frame_at(40, 0, 0);
    walk();
    EXPECT(0, a, c + 0x3f);
    /* .NET 8: rbp is 0x20 below the frame until the lea */
    memcpy(byte_at(a + 0x10), "\x48\x8d\x6d\x20", 4);
    p.in.regs.r[CLP_REG_RIP] = a + 0x10;
    p.in.regs.r[CLP_REG_RBP] = slot(30) - 0x20;
    walk();
    EXPECT(0, a + 0x10, c + 0x3f);
}

/* ---- OSR ---- */

static uint64_t begin_osr(struct clp_managed_frame osr, uint64_t *ret_tier0, uint64_t *ret_caller)
{
    begin();
    uint64_t a = body(1, 5, osr);
    *ret_tier0 = body(2, 5, framed); /* N0 = 16 */
    *ret_caller = body(3, 6, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);                            /* A */
    frame_at(4, slot(30), after_call(*ret_tier0 + 0x50));          /* copy, stale address */
    frame_at(4 + 2 + 2, slot(30), after_call(*ret_caller + 0x40)); /* T = A + 16 + N0 */
    frame_at(30, 0, 0);
    return a;
}

static const struct clp_managed_frame osr_frame = {
    .base = CLP_BASE_RBP, .exact = true, .osr = true, .prologue_bytes = 8, .frame_bytes = 8};

static void osr_is_repaired(void **state)
{
    uint64_t tier0, caller;
    (void)state;
    uint64_t a = begin_osr(osr_frame, &tier0, &caller);
    walk();
    EXPECT(CLP_WALK_OSR, a + 0x20, caller + 0x3f);
    assert_int_equal(p.frames[0].cfa, slot(10));
}

static void osr_by_its_own_prologue(void **state)
{
    uint64_t tier0, caller;
    struct clp_managed_frame f = osr_frame;
    (void)state;
    f.osr_above = 32;
    uint64_t a = begin_osr(f, &tier0, &caller);
    p.code[1].answer.kind = CLP_CODE_STUB; /* the Tier-0 body is not known */
    walk();
    EXPECT(CLP_WALK_OSR, a + 0x20, caller + 0x3f);
}

/* Without the Tier-0 frame the caller is not known: passed over, and said. */
static void osr_without_proof(void **state)
{
    uint64_t tier0, caller;
    (void)state;
    uint64_t a = begin_osr(osr_frame, &tier0, &caller);
    uint64_t root = body(7, 9, framed);
    p.stack[8] = slot(31);
    frame_at(30, slot(40), after_call(root + 0x20));
    frame_at(40, 0, 0);
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, a + 0x20, root + 0x1f);
}

/* ---- native code, the hijack stub ---- */

/* The native image: stub at STUB_VADDR, an ordinary function after it, a function that nobody
 * calls. */
static const struct clp_rule rules[] = {
    {.cfa_reg = CLP_CFA_NONE},
    {.cfa_reg = CLP_CFA_BAD},
    {.cfa_reg = CLP_REG_RSP, .cfa_off = 8, .saved[CLP_SAVE_RIP] = 1},
    {.cfa_reg = CLP_REG_RSP, .cfa_off = 16, .saved[CLP_SAVE_RIP] = 1},
    {.cfa_reg = CLP_REG_RSP, .cfa_off = 8, .saved[CLP_SAVE_RIP] = CLP_SLOT_UNDEFINED},
    {.cfa_reg = CLP_REG_RBP, .cfa_off = 0, .saved[CLP_SAVE_RIP] = 1},
};
static const struct clp_row rows[] = {
    {STUB_VADDR, 2 | CLP_ROW_START},
    {STUB_VADDR + 1, 3},
    {STUB_VADDR + 0x40, 0},
    {0x3000, 2 | CLP_ROW_START},
    {0x3040, 0},
    {0x4008, 4 | CLP_ROW_START},
    {0x4020, 0},
    {0x5000, 5 | CLP_ROW_START},
    {0x5010, 0},
};
static const uint32_t page_first[] = {0, CLP_ARRAY_LEN(rows)};
static const struct clp_native_table table = {.pages = 1,
                                              .rows = CLP_ARRAY_LEN(rows),
                                              .rules = CLP_ARRAY_LEN(rules),
                                              .trip = {STUB_VADDR},
                                              .page_first = page_first,
                                              .row = rows,
                                              .rule = rules};

static void add_native(const struct clp_native_table *t)
{
    static const uint8_t prefix[] = "\x50\x55\x53\x41\x57\x41\x56\x41\x55\x41\x54";
    memcpy(native_bytes + STUB_VADDR, prefix, sizeof(prefix) - 1);
    p.code[p.codes++] =
        (struct code){NATIVE_BIAS,
                      NATIVE_BIAS + sizeof(native_bytes),
                      {.kind = CLP_CODE_NATIVE, .id = 99, .start = NATIVE_BIAS, .native = t}};
}

#define STUB (NATIVE_BIAS + STUB_VADDR)

static uint64_t begin_hijacked(uint64_t *ret_caller)
{
    begin();
    uint64_t a = body(1, 1, framed);
    *ret_caller = body(2, 2, framed);
    uint64_t root = body(3, 3, framed);
    add_native(&table);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(10), STUB);
    frame_at(10, slot(20), after_call(root + 0x30));
    frame_at(20, 0, 0);
    return a;
}

static void hijacked_with_the_pair(void **state)
{
    uint64_t caller;
    (void)state;
    uint64_t a = begin_hijacked(&caller);
    p.in.hijacked_return = caller + 0x40;
    p.in.hijacked_slot = slot(5);
    walk();
    EXPECT(CLP_WALK_REPAIRED, a + 0x20, caller + 0x3f, CODE_BASE + 0x300 + 0x2f);
    assert_int_equal(p.state.hijack_stub, STUB);
}

/* A pair of some earlier hijack does not fit the slot. */
static void hijacked_with_a_stale_pair(void **state)
{
    uint64_t caller;
    (void)state;
    uint64_t a = begin_hijacked(&caller);
    p.in.hijacked_return = caller + 0x40;
    p.in.hijacked_slot = slot(7);
    walk();
    EXPECT(CLP_WALK_REPAIRED, a + 0x20, 0, CODE_BASE + 0x300 + 0x2f);
    assert_int_equal(p.frames[1].kind, CLP_WALK_HIJACKED_CALLER);
}

/* The stub of a runtime that lays it out in another way: still the first byte of a function. */
static void hijacked_by_unknown_code(void **state)
{
    static struct clp_native_table other;
    uint64_t caller;
    (void)state;
    uint64_t a = begin_hijacked(&caller);
    other = table;
    other.trip[0] = 0;
    p.code[p.codes - 1].answer.native = &other;
    walk();
    EXPECT(CLP_WALK_REPAIRED, a + 0x20, 0, CODE_BASE + 0x300 + 0x2f);
    assert_int_equal(p.state.hijack_stub, 0);
    /* A call that never returns may be the last thing before a function: that is no hijack. */
    begin_hijacked(&caller);
    p.code[p.codes - 1].answer.native = &other;
    memcpy(native_bytes + STUB_VADDR - 2, CALL_RAX, 2);
    walk();
    assert_int_equal(p.r.flags & CLP_WALK_REPAIRED, 0);
}

/* In the stub, after `push rax`: rsp = slot of the return address. */
static uint64_t begin_in_stub(void)
{
    begin();
    uint64_t caller = body(2, 2, framed);
    add_native(&table);
    p.in.regs.r[CLP_REG_RIP] = STUB + 0x10;
    p.in.regs.r[CLP_REG_RBP] = slot(10);
    frame_at(10, 0, 0);
    return caller;
}

static void waits_in_the_stub(void **state)
{
    (void)state;
    uint64_t caller = begin_in_stub();
    p.stack[0] = after_call(caller + 0x40); /* the worker has put it there */
    p.stack[1] = 0xdead;                    /* what the tables take for the return address */
    walk();
    EXPECT(CLP_WALK_GC_WAIT | CLP_WALK_REPAIRED, STUB + 0x10, caller + 0x3f);
    assert_int_equal(p.frames[0].cfa, slot(1));
}

static void waits_in_the_stub_before_the_worker(void **state)
{
    (void)state;
    uint64_t caller = begin_in_stub();
    p.stack[0] = 0x1234; /* rax */
    p.in.hijacked_slot = slot(0);
    p.in.hijacked_return = caller + 0x40;
    walk();
    EXPECT(CLP_WALK_GC_WAIT | CLP_WALK_REPAIRED, STUB + 0x10, caller + 0x3f);
    p.in.hijacked_slot = 0;
    uint64_t root = body(3, 3, framed);
    frame_at(10, slot(20), after_call(root + 0x30));
    frame_at(20, 0, 0);
    walk(); /* nothing tells the address */
    EXPECT(CLP_WALK_GC_WAIT | CLP_WALK_REPAIRED, STUB + 0x10, 0, root + 0x2f);
    assert_int_equal(p.frames[1].kind, CLP_WALK_HIJACKED_CALLER);
}

/* ---- signal frames ---- */

static uint64_t begin_signal(int signal)
{
    begin();
    uint64_t interrupted = body(1, 1, framed);
    add_native(NULL); /* a C library without unwind tables */
    memcpy(native_bytes + 0x6000, "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9);
    p.in.regs.r[CLP_REG_RIP] = NATIVE_BIAS + 0x6000;
    p.in.leaf_is_caller = true;
    p.stack[160 / 8] = slot(60);
    p.stack[168 / 8] = interrupted + 0x20;
    p.stack[120 / 8] = slot(70);
    p.stack[304 / 8] = (uint64_t)signal;
    frame_at(70, 0, 0);
    return interrupted;
}

static void interrupted_code_is_exact(void **state)
{
    (void)state;
    uint64_t at = begin_signal(34);
    walk();
    EXPECT(CLP_WALK_GC_WAIT, NATIVE_BIAS + 0x5fff, at + 0x20);
    at = begin_signal(11);
    walk();
    EXPECT(0, NATIVE_BIAS + 0x5fff, at + 0x20);
}

/* ---- stubs ---- */

static void thunks_have_no_frame(void **state)
{
    (void)state;
    for (unsigned pushed = 0; pushed < 3; pushed++) {
        begin();
        uint64_t caller = body(2, 2, framed);
        p.code[p.codes++] = (struct code){0x900000, 0x901000, {.kind = CLP_CODE_STUB}};
        p.in.regs.r[CLP_REG_RIP] = 0x900010;
        p.in.regs.r[CLP_REG_RBP] = slot(20);
        p.stack[0] = p.stack[1] = 0x55aa;
        p.stack[pushed] = after_call(caller + 0x40);
        frame_at(20, 0, 0);
        walk();
        EXPECT(0, 0x900010, caller + 0x3f);
        assert_int_equal(p.frames[0].kind, CLP_WALK_STUB);
    }
}

/* Code that belongs to nothing: its caller by rbp, marked; never by an address that no call
 * precedes. */
static void unknown_code(void **state)
{
    (void)state;
    begin();
    uint64_t caller = body(2, 2, framed);
    p.in.regs.r[CLP_REG_RIP] = 0x900010;
    p.in.regs.r[CLP_REG_RBP] = slot(10);
    p.stack[0] = caller + 0x40; /* no call before it */
    frame_at(10, slot(20), after_call(caller + 0x60));
    frame_at(20, 0, 0);
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, 0x900010, caller + 0x5f);
    assert_int_equal(p.frames[0].kind, CLP_WALK_UNKNOWN);
    p.stack[11] = caller + 0x70;
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, 0x900010);
}

static void first_instructions_of_a_thread(void **state)
{
    (void)state;
    begin();
    add_native(&table);
    p.in.regs.r[CLP_REG_RIP] = NATIVE_BIAS + 0x4002;
    walk();
    EXPECT(0, NATIVE_BIAS + 0x4002);
    p.in.regs.r[CLP_REG_RIP] = NATIVE_BIAS + 0x4010;
    walk();
    EXPECT(0, NATIVE_BIAS + 0x4010);
}

/* ---- what cannot be told ---- */

static void doubtful_tables(void **state)
{
    (void)state;
    begin();
    uint64_t caller = body(2, 2, framed);
    add_native(&table);
    p.in.regs.r[CLP_REG_RIP] = NATIVE_BIAS + 0x5004; /* CFA = rbp */
    p.in.regs.r[CLP_REG_RBP] = slot(10);
    p.stack[9] = caller + 0x40;
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, NATIVE_BIAS + 0x5004);
}

static void not_code_is_no_caller(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(10), 0x123456);
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, a + 0x20);
}

static void stack_must_grow(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed), b = body(2, 2, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(4), after_call(b + 0x30)); /* b's frame would be a's */
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, a + 0x20, b + 0x2f);
}

static void cut_copies(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed), b = body(2, 2, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(200), after_call(b + 0x30)); /* beyond the copy */
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, a + 0x20, b + 0x2f);
    p.in.stack_top = slot(300); /* but inside the stack */
    walk();
    EXPECT(CLP_WALK_TRUNCATED, a + 0x20, b + 0x2f);
    p.in.stack_top = slot(199);
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, a + 0x20, b + 0x2f);
}

static void more_frames_than_room(void **state)
{
    (void)state;
    begin();
    uint64_t a = body(1, 1, framed);
    p.in.regs.r[CLP_REG_RIP] = a + 0x20;
    p.in.regs.r[CLP_REG_RBP] = slot(2);
    for (unsigned i = 2; i < 40; i += 2)
        frame_at(i, slot(i + 2), after_call(a + 0x30));
    frame_at(40, 0, 0);
    walk_to(19);
    assert_int_equal(p.r.count, 19);
    assert_int_equal(p.r.flags, CLP_WALK_TRUNCATED);
    walk_to(20);
    assert_int_equal(p.r.count, 20);
    assert_int_equal(p.r.flags, 0);
    walk_to(0);
    assert_int_equal(p.r.count, 0);
    assert_int_equal(p.r.flags, CLP_WALK_TRUNCATED);
}

static void unreadable_code_is_said(void **state)
{
    (void)state;
    begin();
    p.code[p.codes++] = (struct code){0x900000,
                                      0x901000,
                                      {.kind = CLP_CODE_MANAGED,
                                       .id = 5,
                                       .method_key = 5,
                                       .start = 0x900000,
                                       .end = 0x901000,
                                       .frame = framed}};
    uint64_t b = body(2, 2, framed);
    p.in.regs.r[CLP_REG_RIP] = 0x900050;
    p.in.regs.r[CLP_REG_RBP] = slot(4);
    frame_at(4, slot(10), after_call(b + 0x30));
    frame_at(10, 0, 0);
    walk();
    EXPECT(CLP_WALK_INCOMPLETE, 0x900050, b + 0x2f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rbp_frames_to_the_root),
        cmocka_unit_test(frameless_in_the_middle),
        cmocka_unit_test(leaf_in_prologue_and_epilogue),
        cmocka_unit_test(called_from_prologue),
        cmocka_unit_test(funclet_is_its_parent),
        cmocka_unit_test(osr_is_repaired),
        cmocka_unit_test(osr_by_its_own_prologue),
        cmocka_unit_test(osr_without_proof),
        cmocka_unit_test(hijacked_with_the_pair),
        cmocka_unit_test(hijacked_with_a_stale_pair),
        cmocka_unit_test(hijacked_by_unknown_code),
        cmocka_unit_test(waits_in_the_stub),
        cmocka_unit_test(waits_in_the_stub_before_the_worker),
        cmocka_unit_test(interrupted_code_is_exact),
        cmocka_unit_test(thunks_have_no_frame),
        cmocka_unit_test(unknown_code),
        cmocka_unit_test(first_instructions_of_a_thread),
        cmocka_unit_test(doubtful_tables),
        cmocka_unit_test(not_code_is_no_caller),
        cmocka_unit_test(stack_must_grow),
        cmocka_unit_test(cut_copies),
        cmocka_unit_test(more_frames_than_room),
        cmocka_unit_test(unreadable_code_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
