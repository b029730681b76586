/* What .NET 9 and newer say of themselves to debuggers: libcoreclr exports a description of some of
 * its structures, DotNetRuntimeContractDescriptor (dotnet/runtime, docs/design/datacontracts:
 * contract-descriptor.md, data_descriptor.md). Here: where a thread's allocation context lies.
 *
 * Foreign bytes, parsed without memory of its own; every read is checked (fuzzed:
 * tests/fuzz/fuzz-contract.c). What is not as it was documented is refused. Any thread. */
#ifndef CLP_SAMPLER_INPROC_CONTRACT_H
#define CLP_SAMPLER_INPROC_CONTRACT_H

#include "base/core/core.h"

#define CLP_CONTRACT_SYMBOL "DotNetRuntimeContractDescriptor"
#define CLP_CONTRACT_HEADER_BYTES 24u
#define CLP_CONTRACT_BYTES_MAX (64u << 10) /* 3 KB on .NET 9, 11 KB on 10 */

/* The descriptor's head: where the JSON text lies. 0, -EBADMSG. */
int clp_contract_header(const uint8_t bytes[CLP_CONTRACT_HEADER_BYTES], uint64_t *ret_address,
                        uint32_t *ret_bytes) CLP_MUST_USE;

/* Offsets. The thread's own number for the kernel and a pointer lie in the runtime's Thread object,
 * to which a ThreadID points. Behind that pointer: alloc_ptr, alloc_limit, alloc_bytes and
 * alloc_bytes_uoh, eight bytes each, as the interface between runtime and collector has them
 * (src/coreclr/gc/gcinterface.h). */
struct clp_contract {
    uint32_t os_id;
    uint32_t locals;
    uint32_t context;
};
/* 0; -EBADMSG no JSON; -ENOTSUP another version, or other types and fields. */
int clp_contract_parse(const char *json, size_t len, struct clp_contract *ret) CLP_MUST_USE;

#endif
