/* The records of an .eh_frame section. Internal to sampler/unwind.
 * Sources: LSB Core "Exception Frames"; DWARF 5, 6.4.1. */
#ifndef CLP_SAMPLER_UNWIND_EHFRAME_H
#define CLP_SAMPLER_UNWIND_EHFRAME_H

#include "base/core/bytes.h"
#include "base/core/core.h"

struct clp_eh_section {
    const uint8_t *bytes;
    size_t len;
    uint64_t vaddr; /* link-time address of bytes[0] */
};

struct clp_cie {
    size_t offset; /* of the record in the section; tells whether it is parsed already */
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra_reg;
    uint8_t pointer_enc;
    bool has_augmentation_data;
    bool signal_frame;
    struct clp_bytes program;
    bool valid;
};

struct clp_fde {
    uint64_t start, end; /* link-time */
    struct clp_bytes program;
};

/* A pointer in one of the DW_EH_PE encodings; `vaddr` is the address of its first byte. Indirect
 * and text/data-relative pointers do not occur in code ranges and are refused: -EBADMSG. */
int clp_eh_pointer(struct clp_bytes *b, uint8_t enc, uint64_t vaddr, uint64_t *ret) CLP_MUST_USE;

/* The next FDE at or after *offset, skipping CIEs and malformed records. `cie` is the caller's
 * cache of the CIE last parsed. 1 with *ret and *ret_offset (where the FDE starts), 0 at the end.
 */
int clp_eh_next(const struct clp_eh_section *s, size_t *offset, struct clp_cie *cie,
                struct clp_fde *ret, size_t *ret_offset);

#endif
