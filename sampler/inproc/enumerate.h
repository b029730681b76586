/* The modules and threads that exist when the library comes.
 *
 * Methods are not enumerated: the runtime would also list those whose context is just being torn
 * down. They are learnt when one is first seen in a sample (code_learn.h). */
#ifndef CLP_SAMPLER_INPROC_ENUMERATE_H
#define CLP_SAMPLER_INPROC_ENUMERATE_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"

/* Loop thread. Safe beside all callbacks. */
void clp_enumerate(void);
/* The callback about a thread's end; any thread. Holds it back while the enumeration looks at it.
 */
void clp_enumerate_thread_destroyed(clr_thread_id thread);

#endif
