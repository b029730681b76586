/* CLP_TEST_COMPILED_LATE_MS: methods are known to be compiled that late, while other threads run
 * them already. */
#include "sampler/inproc/hooks.h"

#include "base/core/core.h"

#include <stdlib.h>
#include <time.h>

void clp_hooks_compiled(void)
{
    const char *text = getenv("CLP_TEST_COMPILED_LATE_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    if (ms > 0 && ms < 1000)
        (void)nanosleep(&(struct timespec){.tv_nsec = ms * (long)CLP_NSEC_PER_MSEC}, NULL);
}
