/* Who a profile is from, as intakes want to know it: service, env, version, host, runtime instance,
 * process, container, git, tags.
 *
 * What the configuration says wins; then what the target's owner has told other tools in its
 * environment (DD_*, OTEL_*); then what the process shows.  A target's environment and control
 * groups are foreign text: bounded, cleaned (base/core/text.h). Thread-safe. */
#ifndef CLP_AGENT_IDENTITY_H
#define CLP_AGENT_IDENTITY_H

#include "base/core/core.h"
#include "config/config.h"
#include "sampler/eventpipe/discover.h"

#define CLP_SERVICE_BYTES 256u
#define CLP_TAGS_MAX 64u
#define CLP_TAG_KEY_BYTES 100u
#define CLP_TAG_VALUE_BYTES 256u

struct clp_tag {
    char key[CLP_TAG_KEY_BYTES]; /* without ':' and ',' */
    char value[CLP_TAG_VALUE_BYTES];
};

struct clp_identity {
    char service[CLP_SERVICE_BYTES];
    char env[CLP_TAG_VALUE_BYTES]; /* "" where nothing is known, here and below */
    char version[CLP_TAG_VALUE_BYTES];
    char host[CLP_TAG_VALUE_BYTES];
    char runtime_id[37]; /* the runtime instance's cookie as a UUID, lower case */
    char container_id[80];
    int32_t ns_pid;        /* as it counts itself; 0: not known */
    uint64_t cgroup_inode; /* of its cgroup's directory, in a cgroup namespace of its own; else 0 */
    char git_repository[CLP_TAG_VALUE_BYTES]; /* without user and password */
    char git_commit[CLP_TAG_VALUE_BYTES];
    struct clp_tag tags[CLP_TAGS_MAX]; /* all others, each key once */
    size_t tag_count;
    uint32_t tags_refused; /* beyond CLP_TAGS_MAX */
};

/* Where the texts of a target come from. */
struct clp_identity_source {
    const struct clp_dotnet *process;
    const struct clp_config *config;
    const char *host;
    const char *environment; /* environ block, NUL-separated; may be NULL */
    size_t environment_len;
    const char *cgroup; /* text of /proc/PID/cgroup; may be NULL */
};
void clp_identity_make(const struct clp_identity_source *s, struct clp_identity *ret);

/* The same with /proc read. What cannot be read is left out. */
void clp_identity_read(const struct clp_dotnet *process, const struct clp_config *config,
                       struct clp_identity *ret);

/* The service's name alone: `configured` unless that is "auto". */
void clp_identity_service(const struct clp_dotnet *process, const char *configured,
                          char ret[CLP_SERVICE_BYTES]);

#endif
