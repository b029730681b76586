/* A profile in the spool: one file, written once, drawn in docs/spool.md.
 *
 *     0   8  magic "CLPCHUNK"
 *     8   4  version, 1
 *     12  4  length of the header, H
 *     16  8  length of the profile, P
 *     24  4  CRC-32 of header and profile
 *     28  4  CRC-32 of the 28 bytes before
 *     32  H  header: message Header of chunk.proto
 *         P  profile: gzipped pprof with all sample types of the window
 *
 * Numbers are little-endian. A file is exactly 32 + H + P bytes long. */
#ifndef CLP_UPLOADER_CHUNK_H
#define CLP_UPLOADER_CHUNK_H

#include "base/core/core.h"
#include "uploader/header.h"

#define CLP_CHUNK_MAGIC "CLPCHUNK"
#define CLP_CHUNK_VERSION 1u
#define CLP_CHUNK_PREFIX_BYTES 32u
#define CLP_CHUNK_HEADER_MAX_BYTES 65536u
#define CLP_CHUNK_PROFILE_MAX_BYTES (64u << 20)
#define CLP_CHUNK_MAX_BYTES                                                                        \
    (CLP_CHUNK_PREFIX_BYTES + CLP_CHUNK_HEADER_MAX_BYTES + CLP_CHUNK_PROFILE_MAX_BYTES)

/* *ret is the whole chunk (free). Long texts are cut, and what a header has no room for is left
 * out: endpoints, then the last tags. 0, -EFBIG (too many tags, or the profile), -ENOMEM. */
int clp_chunk_write(const struct clp_upload_header *h, const void *profile, size_t len,
                    uint8_t **ret, size_t *ret_len) CLP_MUST_USE;

/* A chunk that was read. */
struct clp_chunk {
    struct clp_upload_header header;
    const uint8_t *profile; /* inside the bytes that were given */
    size_t profile_len;
    void *own; /* what the header points to */
};

/* Foreign bytes: a crash, a full disk or a stranger may have left them. They must outlive the
 * chunk. 0; -EBADMSG with a static sentence in *ret_why (may be NULL); -ENOMEM. *ret is untouched
 * on failure. */
int clp_chunk_read(const void *data, size_t len, struct clp_chunk *ret,
                   const char **ret_why) CLP_MUST_USE;
/* Accepts what is all zero. */
void clp_chunk_done(struct clp_chunk *c);

#endif
