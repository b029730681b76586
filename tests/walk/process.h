/* A foreign .NET process as a code source for the walker: native images and precompiled (R2R) ones
 * by their files, JIT-compiled bodies by the runtime's perf map (DOTNET_PerfMapEnabled=1).  Test
 * code: the library has its own tables, fed by callbacks. */
#ifndef CLP_TESTS_WALK_PROCESS_H
#define CLP_TESTS_WALK_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sampler/unwind/r2r.h"
#include "sampler/unwind/walk.h"

struct mapping {
    uint64_t start, end, offset;
    bool exec, write;
    char path[256];
};

struct image {
    char path[256];
    const struct clp_native_table *native; /* ELF */
    const struct clp_r2r_table *r2r;       /* PE */
    struct clp_elf_info elf;
    bool tried;
};

struct body {
    uint64_t start, end;
    uint32_t method_key;
    bool stub;
    struct clp_managed_frame frame;
    bool decoded;
    char *name;
};

struct process {
    pid_t pid;
    struct mapping *maps;
    size_t nmaps;
    struct image *images;
    size_t nimages;
    struct body *bodies; /* sorted by start */
    size_t nbodies;
    long map_read; /* bytes of the perf map taken so far */
    bool refresh_maps;
    bool unstable_maps; /* libraries come and go: read the mappings for each sample */
    struct clp_arena arena;
    struct clp_code_source source;
};

void process_open(struct process *p, pid_t pid);
void process_close(struct process *p);
/* Takes what the perf map has got since. */
void process_refresh(struct process *p);
int64_t process_read(void *user, uint64_t address, void *buf, size_t len);
/* The mapping that holds an address, or NULL. */
const struct mapping *process_mapping(struct process *p, uint64_t address);
/* A name for people and for the chain rules: "Type::Method", or "libfoo.so!0x1234". */
void process_name(struct process *p, const struct clp_walk_frame *f, char *out, size_t cap);

#endif
