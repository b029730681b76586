/* What a managed PE file says about itself and its PDB. Foreign bytes, every offset checked.
 * Sources: Microsoft "PE Format"; dotnet/runtime docs/design/specs/PE-COFF.md; ECMA-335 II.25.
 * Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_PE_DEBUG_H
#define CLP_SAMPLER_SYMBOLS_PE_DEBUG_H

#include "sampler/symbols/file_bytes.h"

#define CLP_PDB_ID_BYTES 20
#define CLP_PDB_PATH_MAX 256

struct clp_pe_debug {
    uint8_t mvid[16]; /* module version id */
    bool has_pdb_id;  /* a portable PDB was made with it: */
    uint8_t pdb_id[CLP_PDB_ID_BYTES];
    char pdb_name[CLP_PDB_PATH_MAX]; /* base name of its path on the build machine */
    uint64_t embedded_at;            /* deflated bytes of an embedded one; embedded_bytes 0: none */
    uint32_t embedded_bytes, embedded_inflated_bytes;
};

/* 0, -EBADMSG (no managed PE file), -errno of the read. */
int clp_pe_debug_read(const struct clp_file_bytes *b, struct clp_pe_debug *ret) CLP_MUST_USE;

#endif
