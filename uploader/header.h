/* What a profile is about, as it goes with it from the window to the intake. */
#ifndef CLP_UPLOADER_HEADER_H
#define CLP_UPLOADER_HEADER_H

#include "base/core/core.h"

#define CLP_UPLOAD_TAGS_MAX 64u
#define CLP_UPLOAD_NUMBERS_MAX 100u

/* What was counted or measured beside the samples. */
struct clp_upload_number {
    const char *name; /* longer ones than 255 bytes are cut */
    double value;     /* finite; others are left out */
};

/* Texts may be NULL or "" where unknown, except `service`. They are any bytes: who writes them into
 * a file or a request makes them fit. */
struct clp_upload_header {
    const char *service, *env, *version, *host;
    const char *runtime_id;      /* unique to the runtime instance, such as its cookie as a UUID */
    const char *runtime_version; /* "10.0.1" */
    const char *container_id;
    const char *const *tags; /* "key:value" each, the user's own and git.* */
    size_t tag_count;        /* at most CLP_UPLOAD_TAGS_MAX */
    int32_t pid, ns_pid;     /* as the agent sees it; as the target does, 0: not known */
    uint64_t seq;            /* profile_seq of the window */
    uint64_t start_unix_ns, duration_ns;
    uint64_t cgroup_inode; /* 0: not known */
    /* Requests that ended in the window by endpoint, named as the label `endpoint` is; what a
     * profile's cost is divided by. The busiest, at most CLP_UPLOAD_NUMBERS_MAX. */
    const struct clp_upload_number *endpoints;
    size_t endpoint_count;
};

#endif
