/* The threads of this process as /proc/self/task has them. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_TASKS_H
#define CLP_SAMPLER_INPROC_TASKS_H

#include "base/core/core.h"

#define CLP_TASK_COMM_BYTES 16

/* A number that changes when the number of threads does (one stat call, about 1.5 us), or -errno.
 * It does not change when one thread ends while another starts. */
int64_t clp_tasks_stamp(void);

/* Calls `task` for every thread; a thread that starts or ends meanwhile may be missed. 0 or -errno.
 * About 0.5 us a thread. */
int clp_tasks_list(void (*task)(void *user, int32_t tid), void *user);

/* The kernel's name of a thread, without its newline. 0 or -errno. About 7 us. */
int clp_tasks_comm(int32_t tid, char ret[CLP_TASK_COMM_BYTES]) CLP_MUST_USE;

/* The kernel's bytes of it, at most 15, unchecked; they may end within a character. Their number or
 * -errno. */
int64_t clp_tasks_comm_raw(int32_t tid, char *ret, size_t cap) CLP_MUST_USE;

/* Its blocked signals, one bit each (bit 0 = signal 1). 0 or -errno. About 20 us. */
int clp_tasks_blocked(int32_t tid, uint64_t *ret) CLP_MUST_USE;

#endif
