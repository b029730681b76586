/* ReadyToRun (precompiled) images: which function covers an address, and how its frame lies.
 *
 * The runtime maps the PE file; its RUNTIME_FUNCTION array (section 102 of the R2R header) carries
 * x64 UNWIND_INFO on Linux too.  The table is built from the file by pread (never from the mapping,
 * which may go away).  A composite image holds the functions of many assemblies: component images
 * point to it by their OwnerCompositeExecutable section.  Sources: dotnet/runtime
 * docs/design/coreclr/botr/readytorun-format.md; Microsoft "x64 exception handling". */
#ifndef CLP_SAMPLER_UNWIND_R2R_H
#define CLP_SAMPLER_UNWIND_R2R_H

#include "base/core/arena.h"
#include "sampler/unwind/code.h"

struct clp_r2r_table;

/* Builds the table of an open PE file. -ENODATA: IL only, no R2R code (or a component of a
 * composite image: then *ret_composite, if given, gets the owner's file name). -EBADMSG, -ENOMEM,
 * -errno. */
int clp_r2r_table_build(int fd, struct clp_arena *arena, const struct clp_r2r_table **ret,
                        char *ret_composite, size_t composite_cap) CLP_MUST_USE;
/* The same of a PE file that lies inside another one, at `from` (single-file programs). */
int clp_r2r_table_build_part(int fd, uint64_t from, struct clp_arena *arena,
                             const struct clp_r2r_table **ret) CLP_MUST_USE;
/* The same over the bytes of a whole file (fuzzers, tests). */
int clp_r2r_table_build_mem(const void *pe, size_t len, struct clp_arena *arena,
                            const struct clp_r2r_table **ret, char *ret_composite,
                            size_t composite_cap) CLP_MUST_USE;
size_t clp_r2r_table_bytes(const struct clp_r2r_table *t);
uint32_t clp_r2r_image_bytes(const struct clp_r2r_table *t); /* SizeOfImage */

struct clp_r2r_function {
    uint32_t start_rva, end_rva; /* this function or funclet, or cold part */
    uint32_t method_rva; /* start of the method that it belongs to (itself, or the parent) */
    struct clp_managed_frame frame; /* of this part; prologue_bytes count from start_rva */
};
/* The function that covers `rva`; -ENOENT outside of code. */
int clp_r2r_find(const struct clp_r2r_table *t, uint32_t rva,
                 struct clp_r2r_function *ret) CLP_MUST_USE;

#endif
