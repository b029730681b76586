/* ELF images of the process (libcoreclr, libc, the vdso...), with their unwind tables.
 *
 * Loop thread only.  The list follows /proc/self/maps, re-read when an address is not covered (at most
 * once a pass) - never dl_iterate_phdr, whose lock the application may hold.  A table is built from
 * the file when the image first occurs in a stack; the file is compared with the mapping (device,
 * inode, build id).  Executable memory without a file and without a managed body is a stub. */
#ifndef CLP_SAMPLER_INPROC_IMAGES_H
#define CLP_SAMPLER_INPROC_IMAGES_H

#include "base/core/core.h"
#include "sampler/unwind/code.h"
#include "wire/wire.h"

int clp_images_init(void) CLP_MUST_USE;
/* NATIVE, STUB (executable, anonymous or doublemapper) or UNKNOWN. `pass` numbers the drain round:
 * maps are re-read at most once per pass. */
void clp_images_find(uint64_t ip, uint64_t pass, struct clp_code *ret);
int clp_images_record(uint32_t image_id, void *buf, size_t cap);
/* The mapping that holds an address: for stack bounds. 0 or -ENOENT. Reads /proc/self/maps afresh. */
int clp_images_mapping(uint64_t address, uint64_t *ret_start, uint64_t *ret_end, bool *ret_stack);
/* Copies memory of this process without risk: process_vm_readv, or /proc/self/mem where seccomp
 * forbids it. Bytes copied or -errno. */
int64_t clp_images_read(uint64_t address, void *buf, size_t len);
size_t clp_images_bytes(void);

#endif
