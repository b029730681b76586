/* Callers of native code that has no unwind tables: by code written here, and over all of this
 * machine's libc, whose tables say what is right. */
#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "sampler/unwind/walker.h"
#include "sampler/unwind/x86.h"
#include "tests/unit/clp-cmocka.h"

#define CODE 0x400000u
#define STACK 0x700000u
#define WORDS 64u

/* ---- a process: code without tables, a stack ---- */

static struct {
    uint8_t code[0x1000];
    uint64_t stack[WORDS];
    struct clp_walk_state state;
    struct clp_walk_input in;
    struct clp_walk_frame frames[16];
    struct clp_walk_result r;
} p;

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (ip - CODE < sizeof(p.code))
        *ret = (struct clp_code){.kind = CLP_CODE_NATIVE, .id = 1, .start = CODE};
}

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    if (address - CODE >= sizeof(p.code))
        return -1;
    len = CLP_MIN(len, sizeof(p.code) - (size_t)(address - CODE));
    memcpy(buf, p.code + (address - CODE), len);
    return (int64_t)len;
}

static void begin(void)
{
    memset(&p, 0, sizeof(p));
    memset(p.code, 0xcc, sizeof(p.code));
    p.in.stack = (struct clp_stack_view){(const uint8_t *)p.stack, STACK, STACK + sizeof(p.stack)};
    p.in.stack_top = p.in.stack.high;
    p.in.regs.r[CLP_REG_RSP] = STACK;
}

static void put(unsigned at, const char *bytes, size_t n)
{
    memcpy(p.code + at, bytes, n);
}
#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

/* An address that a call returns to. */
static uint64_t after_call(unsigned at)
{
    PUT(at - 2, "\xff\xd0");
    return CODE + at;
}

static void walk_from(unsigned at)
{
    static const struct clp_code_source source = {.find = find, .read = read_code};
    p.in.regs.r[CLP_REG_RIP] = CODE + at;
    clp_walk(&source, &p.state, &p.in, p.frames, CLP_ARRAY_LEN(p.frames), &p.r);
}

static void expect(uint32_t flags, size_t n, uint64_t second)
{
    assert_int_equal(p.r.flags, flags);
    assert_int_equal(p.r.count, n);
    if (n > 1)
        assert_int_equal(p.frames[1].address, second);
}

/* Three more return addresses, so that nearness to the top tells nothing. */
static void make_deep(void)
{
    for (unsigned i = 0; i < 3; i++)
        p.stack[40 + i] = after_call(0x900 + 16 * i);
}

/* add rsp,0x10; pop rbx; pop rbp; ret */
#define LEAVE_TWO "\x48\x83\xc4\x10\x5b\x5d\xc3"

static void pops_and_returns(void **state)
{
    (void)state;
    begin();
    PUT(0x100, "\x31\xc0" LEAVE_TWO);
    p.stack[4] = after_call(0x200);
    p.stack[2] = 0x1111; /* rbx */
    p.stack[3] = STACK + 8 * 30;
    PUT(0x200, "\x48\x89\xd8\x5b\xc3"); /* mov rax,rbx; pop rbx; ret */
    p.stack[6] = after_call(0x300);
    make_deep();
    walk_from(0x100);
    assert_int_equal(p.r.count, 3);
    assert_int_equal(p.frames[1].address, CODE + 0x1ff);
    assert_int_equal(p.frames[0].cfa, STACK + 8 * 5);
    assert_int_equal(p.frames[2].address, CODE + 0x2ff);
    assert_int_equal(p.r.flags, CLP_WALK_INCOMPLETE); /* 0x300: no way out */
}

static void loops_and_calls_on_the_way(void **state)
{
    (void)state;
    begin();
    /* push rax; call +0; pop rcx; test; jne back; jmp to the end */
    PUT(0x100, "\x50\xe8\x10\x00\x00\x00\x59\x85\xc0\x75\xf5\xeb\x33");
    PUT(0x140, LEAVE_TWO);
    p.stack[4] = after_call(0x200);
    make_deep();
    walk_from(0x100);
    expect(CLP_WALK_INCOMPLETE, 2, CODE + 0x1ff);
}

/* The call at the end never returns: what lies behind it says something else, which is no address
 * that a call returns to. */
static void noreturn_call_on_a_branch(void **state)
{
    (void)state;
    begin();
    PUT(0x100, "\x74\x07" LEAVE_TWO "\xe8\x00\x01\x00\x00");
    PUT(0x10e, "\x53\x5b\xc3"); /* push rbx; pop rbx; ret: another function */
    p.stack[0] = 0x5555;
    p.stack[4] = after_call(0x200);
    make_deep();
    walk_from(0x100);
    expect(CLP_WALK_INCOMPLETE, 2, CODE + 0x1ff);
}

static void two_believable_answers_are_none(void **state)
{
    (void)state;
    begin();
    PUT(0x100, "\x74\x07" LEAVE_TWO "\xe8\x00\x01\x00\x00");
    PUT(0x10e, "\x53\x5b\xc3");
    p.stack[0] = after_call(0x280);
    p.stack[4] = after_call(0x200);
    make_deep();
    p.in.leaf_is_caller = true;
    p.in.regs.unknown = ~(1u << CLP_REG_RSP | 1u << CLP_REG_RIP);
    PUT(0x100 - 2, "\xff\xd0");
    walk_from(0x100);
    expect(CLP_WALK_INCOMPLETE, 1, 0);
}

/* A place that rsp is computed at, a switch: no way on, and no guess. */
static void dynamic_code_is_not_followed(void **state)
{
    static const struct {
        const char *code;
        size_t n;
    } cases[] = {{"\x48\x89\xec\x5d\xc3", 5},
                 {"\x48\x83\xe4\xf0\xc3", 5},
                 {"\xff\xe0\xc3", 3},
                 {"\x0f\x0b\xc3", 3},
                 {"\xf4\xc3", 2},
                 {"\xeb\xfe", 2}};
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        begin();
        put(0x100, cases[i].code, cases[i].n);
        PUT(0x100 - 2, "\xff\xd0");
        p.stack[8] = after_call(0x200);
        make_deep();
        p.in.leaf_is_caller = true;
        p.in.regs.unknown = ~(1u << CLP_REG_RSP | 1u << CLP_REG_RIP);
        walk_from(0x100);
        expect(CLP_WALK_INCOMPLETE, 1, 0);
    }
}

static void the_last_return_address_is_the_callers(void **state)
{
    (void)state;
    begin();
    p.in.leaf_is_caller = true;
    PUT(0x100 - 2, "\xff\xd0"); /* ends in a trap: a thread's first function */
    p.stack[0] = 0x1234;
    p.stack[9] = CODE + 0x500; /* code, but no call before it */
    p.stack[20] = after_call(0x200);
    walk_from(0x100);
    expect(0, 2, CODE + 0x1ff);
}

static void nothing_left_is_the_root(void **state)
{
    (void)state;
    begin();
    p.in.leaf_is_caller = true;
    PUT(0x100 - 2, "\xff\xd0");
    walk_from(0x100);
    expect(0, 1, 0);
}

/* A copy that ends below the top does not show what is above it. */
static void a_cut_stack_tells_no_root(void **state)
{
    (void)state;
    begin();
    p.in.leaf_is_caller = true;
    p.in.stack_top += 8;
    p.in.regs.unknown = 1u << CLP_REG_RBP;
    PUT(0x100 - 2, "\xff\xd0");
    walk_from(0x100);
    expect(CLP_WALK_INCOMPLETE, 1, 0);
}

/* ---- this machine's libc ---- */

static struct {
    uint64_t bias, end;
    const struct clp_native_table *table;
    unsigned asked, right, among, wrong;
} libc;

static int64_t read_libc(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    if (address < libc.bias || address >= libc.end)
        return -1;
    len = CLP_MIN(len, (size_t)(libc.end - address));
    memcpy(buf, (const void *)(uintptr_t)address, len);
    return (int64_t)len;
}

static void ask(uint64_t vaddr)
{
    static const struct clp_code_source source = {.find = find, .read = read_libc};
    const struct clp_rule *rule = clp_native_rule(libc.table, vaddr - 1);
    if (rule->cfa_reg != CLP_REG_RSP)
        return;
    struct clp_walker w = {.source = &source, .state = &p.state, .code = {.id = 2}};
    w.regs.r[CLP_REG_RIP] = vaddr + libc.bias;
    const struct clp_walk_cached_forward *f = clp_walker_forward_answers(&w);
    bool has = false;
    for (uint32_t i = 0; i < f->count; i++)
        has |= f->rule[i].cfa_off == rule->cfa_off;
    libc.asked++;
    libc.right += has && f->count == 1;
    libc.among += has && f->count > 1;
    libc.wrong += !has && f->count > 0;
}

static void ask_after_calls(uint64_t start, uint64_t end)
{
    const uint8_t *code = (const uint8_t *)(uintptr_t)(libc.bias + start);
    struct clp_x86 x;
    for (size_t at = 0; at < end - start && clp_x86_decode(code + at, end - start - at, &x);
         at += x.len)
        if (code[at] == 0xe8 && start + at + 5 < end)
            ask(start + at + 5);
}

static void agrees_with_libcs_tables(void **state)
{
    struct clp_arena arena;
    struct link_map *map;
    struct clp_elf_info elf;
    Dl_info info;
    (void)state;
    memset(&p, 0, sizeof(p));
    assert_true(
        dladdr1((void *)(uintptr_t)&gnu_get_libc_version, &info, (void **)&map, RTLD_DL_LINKMAP));
    int fd = open(map->l_name, O_RDONLY);
    assert_true(fd >= 0);
    clp_arena_init(&arena, 4u << 20);
    assert_int_equal(clp_native_table_build(fd, &arena, &libc.table), 0);
    assert_int_equal(clp_elf_info(fd, &elf), 0);
    close(fd);
    libc.bias = map->l_addr;
    libc.end = map->l_addr + elf.exec_end_vaddr;
    for (uint64_t at = 0, start, end; at < elf.exec_end_vaddr; at = end)
        if (clp_native_function(libc.table, at, &start, &end) == 0)
            ask_after_calls(start, end);
        else
            end = at + 1;
    print_message("%u calls: %u right, %u right among others, %u wrong\n", libc.asked, libc.right,
                  libc.among, libc.wrong);
    assert_true(libc.asked > 5000);
    /* Code behind calls that never return gives the others; the stack tells them apart. */
    assert_true(libc.right * 100ull >= libc.asked * 40ull);
    assert_true((libc.right + libc.among) * 100ull >= libc.asked * 85ull);
    assert_true(libc.wrong * 100ull <= libc.asked * 8ull);
    clp_arena_done(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pops_and_returns),
        cmocka_unit_test(loops_and_calls_on_the_way),
        cmocka_unit_test(noreturn_call_on_a_branch),
        cmocka_unit_test(two_believable_answers_are_none),
        cmocka_unit_test(dynamic_code_is_not_followed),
        cmocka_unit_test(the_last_return_address_is_the_callers),
        cmocka_unit_test(nothing_left_is_the_root),
        cmocka_unit_test(a_cut_stack_tells_no_root),
        cmocka_unit_test(agrees_with_libcs_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
