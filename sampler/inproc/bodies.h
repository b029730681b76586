/* Managed code of the process: bodies with birth and death, the methods they belong to, R2R images.
 *
 * Fed by runtime callbacks (any thread); read by the loop thread.  Every runtime call is made
 * before the leaf lock is taken.  The runtime is asked about an address only when the sample itself
 * proves that the code there is still loaded (clp_bodies_find_late): asking about code that unloads
 * crashes. */
#ifndef CLP_SAMPLER_INPROC_BODIES_H
#define CLP_SAMPLER_INPROC_BODIES_H

#include "base/core/core.h"
#include "sampler/unwind/code.h"
#include "wire/wire.h"

#define CLP_BODIES_MAX (1u << 20) /* ceilings; reaching one is counted (DROP_TABLE_FULL) */
#define CLP_METHODS_MAX (1u << 20)

/* At activation, before any callback is heeded. 0 or -ENOMEM. */
int clp_bodies_init(void) CLP_MUST_USE;
/* At detach, after the loop has stopped: everything is given back; ids start anew. */
void clp_bodies_done(void);

/* Loop thread: fills *ret for managed code at `ip` that lived at `time_ns`: JIT bodies, then R2R
 * images (a body is created on first sight). Code that has died is found for samples taken before
 * its death. An address inside a PE image that is no function (import thunks) has kind STUB. false
 * when the address is not known as managed code; *ret is untouched then. */
bool clp_bodies_find(uint64_t ip, uint64_t time_ns, struct clp_code *ret);
/* Loop thread: the second question, for executable memory that neither clp_bodies_find nor an ELF
 * image covers: code compiled before the library came (methods, dynamic methods, IL stubs) and
 * composite R2R images. Asks the runtime, and remembers the answer either way. */
bool clp_bodies_find_late(uint64_t ip, uint64_t time_ns, struct clp_code *ret);

/* Loop thread: reads now what walks through the framework's own code need, which takes 20 ms. */
void clp_bodies_prepare(void);

/* Loop thread: is `ip` in an exception filter of this body? False when it cannot be told. */
bool clp_bodies_in_filter(uint32_t body_id, uint64_t ip);

/* Loop thread: contents of the wire records; text is written behind the fixed part. Returns the
 * record's size, or -ENOENT / -ENOSPC. */
int clp_bodies_body_record(uint32_t body_id, struct clp_rec_body *ret);
int clp_bodies_method_record(uint32_t method_id, void *buf, size_t cap);
int clp_bodies_image_record(uint32_t image_id, void *buf, size_t cap);
/* Has the managed image or the method unloaded that an IMAGE or METHOD record was made of? No new
 * sample will hold it. */
bool clp_bodies_gone(enum clp_rec_type what, uint32_t id);
/* Ids are given out when a body or a method is first found for a sample. The highest ones so far
 * (for the readers' "already defined" bitmaps): */
uint32_t clp_bodies_body_count(void);
uint32_t clp_bodies_method_count(void);

uint32_t clp_bodies_known(void);   /* bodies in the table, whether seen in a sample or not */
uint64_t clp_bodies_refused(void); /* entries beyond a ceiling */
size_t clp_bodies_bytes(void);

#endif
