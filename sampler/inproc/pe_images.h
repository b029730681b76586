/* Mapped PE images with precompiled code, and their ReadyToRun tables.
 *
 * A table is built from the file when an address of the image is first seen in a stack.  Composite
 * images, which no module callback announces, are found in the memory map then. */
#ifndef CLP_SAMPLER_INPROC_PE_IMAGES_H
#define CLP_SAMPLER_INPROC_PE_IMAGES_H

#include "base/core/core.h"
#include "sampler/inproc/strings.h"
#include "sampler/unwind/r2r.h"

#define CLP_PE_IMAGES_MAX 2048u

int clp_pe_images_init(void) CLP_MUST_USE;
void clp_pe_images_done(void);

/* Lock held. Adding a base that is known is harmless. */
void clp_pe_images_add_locked(uint64_t base, uint64_t end, struct clp_string *path);
void clp_pe_images_remove_locked(uint64_t base);
bool clp_pe_images_cover_locked(uint64_t address);

enum clp_pe_find {
    CLP_PE_NONE = 0,     /* not inside a known image */
    CLP_PE_FUNCTION = 1, /* *ret and *ret_base filled */
    CLP_PE_OTHER = 2,    /* inside an image, but no function: import thunks, data, or no table */
};
/* Loop thread, lock not held: reads the file on the first hit of an image. */
enum clp_pe_find clp_pe_images_find(uint64_t ip, uint64_t *ret_base, struct clp_r2r_function *ret);
/* Loop thread, lock not held: reads the file of the image of this name now, if there is one. */
void clp_pe_images_prepare(const char *name);
/* A module whose code lies in a composite image was loaded. Any thread. */
void clp_pe_images_expect_composite(void);
/* Loop thread: looks for a composite image at `ip`, if one is expected, and adds it. Asks the
 * memory map once for each mapping; true when one was added. */
bool clp_pe_images_discover(uint64_t ip);

size_t clp_pe_images_bytes(void);
uint64_t clp_pe_images_refused(void);

#endif
