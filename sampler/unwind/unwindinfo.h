/* UNWIND_INFO of x64 functions. Internal to sampler/unwind.
 * Source: Microsoft "x64 exception handling"; dotnet/runtime clr-abi.md for the Unix addition. */
#ifndef CLP_SAMPLER_UNWIND_UNWINDINFO_H
#define CLP_SAMPLER_UNWIND_UNWINDINFO_H

#include "sampler/unwind/code.h"

#define CLP_UNWIND_INFO_MAX (4 + 2 * 255)

/* Always fills *ret; exact = false for a record that is cut or not understood. */
void clp_unwind_info_decode(const uint8_t *info, size_t len, struct clp_managed_frame *ret);

#endif
