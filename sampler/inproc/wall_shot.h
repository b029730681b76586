/* The stack of a thread that does not run, taken from outside: no signal, no ptrace.
 *
 * Stack pointer and program counter come from /proc/self/task/TID/syscall, the stack by
 * process_vm_readv on ourselves: it may be unmapped at any moment.  The copy counts only if the
 * thread's CPU clock stood still from before the first to after the last read: then the thread has
 * not executed one instruction in between. Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_WALL_SHOT_H
#define CLP_SAMPLER_INPROC_WALL_SHOT_H

#include "base/core/core.h"
#include "sampler/inproc/capture.h"
#include "sampler/unwind/walk.h"

#include <stdbool.h>

#define CLP_WALL_COPY_MIN (16u << 10)
#define CLP_WALL_COPY_MAX CLP_CAPTURE_STACK_MAX

/* Memory for one copy. `keep_files`: the loop has a descriptor table of its own, so the files of
 * busy threads may stay open. Idempotent. 0 or -ENOMEM. */
int clp_wall_shot_init(bool keep_files) CLP_MUST_USE;
/* Closes all files. */
void clp_wall_shot_close(void);
/* The thread has ended: its files are closed. */
void clp_wall_shot_forget(uint32_t thread_id);

struct clp_wall_shot {
    uint64_t time_ns, clock_ns; /* CLOCK_MONOTONIC, and the thread's CPU clock */
    int32_t call;               /* number of its system call, -1: none */
    struct clp_walk_input in;   /* for clp_walk; valid until the next shot */
};

/* `hijack_stub`: 0 or the runtime's, `hijack_pair`: where the thread's pair lies, or 0.  0; -EBUSY:
 * the thread can run; -EAGAIN: it ran meanwhile; -ESRCH: it has ended; another -errno where the
 * files or the memory cannot be read. About 10 us. */
int clp_wall_shot_take(int32_t tid, uint32_t thread_id, const struct clp_thread_slot *slot,
                       uint32_t copy_bytes, uint64_t hijack_stub, uint64_t hijack_pair,
                       struct clp_wall_shot *ret) CLP_MUST_USE;

/* How long the thread has been runnable without running, since it began (schedstat). -ENODATA where
 * the kernel does not count it. About 2 us. */
int clp_wall_shot_delay(int32_t tid, uint32_t thread_id, uint64_t *ret_ns) CLP_MUST_USE;

/* "running", "-1 SP PC" or "NR ARG1 ... ARG6 SP PC". 0, -EBUSY, -EBADMSG. Pure. */
int clp_wall_shot_parse(const char *text, size_t len, int32_t *ret_call, uint64_t *ret_sp,
                        uint64_t *ret_pc) CLP_MUST_USE;

#endif
