#include "sampler/inproc/registered.h"

#include "base/core/core.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 1000

enum { ASKING = 1, HEARD = 2, SILENT = 3 };

static struct {
    struct clr_info *info;
    _Atomic int32_t tid; /* the thread that asks, 0 none */
    _Atomic uint32_t state;
} ask;

void clp_registered_heard(int32_t tid)
{
    if (atomic_load_explicit(&ask.tid, memory_order_relaxed) == tid && tid != 0)
        atomic_store(&ask.state, HEARD);
}

/* The callback comes from inside InitializeCurrentThread, on this thread. */
static void *become_known(void *arg)
{
    sigset_t activation;
    (void)arg;
    (void)sigemptyset(&activation);
    (void)sigaddset(&activation, SIGRTMIN);
    (void)pthread_sigmask(SIG_UNBLOCK, &activation, NULL); /* as the runtime wants its threads */
    atomic_store(&ask.tid, (int32_t)gettid());
    (void)ask.info->slots->initialize_current_thread(ask.info);
    atomic_store(&ask.tid, 0);
    uint32_t asking = ASKING;
    (void)atomic_compare_exchange_strong(&ask.state, &asking, SILENT);
    return NULL;
}

/* Not joined: the runtime may hold the thread back, for a collection or for ever. */
bool clp_registered(struct clr_info *info)
{
    const struct timespec pause = {.tv_nsec = CLP_NSEC_PER_MSEC};
    pthread_t thread;
    if (atomic_load(&ask.state) == ASKING)
        return false; /* the last one has not come back */
    ask.info = info;
    atomic_store(&ask.state, ASKING);
    if (pthread_create(&thread, NULL, become_known, NULL) != 0) {
        atomic_store(&ask.state, SILENT);
        return false;
    }
    (void)pthread_detach(thread);
    for (int i = 0; i < ANSWER_MS && atomic_load(&ask.state) == ASKING; i++)
        (void)nanosleep(&pause, NULL);
    return atomic_load(&ask.state) == HEARD;
}
