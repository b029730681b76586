/* ELF images of the process (libcoreclr, libc, the vdso...), with their unwind tables.
 *
 * Loop thread only, where nothing else is said.  The list follows /proc/self/maps - never
 * dl_iterate_phdr, whose lock the application may hold.  It is read again when an address is not
 * covered or a mapping is no longer what it was (at most once a pass, and never for more than 2 %
 * of the time); a mapping is asked for again after 100 ms, after a second on kernels that only tell
 * all of them.  A table is built from the file when the image first occurs in a stack; the file
 * must be the one that is mapped: its first page equals the one in memory (device and inode differ
 * between maps and stat on overlay file systems).
 * Executable memory without a file and without a managed body is a stub. */
#ifndef CLP_SAMPLER_INPROC_IMAGES_H
#define CLP_SAMPLER_INPROC_IMAGES_H

#include "base/core/core.h"
#include "sampler/unwind/code.h"
#include "wire/wire.h"

/* Idempotent; what is known stays known over detach and attach. 0, -ENOMEM. */
int clp_images_init(void) CLP_MUST_USE;
/* NATIVE, STUB (executable, anonymous or doublemapper) or UNKNOWN. `pass` numbers the drain round.
 */
void clp_images_find(uint64_t ip, uint64_t pass, struct clp_code *ret);
/* Contents of the wire record, text behind the fixed part: its size, -ENOENT, -ENOSPC. */
int clp_images_record(uint32_t image_id, void *buf, size_t cap);
/* Image ids are shared by ELF images and managed modules (bodies.h): the next one. Any thread. */
uint32_t clp_images_next_id(void);

/* The mapping that holds an address: for stack bounds. 0, -ENOENT, -errno. Asks the kernel afresh.
 */
int clp_images_mapping(uint64_t address, uint64_t *ret_start, uint64_t *ret_end, bool *ret_stack);
/* Copies memory of this process without risk: process_vm_readv, or /proc/self/mem where seccomp
 * forbids it. Bytes copied (may be short) or -errno. Any thread. */
int64_t clp_images_read(uint64_t address, void *buf, size_t len);
/* Says that process_vm_readv must not even be tried (a filter that kills). Before the first read.
 */
void clp_images_forbid_vm_readv(void);

uint64_t clp_images_refused(void); /* images and ranges beyond a ceiling, tables without memory */
size_t clp_images_bytes(void);

#endif
