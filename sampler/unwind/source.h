/* Where a file's bytes come from: an open file (pread only, so that a file which is truncated under
 * the reader raises no SIGBUS) or memory. Internal to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_SOURCE_H
#define CLP_SAMPLER_UNWIND_SOURCE_H

#include "sampler/unwind/code.h"

struct clp_source {
    const uint8_t *mem; /* NULL: read from fd */
    uint64_t size;      /* of mem, or of the file from `from` on */
    int fd;
    uint64_t from; /* in fd: where offset 0 lies; an image may lie inside of another file */
    /* An image as it is mapped in a process: offsets are link-time addresses, which lie at
     * `bias` + address there. */
    const struct clp_code_source *process;
    uint64_t bias;
};

int clp_source_open_fd(int fd, struct clp_source *ret) CLP_MUST_USE;
/* The part of a file that begins at `from`. */
int clp_source_open_part(int fd, uint64_t from, struct clp_source *ret) CLP_MUST_USE;
struct clp_source clp_source_of(const void *mem, size_t len);
struct clp_source clp_source_mapped(const struct clp_code_source *process, uint64_t bias);

/* Exactly `len` bytes at `offset`: 0, -EBADMSG past the end, or -errno of pread. */
int clp_source_read(const struct clp_source *s, uint64_t offset, void *buf,
                    size_t len) CLP_MUST_USE;

/* A copy of a file range in pages of its own; give back with clp_scratch_done. `ceiling` bounds
 * what a hostile header may ask for (-EBADMSG beyond it). */
struct clp_scratch {
    uint8_t *at;
    size_t bytes;
};
int clp_scratch_load(const struct clp_source *s, uint64_t offset, uint64_t len, size_t ceiling,
                     struct clp_scratch *ret) CLP_MUST_USE;
int clp_scratch_alloc(size_t bytes, struct clp_scratch *ret) CLP_MUST_USE;
void clp_scratch_done(struct clp_scratch *s);

#endif
