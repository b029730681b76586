/* What a kind of destination implements; one file for each, none knows another. */
#ifndef CLP_UPLOADER_INTAKE_H
#define CLP_UPLOADER_INTAKE_H

#include "base/strbuf.h"
#include "pprof/profile.h"
#include "pprof/reshape.h"
#include "uploader/chunk.h"
#include "uploader/spool.h"
#include "uploader/uploader.h"

#define CLP_REQUEST_HEADERS_MAX 24u
#define CLP_REQUEST_HEADER_MAX_BYTES 8192u

/* One HTTP request, or one file, in the making: a part of a chunk. */
struct clp_request {
    char part[CLP_SPOOL_PART_BYTES]; /* "cpu"; "all" where one request takes everything */
    char *headers[CLP_REQUEST_HEADERS_MAX];
    size_t header_count;
    uint8_t *body;
    size_t len, plain_len; /* as it goes; of the profile in it before compression */
    size_t folded;
    char note[CLP_RESHAPE_NOTE_BYTES];
};

struct clp_requests {
    struct clp_request items[CLP_SPOOL_PARTS_MAX];
    size_t count;
};

/* What came back. */
struct clp_reply {
    int status; /* HTTP's */
    const char *body;
    size_t len; /* of what was kept */
    /* gRPC's status and message from headers; -1 and "": none */
    int grpc_status;
    const char *grpc_message;
};

struct clp_intake {
    const struct clp_intake_kind *kind;
    struct clp_upload upload; /* own copies of the texts */
    const char *path;         /* that is added to the user's URL; the kind's */
    char *request_url;        /* with that path */
    char *socket;             /* Unix socket, or NULL */
    char *where;              /* what may be shown */
    size_t plain_max;       /* the limit at the moment: it falls when the intake says "too large" */
    const char *key_header; /* that carries upload.api_key; NULL: none does. The kind's */
};

struct clp_intake_kind {
    const char *name;
    size_t plain_max; /* of one part, before compression; 0: no bound */
    bool is_files;    /* `store` instead of HTTP */
    /* Path that is added to the user's URL; "" for none. */
    const char *path;
    /* Before the URL is read; may change it and the path. 0 or -EINVAL with *ret_why. NULL: nothing
     * to do. */
    int (*open)(struct clp_intake *in, const char **ret_why);
    /* Makes the requests of one profile; the caller leaves out those that are done already. 0;
     * -ENODATA: nothing in it is for this intake; -ESTALE: too old for it; others.
     */
    int (*build)(const struct clp_intake *in, const struct clp_chunk *c,
                 const struct clp_profile *p, struct clp_requests *ret);
    /* A status of its own in the reply's body: gives the HTTP status that it amounts to, and words.
     * NULL: HTTP's status is the answer. */
    int (*judge)(const struct clp_reply *reply, char *text, size_t cap);
    int (*store)(const struct clp_intake *in, const struct clp_chunk *c,
                 const struct clp_request *request, struct clp_upload_result *ret);
};

extern const struct clp_intake_kind clp_intake_directory;
extern const struct clp_intake_kind clp_intake_http;
extern const struct clp_intake_kind clp_intake_pyroscope;
extern const struct clp_intake_kind clp_intake_datadog;
extern const struct clp_intake_kind clp_intake_otlp;
extern const struct clp_intake_kind clp_intake_parca;

/* Decodes the profile and lets the kind build. 0, -ENODATA, -ESTALE, -EBADMSG, -EFBIG, -ENOMEM;
 * with a sentence in *result. */
int clp_intake_build(const struct clp_intake *in, const struct clp_chunk *c,
                     struct clp_requests *ret, struct clp_upload_result *result) CLP_MUST_USE;
void clp_requests_done(struct clp_requests *r);
/* The next one, zeroed; NULL when there are too many. */
struct clp_request *clp_requests_add(struct clp_requests *r, const char *part);
/* "Name: value"; bytes that may not stand in a header become '_'. 0, -EFBIG, -ENOMEM. */
int clp_request_header(struct clp_request *r, const char *name, const char *value) CLP_MUST_USE;
/* gRPC's status code as text; -1 when it is none. */
int clp_reply_grpc_code(const char *text, size_t len);
/* Hands a finished profile's bytes and what is said about it to the request. */
void clp_request_take(struct clp_request *r, struct clp_reshaped *from);

/* ---- series: one profile for each kind of sample ---- */

struct clp_series {
    const char *part;                   /* "cpu" */
    const char *metric;                 /* what Pyroscope and Parca call it */
    struct clp_reshape_value values[2]; /* types: ours, and as they spell it */
    struct clp_value_type period_type;  /* in our spelling */
};
enum clp_spelling {
    CLP_SPELLING_OWN,   /* of docs/pprof.md */
    CLP_SPELLING_KNOWN, /* of Pyroscope and Parca */
};

/* The series that our sample type belongs to, or NULL. */
const struct clp_series *clp_series_of(const char *type);

/* Makes the request of one series from its profile, which is the body. 0 or a negative errno. */
typedef int clp_series_finish(const struct clp_intake *in, const struct clp_series *s,
                              const struct clp_chunk *c, struct clp_request *q);
/* A request for each series that has samples in `p`, after `how`, whose values, period type and
 * limit are filled in here. `finish` may be NULL. As `build` of struct clp_intake_kind. */
int clp_series_build(const struct clp_intake *in, const struct clp_chunk *c,
                     const struct clp_profile *p, enum clp_spelling spelling,
                     const struct clp_reshape *how, clp_series_finish *finish,
                     struct clp_requests *ret) CLP_MUST_USE;

/* Labels of a series. */
struct clp_tag {
    char *name, *value;
};
struct clp_tags {
    struct clp_tag items[32];
    size_t count, most;
    size_t name_max, value_max; /* bytes */
};
/* Adds name and value with the grammar [A-Za-z_][A-Za-z0-9_]*; an empty value, a name that is there
 * already and what is beyond the bound are left out. 0 or -ENOMEM. */
int clp_tags_add(struct clp_tags *t, const char *name, const char *value) CLP_MUST_USE;
/* The user's "key:value" tags. */
int clp_tags_add_own(struct clp_tags *t, const struct clp_upload_header *h) CLP_MUST_USE;
void clp_tags_done(struct clp_tags *t);

/* 16 bytes that are the same for the same chunk and part: what lets an intake tell a resend. */
void clp_part_id(const struct clp_upload_header *h, const char *part, uint8_t ret[16]);
/* The same as a UUID's text. */
const char *clp_part_uuid(const struct clp_upload_header *h, const char *part, char buf[37]);

/* Fills ret->text: formatted, invalid UTF-8 and control characters replaced, cut where it must be.
 */
void clp_upload_say(struct clp_upload_result *ret, const char *fmt, ...) CLP_PRINTF(2, 3);
/* Copies foreign text so that it may stand in file names and headers: everything but ASCII letters,
 * digits, '.', '_' and '-' becomes '_', and so does a leading '.'; at most cap - 1 bytes, "unknown"
 * for an empty text. Returns `buf`. */
const char *clp_upload_plain_name(const char *s, char *buf, size_t cap);

#endif
