#include "tests/walk/steps.h"

#include <string.h>

enum step_kind step_kind_at(const struct process *p, uint64_t ip)
{
    uint8_t code[16] = {0};
    const uint8_t *c = code;
    (void)process_read((void *)(uintptr_t)p, ip, code, sizeof(code));
    while (*c == 0x66 || *c == 0xf2 || *c == 0xf3 || *c == 0x2e || *c == 0x3e)
        c++;
    if ((*c & 0xf0) == 0x40)
        c++;
    if (*c == 0xe8 || (*c == 0xff && ((c[1] >> 3) & 7) == 2))
        return STEP_CALL;
    if (*c == 0xc3 || *c == 0xc2)
        return STEP_RETURN;
    if (c[0] == 0x0f && c[1] == 0x05)
        return STEP_SYSCALL;
    return STEP_OTHER;
}

void callers_of(const struct clp_walk_frame *frames, const struct clp_walk_result *r,
                struct callers *ret)
{
    ret->count = r->count ? r->count - 1 : 0;
    ret->flags = r->flags;
    ret->leaf = frames[0].address;
    for (uint32_t i = 1; i < r->count; i++)
        ret->address[i - 1] = frames[i].address;
}

static bool same_from(const struct callers *a, uint32_t from_a, const struct callers *b,
                      uint32_t from_b)
{
    return a->count - from_a == b->count - from_b &&
           memcmp(a->address + from_a, b->address + from_b,
                  (a->count - from_a) * sizeof(a->address[0])) == 0;
}

bool callers_follow(const struct callers *before, enum step_kind kind, const struct callers *after)
{
    switch (kind) {
    case STEP_CALL: /* the new caller lies in the instruction before its return address */
        return after->count == before->count + 1 && same_from(before, 0, after, 1) &&
               after->address[0] - before->leaf < 16;
    case STEP_RETURN:
        return before->count >= 1 && same_from(before, 1, after, 0) &&
               after->leaf == before->address[0] + 1;
    default:
        return same_from(before, 0, after, 0);
    }
}
