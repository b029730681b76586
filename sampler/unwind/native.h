/* Compact unwind tables for native code, built from an ELF file's .eh_frame.
 *
 * One row says "from this address on, rule R"; rows are 4 bytes (16 low address bits within a 64 KB
 * page, rule number), rules are shared by all rows of the image.  The tables of a whole .NET
 * process come to about 1 MB.  Foreign bytes: every offset is checked; a malformed file yields
 * -EBADMSG or a table without the bad entries, never a crash (fuzzed: tests/fuzz/fuzz-ehframe.c).
 * Sources: LSB core "Exception Frames", DWARF 5 section 6.4, SysV x86-64 psABI 3.7. */
#ifndef CLP_SAMPLER_UNWIND_NATIVE_H
#define CLP_SAMPLER_UNWIND_NATIVE_H

#include "base/core/arena.h"
#include "sampler/unwind/code.h"

#define CLP_BUILD_ID_MAX 32

struct clp_elf_info {
    uint8_t build_id[CLP_BUILD_ID_MAX];
    uint8_t build_id_len;
    uint64_t first_load_vaddr;  /* p_vaddr and p_offset of the first executable PT_LOAD: */
    uint64_t first_load_offset; /* bias = map.start - map.file_offset + offset - vaddr */
    uint64_t exec_end_vaddr;
};

/* Reads the headers of an ELF file that is open for reading (pread only, no mmap: a file that is
 * truncated under us must not raise SIGBUS in a target). */
int clp_elf_info(int fd, struct clp_elf_info *ret) CLP_MUST_USE;

/* Builds the table from the open file. Scratch memory is taken and given back as pages; the result
 * lies in `arena`. Errors: -ENODATA no .eh_frame, -EBADMSG, -ENOMEM (ceiling), -errno of pread. */
int clp_native_table_build(int fd, struct clp_arena *arena,
                           const struct clp_native_table **ret) CLP_MUST_USE;
/* The same over bytes in memory (vdso, fuzzers): a whole ELF image as it lies in a file. */
int clp_native_table_build_mem(const void *elf, size_t len, struct clp_arena *arena,
                               const struct clp_native_table **ret) CLP_MUST_USE;

/* The same of an image as it is mapped in the process that `process` reads, for files that are gone
 * or replaced: `bias` is run-time minus link-time address. The first segment must hold the headers,
 * as linkers lay it out. */
int clp_native_table_build_mapped(const struct clp_code_source *process, uint64_t bias,
                                  struct clp_arena *arena,
                                  const struct clp_native_table **ret) CLP_MUST_USE;

size_t clp_native_table_bytes(const struct clp_native_table *t);

/* The function (FDE) that covers a link-time address: 0 with start and end, or -ENOENT. The start
 * is the true function start also in stripped files. */
int clp_native_function(const struct clp_native_table *t, uint64_t vaddr, uint64_t *ret_start,
                        uint64_t *ret_end) CLP_MUST_USE;

/* Reads stack memory for the step; false when outside of what was captured. */
struct clp_stack_view {
    const uint8_t *bytes; /* bytes[0] lies at address `low` */
    uint64_t low;
    uint64_t high; /* low + number of bytes */
};
bool clp_stack_u64(const struct clp_stack_view *s, uint64_t address, uint64_t *ret);

enum clp_step {
    CLP_STEP_OK = 0,      /* *regs is the caller's state; rip = return address */
    CLP_STEP_ROOT = 1,    /* the outermost frame: undefined return address, or 0 */
    CLP_STEP_NO_RULE = 2, /* no row covers the address */
    CLP_STEP_BAD = 3,     /* the rule cannot be followed with what was captured */
    CLP_STEP_SIGNAL = 4,  /* OK, and the caller was interrupted, not calling: its rip is exact */
};

/* One step from the frame whose code address to look up is `lookup` (run-time; rip for a leaf,
 * return address - 1 otherwise) to its caller. Updates rip, rsp, rbp and callee-saved registers
 * that the rule tells; others are kept. */
enum clp_step clp_native_step(const struct clp_native_table *t, uint64_t bias, uint64_t lookup,
                              const struct clp_stack_view *stack, struct clp_regs *regs);

#endif
