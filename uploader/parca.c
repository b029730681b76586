/* Kind `parca`: WriteRaw of Parca and Polar Signals Cloud, by gRPC-Web over HTTP/1.1: a frame of
 * five bytes and a message; the answer's status is in its headers, or in a last frame of text. */
#include "base/core/bytes.h"
#include "uploader/intake.h"
#include "uploader/writeraw.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLAIN_MAX_BYTES (4u << 20) /* what gRPC servers take unless told otherwise */
#define LABELS_MAX 30u
#define FRAME_BYTES 5u
#define TRAILERS 0x80u

/* Labels of samples become labels of series there as well. */
static const struct clp_label_rule label_rules[] = {
    {"span_id", NULL, CLP_LABEL_HEX_OF_16, 0},       {"trace_id", NULL, CLP_LABEL_HEX_OF_16, 0},
    {"endpoint", NULL, CLP_LABEL_AS_IS, 50},         {"exception_type", NULL, CLP_LABEL_AS_IS, 50},
    {"allocation_class", NULL, CLP_LABEL_AS_IS, 50}, {"generation", NULL, CLP_LABEL_AS_TEXT, 8},
    {"thread_name", NULL, CLP_LABEL_AS_IS, 100},     {"wait", NULL, CLP_LABEL_AS_IS, 16},
    {"gc_generation", NULL, CLP_LABEL_AS_TEXT, 8},   {"gc_reason", NULL, CLP_LABEL_AS_IS, 32},
    {"gc_kind", NULL, CLP_LABEL_AS_IS, 8},
};

static int add_labels(struct clp_tags *t, const struct clp_series *s,
                      const struct clp_upload_header *h)
{
    char pid[16];
    (void)snprintf(pid, sizeof(pid), "%d", h->pid);
    const char *const own[][2] = {
        {"__name__", s->metric}, {"service_name", h->service},
        {"env", h->env},         {"version", h->version},
        {"node", h->host},       {"pid", pid},
    };
    int r = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(own) && r == 0; i++)
        r = clp_tags_add(t, own[i][0], own[i][1]);
    return r < 0 ? r : clp_tags_add_own(t, h);
}

static int pack(struct clp_request *q, const struct clp_tags *t)
{
    ClpWriteraw__Label labels[LABELS_MAX], *label_at[LABELS_MAX];
    ClpWriteraw__LabelSet set = CLP_WRITERAW__LABEL_SET__INIT;
    ClpWriteraw__RawSample sample = CLP_WRITERAW__RAW_SAMPLE__INIT, *samples[] = {&sample};
    ClpWriteraw__RawProfileSeries one = CLP_WRITERAW__RAW_PROFILE_SERIES__INIT, *series[] = {&one};
    ClpWriteraw__WriteRawRequest m = CLP_WRITERAW__WRITE_RAW_REQUEST__INIT;
    for (size_t i = 0; i < t->count; i++) {
        clp_writeraw__label__init(&labels[i]);
        labels[i].name = t->items[i].name;
        labels[i].value = t->items[i].value;
        label_at[i] = &labels[i];
    }
    set.n_labels = t->count;
    set.labels = label_at;
    sample.raw_profile = (ProtobufCBinaryData){.data = q->body, .len = q->len};
    one.labels = &set;
    one.n_samples = 1;
    one.samples = samples;
    m.n_series = 1;
    m.series = series;
    m.normalized = 1;
    size_t len = clp_writeraw__write_raw_request__get_packed_size(&m);
    uint8_t *body = malloc(FRAME_BYTES + len);
    if (!body)
        return -ENOMEM;
    body[0] = 0; /* not compressed: the profile is */
    for (size_t i = 0; i < 4; i++)
        body[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    (void)clp_writeraw__write_raw_request__pack(&m, body + FRAME_BYTES);
    free(q->body);
    q->body = body;
    q->len = FRAME_BYTES + len;
    return 0;
}

static int finish(const struct clp_intake *in, const struct clp_series *s,
                  const struct clp_chunk *c, struct clp_request *q)
{
    struct clp_tags t = {.most = LABELS_MAX, .name_max = 1024, .value_max = 2048};
    int r = add_labels(&t, s, &c->header);
    (void)in;
    if (r == 0)
        r = pack(q, &t);
    clp_tags_done(&t);
    if (r == 0)
        r = clp_request_header(q, "Content-Type", "application/grpc-web+proto");
    if (r == 0)
        r = clp_request_header(q, "Accept", "application/grpc-web+proto");
    return r < 0 ? r : clp_request_header(q, "X-Grpc-Web", "1");
}

static int parca_build(const struct clp_intake *in, const struct clp_chunk *c,
                       const struct clp_profile *p, struct clp_requests *ret)
{
    const struct clp_reshape how = {.labels = label_rules,
                                    .label_count = CLP_ARRAY_LEN(label_rules)};
    return clp_series_build(in, c, p, CLP_SPELLING_KNOWN, &how, finish, ret);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* gRPC's codes as the statuses that Connect and gateways give them. */
static int http_status_of(int code)
{
    static const int statuses[] = {200, 499, 500, 400, 504, 404, 409, 403, 429,
                                   400, 409, 400, 501, 500, 503, 500, 401};
    return code >= 0 && code < (int)CLP_ARRAY_LEN(statuses) ? statuses[code] : 500;
}

/* Percent-encoded, as gRPC has it; what is not stays as it is. */
static void take_message(const char *text, size_t len, char *message, size_t cap)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < cap; i++) {
        char pair[3] = {i + 2 < len ? text[i + 1] : '\0', i + 2 < len ? text[i + 2] : '\0', '\0'};
        if (text[i] == '%' && strspn(pair, "0123456789abcdefABCDEF") == 2) {
            message[n++] = (char)strtoul(pair, NULL, 16);
            i += 2;
        } else {
            message[n++] = text[i];
        }
    }
    message[n] = '\0';
}

/* "grpc-status:0\r\ngrpc-message:..." */
static int read_trailers(const char *text, size_t len, char *message, size_t cap)
{
    int code = -1;
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && text[end] != '\r' && text[end] != '\n')
            end++;
        const char *line = text + at;
        if (end - at > 12 && strncasecmp(line, "grpc-status:", 12) == 0)
            code = clp_reply_grpc_code(line + 12, end - at - 12);
        if (end - at > 13 && strncasecmp(line, "grpc-message:", 13) == 0)
            take_message(line + 13, end - at - 13, message, cap);
        at = end + 1;
    }
    return code;
}

static int read_frames(const struct clp_reply *reply, char *message, size_t cap)
{
    struct clp_bytes b = clp_bytes_of(reply->body, reply->len);
    while (clp_bytes_left(&b) >= FRAME_BYTES) {
        uint8_t flags = clp_bytes_u8(&b);
        size_t len = 0;
        for (int i = 0; i < 4; i++)
            len = len << 8 | clp_bytes_u8(&b);
        const uint8_t *data = clp_bytes_take(&b, len);
        if (!data)
            return -1;
        if (flags & TRAILERS)
            return read_trailers((const char *)data, len, message, cap);
    }
    return -1;
}

static int parca_judge(const struct clp_reply *reply, char *text, size_t cap)
{
    int code = reply->grpc_status;
    if (reply->status != 200) {
        (void)snprintf(text, cap, "%.*s", (int)reply->len, reply->body);
        return reply->status;
    }
    if (code >= 0)
        take_message(reply->grpc_message, strlen(reply->grpc_message), text, cap);
    else
        code = read_frames(reply, text, cap);
    if (code >= 0)
        return http_status_of(code);
    (void)snprintf(text, cap, "no gRPC status came: is it Parca?");
    return 415;
}

const struct clp_intake_kind clp_intake_parca = {
    .name = "parca",
    .plain_max = PLAIN_MAX_BYTES,
    .path = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
    .build = parca_build,
    .judge = parca_judge,
};
