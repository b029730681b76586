/* gzip by zlib, in memory, bounded. Thread-safe. */
#ifndef CLP_PPROF_GZIP_H
#define CLP_PPROF_GZIP_H

#include "base/core/core.h"
#include "base/strbuf.h"

#include <stdbool.h>

/* Compresses piece by piece into a buffer of the caller. */
struct clp_gzip;
/* 0 or -ENOMEM. `out` must outlive the compressor. */
int clp_gzip_new(struct clp_strbuf *out, struct clp_gzip **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_gzip *clp_gzip_free(struct clp_gzip *z);
/* For CLP_CLEANUP. */
void clp_gzip_freep(struct clp_gzip **z);
/* 0, or the buffer's error (-ENOBUFS, -ENOMEM). */
int clp_gzip_add(struct clp_gzip *z, const void *data, size_t len) CLP_MUST_USE;
/* Writes what is pending and the trailer. */
int clp_gzip_finish(struct clp_gzip *z) CLP_MUST_USE;

/* Whether the bytes begin like a gzip file. */
bool clp_gzip_is(const void *data, size_t len);
/* Decompresses a whole gzip file (one or more members) of foreign bytes. The result in *ret (free),
 * its length in *ret_len. 0, -EBADMSG (damaged, or cut short), -EFBIG beyond `ceiling_bytes`,
 * -ENOMEM. */
int clp_gunzip(const void *data, size_t len, size_t ceiling_bytes, uint8_t **ret,
               size_t *ret_len) CLP_MUST_USE;

#endif
