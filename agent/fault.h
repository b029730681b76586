/* What went wrong, as people read it: one sentence and the errno that decides the exit code. */
#ifndef CLP_AGENT_FAULT_H
#define CLP_AGENT_FAULT_H

#include "base/core/core.h"

#define CLP_FAULT_BYTES 640u

/* errno of a request that the runtime itself refused; everything else is as errno.h says, with
 * -ESRCH for no such process and -ENOEXEC for one that is not .NET. */
#define CLP_FAULT_REFUSED (-EREMOTEIO)
/* A refusal that ends by itself: four readers are there, and one of them will leave. */
#define CLP_FAULT_FULL (-EUSERS)

struct clp_fault {
    int error; /* negative errno, 0 = none */
    char text[CLP_FAULT_BYTES];
};

/* Fills *f and returns `error`. */
int clp_fault_set(struct clp_fault *f, int error, const char *fmt, ...) CLP_PRINTF(3, 4);

#endif
