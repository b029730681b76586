/* A stand-in for the runtime and for the library's loop, in a plain C process. */
#ifndef CLP_TESTS_UNIT_CAPTURE_HARNESS_H
#define CLP_TESTS_UNIT_CAPTURE_HARNESS_H

#include "sampler/inproc/capture.h"
#include "sampler/inproc/threads.h"

#include <pthread.h>
#include <stdbool.h>

#define HARNESS_THREADS 1024

/* What came out for one wire thread. */
struct harness_sum {
    uint32_t thread_id;
    int32_t tid;
    uint32_t kind;
    char name[CLP_THREAD_NAME_BYTES];
    uint64_t stacks_ns;                     /* values of samples */
    uint64_t special_ns[CLP_SPECIAL_COUNT]; /* what the sink was told, NONE included */
    uint32_t samples, without_bounds, other_stack, too_deep;
    uint64_t stack_bytes;
};

/* The runtime's two actions: SIGSEGV with SIGRTMIN in its mask (or not), and SIGRTMIN itself with
 * SA_RESTART | SA_SIGINFO. Signals that reach it are counted. */
void harness_fake_runtime(bool segv_masks);
extern _Atomic uint64_t harness_chained;
extern _Atomic int harness_chained_code; /* si_code of the last one */

/* Everything on: capture, signal, threads; `interval_ns` 0 leaves sampling off. Aborts on failure.
 */
void harness_init(void);
void harness_start(uint64_t interval_ns, bool native_stacks);

/* The loop on the calling thread: drains and scans for `ns`. */
void harness_loop(uint64_t ns);
/* The same until each of these threads has used so much more CPU time: on a loaded machine wall
 * time says little. At most 30 s. */
struct harness_burner;
void harness_loop_cpu(const struct harness_burner *b, size_t n, uint64_t cpu_ns);
void harness_drain(void);
void harness_flush(void); /* drain, flush */
void harness_stop(void);  /* flush, stop */
void harness_reset_sums(void);

struct harness_sum *harness_by_tid(int32_t tid); /* the latest thread of that tid; NULL */
struct harness_sum *harness_by_kind(uint32_t kind);
uint64_t harness_total(const struct harness_sum *s);
void harness_print(void); /* for people */
uint64_t harness_special_of_all(enum clp_special special);
uint64_t harness_samples_of_all(void);
uint64_t harness_all(void); /* of all threads, the process included */

/* A thread that burns CPU until told to stop, registered as managed if `clr` is not 0. Static
 * storage: a failed test leaves it running. */
struct harness_burner {
    pthread_t thread;
    uint64_t clr;
    _Atomic int32_t tid;
    _Atomic bool stop;
    uint64_t cpu_ns;        /* its own clock, read as its last act */
    uint64_t on_ns, off_ns; /* 0 off: burns all the time; else CPU bursts and sleeps */
};
void harness_burn_start(struct harness_burner *b, uint64_t clr);
void harness_burn_stop(struct harness_burner *b);
void harness_spin(uint64_t cpu_ns); /* on the calling thread */
int32_t harness_tid(void);

#endif
