/* Does a piece of compiled code belong to an exception filter of its method?
 *
 * Only the runtime knows: its IL says where the filters are, its map from IL to native code where
 * the compiler put them.  Loop thread; the method must not go away meanwhile (gate.h). About 5 us.
 */
#ifndef CLP_SAMPLER_INPROC_FILTERS_H
#define CLP_SAMPLER_INPROC_FILTERS_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

#include <stdbool.h>

bool clp_filters_hold(clr_function_id function, uint64_t ip);

#endif
