/* multipart/form-data. */
#ifndef CLP_UPLOADER_MULTIPART_H
#define CLP_UPLOADER_MULTIPART_H

#include "base/strbuf.h"

#define CLP_MULTIPART_TYPE_BYTES 128u

/* A boundary that is not in any part is drawn from `id`, 16 bytes that are the profile's own. */
struct clp_multipart {
    struct clp_strbuf body;
    char boundary[64];
};
void clp_multipart_init(struct clp_multipart *m, const uint8_t id[16]);
/* `type` may be NULL. Names are ours: no quoting. */
void clp_multipart_add(struct clp_multipart *m, const char *name, const char *file_name,
                       const char *type, const void *data, size_t len);
/* The last boundary; value of Content-Type in `type`. 0, -EFBIG, -ENOMEM; the body is the caller's.
 */
int clp_multipart_take(struct clp_multipart *m, char type[CLP_MULTIPART_TYPE_BYTES], uint8_t **ret,
                       size_t *ret_len) CLP_MUST_USE;
void clp_multipart_done(struct clp_multipart *m);

#endif
