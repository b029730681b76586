/* LD_PRELOAD: time goes CLP_CLOCK_SPEED times faster for one process.
 *
 * The clocks run faster and the waits that delivery and libcurl use are as much shorter, so an hour
 * of a silent network passes in seconds with the time-outs and pauses of real life. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NSEC_PER_SEC 1000000000ll

static int64_t speed = 1;
static int64_t start[2]; /* of CLOCK_REALTIME and CLOCK_MONOTONIC */

static int64_t to_ns(const struct timespec *t)
{
    return t->tv_sec * NSEC_PER_SEC + t->tv_nsec;
}

static void from_ns(int64_t ns, struct timespec *t)
{
    t->tv_sec = ns / NSEC_PER_SEC;
    t->tv_nsec = ns % NSEC_PER_SEC;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("CLP_CLOCK_SPEED");
    struct timespec t;
    for (clockid_t clock = CLOCK_REALTIME; clock <= CLOCK_MONOTONIC; clock++) {
        (void)syscall(SYS_clock_gettime, clock, &t);
        start[clock] = to_ns(&t);
    }
    if (text && atoi(text) > 0)
        speed = atoi(text);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *t)
{
    int r = (int)syscall(SYS_clock_gettime, clock, t);
    if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC) && start[clock])
        from_ns(start[clock] + (to_ns(t) - start[clock]) * speed, t);
    return r;
}

EXPORT time_t time(time_t *ret)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (ret)
        *ret = t.tv_sec;
    return t.tv_sec;
}

EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    struct timespec t;
    if (timeout_ms >= 0)
        from_ns(timeout_ms * 1000000ll / speed, &t);
    return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &t, NULL, 0);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes);
EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t bytes)
{
    (void)bytes;
    return poll(fds, count, timeout_ms);
}

EXPORT int usleep(useconds_t us)
{
    struct timespec t;
    from_ns(us * 1000ll / speed, &t);
    return (int)syscall(SYS_nanosleep, &t, NULL);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    typedef int wait_fn(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    static wait_fn *wait;
    struct timespec t;
    if (!wait)
        *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    /* Of CLOCK_MONOTONIC, as delivery's are. */
    from_ns(start[CLOCK_MONOTONIC] + (to_ns(until) - start[CLOCK_MONOTONIC]) / speed, &t);
    return wait(cond, mutex, &t);
}
