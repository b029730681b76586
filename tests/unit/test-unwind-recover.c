/* Frame pointers that nothing saved: each rule on a stack and code made here, and the instruction
 * lengths behind them on all the code of libc. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "sampler/unwind/walk.h"
#include "sampler/unwind/x86.h"
#include "tests/unit/clp-cmocka.h"

#define STACK_LOW 0x700000u
#define SLOTS 512u
#define BIAS 0x400000u
#define MANAGED 0x800000u
#define CALLER 0x900000u

static struct {
    uint64_t stack[SLOTS];
    uint8_t native[0x4000]; /* link-time addresses 0 .. */
    uint8_t managed[0x400], caller[0x400];
    struct clp_code code;      /* of the managed body */
    struct clp_code native_at; /* of the native image */
    struct clp_walk_input in;
    struct clp_walk_state state;
    struct clp_walk_frame frames[16];
    struct clp_walk_result r;
} p;

/* ---- a process: an ELF image, a managed method that is looked at, and what called it ---- */

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (ip >= BIAS && ip < BIAS + sizeof(p.native))
        *ret = p.native_at;
    else if (ip >= MANAGED && ip < MANAGED + sizeof(p.managed))
        *ret = p.code;
    else if (ip >= CALLER && ip < CALLER + sizeof(p.caller))
        *ret = (struct clp_code){.kind = CLP_CODE_MANAGED,
                                 .id = 9,
                                 .method_key = 9,
                                 .start = CALLER,
                                 .end = CALLER + sizeof(p.caller),
                                 .frame = {.base = CLP_BASE_RBP, .exact = true, .push_count = 1}};
}

static int64_t copy(const uint8_t *bytes, size_t size, uint64_t at, void *buf, size_t len)
{
    size_t n = CLP_MIN(len, size - (size_t)at);
    memcpy(buf, bytes + at, n);
    return (int64_t)n;
}

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    if (address >= BIAS && address < BIAS + sizeof(p.native))
        return copy(p.native, sizeof(p.native), address - BIAS, buf, len);
    if (address >= MANAGED && address < MANAGED + sizeof(p.managed))
        return copy(p.managed, sizeof(p.managed), address - MANAGED, buf, len);
    if (address >= CALLER && address < CALLER + sizeof(p.caller))
        return copy(p.caller, sizeof(p.caller), address - CALLER, buf, len);
    return -EFAULT;
}

static const struct clp_code_source source = {.find = find, .read = read_code};

/* Rules of the image: a system call's wrapper at 0x1000 that saves nothing, a function at 0x2000
 * with a frame by rbp from 0x2004 on. */
static const struct clp_rule rules[] = {
    {.cfa_reg = CLP_CFA_NONE},
    {.cfa_reg = CLP_REG_RSP, .cfa_off = 8, .saved[CLP_SAVE_RIP] = 1},
    {.cfa_reg = CLP_REG_RSP, .cfa_off = 16, .saved = {[CLP_SAVE_RIP] = 1, [CLP_SAVE_RBP] = 2}},
    {.cfa_reg = CLP_REG_RBP, .cfa_off = 16, .saved = {[CLP_SAVE_RIP] = 1, [CLP_SAVE_RBP] = 2}},
};
static const struct clp_row rows[] = {
    {0x1000, 1 | CLP_ROW_START},
    {0x1100, 0},
    {0x2000, 1 | CLP_ROW_START},
    {0x2001, 2},
    {0x2004, 3},
    {0x2200, 0},
};
static const uint32_t page_first[] = {0, CLP_ARRAY_LEN(rows)};
static const struct clp_native_table table = {.pages = 1,
                                              .rows = CLP_ARRAY_LEN(rows),
                                              .rules = CLP_ARRAY_LEN(rules),
                                              .page_first = page_first,
                                              .row = rows,
                                              .rule = rules};

static uint64_t slot(unsigned i)
{
    return STACK_LOW + 8ull * i;
}

/* The thread is in the wrapper's system call; its caller's address lies at the stack pointer. */
static void begin(uint64_t caller)
{
    memset(&p, 0, sizeof(p));
    memset(p.native, 0x90, sizeof(p.native));
    memset(p.managed, 0x90, sizeof(p.managed));
    memset(p.caller, 0x90, sizeof(p.caller));
    p.native_at = (struct clp_code){
        .kind = CLP_CODE_NATIVE, .id = 1, .start = BIAS, .end = 0, .native = &table};
    p.code = (struct clp_code){.kind = CLP_CODE_MANAGED,
                               .id = 2,
                               .method_key = 2,
                               .start = MANAGED,
                               .end = MANAGED + sizeof(p.managed),
                               .frame = {.base = CLP_BASE_RBP,
                                         .exact = true,
                                         .push_count = 1,
                                         .prologue_bytes = 8,
                                         .frame_bytes = 0x48,
                                         .lea_disp = 0x40}};
    p.in.regs.unknown = ((1u << CLP_REG_COUNT) - 1) & ~(1u << CLP_REG_RIP | 1u << CLP_REG_RSP);
    p.in.regs.r[CLP_REG_RIP] = BIAS + 0x1010;
    p.in.regs.r[CLP_REG_RSP] = STACK_LOW;
    p.in.stack = (struct clp_stack_view){(const uint8_t *)p.stack, STACK_LOW, slot(SLOTS)};
    p.in.stack_top = p.in.stack.high;
    p.stack[0] = caller;
}

/* A frame at slot n whose caller, in CALLER, is the root: its saved rbp leads to a frame without
 * a return address. */
static uint64_t frame(unsigned n)
{
    memcpy(p.caller + 0x7e, "\xff\xd0", 2);
    p.stack[n] = slot(SLOTS - 4);
    p.stack[n + 1] = CALLER + 0x80;
    p.stack[SLOTS - 4] = p.stack[SLOTS - 3] = 0;
    return slot(n);
}

/* Words that look like returns but belong to nobody: a guess would take them. */
static void decoy(unsigned n)
{
    memcpy(p.caller + 0x1fe, "\xff\xd0", 2);
    p.stack[n] = slot(SLOTS - 8);
    p.stack[n + 1] = CALLER + 0x200;
}

static void walk(void)
{
    clp_walk(&source, &p.state, &p.in, p.frames, CLP_ARRAY_LEN(p.frames), &p.r);
}

static void expect_caller(uint64_t middle, uint64_t cfa)
{
    walk();
    assert_int_equal(p.r.flags, 0);
    assert_int_equal(p.r.count, 3);
    assert_int_equal(p.frames[1].address, middle - 1);
    assert_int_equal(p.frames[1].cfa, cfa);
    assert_int_equal(p.frames[2].address, CALLER + 0x7f);
}

/* ---- managed ---- */

#define MANAGED_CALL (MANAGED + 0x100)

static void begin_managed(void)
{
    begin(MANAGED_CALL);
    memcpy(p.managed + 0xfe, "\xff\xd0", 2);
}

static void call_frame(void **state)
{
    (void)state;
    begin_managed();
    uint64_t rbp = frame(300); /* far above: the method uses localloc */
    decoy(9);                  /* where the prologue alone would put it */
    p.stack[40] = slot(1);
    p.stack[41] = MANAGED_CALL;
    p.stack[42] = rbp;
    expect_caller(MANAGED_CALL, rbp + 16);
}

/* Another word of the stack holds the address as well, and what follows it is no frame. */
static void call_frame_among_others(void **state)
{
    (void)state;
    begin_managed();
    uint64_t rbp = frame(300);
    p.stack[20] = MANAGED_CALL;
    p.stack[21] = slot(10); /* below */
    p.stack[30] = MANAGED_CALL;
    p.stack[31] = slot(200); /* no return address there */
    p.stack[41] = MANAGED_CALL;
    p.stack[42] = rbp;
    expect_caller(MANAGED_CALL, rbp + 16);
}

static void prologue_distance(void **state)
{
    (void)state;
    begin_managed();
    uint64_t rbp = frame(1 + 8);                              /* S + 0x40 */
    memcpy(p.managed + 0x300, "\x48\x83\xc4\x40\x5d\xc3", 6); /* add rsp,0x40; pop rbp; ret */
    expect_caller(MANAGED_CALL, rbp + 16);
}

static void prologue_is_not_believed_with_localloc(void **state)
{
    static const char *const epilogues[] = {"\x48\x8d\x65\xf8\x5b\x5d\xc3",
                                            "\x48\x8d\xa5\xf0\xff\xff\xff\x41\x5e\x5d\xc3"};
    static const size_t lengths[] = {7, 11};
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(epilogues); i++) {
        begin_managed();
        frame(1 + 8);
        memcpy(p.managed + 0x300, epilogues[i], lengths[i]);
        walk();
        assert_int_equal(p.r.count, 2);
        assert_true(p.r.flags & CLP_WALK_INCOMPLETE);
    }
}

static void no_frame_is_said(void **state)
{
    (void)state;
    begin_managed();
    walk();
    assert_int_equal(p.r.count, 2);
    assert_true(p.r.flags & CLP_WALK_INCOMPLETE);
}

/* ---- native ---- */

#define NATIVE_CALL (BIAS + 0x2040)

static void begin_native(const char *code, size_t len)
{
    begin(NATIVE_CALL);
    memcpy(p.native + 0x2000, "\x55\x48\x89\xe5", 4); /* push rbp; mov rbp,rsp */
    memcpy(p.native + 0x2004, code, len);
    memcpy(p.native + 0x203b, "\xe8\x00\x00\x00\x00", 5);
}
#define BEGIN_NATIVE(literal) begin_native(literal, sizeof(literal) - 1)

static void sums_of_the_prologue(void **state)
{
    (void)state;
    /* push r15; mov r15,rdi; push rbx; sub rsp,0x28 */
    BEGIN_NATIVE("\x41\x57\x49\x89\xff\x53\x48\x83\xec\x28");
    expect_caller(NATIVE_CALL, frame(1 + 7) + 16);
    /* push rbx; lea rax,[rip+4]; add rsp,-0x80; movaps [rsp],xmm0; vzeroupper */
    BEGIN_NATIVE("\x53\x48\x8d\x05\x04\x00\x00\x00\x48\x83\xc4\x80\x0f\x29\x04\x24\xc5\xf8\x77");
    expect_caller(NATIVE_CALL, frame(1 + 17) + 16);
}

/* An argument was pushed for the call. */
static void pushed_arguments(void **state)
{
    (void)state;
    /* push rbx; sub rsp,8; test edi,edi; je +2; push rax; push rax */
    BEGIN_NATIVE("\x53\x48\x83\xec\x08\x85\xff\x74\x02\x50\x50");
    expect_caller(NATIVE_CALL, frame(1 + 4) + 16);
}

/* alloca: the one who calls this function by a direct call. */
static void dynamic_frames(void **state)
{
    static const char *const ways[] = {
        "\x48\x83\xe4\xe0",                          /* and rsp,-32 */
        "\x48\x29\xc4",                              /* sub rsp,rax */
        "\x48\x89\xcc",                              /* mov rsp,rcx */
        "\x4c\x8d\x24\x24\x49\x29\xc4\x4c\x89\xe4"}; /* by way of r12 */
    static const size_t lengths[] = {4, 3, 3, 10};
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(ways); i++) {
        begin_native(ways[i], lengths[i]);
        uint64_t rbp = frame(100);
        decoy(1); /* the sum would take it, and it is a return address */
        int32_t rel = (int32_t)(BIAS + 0x2000 - (CALLER + 0x80));
        p.caller[0x7b] = 0xe8;
        memcpy(p.caller + 0x7c, &rel, sizeof(rel));
        expect_caller(NATIVE_CALL, rbp + 16);
    }
}

static void dynamic_frame_through_the_linker(void **state)
{
    (void)state;
    begin_native("\x48\x83\xe4\xe0", 4);
    uint64_t rbp = frame(100), function = BIAS + 0x2000;
    decoy(1);
    /* call plt; plt: endbr64; jmp [rip+0x10] */
    int32_t rel = (int32_t)(BIAS + 0x3000 - (CALLER + 0x80));
    p.caller[0x7b] = 0xe8;
    memcpy(p.caller + 0x7c, &rel, sizeof(rel));
    memcpy(p.native + 0x3000, "\xf3\x0f\x1e\xfa\xff\x25\x10\x00\x00\x00", 10);
    memcpy(p.native + 0x301a, &function, sizeof(function));
    expect_caller(NATIVE_CALL, rbp + 16);
}

/* ---- instructions ---- */

static void effects(void **state)
{
    static const struct {
        const char *code;
        uint8_t len, effect;
        int32_t bytes;
    } cases[] = {
        {"\x55", 1, CLP_X86_MOVES, 8},
        {"\x41\x5c", 2, CLP_X86_MOVES, -8},
        {"\x6a\x01", 2, CLP_X86_MOVES, 8},
        {"\xff\x75\x10", 3, CLP_X86_MOVES, 8},
        {"\x48\x83\xec\x20", 4, CLP_X86_MOVES, 32},
        {"\x48\x81\xec\x00\x10\x00\x00", 7, CLP_X86_MOVES, 4096},
        {"\x48\x83\xc4\x80", 4, CLP_X86_MOVES, 128},
        {"\x48\x83\xfc\x08", 4, CLP_X86_NONE, 0},    /* cmp rsp,8 */
        {"\x48\x83\xe4\xf0", 4, CLP_X86_DYNAMIC, 0}, /* and rsp,-16 */
        {"\x48\x29\xc4", 3, CLP_X86_DYNAMIC, 0},     /* sub rsp,rax */
        {"\x48\x39\xc4", 3, CLP_X86_NONE, 0},        /* cmp rsp,rax */
        {"\x48\x89\xe0", 3, CLP_X86_NONE, 0},        /* mov rax,rsp */
        {"\x48\x8b\xe1", 3, CLP_X86_DYNAMIC, 0},     /* mov rsp,rcx */
        {"\x48\x8d\x65\xd8", 4, CLP_X86_DYNAMIC, 0}, /* lea rsp,[rbp-40] */
        {"\x4c\x8d\x65\xd8", 4, CLP_X86_NONE, 0},    /* lea r12,[rbp-40] */
        {"\xc9", 1, CLP_X86_DYNAMIC, 0},
        {"\xe8\x01\x02\x03\x04", 5, CLP_X86_LEAVES, 0},
        {"\x0f\x84\x01\x02\x03\x04", 6, CLP_X86_LEAVES, 0},
        {"\x41\xff\xd3", 3, CLP_X86_LEAVES, 0},
        {"\x0f\x05", 2, CLP_X86_LEAVES, 0},
        {"\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08", 10, CLP_X86_NONE, 0},
        {"\x66\xb8\x01\x02", 4, CLP_X86_NONE, 0},
        {"\xf6\x04\x25\x00\x00\x00\x00\x01", 8, CLP_X86_NONE, 0},
        {"\xf6\xd8", 2, CLP_X86_NONE, 0},
        {"\x62\xf1\x7c\x48\x10\x00", 6, CLP_X86_NONE, 0}, /* vmovups zmm0,[rax] */
        {"\xc4\xe3\x7d\x39\xc1\x01", 6, CLP_X86_NONE, 0}, /* vextracti128 */
        {"\xc5\xf8\x77", 3, CLP_X86_NONE, 0},
        {"\x66\x0f\x3a\x0f\xc1\x08", 6, CLP_X86_NONE, 0}, /* palignr */
    };
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        struct clp_x86 x;
        assert_true(clp_x86_decode((const uint8_t *)cases[i].code, cases[i].len, &x));
        assert_int_equal(x.len, cases[i].len);
        assert_int_equal(x.effect, cases[i].effect);
        assert_int_equal(x.bytes, cases[i].bytes);
        for (size_t cut = 0; cut < cases[i].len; cut++) {
            struct clp_x86 y;
            bool whole = clp_x86_decode((const uint8_t *)cases[i].code, cut, &y);
            assert_false(whole && y.len > cut);
        }
    }
    assert_false(clp_x86_decode((const uint8_t *)"\x06", 1, &(struct clp_x86){0}));
}

/* Each function of libc, instruction by instruction from its start, comes out at its end. */
static void lengths_over_libc(void **state)
{
    static uint8_t code[1 << 16];
    struct clp_arena arena;
    const struct clp_native_table *t;
    struct link_map *map;
    Dl_info info;
    unsigned whole = 0, functions = 0;
    (void)state;
    assert_true(dladdr1((void *)(uintptr_t)&memcpy, &info, (void **)&map, RTLD_DL_LINKMAP));
    int fd = open(map->l_name, O_RDONLY);
    assert_true(fd >= 0);
    clp_arena_init(&arena, 4u << 20);
    assert_int_equal(clp_native_table_build(fd, &arena, &t), 0);
    close(fd);
    for (uint64_t at = 0, start, end; at < (4u << 20); at = end) {
        if (clp_native_function(t, at, &start, &end) < 0) {
            end = at + 1;
            continue;
        }
        size_t len = (size_t)(end - start), done = 0;
        struct clp_x86 x;
        if (len > sizeof(code))
            continue;
        memcpy(code, (const void *)(uintptr_t)(map->l_addr + start), len);
        while (done < len && clp_x86_decode(code + done, len - done, &x))
            done += x.len;
        functions++;
        whole += done == len;
    }
    print_message("%u of %u functions\n", whole, functions);
    assert_true(functions > 1000);
    assert_true(whole * 1000ull >= functions * 995ull);
    clp_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_frame),
        cmocka_unit_test(call_frame_among_others),
        cmocka_unit_test(prologue_distance),
        cmocka_unit_test(prologue_is_not_believed_with_localloc),
        cmocka_unit_test(no_frame_is_said),
        cmocka_unit_test(sums_of_the_prologue),
        cmocka_unit_test(pushed_arguments),
        cmocka_unit_test(dynamic_frames),
        cmocka_unit_test(dynamic_frame_through_the_linker),
        cmocka_unit_test(effects),
        cmocka_unit_test(lengths_over_libc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
