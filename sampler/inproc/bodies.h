/* Managed code of the process: bodies with birth and death, the methods they belong to, R2R images.
 *
 * Fed by runtime callbacks (any thread); read by the loop thread.  Every runtime call is made before
 * the leaf lock is taken.  GetFunctionFromIP is never used on code that may unload: it crashes. */
#ifndef CLP_SAMPLER_INPROC_BODIES_H
#define CLP_SAMPLER_INPROC_BODIES_H

#include "base/core/core.h"
#include "sampler/unwind/code.h"
#include "wire/wire.h"

#define CLP_BODIES_MAX (1u << 20)   /* ceilings; reaching one is counted (DROP_TABLE_FULL) */
#define CLP_METHODS_MAX (1u << 20)

int clp_bodies_init(void) CLP_MUST_USE;

/* Loop thread: fills *ret for managed code at `ip` that lived at `time_ns`: JIT bodies, then R2R images
 * (a body is created on first sight; its name is asked from the runtime then, only for modules that
 * cannot unload). false when the address is not managed code. A body that has died is returned with
 * *ret_gone = true only when no live one matches. */
bool clp_bodies_find(uint64_t ip, uint64_t time_ns, struct clp_code *ret);
/* Is `ip` inside a managed (PE) image or JIT body at all? Cheap, no naming. */

/* Loop thread: contents of the wire records; text is written behind the fixed part. Returns the
 * record's size, or -ENOENT / -ENOSPC. */
int clp_bodies_body_record(uint32_t body_id, struct clp_rec_body *ret);
int clp_bodies_method_record(uint32_t method_id, void *buf, size_t cap);
int clp_bodies_image_record(uint32_t image_id, void *buf, size_t cap);
/* Highest ids so far (for the readers' "already defined" bitmaps). */
uint32_t clp_bodies_body_count(void);
uint32_t clp_bodies_method_count(void);

/* Image ids are shared by ELF (images.h) and managed modules; this hands out the next one. */
uint32_t clp_images_next_id(void);

uint64_t clp_bodies_refused(void); /* entries beyond a ceiling */
size_t clp_bodies_bytes(void);

#endif
