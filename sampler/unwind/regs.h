/* The registers of the processor that this is built for. */
#ifndef CLP_SAMPLER_UNWIND_REGS_H
#define CLP_SAMPLER_UNWIND_REGS_H

#if defined(__aarch64__)
#include "sampler/unwind/regs-aarch64.h"
#else
#include "sampler/unwind/regs-x86-64.h"
#endif

#endif
