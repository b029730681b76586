#include "agent/outbox.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "pprof/encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WHY_BYTES 512

struct clp_outbox {
    struct clp_delivery *delivery; /* NULL: another outbox still has the spool, or it is drained */
    struct clp_spool *left;        /* by another outbox, until ours has begun; or NULL */
    struct clp_delivery_config config;
    struct clp_upload uploads[CLP_CONFIG_UPLOADS_MAX];
    char path[4200];
    bool drained;
};

static void say(void *context, enum clp_log_level level, const char *text)
{
    (void)context;
    switch (level) { /* each with its own bound on lines */
    case CLP_LOG_ERROR:
        clp_log_error("%s", text);
        break;
    case CLP_LOG_WARNING:
        clp_log_warning("%s", text);
        break;
    case CLP_LOG_INFO:
        clp_log_info("%s", text);
        break;
    case CLP_LOG_DEBUG:
        clp_log_debug("%s", text);
        break;
    }
}

static struct clp_upload upload_of(const struct clp_config_upload *c)
{
    struct clp_upload u = {.url = c->url,
                           .path = c->path,
                           .headers = (const char *const *)c->headers.items,
                           .header_count = c->headers.count,
                           .user = c->user,
                           .password = c->password,
                           .token = c->token,
                           .tenant = c->tenant,
                           .api_key = c->api_key,
                           .site = c->site,
                           .format = c->format,
                           .otlp_version = c->otlp_version,
                           .ca_file = c->ca_file,
                           .cert_file = c->cert_file,
                           .key_file = c->key_file,
                           .proxy = c->proxy,
                           .no_proxy = c->no_proxy,
                           .connect_timeout_ns = c->connect_timeout,
                           .timeout_ns = c->timeout,
                           .size_max = c->max_size};
    /* The reader of the configuration knows the same names; a test holds them together. */
    if (clp_upload_parse_kind(c->kind, &u.kind) < 0)
        u.kind = CLP_UPLOAD_KINDS;
    return u;
}

size_t clp_outbox_uploads(const struct clp_config *config, char *path, size_t path_cap,
                          struct clp_upload ret[CLP_CONFIG_UPLOADS_MAX])
{
    for (size_t i = 0; i < config->upload_count; i++)
        ret[i] = upload_of(&config->uploads[i]);
    if (config->upload_count > 0)
        return config->upload_count;
    (void)snprintf(path, path_cap, "%s/profiles", config->state_dir);
    ret[0] = (struct clp_upload){.kind = CLP_UPLOAD_DIRECTORY, .path = path};
    return 1;
}

/* Better told now than after a period. */
static int make_directories(const struct clp_upload *uploads, size_t count, struct clp_fault *fault)
{
    for (size_t i = 0; i < count; i++) {
        int r = uploads[i].path ? clp_file_mkdir_p(uploads[i].path, 0750) : 0;
        if (r < 0)
            return clp_fault_set(fault, r,
                                 "cannot make the directory %s for profiles: %s; set another one "
                                 "under upload or state.dir",
                                 uploads[i].path, strerror(-r));
    }
    return 0;
}

struct clp_delivery_config clp_outbox_delivery_config(const struct clp_config *config,
                                                      const struct clp_upload *uploads,
                                                      size_t count)
{
    return (struct clp_delivery_config){
        .uploads = uploads,
        .upload_count = count,
        .spool_dir = *config->spool_dir ? config->spool_dir : NULL,
        .spool_bytes_max = config->spool_max_size,
        .spool_age_max_ns = config->spool_max_age,
        .spool_files_max = CLP_OUTBOX_FILES_MAX,
        .memory_bytes_max = CLP_OUTBOX_MEMORY_BYTES,
        .say = say,
    };
}

static int start(struct clp_outbox *o, char *why, size_t cap)
{
    int r = clp_delivery_start(&o->config, &o->delivery, why, cap);
    if (r == 0 && o->left)
        clp_delivery_adopt(o->delivery, CLP_TAKE(o->left));
    return r;
}

/* Whether both keep profiles in one directory, however it is written. */
static bool shares_spool(const struct clp_outbox *o, const struct clp_outbox *other)
{
    struct stat a, b;
    const char *ours = o->config.spool_dir, *theirs = other ? other->config.spool_dir : NULL;
    return ours && theirs && stat(ours, &a) == 0 && stat(theirs, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* What would keep it from starting later is told now. */
static int check_uploads(const struct clp_outbox *o, struct clp_fault *fault)
{
    for (size_t i = 0; i < o->config.upload_count; i++) {
        const char *reason = "";
        CLP_CLEANUP(clp_intake_closep) struct clp_intake *in = NULL;
        int r = clp_intake_open(&o->uploads[i], &in, &reason);
        if (r < 0)
            return clp_fault_set(fault, r, "upload %zu (%s) cannot work: %s", i + 1,
                                 clp_upload_kind_name(o->uploads[i].kind), reason);
    }
    return 0;
}

int clp_outbox_new(const struct clp_config *config, const struct clp_outbox *before,
                   struct clp_outbox **ret, struct clp_fault *fault)
{
    char why[WHY_BYTES];
    struct clp_outbox *o = calloc(1, sizeof(*o));
    if (!o)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    size_t count = clp_outbox_uploads(config, o->path, sizeof(o->path), o->uploads);
    o->config = clp_outbox_delivery_config(config, o->uploads, count);
    int r = make_directories(o->uploads, count, fault);
    if (r == 0)
        r = check_uploads(o, fault);
    if (r == 0) {
        r = start(o, why, sizeof(why));
        if (r == -EBUSY && shares_spool(o, before))
            r = 0; /* ours: it goes soon */
        else if (r < 0)
            r = clp_fault_set(fault, r, "%s", why);
    }
    if (r < 0) {
        free(o);
        return r;
    }
    *ret = o;
    return 0;
}

/* Whether it works, now that the one before may be gone; if not, why. */
static bool is_started(struct clp_outbox *o, char why[WHY_BYTES])
{
    return o->delivery || (!o->drained && start(o, why, WHY_BYTES) == 0);
}

struct clp_outbox *clp_outbox_replace(struct clp_outbox *before, struct clp_outbox *o,
                                      uint64_t deadline_ns)
{
    char why[WHY_BYTES];
    o->left = CLP_TAKE(before->left); /* of one that has never begun */
    if (before->delivery)
        before->delivery = clp_delivery_retire(before->delivery, deadline_ns, &o->left);
    if (o->left && !o->delivery)
        clp_spool_leave_directory(o->left); /* it is ours as well: we find all of it there */
    if (o->left && o->delivery)
        clp_delivery_adopt(o->delivery, CLP_TAKE(o->left));
    if (!is_started(o, why))
        clp_log_error("the new destinations cannot be used yet: %s", why);
    return clp_outbox_free(before);
}

/* Tags as the spool keeps them: "key:value". What does not fit is left out. */
static size_t write_tags(const struct clp_profile_header *h, char (*texts)[512], const char **tags)
{
    const struct clp_profile_tag git[] = {{"git.repository_url", h->git_repository},
                                          {"git.commit.sha", h->git_commit}};
    size_t n = 0;
    for (size_t i = 0; i < h->tag_count + CLP_ARRAY_LEN(git) && n < CLP_UPLOAD_TAGS_MAX; i++) {
        const struct clp_profile_tag *t =
            i < CLP_ARRAY_LEN(git) ? &git[i] : &h->tags[i - CLP_ARRAY_LEN(git)];
        if (!t->key || !t->value || !*t->value)
            continue;
        (void)snprintf(texts[n], sizeof(texts[n]), "%s:%s", t->key, t->value);
        tags[n] = texts[n];
        n++;
    }
    return n;
}

int clp_outbox_submit(struct clp_outbox *o, const struct clp_profile_header *header,
                      const void *pprof, size_t len, void (*stored)(void *context), void *context)
{
    const char *tags[CLP_UPLOAD_TAGS_MAX];
    char why[WHY_BYTES] = "out of memory";
    char(*texts)[512] = calloc(CLP_UPLOAD_TAGS_MAX, sizeof(*texts));
    struct clp_upload_header h = {
        .service = header->service,
        .env = header->env,
        .version = header->version,
        .host = header->host,
        .runtime_id = header->runtime_id,
        .runtime_version = header->runtime_version,
        .container_id = header->container_id,
        .pid = header->pid,
        .ns_pid = header->ns_pid,
        .cgroup_inode = header->cgroup_inode,
        .endpoints = header->endpoints,
        .endpoint_count = header->endpoint_count,
        .seq = header->seq,
        .start_unix_ns = header->start_unix_ns,
        .duration_ns = header->end_monotonic_ns - header->start_monotonic_ns,
    };
    if (!texts || !is_started(o, why)) {
        clp_log_error("a profile of process %d is lost: %s", header->pid, why);
        free(texts);
        return texts ? -EBUSY : -ENOMEM;
    }
    h.tags = tags;
    h.tag_count = write_tags(header, texts, tags);
    int r = clp_delivery_submit(o->delivery, &h, pprof, len, stored, context);
    free(texts);
    return r;
}

uint64_t clp_outbox_drain(struct clp_outbox *o, uint64_t deadline_ns)
{
    uint64_t lost = 0;
    if (o->delivery)
        o->delivery = clp_delivery_stop(o->delivery, deadline_ns, &lost);
    if (o->left) {
        uint64_t gone = clp_spool_close(CLP_TAKE(o->left));
        if (gone)
            clp_log_error("%llu profiles are lost: the settings that were read anew could not be "
                          "used",
                          (unsigned long long)gone);
        lost += gone;
    }
    o->drained = true;
    return lost;
}

struct clp_outbox *clp_outbox_free(struct clp_outbox *o)
{
    if (!o)
        return NULL;
    (void)clp_outbox_drain(o, 0);
    free(o);
    return NULL;
}

static void fill_lane(struct clp_outbox *o, size_t at, struct clp_outbox_lane *ret)
{
    struct clp_delivery_stats s;
    struct clp_spool_counts spool;
    bool memory_only;
    clp_delivery_stats(o->delivery, at, &s);
    clp_delivery_spool_counts(o->delivery, &spool, &memory_only);
    *ret = (struct clp_outbox_lane){
        .delivered = s.sent,
        .retried = s.retried,
        .folded = s.folded,
        .crowded_out = spool.lost[CLP_SPOOL_FULL] + spool.lost[CLP_SPOOL_OLD],
        .lost = spool.lost[CLP_SPOOL_NO_ROOM] + spool.lost[CLP_SPOOL_BAD],
        .spooled = spool.chunks - spool.in_memory,
        .waiting = s.backlog,
        .waiting_bytes = s.backlog_bytes,
    };
    (void)snprintf(ret->name, sizeof(ret->name), "upload %zu (%s)", at + 1,
                   clp_upload_kind_name(s.kind));
    memcpy(ret->where, s.where, sizeof(ret->where));
    for (size_t i = 0; i < CLP_DROPS; i++) {
        ret->dropped[i] = s.dropped[i];
        ret->refused += s.dropped[i];
    }
    if (s.failing || ret->refused)
        memcpy(ret->last_error, s.error, sizeof(ret->last_error));
}

size_t clp_outbox_lanes(struct clp_outbox *o, struct clp_outbox_lane *ret, size_t cap)
{
    char why[WHY_BYTES];
    size_t count = is_started(o, why) ? clp_delivery_intakes(o->delivery) : 0;
    count = CLP_MIN(count, cap);
    for (size_t i = 0; i < count; i++)
        fill_lane(o, i, &ret[i]);
    return count;
}

/* ---- check ----------------------------------------------------------------------------------- */

static int make_test_profile(struct clp_encoded *ret)
{
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    const struct clp_profile_config c = {.sample_types = &cpu, .sample_type_count = 1, .period = 1};
    CLP_CLEANUP(clp_profile_freep) struct clp_profile *p = NULL;
    int r = clp_profile_new(&c, &p);
    if (r < 0)
        return r;
    const uint32_t frame = clp_profile_frame(p, "clrpulse.Check");
    clp_profile_set_window(p, clp_clock_realtime_ns() - CLP_NSEC_PER_SEC, CLP_NSEC_PER_SEC);
    clp_profile_add(p, clp_profile_stack(p, &frame, 1), CLP_PROFILE_NO_LABELS, &(double){1});
    return clp_profile_encode(p, NULL, ret);
}

static bool check_one(const struct clp_upload *u, const struct clp_encoded *profile, FILE *out)
{
    const char *why = "";
    char host[256] = "";
    struct clp_upload_result result;
    CLP_CLEANUP(clp_intake_closep) struct clp_intake *in = NULL;
    (void)gethostname(host, sizeof(host) - 1);
    struct clp_upload_header h = {.service = "clrpulse-check",
                                  .host = host,
                                  .runtime_id = "00000000-0000-0000-0000-000000000000",
                                  .pid = (int32_t)getpid(),
                                  .start_unix_ns = clp_clock_realtime_ns() - CLP_NSEC_PER_SEC,
                                  .duration_ns = CLP_NSEC_PER_SEC};
    if (clp_intake_open(u, &in, &why) < 0) {
        fprintf(out, "error    upload %s: cannot work: %s\n", clp_upload_kind_name(u->kind), why);
        return false;
    }
    int r = clp_intake_send(in, &h, profile->data, profile->len, &result);
    fprintf(out, "%-8s upload %s: %s%s\n", r == 0 ? "ok" : "error", clp_upload_kind_name(u->kind),
            r == 0 ? "a test profile was taken by " : "", result.text);
    return r == 0;
}

int clp_outbox_check(const struct clp_config *config, FILE *out)
{
    char path[4200];
    struct clp_upload uploads[CLP_CONFIG_UPLOADS_MAX];
    struct clp_encoded profile;
    size_t count = clp_outbox_uploads(config, path, sizeof(path), uploads);
    int failed = 0, r = make_test_profile(&profile);
    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        failed += !check_one(&uploads[i], &profile, out);
    clp_encoded_done(&profile);
    return failed;
}
