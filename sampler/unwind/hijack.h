/* Return addresses that the runtime replaced to stop a thread for a collection. Internal to
 * sampler/unwind.
 *
 * To suspend a thread in a method that has no safe point near, the runtime puts the address of a
 * stub (OnHijackTripThread) in place of the method's return address and keeps the true one in its
 * Thread object.  The method then "returns" into the stub, which waits for the collection and goes
 * on. */
#ifndef CLP_SAMPLER_UNWIND_HIJACK_H
#define CLP_SAMPLER_UNWIND_HIJACK_H

#include "sampler/unwind/cfi.h"
#include "sampler/unwind/rule.h"

/* The stub pushes rax first, as the place of the return address, then rbp, rbx, r15, r14, r13, r12.
 * In unwind tables that shows as CFAs that grow at just these offsets, with no word about
 * registers. Returns how many of its rows match so far, given how many did before. */
#define CLP_HIJACK_PUSHES 8
unsigned clp_hijack_pushes(unsigned before, uint64_t offset, const struct clp_place *cfa);

#define CLP_HIJACK_PREFIX_BYTES 11
/* The same by its first code bytes. */
bool clp_hijack_prefix(const uint8_t code[CLP_HIJACK_PREFIX_BYTES]);

#endif
