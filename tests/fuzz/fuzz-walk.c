/* Random stacks over random code. Whatever comes, a walk ends, stays inside its copy, and its
 * frames lie one above the other.
 *
 * Input: flags, registers, bodies with their frames, rules of the native code, then the stack;
 * small numbers stand for addresses, so that stack words hit code. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/core/bytes.h"
#include "sampler/unwind/cfi.h"
#include "sampler/unwind/walk.h"
#include "sampler/unwind/x86.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODIES 8u
#define BODY_BYTES 0x100u
#define CODE_AT 0x10000u
#define NATIVE_AT 0x20000u
#define NATIVE_ROWS 16u
#define STUB_AT 0x30000u
#define STACK_AT 0x700000u

static struct clp_managed_frame frames_of[BODIES];
static uint32_t keys[BODIES];
static struct clp_rule rules[NATIVE_ROWS + 2];
static struct clp_row rows[NATIVE_ROWS];
static const uint32_t page_first[] = {0, NATIVE_ROWS};
static const struct clp_rule_extra extras[] = {
    {.value = -24, .reg = CLP_REG_RSP, .kind = CLP_PLACE_OFFSET},
    {.reg = CLP_REG_RIP, .kind = CLP_PLACE_REGISTER, .other = CLP_REG_RDI},
    {.reg = CLP_REG_RBP, .kind = CLP_PLACE_EXPR},
    {.value = 8, .reg = CLP_REG_RBX, .kind = CLP_PLACE_VAL_OFFSET}};
static const uint8_t pool[] = {3, 0, 0x77, 8, 0x06}; /* *(rsp + 8) */
static struct clp_native_table table;
static const uint8_t *code_bytes;
static size_t code_len;
static struct clp_walk_state state;

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (ip - CODE_AT < BODIES * BODY_BYTES) {
        uint32_t n = (uint32_t)(ip - CODE_AT) / BODY_BYTES;
        *ret = (struct clp_code){.kind = CLP_CODE_MANAGED,
                                 .id = n + 1,
                                 .method_key = keys[n],
                                 .start = CODE_AT + n * BODY_BYTES,
                                 .end = CODE_AT + (n + 1) * BODY_BYTES,
                                 .frame = frames_of[n]};
    } else if (ip - NATIVE_AT < 0x10000) {
        *ret = (struct clp_code){.kind = CLP_CODE_NATIVE,
                                 .id = 100,
                                 .start = NATIVE_AT,
                                 .native = ip & 0x8000 ? NULL : &table};
    } else if (ip - STUB_AT < 0x1000) {
        ret->kind = CLP_CODE_STUB;
    }
}

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    if (code_len == 0 || address % 61 == 0)
        return -EFAULT;
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = code_bytes[(address + i) % code_len];
    return (int64_t)(address % 59 == 0 ? len / 2 : len);
}

/* A byte picks the region, two more the place in it. */
static uint64_t take_word(struct clp_bytes *b, size_t stack_bytes)
{
    static const uint64_t regions[] = {0, CODE_AT, NATIVE_AT, STUB_AT};
    uint8_t kind = clp_bytes_u8(b);
    uint16_t place = clp_bytes_u16(b);
    if (kind < 64)
        return regions[kind % 4] + place % 0x1000;
    if (kind < 224)
        return STACK_AT + place % (stack_bytes + 32) / 8 * 8;
    return clp_bytes_u64(b);
}

static void take_frames(struct clp_bytes *b)
{
    for (unsigned i = 0; i < BODIES; i++) {
        uint8_t bits = clp_bytes_u8(b);
        frames_of[i] = (struct clp_managed_frame){
            .base = bits & 1 ? CLP_BASE_RBP : CLP_BASE_RSP,
            .prologue_bytes = clp_bytes_u8(b) % 32,
            .push_count = bits >> 5,
            .saved = clp_bytes_u8(b),
            .osr = (bits & 6) == 6,
            .funclet = (bits & 24) == 24,
            .exact = !(bits & 128) || (bits & 64),
            .frame_bytes = clp_bytes_u8(b) * 8u,
            .lea_disp = clp_bytes_u8(b) * 8u,
            .osr_above = bits & 32 ? clp_bytes_u8(b) * 8u : 0,
        };
        keys[i] = 1 + bits % 3;
    }
}

static void take_rules(struct clp_bytes *b)
{
    rules[0] = (struct clp_rule){.cfa_reg = CLP_CFA_NONE};
    rules[1] = (struct clp_rule){.cfa_reg = CLP_CFA_BAD};
    for (unsigned i = 0; i < NATIVE_ROWS; i++) {
        uint8_t bits = clp_bytes_u8(b);
        struct clp_rule r = {.cfa_reg = bits % CLP_REG_COUNT,
                             .cfa_off = (int8_t)clp_bytes_u8(b) * 8,
                             .flags = bits > 250 ? CLP_RULE_SIGNAL : 0};
        for (unsigned k = 0; k < CLP_SAVE_COUNT; k++)
            r.saved[k] = clp_bytes_u8(b) % 8;
        if (bits % 32 == 31) {
            r.cfa_reg = CLP_CFA_EXPR;
            r.cfa_off = 0;
        }
        if (bits % 32 == 30)
            r.extra_count = CLP_ARRAY_LEN(extras);
        rules[i + 2] = r;
        rows[i] = (struct clp_row){.low = (uint16_t)(i * 0x100), /* ascending */
                                   .rule = (uint16_t)((i + 2) | CLP_ROW_START)};
    }
    table = (struct clp_native_table){.pages = 1,
                                      .rows = NATIVE_ROWS,
                                      .rules = CLP_ARRAY_LEN(rules),
                                      .extras = CLP_ARRAY_LEN(extras),
                                      .pool_bytes = sizeof(pool),
                                      .trip = {0x200},
                                      .page_first = page_first,
                                      .row = rows,
                                      .rule = rules,
                                      .extra = extras,
                                      .pool = pool};
}

static void check(const struct clp_walk_frame *frames, const struct clp_walk_result *r,
                  const struct clp_walk_input *in)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (frames[i].cfa == 0)
            continue;
        if (frames[i].cfa <= last || frames[i].cfa > in->stack.high)
            abort();
        last = frames[i].cfa;
    }
}

static void measure(const uint8_t *data, size_t size)
{
    struct clp_x86 x;
    for (size_t at = 0; at < size; at++)
        if (clp_x86_decode(data + at, size - at, &x) &&
            (x.len == 0 || x.len > CLP_X86_MAX || x.len > size - at))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    measure(data, size);
    static uint64_t words[512];
    struct clp_walk_frame frames[64];
    struct clp_walk_result r;
    struct clp_walk_input in = {0};
    struct clp_bytes b = clp_bytes_of(data, size);
    struct clp_code_source source = {.find = find, .read = read_code};
    uint8_t flags = clp_bytes_u8(&b);
    code_bytes = data;
    code_len = size;
    take_frames(&b);
    take_rules(&b);
    size_t left = clp_bytes_left(&b), n = CLP_MIN(left / 3, CLP_ARRAY_LEN(words));
    for (unsigned i = 0; i < CLP_REG_COUNT; i++)
        in.regs.r[i] = take_word(&b, n * 8);
    in.hijacked_return = take_word(&b, n * 8);
    in.hijacked_slot = take_word(&b, n * 8);
    for (size_t i = 0; i < n; i++)
        words[i] = take_word(&b, n * 8);
    in.regs.r[CLP_REG_RSP] = STACK_AT;
    in.regs.unknown = flags & 4 ? 1u << CLP_REG_RBX : 0;
    if (flags & 8) /* as a signal-free capture knows them */
        in.regs.unknown = ((1u << CLP_REG_COUNT) - 1) & ~(1u << CLP_REG_RIP | 1u << CLP_REG_RSP);
    in.leaf_is_caller = flags & 1;
    /* A copy of exact size lets the sanitizer see a read past it. */
    uint8_t *copy = malloc(n * 8 + 1);
    if (!copy)
        return 0;
    memcpy(copy, words, n * 8);
    in.stack = (struct clp_stack_view){copy, STACK_AT, STACK_AT + n * 8};
    in.stack_top = in.stack.high + (flags & 2 ? 64 : 0);
    memset(&state, 0, sizeof(state));
    clp_walk(&source, &state, &in, frames, CLP_ARRAY_LEN(frames), &r);
    check(frames, &r, &in);
    clp_walk(&source, &state, &in, frames, CLP_ARRAY_LEN(frames), &r); /* with the caches filled */
    check(frames, &r, &in);
    free(copy);
    return 0;
}
