/* Where our own libclrpulse.so lies. */
#ifndef CLP_AGENT_LIBRARY_H
#define CLP_AGENT_LIBRARY_H

#include "agent/fault.h"
#include "base/core/core.h"

/* The absolute path without symlinks (free): CLRPULSE_LIBRARY, else beside this program, else in
 * ../lib/clrpulse/. 0, or a fault that says where it was looked for. */
int clp_library_find(char **ret, struct clp_fault *fault) CLP_MUST_USE;

#endif
