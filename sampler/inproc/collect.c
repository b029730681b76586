#include "sampler/inproc/collect.h"

#include "sampler/inproc/bodies.h"
#include "sampler/inproc/capture.h"
#include "sampler/inproc/hijack.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/ranges.h"
#include "sampler/inproc/threads.h"
#include "sampler/unwind/walk.h"

#include <string.h>

static struct clp_walk_state walk_state;
static struct clp_walk_frame walked[CLP_WALK_FRAMES_MAX];
static uint64_t encoded[CLP_WALK_FRAMES_MAX + 2]; /* a word at the root, or two */

/* ---- code ---- */

static void find_code(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    const uint64_t *pass = user;
    if (clp_bodies_find(ip, time_ns, ret))
        return;
    clp_images_find(ip, *pass, ret);
    if (ret->kind == CLP_CODE_STUB)
        (void)clp_bodies_find_late(ip, time_ns, ret);
}

static int64_t read_code(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    return clp_images_read(address, buf, len);
}

static bool was_code(void *user, uint64_t address)
{
    (void)user;
    return clp_ranges_held(address);
}

static bool is_filter(void *user, const struct clp_code *code, uint64_t ip)
{
    (void)user;
    return clp_bodies_in_filter(code->id, ip);
}

/* ---- frames ---- */

static uint64_t special(enum clp_special s)
{
    return clp_frame_make(CLP_FRAME_SPECIAL, s, 0);
}

/* An offset that does not fit its 32 bits is not an offset into this code. */
static uint64_t at_offset(enum clp_frame_kind kind, const struct clp_walk_frame *w)
{
    uint64_t offset = w->address - w->base;
    if (offset > UINT32_MAX || w->id == 0 || w->id > CLP_WIRE_ID_MAX)
        return clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0);
    return clp_frame_make(kind, w->id, (uint32_t)offset);
}

static uint64_t encode(const struct clp_walk_frame *w)
{
    switch (w->kind) {
    case CLP_WALK_MANAGED:
        return at_offset(CLP_FRAME_MANAGED, w);
    case CLP_WALK_NATIVE:
        return at_offset(CLP_FRAME_NATIVE, w);
    case CLP_WALK_STUB:
        return special(CLP_SPECIAL_STUB);
    case CLP_WALK_HIJACKED_CALLER:
        return special(CLP_SPECIAL_HIJACKED_CALLER);
    default:
        return clp_frame_make(CLP_FRAME_UNKNOWN, 0, 0);
    }
}

/* ---- one capture ---- */

static void regs_of(const struct clp_capture *c, struct clp_regs *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->r[CLP_REG_RIP] = c->rip;
    ret->r[CLP_REG_RSP] = c->rsp;
    ret->r[CLP_REG_RBP] = c->rbp;
    ret->r[CLP_REG_RBX] = c->rbx;
    ret->r[CLP_REG_RAX] = c->rax;
    ret->r[CLP_REG_R9] = c->r9;
    ret->r[CLP_REG_R10] = c->r10;
    ret->r[CLP_REG_R11] = c->r11;
    ret->r[CLP_REG_R12] = c->r12;
    ret->r[CLP_REG_R13] = c->r13;
    ret->r[CLP_REG_R14] = c->r14;
    ret->r[CLP_REG_R15] = c->r15;
}

static void input_of(const struct clp_capture *c, struct clp_walk_input *ret)
{
    *ret = (struct clp_walk_input){
        .stack = {.bytes = c->stack, .low = c->rsp, .high = c->rsp + c->stack_bytes},
        .stack_top = c->stack_high,
        .time_ns = c->time_ns,
        .hijacked_return = c->hijacked_return,
        .hijacked_slot = c->hijacked_slot,
    };
    regs_of(c, &ret->regs);
}

static void walk(const struct clp_walk_input *in, const struct clp_thread_slot *slot, uint64_t pass,
                 struct clp_walk_result *ret)
{
    struct clp_code_source code = {.user = &pass,
                                   .find = find_code,
                                   .read = read_code,
                                   .is_filter = is_filter,
                                   .was_code = was_code};
    clp_walk(&code, &walk_state, in, walked, CLP_ARRAY_LEN(walked), ret);
    if (ret->count)
        clp_hijack_learn(slot, &in->stack, walk_state.hijack_stub, walked, ret->count);
}

const struct clp_walk_frame *clp_collect_walk(const struct clp_capture *c, uint64_t pass,
                                              struct clp_walk_result *ret)
{
    struct clp_walk_input in;
    input_of(c, &in);
    walk(&in, clp_capture_slot(c->slot), pass, ret);
    return walked;
}

uint16_t clp_collect_flags(const struct clp_walk_result *w)
{
    uint16_t flags = 0;
    if (w->flags & CLP_WALK_GC_WAIT)
        flags |= CLP_SAMPLE_GC_WAIT;
    if (w->flags & CLP_WALK_TRUNCATED)
        flags |= CLP_SAMPLE_TRUNCATED;
    else if (w->flags & CLP_WALK_INCOMPLETE)
        flags |= CLP_SAMPLE_INCOMPLETE;
    return flags;
}

uint16_t clp_collect_encode(const struct clp_walk_frame *frames, uint32_t count,
                            const struct clp_walk_result *w, uint64_t *ret)
{
    for (uint32_t i = 0; i < count; i++)
        ret[i] = encode(&frames[i]);
    if (count && w->flags & CLP_WALK_TRUNCATED)
        ret[count++] = special(CLP_SPECIAL_TRUNCATED);
    else if (count && w->flags & CLP_WALK_INCOMPLETE)
        ret[count++] = special(CLP_SPECIAL_INCOMPLETE);
    return (uint16_t)count;
}

void clp_collect_stack(const struct clp_walk_input *in, const struct clp_thread_slot *slot,
                       uint64_t pass, struct clp_collect_stack *ret)
{
    struct clp_walk_result w;
    walk(in, slot, pass, &w);
    ret->flags = clp_collect_flags(&w);
    ret->hijacked = (w.flags & CLP_WALK_REPAIRED) != 0;
    ret->frames = encoded;
    ret->count = clp_collect_encode(walked, w.count, &w, encoded);
}

uint64_t clp_collect_hijack_stub(void)
{
    return walk_state.hijack_stub;
}

static void sample_of_walk(const struct clp_capture *c, uint64_t pass, struct clp_feed_sample *s)
{
    struct clp_walk_input in;
    struct clp_collect_stack stack;
    input_of(c, &in);
    clp_collect_stack(&in, clp_capture_slot(c->slot), pass, &stack);
    s->flags = (uint16_t)(stack.flags |
                          (c->flags & CLP_CAPTURE_SEGV_BLOCKED ? CLP_SAMPLE_IN_EXCEPTION : 0));
    s->hijacked = stack.hijacked;
    s->count = stack.count;
}

/* The stack could not be copied: its leaf, under the reason. */
static void sample_of_leaf(const struct clp_capture *c, uint64_t *pass, enum clp_special reason,
                           struct clp_feed_sample *s)
{
    struct clp_code code;
    find_code(pass, c->rip, c->time_ns, &code);
    struct clp_walk_frame leaf = {.address = c->rip, .id = code.id, .base = code.start};
    leaf.kind = code.kind == CLP_CODE_MANAGED  ? CLP_WALK_MANAGED
                : code.kind == CLP_CODE_NATIVE ? CLP_WALK_NATIVE
                : code.kind == CLP_CODE_STUB   ? CLP_WALK_STUB
                                               : CLP_WALK_UNKNOWN;
    encoded[0] = encode(&leaf);
    encoded[1] = special(reason);
    s->count = 2;
    s->flags =
        CLP_SAMPLE_TRUNCATED | (c->flags & CLP_CAPTURE_SEGV_BLOCKED ? CLP_SAMPLE_IN_EXCEPTION : 0);
}

static void take(const struct clp_capture *c, uint64_t pass, const struct clp_collect_sink *sink)
{
    struct clp_feed_sample s = {
        .kind = CLP_SAMPLE_CPU, .time_ns = c->time_ns, .frames = encoded, .span = &c->span};
    s.thread = clp_threads_account(c, &s.value_ns);
    if (!s.thread || s.value_ns == 0)
        return;
    if (c->flags & CLP_CAPTURE_OTHER_STACK) {
        sample_of_leaf(c, &pass, CLP_SPECIAL_DROPPED_OTHER_STACK, &s);
        sink->count(sink->user, CLP_CTR_DROP_OTHER_STACK);
    } else if (c->flags & CLP_CAPTURE_TOO_DEEP) {
        sample_of_leaf(c, &pass, CLP_SPECIAL_DROPPED_TOO_DEEP, &s);
        sink->count(sink->user, CLP_CTR_DROP_TOO_DEEP);
    } else {
        sample_of_walk(c, pass, &s);
    }
    sink->stack(sink->user, &s);
}

/* ---- the ring ---- */

void clp_collect_reset(uint16_t runtime_major)
{
    memset(&walk_state, 0, sizeof(walk_state)); /* 60 KB: not through the stack */
    clp_hijack_reset(runtime_major);
}

uint32_t clp_collect_drain(uint64_t pass, uint32_t max, const struct clp_collect_sink *sink)
{
    uint32_t n = 0;
    for (const struct clp_capture *c; n < max && (c = clp_capture_peek()); n++) {
        take(c, pass, sink);
        clp_capture_release(c);
    }
    return n;
}

void clp_collect_discard(void)
{
    for (const struct clp_capture *c; (c = clp_capture_peek());)
        clp_capture_release(c);
}
