/* The few facts of a PE file that ReadyToRun code needs. Internal to sampler/unwind.
 * Sources: ECMA-335 II.25; Microsoft "PE Format"; dotnet/runtime readytorun-format.md. */
#ifndef CLP_SAMPLER_UNWIND_PE_H
#define CLP_SAMPLER_UNWIND_PE_H

#include <stdbool.h>

#include "sampler/unwind/source.h"

#define CLP_PE_SECTIONS_MAX 64

struct clp_pe {
    const struct clp_source *source;
    uint16_t machine;
    uint32_t image_bytes; /* SizeOfImage */
    uint32_t export_rva, export_bytes;
    uint32_t cli_rva, cli_bytes;
    uint32_t sections;
    struct {
        uint32_t rva, bytes, offset;
    } section[CLP_PE_SECTIONS_MAX];
};

int clp_pe_open(const struct clp_source *s, struct clp_pe *ret) CLP_MUST_USE;
/* Place in the file of `len` bytes at `rva`: 0 or -EBADMSG. */
int clp_pe_offset(const struct clp_pe *pe, uint32_t rva, uint32_t len, uint64_t *ret) CLP_MUST_USE;
int clp_pe_read(const struct clp_pe *pe, uint32_t rva, void *buf, uint32_t len) CLP_MUST_USE;

enum clp_r2r_section {
    CLP_R2R_RUNTIME_FUNCTIONS = 102,
    CLP_R2R_DEBUG_INFO = 105,
    CLP_R2R_OWNER_COMPOSITE = 116,
    CLP_R2R_HOT_COLD_MAP = 120,
};
/* The ReadyToRun header: by the managed native header of the CLI header, or, in a composite image,
 * by the export RTR_HEADER. 0, -ENODATA: none. */
int clp_pe_r2r_header(const struct clp_pe *pe, uint32_t *ret_rva) CLP_MUST_USE;
/* One of its sections; -ENOENT. */
int clp_pe_r2r_section(const struct clp_pe *pe, uint32_t header_rva, enum clp_r2r_section type,
                       uint32_t *ret_rva, uint32_t *ret_bytes) CLP_MUST_USE;

#endif
