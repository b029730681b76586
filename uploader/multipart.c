#include "uploader/multipart.h"

#include <errno.h>
#include <stdio.h>

#define BODY_MAX_BYTES (80u << 20)

void clp_multipart_init(struct clp_multipart *m, const uint8_t id[16])
{
    size_t at = (size_t)snprintf(m->boundary, sizeof(m->boundary), "clrpulse-");
    for (size_t i = 0; i < 16; i++)
        at += (size_t)snprintf(m->boundary + at, sizeof(m->boundary) - at, "%02x", id[i]);
    clp_strbuf_init(&m->body, BODY_MAX_BYTES);
}

void clp_multipart_add(struct clp_multipart *m, const char *name, const char *file_name,
                       const char *type, const void *data, size_t len)
{
    clp_strbuf_printf(&m->body,
                      "--%s\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n",
                      m->boundary, name, file_name);
    if (type)
        clp_strbuf_printf(&m->body, "Content-Type: %s\r\n", type);
    clp_strbuf_str(&m->body, "\r\n");
    clp_strbuf_add(&m->body, data, len);
    clp_strbuf_str(&m->body, "\r\n");
}

int clp_multipart_take(struct clp_multipart *m, char type[CLP_MULTIPART_TYPE_BYTES], uint8_t **ret,
                       size_t *ret_len)
{
    clp_strbuf_printf(&m->body, "--%s--\r\n", m->boundary);
    (void)snprintf(type, CLP_MULTIPART_TYPE_BYTES, "multipart/form-data; boundary=%s", m->boundary);
    int r = clp_strbuf_take(&m->body, (char **)ret, ret_len);
    return r == -ENOBUFS ? -EFBIG : r;
}

void clp_multipart_done(struct clp_multipart *m)
{
    clp_strbuf_done(&m->body);
}
