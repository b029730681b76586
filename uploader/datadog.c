/* Kind `datadog`: event.json, metrics.json and one pprof with all sample types, as a form, to a
 * Datadog agent (TCP or Unix socket) or, with a key, straight to the intake of a site.
 *
 * Where it goes: the url of the configuration; an api_key or DD_PROFILING_AGENTLESS; else what
 * Datadog's own libraries look at, in their order: DD_TRACE_AGENT_URL, the agent's socket if there
 * is one, DD_AGENT_HOST and DD_TRACE_AGENT_PORT. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "pprof/model.h"
#include "uploader/intake.h"
#include "uploader/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#ifndef CLP_VERSION
#define CLP_VERSION "dev"
#endif

#define PLAIN_MAX_BYTES (10u << 20)
#define AGENT_SOCKET "/var/run/datadog/apm.socket"
#define AGENT_PATH "/profiling/v1/input"
#define INTAKE_PATH "/api/v2/profile"
#define TAG_MAX_BYTES 200u
#define JSON_MAX_BYTES (1u << 20)

static const struct clp_reshape_value values[] = {
    {"exceptions", "exception", "count"},
    {"alloc_objects", "alloc-samples", "count"},
    {"alloc_space", "alloc-size", "bytes"},
    {"lock_contentions", "lock-count", "count"},
    {"lock_delay", "lock-time", "nanoseconds"},
    {"inuse_objects", "inuse-objects", "count"},
    {"inuse_space", "inuse-space", "bytes"},
    {"gc_collections", "gc-count", "count"},
    {"gc_pause", "gc-pause", "nanoseconds"},
    {"waits", "wait-count", "count"},
    {"wait_time", "wait-time", "nanoseconds"},
    {"wall", "wall", "nanoseconds"},
    {"cpu", "cpu", "nanoseconds"},
};

static const struct clp_label_rule label_rules[] = {
    {"thread_id", "thread id", CLP_LABEL_AS_TEXT, 0},
    {"thread_name", "thread name", CLP_LABEL_AS_IS, 0},
    {"span_id", "span id", CLP_LABEL_FROM_HEX, 0},
    {"local_root_span_id", "local root span id", CLP_LABEL_FROM_HEX, 0},
    {"endpoint", "trace endpoint", CLP_LABEL_AS_IS, 0},
    {"exception_type", "exception type", CLP_LABEL_AS_IS, 0},
    {"exception_message", "exception message", CLP_LABEL_AS_IS, 0},
    {"allocation_class", "allocation class", CLP_LABEL_AS_IS, 0},
    {"generation", "object generation", CLP_LABEL_AS_TEXT, 0},
    {"age", "object lifetime", CLP_LABEL_AS_IS, 0},
    {"lock_owner", "lock owner", CLP_LABEL_AS_IS, 0},
    {"lock_owner_stack", "lock owner stack", CLP_LABEL_AS_IS, 0},
    {"gc_generation", "gc generation", CLP_LABEL_AS_TEXT, 0},
    {"gc_reason", "gc reason", CLP_LABEL_AS_IS, 0},
    {"gc_kind", "gc type", CLP_LABEL_AS_IS, 0},
    {"wait", "wait", CLP_LABEL_AS_IS, 0},
};

/* ---- where ----------------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static bool is_true(const char *text)
{
    return text && (strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0);
}

static int set_text(const char **to, const char *prefix, const char *text, const char *rest)
{
    char *made = NULL;
    if (asprintf(&made, "%s%s%s", prefix, text, rest) < 0)
        return -ENOMEM;
    free((char *)(uintptr_t)*to);
    *to = made;
    return 0;
}

static int go_to_site(struct clp_intake *in, const char **ret_why)
{
    struct clp_upload *u = &in->upload;
    const char *site = u->site ? u->site : variable("DD_SITE");
    in->key_header = "DD-API-KEY";
    *ret_why = "without its agent it needs an api_key, or DD_API_KEY";
    if (!u->api_key && !variable("DD_API_KEY"))
        return -EINVAL;
    int r = u->api_key ? 0 : set_text(&u->api_key, "env:", "DD_API_KEY", "");
    if (r == 0 && !u->url)
        r = set_text(&u->url, "https://intake.profile.", site ? site : "datadoghq.com", "");
    in->path = INTAKE_PATH;
    return r;
}

static int go_to_agent(struct clp_upload *u)
{
    struct stat st;
    const char *url = variable("DD_TRACE_AGENT_URL"), *host = variable("DD_AGENT_HOST");
    const char *port = variable("DD_TRACE_AGENT_PORT");
    char address[300];
    if (u->url)
        return 0;
    if (url)
        return set_text(&u->url, "", url, "");
    if (stat(AGENT_SOCKET, &st) == 0)
        return set_text(&u->url, "unix://", AGENT_SOCKET, "");
    bool bare_v6 = host && *host != '[' && strchr(host, ':');
    (void)snprintf(address, sizeof(address), bare_v6 ? "[%.255s]:%.8s" : "%.255s:%.8s",
                   host ? host : "localhost", port ? port : "8126");
    return set_text(&u->url, "http://", address, "");
}

static int datadog_open(struct clp_intake *in, const char **ret_why)
{
    struct clp_upload *u = &in->upload;
    if (u->api_key || (!u->url && is_true(variable("DD_PROFILING_AGENTLESS"))))
        return go_to_site(in, ret_why);
    in->path = AGENT_PATH;
    return go_to_agent(u);
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* Tags, "key:value": first character a letter, at most 200 of them, no blanks and commas inside, no
 * colon at an end. One without a value is left out. */
static void add_tag_text(struct clp_strbuf *b, const char *text)
{
    char tag[TAG_MAX_BYTES + 1];
    struct clp_text t = clp_text_in(tag, sizeof(tag));
    const char *colon = strchr(text, ':');
    if (!colon || !colon[1])
        return;
    clp_text_add(&t, text);
    for (char *c = tag; *c; c++)
        if (strchr(", \t\r\n", *c))
            *c = '_';
    while (t.len > 0 && tag[t.len - 1] == ':')
        tag[--t.len] = '\0';
    if ((*tag >= 'a' && *tag <= 'z') || (*tag >= 'A' && *tag <= 'Z'))
        clp_strbuf_printf(b, "%s%s", b->len ? "," : "", tag);
}

static void add_tag(struct clp_strbuf *b, const char *key, const char *value)
{
    char text[2 * TAG_MAX_BYTES]; /* what is cut here is so again there */
    (void)snprintf(text, sizeof(text), "%s:%s", key, value ? value : "");
    add_tag_text(b, text);
}

static void add_number_tag(struct clp_strbuf *b, const char *key, uint64_t n)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    add_tag(b, key, text);
}

static void write_tags(struct clp_strbuf *b, const struct clp_upload_header *h)
{
    add_tag(b, "language", "dotnet");
    add_tag(b, "profiler_version", CLP_VERSION);
    add_tag(b, "process_architecture", "x64");
    add_number_tag(b, "process_id", (uint64_t)(h->ns_pid > 0 ? h->ns_pid : h->pid));
    add_tag(b, "host", h->host);
    for (size_t i = 0; i < h->tag_count; i++)
        add_tag_text(b, h->tags[i]);
    add_tag(b, "env", h->env);
    add_tag(b, "version", h->version);
    add_tag(b, "service", h->service);
    add_tag(b, "runtime-id", h->runtime_id);
    add_number_tag(b, "profile_seq", h->seq);
    add_tag(b, "runtime_version", h->runtime_version);
}

/* ---- event.json ------------------------------------------------------------------------------ */

static const char *rfc3339(uint64_t unix_ns, char buf[48])
{
    time_t seconds = (time_t)(unix_ns / CLP_NSEC_PER_SEC);
    struct tm t;
    char head[32];
    gmtime_r(&seconds, &t);
    (void)strftime(head, sizeof(head), "%Y-%m-%dT%H:%M:%S", &t);
    (void)snprintf(buf, 48, "%s.%09lluZ", head, (unsigned long long)(unix_ns % CLP_NSEC_PER_SEC));
    return buf;
}

static void add_pair(struct clp_strbuf *b, const char *key, const char *value, bool last)
{
    clp_strbuf_json(b, key, strlen(key));
    clp_strbuf_char(b, ':');
    clp_strbuf_json(b, value ? value : "", value ? strlen(value) : 0);
    clp_strbuf_str(b, last ? "}" : ",");
}

static void write_endpoints(struct clp_strbuf *b, const struct clp_upload_header *h)
{
    clp_strbuf_str(b, h->endpoint_count ? "{" : "null");
    for (size_t i = 0; i < h->endpoint_count; i++) {
        const struct clp_upload_number *e = &h->endpoints[i];
        clp_strbuf_str(b, i ? "," : "");
        clp_strbuf_json(b, e->name, strlen(e->name));
        clp_strbuf_printf(b, ":%.0f", e->value);
    }
    clp_strbuf_str(b, h->endpoint_count ? "}" : "");
}

static void write_event(struct clp_strbuf *b, const struct clp_upload_header *h, const char *tags)
{
    char when[48], runtime[80];
    (void)snprintf(runtime, sizeof(runtime), "core-%.64s", h->runtime_version);
    clp_strbuf_str(b, "{\"attachments\":[\"metrics.json\",\"profile.pprof\"],");
    add_pair(b, "tags_profiler", tags, false);
    add_pair(b, "start", rfc3339(h->start_unix_ns, when), false);
    add_pair(b, "end", rfc3339(h->start_unix_ns + h->duration_ns, when), false);
    add_pair(b, "family", "dotnet", false);
    clp_strbuf_str(b, "\"version\":\"4\",\"endpoint_counts\":");
    write_endpoints(b, h);
    clp_strbuf_str(b, ",\"internal\":{");
    add_pair(b, "clrpulse_version", CLP_VERSION, true);
    clp_strbuf_str(b, ",\"info\":{\"application\":{");
    add_pair(b, "env", h->env, false);
    add_pair(b, "service", h->service, false);
    add_pair(b, "version", h->version, true);
    clp_strbuf_str(b, ",\"platform\":{");
    add_pair(b, "hostname", h->host, true);
    clp_strbuf_str(b, ",\"profiler\":{");
    add_pair(b, "activation", "manual", false);
    add_pair(b, "version", CLP_VERSION, true);
    clp_strbuf_str(b, ",\"runtime\":{");
    add_pair(b, "engine", "coreclr", false);
    add_pair(b, "runtime-id", h->runtime_id, false);
    add_pair(b, "version", runtime, true);
    clp_strbuf_str(b, "}}");
}

/* The length of the name in a control total, "NAME=VALUE UNIT" (docs/pprof.md), and its value; 0
 * for other comments, such as "process=7". */
static size_t read_total(const char *comment, unsigned long long *ret)
{
    static const char *const units[] = {" nanoseconds", " bytes", " count"};
    const char *equals = strchr(comment, '=');
    size_t digits = equals ? strspn(equals + 1, "0123456789") : 0;
    if (digits == 0 || digits > 19)
        return 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(units); i++)
        if (strcmp(equals + 1 + digits, units[i]) == 0) {
            *ret = strtoull(equals + 1, NULL, 10);
            return (size_t)(equals - comment);
        }
    return 0;
}

/* What DataDog/dd-trace-dotnet's profiler calls the same numbers in its metrics.json (its
 * ExceptionsProvider, AllocationsProvider, ContentionProvider, GarbageCollectorProvider,
 * CorProfilerCallback). What it does not have keeps our names. */
static const struct {
    const char *ours, *theirs;
} metric_names[] = {
    {"exceptions", "dotnet_exceptions"},
    {"alloc_bytes", "dotnet_total_allocations_size"},
    {"lock_contentions", "dotnet_lock_contentions"},
    {"lock_delay", "dotnet_lock_contentions_duration_sum"},
    {"gc_collections_gen0", "dotnet_gc_gen0"},
    {"gc_collections_gen1", "dotnet_gc_gen1"},
    {"gc_collections_gen2", "dotnet_gc_gen2"},
    {"gc_pause", "dotnet_gc_suspensions_duration_sum"},
    {"heap_gen2", "dotnet_gc_gen2_size"},
    {"heap_large", "dotnet_gc_loh_size"},
    {"heap_pinned", "dotnet_gc_poh_size"},
    {"threads_managed", "dotnet_managed_threads"},
};

static void write_metric_name(struct clp_strbuf *b, const char *name, size_t len)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(metric_names); i++)
        if (strlen(metric_names[i].ours) == len && memcmp(metric_names[i].ours, name, len) == 0) {
            clp_strbuf_json(b, metric_names[i].theirs, strlen(metric_names[i].theirs));
            return;
        }
    clp_strbuf_json(b, name, len);
}

/* The control totals: ["NAME", VALUE] each. */
static void write_metrics(struct clp_strbuf *b, const struct clp_profile *p)
{
    clp_strbuf_char(b, '[');
    for (uint32_t i = 0; i < p->comment_count; i++) {
        unsigned long long value;
        size_t len = read_total(p->comments[i], &value);
        if (len == 0)
            continue;
        clp_strbuf_str(b, b->len > 1 ? ",[" : "[");
        write_metric_name(b, p->comments[i], len);
        clp_strbuf_printf(b, ",%llu]", value);
    }
    clp_strbuf_char(b, ']');
}

/* ---- request --------------------------------------------------------------------------------- */

static int make_form(const struct clp_chunk *c, const struct clp_profile *p,
                     const struct clp_reshaped *shaped, struct clp_request *q)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf tags, event, metrics;
    char type[CLP_MULTIPART_TYPE_BYTES];
    uint8_t id[16];
    struct clp_multipart m;
    clp_strbuf_init(&tags, JSON_MAX_BYTES);
    clp_strbuf_init(&event, JSON_MAX_BYTES);
    clp_strbuf_init(&metrics, JSON_MAX_BYTES);
    write_tags(&tags, &c->header);
    write_event(&event, &c->header, clp_strbuf_text(&tags));
    write_metrics(&metrics, p);
    int r = clp_strbuf_error(&event) | clp_strbuf_error(&metrics) | clp_strbuf_error(&tags);
    if (r < 0)
        return -ENOMEM;
    clp_part_id(&c->header, q->part, id);
    clp_multipart_init(&m, id);
    clp_multipart_add(&m, "event", "event.json", "application/json", event.buf, event.len);
    clp_multipart_add(&m, "metrics.json", "metrics.json", "application/json", metrics.buf,
                      metrics.len);
    clp_multipart_add(&m, "profile.pprof", "profile.pprof", "application/octet-stream",
                      shaped->encoded.data, shaped->encoded.len);
    r = clp_multipart_take(&m, type, &q->body, &q->len);
    clp_multipart_done(&m);
    return r < 0 ? r : clp_request_header(q, "Content-Type", type);
}

static int add_headers(const struct clp_upload_header *h, struct clp_request *q)
{
    char inode[32];
    int r = clp_request_header(q, "DD-EVP-ORIGIN", "clrpulse");
    if (r == 0)
        r = clp_request_header(q, "DD-EVP-ORIGIN-VERSION", CLP_VERSION);
    if (r == 0 && *h->container_id)
        r = clp_request_header(q, "Datadog-Container-ID", h->container_id);
    if (r == 0 && (*h->container_id || h->cgroup_inode)) {
        char entity[128];
        (void)snprintf(inode, sizeof(inode), "in-%llu", (unsigned long long)h->cgroup_inode);
        (void)snprintf(entity, sizeof(entity), "ci-%.100s", h->container_id);
        r = clp_request_header(q, "Datadog-Entity-ID", *h->container_id ? entity : inode);
    }
    return r;
}

static int datadog_build(const struct clp_intake *in, const struct clp_chunk *c,
                         const struct clp_profile *p, struct clp_requests *ret)
{
    const struct clp_reshape how = {.values = values,
                                    .value_count = CLP_ARRAY_LEN(values),
                                    .period_type = {"RealTime", "Nanoseconds"},
                                    .period = 1,
                                    .labels = label_rules,
                                    .label_count = CLP_ARRAY_LEN(label_rules),
                                    .plain_max = in->plain_max};
    struct clp_reshaped shaped;
    int r = clp_profile_reshape(p, &how, &shaped);
    if (r < 0)
        return r;
    struct clp_request *q = clp_requests_add(ret, "all");
    q->folded = shaped.folded;
    q->plain_len = shaped.encoded.plain_len;
    memcpy(q->note, shaped.note, sizeof(q->note));
    r = make_form(c, p, &shaped, q);
    clp_reshaped_done(&shaped);
    return r < 0 ? r : add_headers(&c->header, q);
}

const struct clp_intake_kind clp_intake_datadog = {
    .name = "datadog",
    .plain_max = PLAIN_MAX_BYTES,
    .open = datadog_open,
    .build = datadog_build,
};
