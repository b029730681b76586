/* Prologues and epilogues as RyuJIT wrote them (.NET 8, 9 and 10): bytes of real methods. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sampler/unwind/managed.h"
#include "tests/unit/clp-cmocka.h"

#define CODE(literal) (const uint8_t *)(literal), sizeof(literal) - 1
#define ALL_SAVED (CLP_SAVED_RBX | CLP_SAVED_R12 | CLP_SAVED_R13 | CLP_SAVED_R14 | CLP_SAVED_R15)

struct shape {
    const char *what;
    const uint8_t *code;
    size_t len;
    uint8_t base, prologue, pushes, saved;
    bool osr, exact;
    uint32_t frame, lea, above;
};

static const struct shape shapes[] = {
    {"push rbp; sub; lea", CODE("\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x10\x48\x89\x7d\xf8"),
     CLP_BASE_RBP, 10, 1, 0, false, true, 24, 16, 0},
    {"push rbp; mov rbp,rsp", CODE("\x55\x48\x8b\xec\x83\x3d\xe2\x16\x17\x00\x00"), CLP_BASE_RBP, 4,
     1, 0, false, true, 8, 0, 0},
    {"push rbp; vzeroupper; mov", CODE("\x55\xc5\xf8\x77\x48\x8b\xec\x48\x83\xfa\x08"),
     CLP_BASE_RBP, 7, 1, 0, false, true, 8, 0, 0},
    {"six pushes, alignment, vzeroupper, lea",
     CODE("\x55\x41\x57\x41\x56\x41\x55\x41\x54\x53\x50\xc5\xf8\x77\x48\x8d\x6c\x24\x30\x48\x8b"),
     CLP_BASE_RBP, 19, 6, ALL_SAVED, false, true, 56, 48, 0},
    {"pushes, sub imm32, lea disp32",
     CODE("\x55\x41\x57\x41\x56\x41\x55\x41\x54\x53\x48\x81\xec\x28\x01\x00\x00\x48\x8d\xac\x24\x50"
          "\x01\x00\x00\x4c\x8b\xff"),
     CLP_BASE_RBP, 25, 6, ALL_SAVED, false, true, 344, 336, 0},
    {"push rbp; push rbx; lea", CODE("\x55\x53\x48\x8d\x6c\x24\x08\x48\x8b\xc7"), CLP_BASE_RBP, 7,
     2, CLP_SAVED_RBX, false, true, 16, 8, 0},
    {"no frame", CODE("\x8b\x47\x08\xc3"), CLP_BASE_RSP, 0, 0, 0, false, true, 0, 0, 0},
    {"vzeroupper, no frame", CODE("\xc5\xf8\x77\xc5\xfc\x10\x44\x24\x08"), CLP_BASE_RSP, 0, 0, 0,
     false, true, 0, 0, 0},
    {"alignment only", CODE("\x50\xff\x15\x81\x7c\xef\xff\x85\xc0\x0f\x94\xc0"), CLP_BASE_RSP, 1, 0,
     0, false, true, 8, 0, 0},
    {"saves of an rsp frame",
     CODE("\x41\x57\x41\x56\x41\x54\x53\x48\x83\xec\x10\x48\x8b\xdf\x4c\x8b\xfe"), CLP_BASE_RSP, 11,
     4, CLP_SAVED_R15 | CLP_SAVED_R14 | CLP_SAVED_R12 | CLP_SAVED_RBX, false, true, 48, 0, 0},
    {"allocation of an rsp frame", CODE("\x48\x83\xec\x18\x48\x89\x54\x24\x08"), CLP_BASE_RSP, 4, 0,
     0, false, true, 24, 0, 0},
    {"probe helper, rsp frame",
     CODE("\x4c\x8d\x9c\x24\xa8\x63\xff\xff\xe8\x73\x7a\x57\x7e\x49\x8b\xe3\x33\xc0"), CLP_BASE_RSP,
     16, 0, 0, false, true, 0x9c58, 0, 0},
    {"probe helper, rbp frame",
     CODE("\x55\x41\x57\x41\x56\x53\x4c\x8d\x9c\x24\xa8\x63\xff\xff\xe8\x7d\x78\x57\x7e\x49\x8b\xe3"
          "\x48\x8d\xac\x24\x70\x9c\x00\x00\xc4\x41\x38\x57\xc0"),
     CLP_BASE_RBP, 30, 4, CLP_SAVED_R15 | CLP_SAVED_R14 | CLP_SAVED_RBX, false, true, 0x9c58 + 32,
     0x9c70, 0},
    {"touched pages",
     CODE("\x55\x85\x84\x24\x00\xf0\xff\xff\x48\x81\xec\x00\x18\x00\x00\x48\x8d\xac\x24\x00\x18\x00"
          "\x00\x90"),
     CLP_BASE_RBP, 23, 1, 0, false, true, 0x1808, 0x1800, 0},
    {"OSR, nothing saved", CODE("\x48\x8b\x45\x00\x50\x48\x8b\xec\x48\x8b\x4d\x30"), CLP_BASE_RBP,
     8, 0, 0, true, true, 8, 0, 0},
    {"OSR, registers saved in the Tier-0 frame",
     CODE("\x48\x8b\x45\x00\x50\x48\x83\xec\x20\x4c\x89\xbc\x24\xa8\x00\x00\x00\x4c\x89\xb4\x24\xa0"
          "\x00\x00\x00\x48\x89\x9c\x24\x98\x00\x00\x00\x48\x8d\x6c\x24\x20\xc5\xfb\x10\x45\x58"),
     CLP_BASE_RBP, 38, 0, CLP_SAVED_R15 | CLP_SAVED_R14 | CLP_SAVED_RBX, true, true, 40, 0x20,
     0xa8 + 8 - 0x20},
    /* What must not be believed. */
    {"rbp elsewhere", CODE("\x55\x48\x83\xec\x10\x48\x8d\x6c\x24\x08\x90"), CLP_BASE_RBP, 10, 1, 0,
     false, false, 24, 8, 0},
    {"rbp never set", CODE("\x55\x48\x83\xec\x10\x90\x90"), CLP_BASE_RBP, 5, 1, 0, false, false, 24,
     0, 0},
    {"pushed out of order", CODE("\x53\x41\x57\x48\x83\xec\x08\x90"), CLP_BASE_RSP, 7, 2,
     CLP_SAVED_RBX | CLP_SAVED_OTHER, false, true, 24, 0, 0},
    {"cut short", CODE("\x55\x48\x8d\x6c"), CLP_BASE_RBP, 1, 1, 0, false, false, 8, 0, 0},
};

static void check_shape(const struct shape *s)
{
    struct clp_managed_frame f;
    clp_prologue_decode(s->code, s->len, &f);
    if (f.base != s->base || f.prologue_bytes != s->prologue || f.push_count != s->pushes ||
        f.saved != s->saved || f.osr != s->osr || f.exact != s->exact ||
        f.frame_bytes != s->frame || f.lea_disp != s->lea || f.osr_above != s->above || f.funclet)
        fail_msg("%s: base %u prologue %u pushes %u saved %#x osr %d exact %d frame %u lea %u "
                 "above %u",
                 s->what, f.base, f.prologue_bytes, f.push_count, f.saved, f.osr, f.exact,
                 f.frame_bytes, f.lea_disp, f.osr_above);
}

static void shapes_of_methods(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(shapes); i++)
        check_shape(&shapes[i]);
}

/* Nothing is read past the length. */
static void every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(shapes); i++) {
        for (size_t len = 0; len <= shapes[i].len; len++) {
            struct clp_managed_frame f;
            uint8_t *copy = test_malloc(len + 1);
            memcpy(copy, shapes[i].code, len);
            clp_prologue_decode(copy, len, &f);
            assert_true(f.prologue_bytes <= len);
            test_free(copy);
        }
    }
}

/* ---- inside a prologue ---- */

struct point {
    uint32_t offset;
    bool stands;
    uint8_t reg;
    int32_t cfa;
};

static void check_points(const uint8_t *code, size_t len, const struct point *points, size_t n)
{
    struct clp_managed_frame f;
    clp_prologue_decode(code, len, &f);
    for (size_t i = 0; i < n; i++) {
        struct clp_rule r = {0};
        bool inside = clp_managed_prologue_rule(&f, code, points[i].offset, points[i].offset, &r);
        assert_int_equal(inside, !points[i].stands);
        if (points[i].stands)
            continue;
        assert_int_equal(r.cfa_reg, points[i].reg);
        assert_int_equal(r.cfa_off, points[i].cfa);
        assert_int_equal(r.saved[CLP_SAVE_RIP], 1);
    }
}

static void points_of_rbp_frame(void **state)
{
    static const struct point points[] = {
        {0, false, CLP_REG_RSP, 8},  {1, false, CLP_REG_RSP, 16}, {3, false, CLP_REG_RSP, 24},
        {4, false, CLP_REG_RSP, 32}, {8, false, CLP_REG_RSP, 56}, {11, false, CLP_REG_RSP, 56},
        {16, true, CLP_REG_RBP, 16},
    };
    (void)state;
    check_points(CODE("\x55\x41\x57\x53\x48\x83\xec\x18\xc5\xf8\x77\x48\x8d\x6c\x24\x28\x90"),
                 points, CLP_ARRAY_LEN(points));
}

static void points_of_rsp_frame(void **state)
{
    static const struct point points[] = {
        {0, false, CLP_REG_RSP, 8},
        {1, false, CLP_REG_RSP, 16},
        {5, false, CLP_REG_RSP, 32},
        {8, true, CLP_REG_RSP, 32}, /* an instruction of the body */
    };
    (void)state;
    check_points(CODE("\x53\x48\x83\xec\x10\x48\x8b\xdf\x90"), points, CLP_ARRAY_LEN(points));
}

/* The probe helper is called before the frame is allocated. */
static void points_of_probed_frame(void **state)
{
    static const struct point points[] = {
        {0, false, CLP_REG_RSP, 8},
        {1, false, CLP_REG_RSP, 16},
        {9, false, CLP_REG_RSP, 16},
        {14, false, CLP_REG_RSP, 16},
        {17, false, CLP_REG_RSP, 16 + 0x9c58},
        {25, true, CLP_REG_RBP, 16},
    };
    (void)state;
    check_points(CODE("\x55\x4c\x8d\x9c\x24\xa8\x63\xff\xff\xe8\x7d\x78\x57\x7e\x49\x8b\xe3\x48\x8d"
                      "\xac\x24\x58\x9c\x00\x00\x90"),
                 points, CLP_ARRAY_LEN(points));
}

/* Until rbp moves it is the Tier-0 frame's. */
static void points_of_osr(void **state)
{
    static const struct point points[] = {{0, false, CLP_REG_RBP, 16},
                                          {4, false, CLP_REG_RBP, 16},
                                          {5, false, CLP_REG_RBP, 16},
                                          {8, true, CLP_REG_RBP, 16}};
    (void)state;
    check_points(CODE("\x48\x8b\x45\x00\x50\x48\x8b\xec\x90"), points, CLP_ARRAY_LEN(points));
}

/* ---- epilogues ---- */

#define BODY_AT 0x1000u

static bool epilogue_at(const struct clp_managed_frame *f, const uint8_t *code, size_t len,
                        size_t offset, struct clp_rule *ret)
{
    size_t before = offset < 2 ? offset : 2;
    struct clp_code_window w = {.bytes = code + offset - before,
                                .len = len - offset + before,
                                .before = before,
                                .address = BODY_AT + offset,
                                .start = BODY_AT,
                                .end = BODY_AT + len};
    return clp_managed_epilogue_rule(f, &w, ret);
}

static const struct clp_managed_frame rbp_frame = {
    .base = CLP_BASE_RBP, .push_count = 1, .exact = true, .frame_bytes = 24, .lea_disp = 16};
static const struct clp_managed_frame rsp_frame = {
    .base = CLP_BASE_RSP, .exact = true, .frame_bytes = 24};

static void rbp_epilogue(void **state)
{
    /* nop; add rsp,0x18; pop rbx; pop r15; pop rbp; ret */
    static const uint8_t code[] = "\x90\x48\x83\xc4\x18\x5b\x41\x5f\x5d\xc3";
    static const struct {
        size_t offset;
        int32_t cfa;
        uint8_t rbx, r15, rbp;
    } points[] = {{1, 0x18 + 32, 4, 3, 2},
                  {5, 32, 4, 3, 2},
                  {6, 24, 0, 3, 2},
                  {8, 16, 0, 0, 2},
                  {9, 8, 0, 0, 0}};
    struct clp_rule r;
    (void)state;
    assert_false(epilogue_at(&rbp_frame, code, sizeof(code) - 1, 0, &r));
    for (size_t i = 0; i < CLP_ARRAY_LEN(points); i++) {
        assert_true(epilogue_at(&rbp_frame, code, sizeof(code) - 1, points[i].offset, &r));
        assert_int_equal(r.cfa_reg, CLP_REG_RSP);
        assert_int_equal(r.cfa_off, points[i].cfa);
        assert_int_equal(r.saved[CLP_SAVE_RBX], points[i].rbx);
        assert_int_equal(r.saved[CLP_SAVE_R15], points[i].r15);
        assert_int_equal(r.saved[CLP_SAVE_RBP], points[i].rbp);
    }
}

static void localloc_epilogue(void **state)
{
    /* lea rsp,[rbp-0x10]; pop rbx; pop r15; pop rbp; ret */
    static const uint8_t code[] = "\x48\x8d\x65\xf0\x5b\x41\x5f\x5d\xc3";
    struct clp_rule r;
    (void)state;
    assert_true(epilogue_at(&rbp_frame, code, sizeof(code) - 1, 0, &r));
    assert_int_equal(r.cfa_reg, CLP_REG_RBP);
    assert_int_equal(r.cfa_off, 16);
    assert_int_equal(r.saved[CLP_SAVE_RBP], 2);
    assert_int_equal(r.saved[CLP_SAVE_R15], 3);
    assert_int_equal(r.saved[CLP_SAVE_RBX], 4);
}

/* .NET 10's funclets leave rbp alone: their end is no end of the method. */
static void funclet_end(void **state)
{
    static const uint8_t code[] = "\x90\x48\x83\xc4\x08\xc3";
    struct clp_rule r;
    (void)state;
    assert_false(epilogue_at(&rbp_frame, code, sizeof(code) - 1, 1, &r));
    assert_false(epilogue_at(&rbp_frame, code, sizeof(code) - 1, 5, &r));
    assert_true(epilogue_at(&rsp_frame, code, sizeof(code) - 1, 5, &r));
    assert_int_equal(r.cfa_off, 8);
    /* pop r13 ends in the byte of pop rbp */
    assert_false(epilogue_at(&rbp_frame, (const uint8_t *)"\x41\x5d\xc3", 3, 2, &r));
}

/* .NET 8 and 9: mov rbp,[rdi]; mov [rsp],rbp; lea rbp,[rbp+0xc0] */
static void funclet_prologue(void **state)
{
    static const uint8_t code[] =
        "\x48\x8b\x2f\x48\x89\x2c\x24\x48\x8d\xad\xc0\x00\x00\x00\x33\xff";
    int32_t disp = 0;
    struct clp_code_window w = {.bytes = code, .len = sizeof(code) - 1, .before = 3};
    (void)state;
    assert_true(clp_funclet_pending_rbp(&w, &disp));
    assert_int_equal(disp, 0xc0);
    w.before = 7;
    assert_true(clp_funclet_pending_rbp(&w, &disp));
    w.before = 14;
    assert_false(clp_funclet_pending_rbp(&w, &disp));
    w = (struct clp_code_window){.bytes = (const uint8_t *)"\x48\x8d\x6d\x20", .len = 4};
    assert_true(clp_funclet_pending_rbp(&w, &disp));
    assert_int_equal(disp, 0x20);
}

static void tail_calls(void **state)
{
    struct clp_rule r;
    (void)state;
    /* add rsp,8; jmp far away / inside the body */
    assert_true(epilogue_at(&rsp_frame, CODE("\x48\x83\xc4\x08\xe9\x00\x10\x00\x00"), 0, &r));
    assert_int_equal(r.cfa_off, 16);
    assert_false(epilogue_at(&rsp_frame, CODE("\x48\x83\xc4\x08\xe9\xf0\xff\xff\xff\x90"), 8, &r));
    assert_false(epilogue_at(&rsp_frame, CODE("\xe9\x01\x00\x00\x00\x90\x90\x90"), 0, &r));
    /* jmp [rip+N]; rex jmp rax; jmp [rax] */
    assert_true(epilogue_at(&rsp_frame, CODE("\xff\x25\x00\x10\x00\x00"), 0, &r));
    assert_true(epilogue_at(&rsp_frame, CODE("\x48\xff\xe0"), 0, &r));
    assert_true(epilogue_at(&rsp_frame, CODE("\xff\x20"), 0, &r));
    /* pop rbp; jmp rax (no REX, but an epilogue has begun) */
    assert_true(epilogue_at(&rbp_frame, CODE("\x5d\xff\xe0"), 0, &r));
    /* a switch in the body */
    assert_false(epilogue_at(&rsp_frame, CODE("\xff\xe0\x90"), 0, &r));
    /* call, not jmp */
    assert_false(epilogue_at(&rsp_frame, CODE("\xff\xd0\xc3"), 0, &r));
    /* cut before the end */
    assert_false(epilogue_at(&rsp_frame, CODE("\x48\x83\xc4\x08\x5b"), 0, &r));
}

static void body_rules(void **state)
{
    struct clp_rule r;
    struct clp_managed_frame f;
    (void)state;
    clp_prologue_decode(CODE("\x55\x41\x57\x53\x48\x83\xec\x18\x48\x8d\x6c\x24\x28\x90"), &f);
    clp_managed_body_rule(&f, &r);
    assert_int_equal(r.cfa_reg, CLP_REG_RBP);
    assert_int_equal(r.saved[CLP_SAVE_RBP], 2);
    assert_int_equal(r.saved[CLP_SAVE_R15], 3);
    assert_int_equal(r.saved[CLP_SAVE_RBX], 4);
    assert_int_equal(r.saved[CLP_SAVE_R12], CLP_SLOT_SAME);
    clp_prologue_decode(CODE("\x41\x57\x53\x48\x83\xec\x18\x90"), &f);
    clp_managed_body_rule(&f, &r);
    assert_int_equal(r.cfa_reg, CLP_REG_RSP);
    assert_int_equal(r.cfa_off, 48);
    assert_int_equal(r.saved[CLP_SAVE_R15], 2);
    assert_int_equal(r.saved[CLP_SAVE_RBX], 3);
    assert_int_equal(r.saved[CLP_SAVE_RBP], CLP_SLOT_SAME);
    f.saved = 0; /* told by number only: nothing is known of the registers */
    clp_managed_body_rule(&f, &r);
    assert_int_equal(r.saved[CLP_SAVE_RBX], CLP_SLOT_UNDEFINED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_of_methods),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(points_of_rbp_frame),
        cmocka_unit_test(points_of_rsp_frame),
        cmocka_unit_test(points_of_probed_frame),
        cmocka_unit_test(points_of_osr),
        cmocka_unit_test(rbp_epilogue),
        cmocka_unit_test(localloc_epilogue),
        cmocka_unit_test(funclet_end),
        cmocka_unit_test(funclet_prologue),
        cmocka_unit_test(tail_calls),
        cmocka_unit_test(body_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
