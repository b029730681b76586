/* A PE file from anywhere, and the code in it. */
#include <stdint.h>
#include <stdlib.h>

#include "sampler/unwind/managed.h"
#include "sampler/unwind/r2r.h"
#include "sampler/unwind/unwindinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find_everything(const struct clp_r2r_table *t)
{
    uint32_t rva = 0;
    for (unsigned i = 0; i < 4096; i++, rva += 37) {
        struct clp_r2r_function f;
        struct clp_rule rule;
        if (clp_r2r_find(t, rva, &f) < 0)
            continue;
        if (f.start_rva > rva || f.end_rva <= rva)
            abort();
        clp_managed_body_rule(&f.frame, &rule);
    }
}

static void decode_as_code(const uint8_t *data, size_t size)
{
    struct clp_managed_frame f;
    struct clp_rule rule;
    int32_t disp;
    clp_unwind_info_decode(data, size, &f);
    clp_prologue_decode(data, size, &f);
    if (f.prologue_bytes > size)
        abort();
    for (size_t at = 0; at < CLP_MIN(size, (size_t)64); at++) {
        struct clp_code_window w = {.bytes = data,
                                    .len = size,
                                    .before = at,
                                    .address = 0x1000 + at,
                                    .start = 0x1000,
                                    .end = 0x1000 + size};
        (void)clp_managed_prologue_rule(&f, data, at, (uint32_t)at, &rule);
        (void)clp_managed_epilogue_rule(&f, &w, &rule);
        (void)clp_funclet_pending_rbp(&w, &disp);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_arena arena;
    const struct clp_r2r_table *t;
    char owner[32];
    clp_arena_init(&arena, 8u << 20);
    if (clp_r2r_table_build_mem(data, size, &arena, &t, owner, sizeof(owner)) == 0)
        find_everything(t);
    decode_as_code(data, size);
    clp_arena_done(&arena);
    return 0;
}
