/* What to know of a PE image in memory before any table is built: how long it is, and whether it
 * holds native code.  Foreign bytes, read through a callback because an image may be
 * unmapped meanwhile; at most 1 KB on the stack.
 * Sources: Microsoft "PE Format", ECMA-335 II.25, readytorun-format.md. */
#ifndef CLP_SAMPLER_INPROC_PE_LAYOUT_H
#define CLP_SAMPLER_INPROC_PE_LAYOUT_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_pe_layout {
    uint32_t image_bytes; /* SizeOfImage */
    uint32_t time_stamp;  /* with image_bytes: identity of the file */
    bool native_code;     /* a ReadyToRun header: precompiled */
    bool component;       /* ... whose code lies in a composite image of another file */
};

/* Copies up to `len` bytes at `address`: bytes copied (may be short) or -errno. */
typedef int64_t clp_pe_read_fn(void *user, uint64_t address, void *buf, size_t len);

/* The image as the loader laid it out at `base`. With base 0 and a `read` of the file, size and
 * time stamp are right as well. 0, -EBADMSG (no PE32+ image there), or -errno. */
int clp_pe_layout(uint64_t base, clp_pe_read_fn *read, void *user,
                  struct clp_pe_layout *ret) CLP_MUST_USE;

#endif
