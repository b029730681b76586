/* ELF images of the process (libcoreclr, libc, the vdso...), with their unwind tables.
 *
 * Loop thread only, where nothing else is said.  An address is looked up among the executable
 * mappings (ranges.h); a table is built from the file when the image first occurs in a stack
 * (image_files.h).  Executable memory without a file and without a managed body is a stub. */
#ifndef CLP_SAMPLER_INPROC_IMAGES_H
#define CLP_SAMPLER_INPROC_IMAGES_H

#include "base/core/core.h"
#include "sampler/unwind/code.h"
#include "wire/wire.h"

#include <stdbool.h>

/* Idempotent; what is known stays known over detach and attach. 0, -ENOMEM. */
int clp_images_init(void) CLP_MUST_USE;
/* NATIVE, STUB (executable, anonymous or doublemapper) or UNKNOWN. `pass` numbers the drain round.
 */
void clp_images_find(uint64_t ip, uint64_t pass, struct clp_code *ret);
/* Contents of the wire record, text behind the fixed part: its size, -ENOENT, -ENOSPC. */
int clp_images_record(uint32_t image_id, void *buf, size_t cap);
/* Image ids are shared by ELF images and managed modules (bodies.h): the next one. Any thread. */
uint32_t clp_images_next_id(void);

/* Copies memory of this process without risk: process_vm_readv, or /proc/self/mem where seccomp
 * forbids it. Bytes copied (may be short) or -errno. Any thread. */
int64_t clp_images_read(uint64_t address, void *buf, size_t len);
/* Many of these, with as few calls as may be. */
#define CLP_READS_MAX 64u
struct clp_read {
    uint64_t address;
    void *to;
    uint32_t bytes;
    bool done; /* all of them were read */
};
void clp_images_read_many(struct clp_read *reads, size_t n); /* at most CLP_READS_MAX */
/* Says that process_vm_readv must not even be tried (a filter that kills). Before the first read.
 */
void clp_images_forbid_vm_readv(void);

uint64_t clp_images_refused(void); /* images and ranges beyond a ceiling, tables without memory */
size_t clp_images_bytes(void);

#endif
