/* The physical layer of ECMA-335 metadata: where streams, heaps and table rows lie. The same for
 * assemblies and portable PDBs.  Foreign bytes, every offset checked.  Source: ECMA-335 II.24;
 * dotnet/runtime docs/design/specs/PortablePdb-Metadata.md.  Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_METADATA_H
#define CLP_SAMPLER_SYMBOLS_METADATA_H

#include "sampler/symbols/file_bytes.h"

#define CLP_METADATA_TABLES 64

struct clp_metadata_range {
    uint64_t offset; /* in the file */
    uint32_t bytes;
};

struct clp_metadata {
    struct clp_file_bytes bytes; /* borrowed descriptor or memory */
    struct clp_metadata_range blob, guid, pdb;
    uint64_t rows_at;                   /* first row of the first table, in the file */
    uint32_t rows[CLP_METADATA_TABLES]; /* 0: no such table */
    uint8_t blob_index_bytes, guid_index_bytes, string_index_bytes; /* 2 or 4 */
};

/* 0, -EBADMSG or -errno of the read. `size` is that of the whole metadata from `offset` on. */
int clp_metadata_open(const struct clp_file_bytes *b, uint64_t offset, uint64_t size,
                      struct clp_metadata *ret) CLP_MUST_USE;

/* Content of a blob: its place in the file. Index 0 is the empty blob. */
int clp_metadata_blob(const struct clp_metadata *md, uint32_t index,
                      struct clp_metadata_range *ret) CLP_MUST_USE;
/* GUIDs count from 1; -ENODATA for 0. */
int clp_metadata_guid(const struct clp_metadata *md, uint32_t index, uint8_t ret[16]) CLP_MUST_USE;

/* A compressed unsigned number (II.23.2) at *at; false when it is malformed or past the end. */
bool clp_metadata_number(const uint8_t **at, const uint8_t *end, uint32_t *ret);
/* The signed form. */
bool clp_metadata_signed(const uint8_t **at, const uint8_t *end, int32_t *ret);

#endif
