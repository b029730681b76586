/* Kind `pyroscope`: the push API of Grafana Pyroscope and Grafana Cloud Profiles.
 *
 * One series with one profile a request: of several, one bad one would fail all, and the stored
 * ones would come twice.  The rules are those of the server's default limits, which a tenant may
 * have raised; the profile's size is bounded by its rate limiter, whose burst a single larger one
 * could never pass. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "uploader/intake.h"
#include "uploader/push.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BURST_BYTES 2000000u /* 2 MB, less the labels */
#define SAMPLES_MAX 16000u
#define DEPTH_MAX 1000u
#define LABELS_MAX 30u
#define OLDEST_NS (3600 * CLP_NSEC_PER_SEC)
#define NEWEST_NS (600 * CLP_NSEC_PER_SEC)

/* Each distinct set of text labels becomes a series of its own; only those of spans do not. So what
 * has no bound (thread names, messages) stays out, and the rest gets one. */
static const struct clp_label_rule label_rules[] = {
    {"span_id", NULL, CLP_LABEL_HEX_OF_16, 0},
    {"trace_id", NULL, CLP_LABEL_HEX_OF_16, 0},
    {"endpoint", NULL, CLP_LABEL_AS_IS, 50},
    {"exception_type", NULL, CLP_LABEL_AS_IS, 50},
    {"allocation_class", NULL, CLP_LABEL_AS_IS, 50},
    {"generation", NULL, CLP_LABEL_AS_TEXT, 8},
    {"wait", NULL, CLP_LABEL_AS_IS, 16},
    {"gc_generation", NULL, CLP_LABEL_AS_TEXT, 8},
    {"gc_reason", NULL, CLP_LABEL_AS_IS, 32},
    {"gc_kind", NULL, CLP_LABEL_AS_IS, 8},
};

static int add_labels(struct clp_tags *t, const struct clp_series *s,
                      const struct clp_upload_header *h)
{
    const char *const own[][2] = {
        {"__name__", s->metric},
        {"service_name", *h->service ? h->service : "unknown_service"},
        {"env", h->env},
        {"version", h->version},
        {"hostname", h->host},
        {"spy_name", "clrpulse"},
        {"process_runtime_name", "dotnet"},
        {"process_runtime_version", h->runtime_version},
    };
    int r = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(own) && r == 0; i++)
        r = clp_tags_add(t, own[i][0], own[i][1]);
    return r < 0 ? r : clp_tags_add_own(t, h);
}

static int pack(struct clp_request *q, const struct clp_tags *t, const struct clp_upload_header *h)
{
    char id[37];
    ClpPush__LabelPair pairs[LABELS_MAX], *pair_at[LABELS_MAX];
    ClpPush__RawSample sample = CLP_PUSH__RAW_SAMPLE__INIT, *samples[] = {&sample};
    ClpPush__RawProfileSeries one = CLP_PUSH__RAW_PROFILE_SERIES__INIT, *series[] = {&one};
    ClpPush__PushRequest push = CLP_PUSH__PUSH_REQUEST__INIT;
    for (size_t i = 0; i < t->count; i++) {
        clp_push__label_pair__init(&pairs[i]);
        pairs[i].name = t->items[i].name;
        pairs[i].value = t->items[i].value;
        pair_at[i] = &pairs[i];
    }
    sample.raw_profile = (ProtobufCBinaryData){.data = q->body, .len = q->len};
    sample.id = (char *)(uintptr_t)clp_part_uuid(h, q->part, id);
    one.n_labels = t->count;
    one.labels = pair_at;
    one.n_samples = 1;
    one.samples = samples;
    push.n_series = 1;
    push.series = series;
    size_t len = clp_push__push_request__get_packed_size(&push);
    uint8_t *body = malloc(len);
    if (!body)
        return -ENOMEM;
    (void)clp_push__push_request__pack(&push, body);
    free(q->body);
    q->body = body;
    q->len = len;
    return 0;
}

static int finish(const struct clp_intake *in, const struct clp_series *s,
                  const struct clp_chunk *c, struct clp_request *q)
{
    struct clp_tags t = {.most = LABELS_MAX, .name_max = 1024, .value_max = 2048};
    int r = add_labels(&t, s, &c->header);
    if (r == 0)
        r = pack(q, &t, &c->header);
    clp_tags_done(&t);
    if (r == 0)
        r = clp_request_header(q, "Content-Type", "application/proto");
    if (r == 0)
        r = clp_request_header(q, "Connect-Protocol-Version", "1");
    if (r == 0 && in->upload.tenant)
        r = clp_request_header(q, "X-Scope-OrgID", in->upload.tenant);
    return r;
}

static int pyroscope_build(const struct clp_intake *in, const struct clp_chunk *c,
                           const struct clp_profile *p, struct clp_requests *ret)
{
    const struct clp_reshape how = {.labels = label_rules,
                                    .label_count = CLP_ARRAY_LEN(label_rules),
                                    .depth_max = DEPTH_MAX,
                                    .samples_max = SAMPLES_MAX};
    uint64_t now_ns = clp_clock_realtime_ns(), start_ns = c->header.start_unix_ns;
    if (start_ns + OLDEST_NS < now_ns || start_ns > now_ns + NEWEST_NS)
        return -ESTALE;
    return clp_series_build(in, c, p, CLP_SPELLING_KNOWN, &how, finish, ret);
}

const struct clp_intake_kind clp_intake_pyroscope = {
    .name = "pyroscope",
    .plain_max = BURST_BYTES,
    .path = "/push.v1.PusherService/Push",
    .build = pyroscope_build,
};
