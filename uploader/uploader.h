/* Destinations of profiles.  Knows no configuration: everything comes in plain structs.
 *
 * This header is for those who send one profile and wait (check, tests); delivery.h is what the
 * agent uses. */
#ifndef CLP_UPLOADER_UPLOADER_H
#define CLP_UPLOADER_UPLOADER_H

#include "base/core/core.h"
#include "uploader/header.h"

#include <stdbool.h>

enum clp_upload_kind {
    CLP_UPLOAD_DIRECTORY, /* files for people and scripts */
    CLP_UPLOAD_HTTP,      /* POST of the gzipped pprof */
    CLP_UPLOAD_PYROSCOPE, /* push API */
    CLP_UPLOAD_DATADOG,   /* agent or agentless */
    CLP_UPLOAD_OTLP,      /* OTLP/HTTP profiles, protobuf */
    CLP_UPLOAD_PARCA,     /* WriteRaw by gRPC-Web */
    CLP_UPLOAD_KINDS
};
/* "directory", "http"... 0 or -EINVAL. */
int clp_upload_parse_kind(const char *name, enum clp_upload_kind *ret) CLP_MUST_USE;
const char *clp_upload_kind_name(enum clp_upload_kind kind);

/* A destination. Texts may be NULL; they are copied. A text marked S is a secret: "file:PATH" or
 * "env:NAME" stand for the contents of a file, read again for each request, or of a variable; it is
 * never shown. */
struct clp_upload {
    enum clp_upload_kind kind;
    const char *url;            /* http://, https://, unix:///path; may hold user:password@ */
    const char *path;           /* directory: made when missing */
    const char *const *headers; /* "Name: value", values S */
    size_t header_count;
    const char *user, *password; /* basic authentication; password S */
    const char *token;           /* bearer token, S */
    const char *tenant;          /* pyroscope: X-Scope-OrgID */
    const char *api_key;         /* datadog without its agent, S */
    const char *site;            /* datadog: "datadoghq.eu" */
    const char *format;          /* http: "raw" (default) or "multipart" */
    const char *otlp_version;    /* otlp: value of OTLP-Profiles-Development-Version */
    const char *ca_file, *cert_file, *key_file; /* TLS, PEM */
    const char *proxy, *no_proxy;               /* NULL: those of the environment; proxy S */
    uint64_t connect_timeout_ns;                /* 0: 5 s */
    uint64_t timeout_ns;                        /* the whole exchange; 0: 10 s */
    uint64_t size_max;                          /* bytes before compression; 0: the kind's */
};

/* What becomes of a profile after a try. */
enum clp_outcome {
    CLP_OUTCOME_DONE,    /* the intake has it */
    CLP_OUTCOME_LATER,   /* the network or the intake is not well: again, as long as it takes */
    CLP_OUTCOME_SUSPECT, /* again, but the reason may be this profile: a few times only */
    CLP_OUTCOME_SMALLER, /* too large: again with more folded */
    CLP_OUTCOME_DROP,    /* the same bytes will fail again */
};

#define CLP_UPLOAD_TEXT_BYTES 512u

struct clp_upload_result {
    enum clp_outcome outcome;
    int http_status;         /* 0 when no reply came */
    uint64_t retry_after_ns; /* what the intake asked for, at most 1 h; 0: nothing */
    /* Where it went (a path, or the URL without user, password and query), or one sentence for
     * people: what failed and what to do, with the start of the intake's reply. No control
     * characters, no secrets. */
    char text[CLP_UPLOAD_TEXT_BYTES];
};

struct clp_intake;

/* 0, -EINVAL (*ret_why, when not NULL, is a static text), -ENOMEM. */
int clp_intake_open(const struct clp_upload *u, struct clp_intake **ret,
                    const char **ret_why) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_intake *clp_intake_close(struct clp_intake *in);
/* For CLP_CLEANUP. */
void clp_intake_closep(struct clp_intake **in);
/* The same for the same destination in every run, whatever its secrets are. */
uint64_t clp_intake_id(const struct clp_intake *in);
/* Path, or URL without secrets. Valid as long as the intake. */
const char *clp_intake_where(const struct clp_intake *in);

/* Sends one profile (gzipped pprof with the sample types of docs/pprof.md) and waits for the
 * outcome of all its parts, without trying again. 0 when the intake has all, -EREMOTEIO else, or
 * -EBADMSG for bytes that are no profile; *ret is always filled. */
int clp_intake_send(struct clp_intake *in, const struct clp_upload_header *h, const void *profile,
                    size_t len, struct clp_upload_result *ret) CLP_MUST_USE;

/* Once per program, before the first intake and before threads; 0 or -ENOMEM. Ignores SIGPIPE when
 * the program has not said what to do with it. */
int clp_uploader_setup(void) CLP_MUST_USE;
void clp_uploader_teardown(void);

#endif
