/* The one leaf lock of the library's code tables: modules, methods, bodies, names.
 *
 * Never held across a call into the runtime, a system call other than mmap, or anything unbounded.
 */
#ifndef CLP_SAMPLER_INPROC_CODE_LOCK_H
#define CLP_SAMPLER_INPROC_CODE_LOCK_H

void clp_code_lock(void);
void clp_code_unlock(void);

#endif
