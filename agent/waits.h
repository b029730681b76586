/* What a waiting thread waits for, in one word: the label `wait`.
 *
 * Told from the frames next to the leaf, by the runtime's own methods that wait, and, where none of
 * them is there, from the system call. Pure. */
#ifndef CLP_AGENT_WAITS_H
#define CLP_AGENT_WAITS_H

#include "base/core/core.h"

#include <stdbool.h>

enum clp_wait {
    CLP_WAIT_NONE, /* not told: no label */
    CLP_WAIT_LOCK, /* somebody else holds what the thread wants alone */
    CLP_WAIT_EVENT,
    CLP_WAIT_TASK,
    CLP_WAIT_IO,
    CLP_WAIT_SLEEP,
    CLP_WAIT_PROCESS, /* another one's end */
    CLP_WAIT_IDLE,    /* for work: workers of a pool, the runtime's own threads */
    CLP_WAIT_GC,
    CLP_WAIT_CPU, /* could run, and got none */
    CLP_WAIT_COUNT
};

/* The label's text; NULL for NONE. */
const char *clp_wait_text(enum clp_wait wait);

#define CLP_WAIT_FRAMES_MAX 32u /* so many managed frames from the leaf are looked at */

/* A managed method, raw names as metadata has them. */
struct clp_wait_frame {
    const char *type, *name;
    size_t type_len, name_len;
};

/* `frames`: the managed ones of the stack, leaf first; `call`: number of the system call, -1 none;
 * `native_thread`: it is none of the runtime's. */
enum clp_wait clp_wait_of(const struct clp_wait_frame *frames, size_t count, int call,
                          bool native_thread);

#endif
