/* The taking side: in ExceptionThrown, or in the event of a sampled allocation, on the thread where
 * it happens, first the same capture that the signal handler would make at this point, then the
 * runtime's own walk (DoStackSnapshot). */
#ifndef CLP_TESTS_SNAPSHOT_TAKE_H
#define CLP_TESTS_SNAPSHOT_TAKE_H

#include "sampler/inproc/capture.h"
#include "sampler/inproc/clr.h"

#define CLP_SNAPSHOT_FRAMES_MAX 2048u

struct clp_snapshot {
    struct clp_snapshot *next;
    int32_t tid;
    clr_hresult result; /* of DoStackSnapshot */
    bool cut;           /* more frames than fit */
    uint32_t count;
    clr_function_id functions[CLP_SNAPSHOT_FRAMES_MAX]; /* managed frames, leaf first */
    struct clp_capture capture;                         /* its stack follows */
};

/* The oldest snapshot that was taken, or NULL; the caller frees it. Loop thread. */
struct clp_snapshot *clp_snapshot_next(void);
/* Events at which none was taken: too many waited, or the thread's stack is not known. */
uint64_t clp_snapshot_skipped(void);

#endif
