/* Checks of the socket messages, shared by both sides.  Pure: no I/O, no heap. */
#ifndef CLP_WIRE_MESSAGE_H
#define CLP_WIRE_MESSAGE_H

#include "base/core/core.h"
#include "wire/wire.h"

/* The type of a received datagram of `len` bytes at `buf` (aligned to 8) when its header, its
 * length and the layout of that type agree; else -EBADMSG. A message may be longer than its type
 * asks for by nothing: one version, one layout. */
int clp_msg_check(const void *buf, size_t len) CLP_MUST_USE;

/* Reader: does a checked HELLO prove that its sender got our AttachProfiler? 0; -EPROTO for another
 * magic or version, -EACCES for a wrong nonce. *ret_version gets the library's version as clean
 * text. */
int clp_msg_hello_check(const struct clp_msg_hello *hello,
                        const uint8_t library_nonce[CLP_NONCE_BYTES], char *ret_version,
                        size_t version_cap) CLP_MUST_USE;

/* Takes as long for a wrong nonce as for the right one. */
int clp_nonce_equal(const uint8_t a[CLP_NONCE_BYTES], const uint8_t b[CLP_NONCE_BYTES]);

/* Library: is the client data of an attach ours? 0 with a copy whose path is terminated, or
 * -EINVAL. */
int clp_attach_data_check(const void *data, size_t len, struct clp_attach_data *ret) CLP_MUST_USE;

/* Settings within their bounds, unknown bits dropped. */
struct clp_settings clp_settings_clamp(const struct clp_settings *s);

#endif
