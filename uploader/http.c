/* Kind `http`: POST of the gzipped pprof, one request for each kind of sample, as the raw body or
 * as a form with the field "profile".  What the profile is about goes into headers, so that a small
 * receiver need not read pprof:
 *
 *     Clrpulse-Service, Clrpulse-Kind, Clrpulse-Pid, Clrpulse-Start (UTC), Clrpulse-Seq,
 *     Clrpulse-Runtime-Id */
#include "base/cleanup.h"
#include "base/clock.h"
#include "uploader/intake.h"
#include "uploader/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int http_open(struct clp_intake *in, const char **ret_why)
{
    const char *format = in->upload.format;
    *ret_why = "format is raw or multipart";
    return !format || strcmp(format, "raw") == 0 || strcmp(format, "multipart") == 0 ? 0 : -EINVAL;
}

static int to_form(const struct clp_upload_header *h, struct clp_request *q)
{
    uint8_t id[16], *body = NULL;
    size_t len;
    char type[CLP_MULTIPART_TYPE_BYTES];
    struct clp_multipart m;
    clp_part_id(h, q->part, id);
    clp_multipart_init(&m, id);
    clp_multipart_add(&m, "profile", "profile.pb.gz", "application/octet-stream", q->body, q->len);
    int r = clp_multipart_take(&m, type, &body, &len);
    clp_multipart_done(&m);
    if (r < 0)
        return r;
    free(q->body);
    q->body = body;
    q->len = len;
    return clp_request_header(q, "Content-Type", type);
}

static int add_headers(const struct clp_upload_header *h, struct clp_request *q)
{
    char service[128], id[128], when[CLP_CLOCK_UTC_BYTES], pid[16], seq[24];
    (void)snprintf(pid, sizeof(pid), "%d", h->pid);
    (void)snprintf(seq, sizeof(seq), "%llu", (unsigned long long)h->seq);
    const char *const lines[][2] = {
        {"Clrpulse-Service", clp_upload_plain_name(h->service, service, sizeof(service))},
        {"Clrpulse-Kind", q->part},
        {"Clrpulse-Pid", pid},
        {"Clrpulse-Start", clp_clock_utc(h->start_unix_ns, when)},
        {"Clrpulse-Seq", seq},
        {"Clrpulse-Runtime-Id", clp_upload_plain_name(h->runtime_id, id, sizeof(id))},
    };
    int r = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(lines) && r == 0; i++)
        r = clp_request_header(q, lines[i][0], lines[i][1]);
    return r;
}

static int finish(const struct clp_intake *in, const struct clp_series *s,
                  const struct clp_chunk *c, struct clp_request *q)
{
    bool form = in->upload.format && strcmp(in->upload.format, "multipart") == 0;
    int r = add_headers(&c->header, q);
    (void)s;
    if (r < 0)
        return r;
    return form ? to_form(&c->header, q)
                : clp_request_header(q, "Content-Type", "application/octet-stream");
}

static int http_build(const struct clp_intake *in, const struct clp_chunk *c,
                      const struct clp_profile *p, struct clp_requests *ret)
{
    const struct clp_reshape how = {.all_labels = true};
    return clp_series_build(in, c, p, CLP_SPELLING_OWN, &how, finish, ret);
}

const struct clp_intake_kind clp_intake_http = {
    .name = "http",
    .open = http_open,
    .build = http_build,
};
