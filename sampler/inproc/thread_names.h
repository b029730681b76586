/* Names that threads got before we came.
 *
 * ThreadNameChanged tells of later names only, and the kernel keeps 15 bytes.  The whole text lies
 * in the managed Thread object, which the collector moves as it likes: it is read with
 * process_vm_readv alone, and believed where everything fits: an object that the runtime's Thread
 * leads to and that leads back to it, in it a string that begins with the kernel's 15 bytes, and
 * all of that twice, a while apart. Loop thread. */
#ifndef CLP_SAMPLER_INPROC_THREAD_NAMES_H
#define CLP_SAMPLER_INPROC_THREAD_NAMES_H

#include "base/core/core.h"

#define CLP_THREAD_COMM_MAX 15u /* bytes of a name that the kernel keeps */

/* Looks for the name of the thread that the runtime's Thread object `clr_thread` stands for.
 * `comm`: the kernel's bytes, `comm_len` of them.  0 with UTF-8, cut on a character boundary, in
 * `ret`; -ENOENT: the kernel has the whole name, or nothing was found that fits. About 20 us, the
 * first time up to 1 ms. */
int clp_thread_names_find(uint64_t clr_thread, const char *comm, size_t comm_len, char *ret,
                          size_t cap) CLP_MUST_USE;

#endif
