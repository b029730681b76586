/* From foreign pprof bytes (gzip or plain) to the model, everything checked.
 *
 * What the model does not keep is dropped: drop_frames, keep_frames, doc_url, Line.column,
 * Location.is_folded, and a label key's second value. Ids need not be sequential. */
#ifndef CLP_PPROF_DECODE_H
#define CLP_PPROF_DECODE_H

#include "pprof/profile.h"

#define CLP_DECODE_PLAIN_MAX_BYTES (64u << 20)   /* after decompression */
#define CLP_DECODE_UNPACK_MAX_BYTES (256u << 20) /* memory for the unpacked message */

/* 0; -EBADMSG: no valid profile, and *ret_why (when not NULL) is a static text that says what is
 * wrong; -EFBIG beyond a ceiling; -ENOMEM. *ret is untouched on failure. `limits` may be NULL. */
int clp_profile_decode(const void *data, size_t len, const struct clp_profile_limits *limits,
                       struct clp_profile **ret, const char **ret_why) CLP_MUST_USE;

#endif
