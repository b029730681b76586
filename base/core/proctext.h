/* Pure parsers of /proc text: no I/O, bounded, for foreign input.  Used by the agent on a target's
 * files and by the library on its own process. Sources: proc_pid_stat(5), proc_pid_maps(5),
 * proc_pid_status(5). Signal-safe. */
#ifndef CLP_BASE_CORE_PROCTEXT_H
#define CLP_BASE_CORE_PROCTEXT_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_map_entry {
    uint64_t start, end;
    uint64_t file_offset;
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    bool readable, writable, executable, shared;
    const char *path; /* inside the line that was parsed, not NUL-terminated; may be empty */
    size_t path_len;
};

/* Parses one line of /proc/PID/maps, `line` of `len` bytes without its newline.
 * 0, or -EINVAL with *ret untouched. */
int clp_proctext_map_line(const char *line, size_t len, struct clp_map_entry *ret) CLP_MUST_USE;
/* The length of the entry's path without the kernel's note that the file has no name any more. */
size_t clp_proctext_map_path_len(const struct clp_map_entry *e);

struct clp_proc_stat {
    int32_t pid;
    char comm[64]; /* as the kernel prints it, may hold ')' and spaces */
    char state;
    int32_t ppid;
    bool kernel_thread; /* has no program, and never will */
    uint64_t utime_ticks, stime_ticks;
    uint64_t num_threads;
    uint64_t
        start_ticks; /* field 22: since boot, in clock ticks; the key of the diagnostics socket */
};

/* Parses /proc/PID/stat (or task/TID/stat). The command may contain any byte, so the fields are
 * counted from the last ')'. */
int clp_proctext_stat(const char *text, size_t len, struct clp_proc_stat *ret) CLP_MUST_USE;

struct clp_proc_status {
    uint32_t uid_real, uid_effective;
    uint32_t gid_effective;
    int32_t tgid;   /* the process that a thread belongs to; 0 when absent */
    int32_t ns_pid; /* last entry of NSpid: the pid in the innermost namespace; 0 when absent */
    uint64_t sigq_used, sigq_limit;
    uint64_t sig_blocked, sig_caught;
    uint32_t seccomp;
};
int clp_proctext_status(const char *text, size_t len, struct clp_proc_status *ret) CLP_MUST_USE;

/* The value of NAME in an environ block (NUL-separated), or NULL. Length in *ret_len. */
const char *clp_proctext_env(const char *environ_block, size_t len, const char *name,
                             size_t *ret_len);

/* Whether NAME is an item of the list "a,b,c", as of cgroups(7) and of mount options. */
bool clp_proctext_list_has(const char *list, size_t len, const char *name);

/* /proc/PID/task/TID/syscall: "running", or "nr a1..a6 sp pc". 0 with values, -EAGAIN for running,
 * -EINVAL. `nr` is -1 for a thread blocked outside a system call. */
int clp_proctext_syscall(const char *text, size_t len, int64_t *ret_nr, uint64_t *ret_sp,
                         uint64_t *ret_pc) CLP_MUST_USE;

#endif
