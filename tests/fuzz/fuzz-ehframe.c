/* An ELF file from anywhere: tables are built, every answer about them is asked, rules are followed
 * over a stack made of the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/unwind/native.h"
#include "sampler/unwind/rule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void follow(const struct clp_native_table *t, uint64_t vaddr, const uint8_t *data,
                   size_t size)
{
    struct clp_regs regs = {0};
    struct clp_stack_view stack = {.bytes = data, .low = 0x1000, .high = 0x1000 + size};
    for (unsigned i = 0; i < CLP_REG_COUNT; i++)
        regs.r[i] = 0x1000 + (vaddr * (i + 1)) % (size + 1);
    for (unsigned steps = 0; steps < 16; steps++)
        if (clp_native_step(t, 0, vaddr, &stack, &regs) != CLP_STEP_OK)
            return;
}

static void ask(const struct clp_native_table *t, uint64_t vaddr, const uint8_t *data, size_t size)
{
    uint64_t start, end;
    int r = clp_native_function(t, vaddr, &start, &end);
    if (r == 0 && (start > vaddr || end <= vaddr))
        abort();
    follow(t, vaddr, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_arena arena;
    const struct clp_native_table *t;
    clp_arena_init(&arena, 8u << 20);
    if (clp_native_table_build_mem(data, size, &arena, &t) == 0) {
        for (uint32_t i = 0; i < CLP_MIN(t->rows, 200u); i++) {
            uint64_t page = 0;
            while (page + 1 < t->pages && t->page_first[page + 1] <= i)
                page++;
            uint64_t vaddr = t->base + (page << 16) + t->row[i].low;
            ask(t, vaddr, data, size);
            ask(t, vaddr - 1, data, size);
        }
        ask(t, 0, data, size);
        ask(t, UINT64_MAX, data, size);
    }
    clp_arena_done(&arena);
    return 0;
}
