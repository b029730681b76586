/* Hands one encoded profile to one destination.  Knows no configuration: everything comes in plain
 * structs whose strings belong to the caller. One call at a time per uploader; several uploaders
 * may be used by several threads. */
#ifndef CLP_UPLOADER_UPLOADER_H
#define CLP_UPLOADER_UPLOADER_H

#include "base/core/core.h"

#include <stdbool.h>

enum clp_upload_kind {
    CLP_UPLOAD_DIRECTORY, /* files for people and scripts */
    CLP_UPLOAD_HTTP,      /* POST of the gzipped pprof */
};
/* "directory", "http". 0 or -EINVAL. */
int clp_upload_parse_kind(const char *name, enum clp_upload_kind *ret) CLP_MUST_USE;
const char *clp_upload_kind_name(enum clp_upload_kind kind);

/* A destination. */
struct clp_upload {
    enum clp_upload_kind kind;
    const char *url;            /* http: http:// or https://, may hold user:password@ */
    const char *path;           /* directory: made when missing */
    const char *const *headers; /* http: "Name: value"; taken for secrets, never shown */
    size_t header_count;
    uint64_t connect_timeout_ns; /* http; 0: 5 s */
    uint64_t timeout_ns;         /* http, the whole exchange; 0: 10 s */
};

/* One encoded profile and what it is about. */
struct clp_upload_item {
    const char *service;    /* any text; made harmless in file names */
    const char *kind;       /* "cpu", "wall", ...; "all" for a profile of several kinds */
    int32_t pid;            /* of the target, as the agent sees it */
    uint64_t start_unix_ns; /* of the window */
    uint64_t duration_ns;
    uint64_t seq;        /* number of the window, so that names never clash */
    const uint8_t *data; /* gzipped pprof */
    size_t len;
};

/* What may be done after a failure. */
enum clp_retry {
    CLP_RETRY_NONE,  /* done, or the same bytes will fail again: drop them and say so */
    CLP_RETRY_LATER, /* network, time-out, 408, 429, 5xx; a full disk */
};

#define CLP_UPLOAD_TEXT_BYTES 512u

struct clp_upload_result {
    enum clp_retry retry;
    int http_status;         /* 0 when no reply came */
    uint64_t retry_after_ns; /* what the intake asked for, at most 1 h; 0: nothing */
    /* After 0 where it went (file path, or URL without user, password and query); after a failure
     * one sentence for people: what failed and what to do, with the start of the intake's reply.
     * Escaped: no control characters. */
    char text[CLP_UPLOAD_TEXT_BYTES];
};

struct clp_uploader;

/* 0, -EINVAL (no path, or a URL that is no http URL; *ret_why, when not NULL, is a static text),
 * -ENOMEM. Copies what it needs of `u`. */
int clp_uploader_new(const struct clp_upload *u, struct clp_uploader **ret,
                     const char **ret_why) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_uploader *clp_uploader_free(struct clp_uploader *up);
/* For CLP_CLEANUP. */
void clp_uploader_freep(struct clp_uploader **up);

/* Sends, waits for the outcome (bounded by the time-outs). 0, or a negative errno: -ETIMEDOUT,
 * -ECONNREFUSED, -EHOSTUNREACH, -EREMOTEIO (a reply that is no success), or what the file system
 * said. *ret is always filled. */
int clp_uploader_send(struct clp_uploader *up, const struct clp_upload_item *item,
                      struct clp_upload_result *ret) CLP_MUST_USE;

/* Once per program, before the first uploader and before threads; 0 or -ENOMEM. Ignores SIGPIPE
 * when the program has not said what to do with it. */
int clp_uploader_setup(void) CLP_MUST_USE;
void clp_uploader_teardown(void);

#endif
