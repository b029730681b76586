/* Sharing the runtime's activation signal. */
#include "sampler/inproc/capture.h"

#include "sampler/inproc/capture_state.h"

#include <errno.h>
#include <string.h>

/* Old actions that a handler may be reading are never overwritten: each change takes the next
 * place. A change happens once per attach at most; a place is used again after seven others. */
#define OLD_PLACES 8

static struct {
    struct clp_old_action places[OLD_PLACES];
    struct sigaction old; /* to be restored */
    unsigned used;
    bool installed;     /* between install and uninstall */
    bool left_in_chain; /* somebody saved our handler as theirs and chains to it */
} state;

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction;
}

static bool is_ours(const struct sigaction *a)
{
    return a->sa_flags & SA_SIGINFO && a->sa_sigaction == clp_capture_handler;
}

/* The runtime keeps the signal out of its SIGSEGV handler, which runs on a small alternate stack: a
 * signal frame that does not fit there makes the kernel end the process. */
static int check_segv_mask(int sig)
{
    struct sigaction segv;
    if (sigaction(SIGSEGV, NULL, &segv) < 0)
        return -errno;
    return sigismember(&segv.sa_mask, sig) == 1 ? 0 : -EOPNOTSUPP;
}

static void publish_old(const struct sigaction *old)
{
    struct clp_old_action *place = &state.places[state.used++ % OLD_PLACES];
    place->siginfo = old->sa_flags & SA_SIGINFO;
    place->handler = old->sa_sigaction; /* a union with sa_handler */
    state.old = *old;
    atomic_store_explicit(&clp_capture_state.old_action, place, memory_order_release);
}

static int replace(int sig, const struct sigaction *old)
{
    struct sigaction ours = *old, was;
    ours.sa_sigaction = clp_capture_handler;
    ours.sa_flags |= SA_SIGINFO;
    publish_old(old); /* the handler may run before sigaction returns */
    if (sigaction(sig, &ours, &was) < 0)
        return -errno;
    if (!same_action(&was, old) && !is_ours(&was))
        publish_old(&was); /* changed by another thread in between */
    return 0;
}

int clp_signal_install(void)
{
    int sig = SIGRTMIN;
    struct sigaction now;
    int r = check_segv_mask(sig);
    if (r < 0)
        return r;
    if (sigaction(sig, NULL, &now) < 0)
        return -errno;
    if (is_ours(&now)) {
        state.left_in_chain = false;
        state.installed = true;
        return 0;
    }
    /* Whoever took the signal from us after the last install calls us: installing again on top of
     * them would make a circle. */
    if (state.installed || (state.left_in_chain && !same_action(&now, &state.old))) {
        state.installed = true;
        return 0;
    }
    if (now.sa_flags & (int)SA_RESETHAND)
        return -EOPNOTSUPP; /* would drop us after one signal */
    r = replace(sig, &now);
    if (r < 0)
        return r;
    state.left_in_chain = false;
    state.installed = true;
    return 0;
}

void clp_signal_uninstall(void)
{
    struct sigaction now;
    if (!state.installed || sigaction(SIGRTMIN, NULL, &now) < 0)
        return;
    state.installed = false;
    if (!is_ours(&now)) {
        state.left_in_chain = !same_action(&now, &state.old);
        return;
    }
    /* Before kernel 6.13 a deleted timer's signal may still be delivered. The runtime's handler
     * ignores it (no activation of its own process is due); the default action would not. */
    if (state.old.sa_handler != SIG_DFL)
        (void)sigaction(SIGRTMIN, &state.old, NULL);
}
