/* What a kind of destination implements; one file for each, none knows another. */
#ifndef CLP_UPLOADER_BACKEND_H
#define CLP_UPLOADER_BACKEND_H

#include "base/strbuf.h"
#include "uploader/uploader.h"

/* The part that all kinds share; each kind's own struct begins with it. */
struct clp_uploader {
    const struct clp_backend *backend;
};

struct clp_backend {
    const char *name;
    /* As clp_uploader_new; the caller fills in `backend`. */
    int (*open)(const struct clp_upload *u, struct clp_uploader **ret, const char **ret_why);
    void (*close)(struct clp_uploader *up);
    /* As clp_uploader_send, with *ret zeroed before. */
    int (*send)(struct clp_uploader *up, const struct clp_upload_item *item,
                struct clp_upload_result *ret);
};

extern const struct clp_backend clp_backend_directory;
extern const struct clp_backend clp_backend_http;

/* Fills ret->text: formatted, invalid UTF-8 and control characters replaced, cut where it must be.
 */
void clp_upload_say(struct clp_upload_result *ret, const char *fmt, ...) CLP_PRINTF(2, 3);

/* Copies foreign text so that it may stand in file names and headers: everything but ASCII letters,
 * digits, '.', '_' and '-' becomes '_', and so does a leading '.'; at most cap - 1 bytes, "unknown"
 * for an empty text. Returns `buf`. */
const char *clp_upload_plain_name(const char *s, char *buf, size_t cap);

#endif
