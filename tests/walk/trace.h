/* Starting a program and stopping its threads from outside. */
#ifndef CLP_TESTS_WALK_TRACE_H
#define CLP_TESTS_WALK_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "sampler/unwind/code.h"

#define TRACE_THREADS_MAX 512

struct child {
    pid_t pid;
    int to, from; /* its standard input and output */
};

/* With perf maps switched on; killed when we die. */
struct child trace_start(char **argv);
bool trace_read_line(int fd, char *line, size_t cap);
void trace_say(int fd, const char *line);

/* Attaches and stops; *ret_signal is to be handed on at PTRACE_DETACH. */
bool trace_stop(pid_t tid, int *ret_signal);
bool trace_regs(pid_t tid, struct clp_regs *ret);

size_t trace_threads(pid_t pid, pid_t out[TRACE_THREADS_MAX]);
bool trace_running(pid_t pid, pid_t tid);

#endif
