#include "sampler/inproc/hijack.h"

#include "sampler/inproc/images.h"

/* So much of a Thread object can be read in every version that we know; longer ones were measured
 * too. */
#define THREAD_WORDS (744 / 8)

void clp_hijack_reset(uint16_t runtime_major)
{
    /* Offsets of the pair's first word: measured on 8.0.31, 9.0.20 and 10.0.12. */
    clp_capture_set_hijack_offset(runtime_major == 8 ? 0x118 : runtime_major >= 9 ? 0x98 : 0);
}

/* The stack slot of the first return address that a walk could not repair, or 0. */
static uint64_t unrepaired_slot(const struct clp_walk_frame *frames, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (frames[i].kind == CLP_WALK_HIJACKED_CALLER)
            return frames[i - 1].cfa >= 8 ? frames[i - 1].cfa - 8 : 0;
    return 0;
}

void clp_hijack_learn(const struct clp_thread_slot *thread, const struct clp_stack_view *stack,
                      uint64_t stub, const struct clp_walk_frame *frames, uint32_t count)
{
    uint64_t words[THREAD_WORDS], in_slot;
    uint64_t object = thread ? atomic_load(&thread->thread_object) : 0;
    uint64_t slot = unrepaired_slot(frames, count);
    if (!object || !stub || !slot || !clp_stack_u64(stack, slot, &in_slot) || in_slot != stub)
        return;
    int64_t n = clp_images_read(object, words, sizeof(words));
    for (int64_t i = 1; i < n / 8; i++)
        if (words[i] == slot && words[i - 1] != 0 && words[i - 1] != stub) {
            clp_capture_set_hijack_offset((uint32_t)(i - 1) * 8);
            return;
        }
}
