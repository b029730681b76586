/* Frames of aarch64 code by its instructions: RyuJIT's methods always save fp and lr and set fp, so
 * that their prologue tells where everything lies. Pure functions over a copy of the code. Internal
 * to sampler/unwind. Source: dotnet/runtime, src/coreclr/jit/codegenarm64.cpp (genFnProlog). */
#ifndef CLP_SAMPLER_UNWIND_FRAME_AARCH64_H
#define CLP_SAMPLER_UNWIND_FRAME_AARCH64_H

#include "sampler/unwind/rule.h"

/* The rule at code[at] of a body that starts at code[0]: from what its prologue has done up to
 * there. False when it changes sp by an amount that is not told before fp stands. */
bool clp_aarch64_prologue_rule(const uint8_t *code, size_t at, struct clp_rule *ret) CLP_MUST_USE;

/* The rule at code[0] if an epilogue runs from there to a return or a jump out of the body. */
bool clp_aarch64_epilogue_rule(const uint8_t *code, size_t len, struct clp_rule *ret) CLP_MUST_USE;

/* Is it a call: bl, blr, or blr with a signed pointer? */
bool clp_aarch64_is_call(uint32_t instruction);

#endif
