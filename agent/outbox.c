#include "agent/outbox.h"

#include "agent/kinds.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "pprof/decode.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define RETRY_FIRST_NS CLP_NSEC_PER_SEC
#define RETRY_LONGEST_NS (60 * CLP_NSEC_PER_SEC)

struct letter {
    struct letter *next;
    struct clp_upload_item item; /* points behind this struct */
};

struct lane {
    struct clp_outbox *box;
    struct clp_uploader *uploader;
    pthread_t thread;
    bool running;
    /* Guarded by the box's lock. */
    struct letter *first, **last;
    size_t bytes;
    struct clp_outbox_lane told; /* `waiting` and `waiting_bytes` are made when asked */
    bool ended;
    struct letter *sending; /* the thread's for the moment; still in the queue */
};

struct clp_outbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned users; /* the owner and the running threads; the last one frees */
    bool stopping, drained;
    uint64_t stop_at_ns;
    char *spool_dir;
    size_t lane_count;
    struct lane lanes[CLP_CONFIG_UPLOADS_MAX];
};

/* ---- letters ------------------------------------------------------------------------------- */

static struct letter *copy_item(const struct clp_upload_item *item)
{
    size_t service = strlen(item->service) + 1, kind = strlen(item->kind) + 1;
    struct letter *l = malloc(sizeof(*l) + item->len + service + kind);
    if (!l)
        return NULL;
    uint8_t *data = (uint8_t *)(l + 1);
    char *texts = (char *)data + item->len;
    memcpy(data, item->data, item->len);
    memcpy(texts, item->service, service);
    memcpy(texts + service, item->kind, kind);
    l->next = NULL;
    l->item = *item;
    l->item.data = data;
    l->item.service = texts;
    l->item.kind = texts + service;
    return l;
}

static void remove_letter(struct lane *lane, struct letter *l)
{
    struct letter **at = &lane->first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    if (!*at)
        lane->last = at;
    lane->bytes -= l->item.len;
    free(l);
}

static void make_room(struct lane *lane, size_t len)
{
    while (lane->bytes + len > CLP_OUTBOX_BYTES) {
        struct letter *oldest = lane->first;
        if (oldest && oldest == lane->sending)
            oldest = oldest->next;
        if (!oldest)
            return;
        clp_log_warning(
            "%s is behind: the profile of process %d from %llu s ago is dropped", lane->told.name,
            oldest->item.pid,
            (unsigned long long)((clp_clock_realtime_ns() - oldest->item.start_unix_ns) /
                                 CLP_NSEC_PER_SEC));
        lane->told.crowded_out++;
        remove_letter(lane, oldest);
    }
}

static int put(struct clp_outbox *o, const struct clp_upload_item *item)
{
    int result = 0;
    for (size_t i = 0; i < o->lane_count; i++) {
        struct lane *lane = &o->lanes[i];
        struct letter *l = copy_item(item);
        if (!l) {
            pthread_mutex_lock(&o->lock);
            lane->told.lost++;
            pthread_mutex_unlock(&o->lock);
            result = -ENOMEM;
            continue;
        }
        pthread_mutex_lock(&o->lock);
        make_room(lane, item->len);
        *lane->last = l;
        lane->last = &l->next;
        lane->bytes += item->len;
        pthread_cond_broadcast(&o->changed);
        pthread_mutex_unlock(&o->lock);
    }
    return result;
}

/* One profile a kind, which today's destinations want. */
static int put_kind(struct clp_outbox *o, const struct clp_profile *p, struct clp_upload_item *item,
                    enum clp_profile_type kind)
{
    struct clp_encoded e;
    int r = clp_kind_encode(p, kind, &e);
    if (r < 0)
        return r;
    item->kind = clp_profile_type_name(kind);
    item->data = e.data;
    item->len = e.len;
    r = put(o, item);
    clp_encoded_done(&e);
    return r;
}

static int put_split(struct clp_outbox *o, struct clp_upload_item *item, uint32_t kinds)
{
    CLP_CLEANUP(clp_profile_freep) struct clp_profile *p = NULL;
    int r = clp_profile_decode(item->data, item->len, NULL, &p, NULL);
    for (int kind = 0; kind < CLP_TYPE_COUNT; kind++)
        if (r == 0 && (kinds & (1u << kind)))
            r = put_kind(o, p, item, (enum clp_profile_type)kind);
    return r;
}

int clp_outbox_submit(struct clp_outbox *o, const struct clp_profile_header *h, const void *pprof,
                      size_t len)
{
    struct clp_upload_item item = {
        .service = h->service,
        .pid = h->pid,
        .start_unix_ns = h->start_unix_ns,
        .duration_ns = h->end_monotonic_ns - h->start_monotonic_ns,
        .seq = h->seq,
        .data = pprof,
        .len = len,
    };
    bool single = h->kinds && !(h->kinds & (h->kinds - 1));
    if (!single)
        return put_split(o, &item, h->kinds);
    item.kind = clp_profile_type_name((enum clp_profile_type)__builtin_ctz(h->kinds));
    return put(o, &item);
}

/* ---- threads ------------------------------------------------------------------------------- */

/* Half to one and a half times: agents that failed together do not come back together. */
static uint64_t jitter(uint64_t ns)
{
    uint32_t r = 0;
    (void)!getrandom(&r, sizeof(r), GRND_NONBLOCK);
    return ns / 2 + (uint64_t)((double)ns * (r / 4294967296.0));
}

static void wait_until(struct clp_outbox *o, uint64_t until_ns)
{
    struct timespec t = {.tv_sec = (time_t)(until_ns / CLP_NSEC_PER_SEC),
                         .tv_nsec = (long)(until_ns % CLP_NSEC_PER_SEC)};
    while (!o->stopping && clp_clock_monotonic_ns() < until_ns)
        if (pthread_cond_timedwait(&o->changed, &o->lock, &t) == ETIMEDOUT)
            return;
}

static void note(struct lane *lane, int r, const struct clp_upload_result *result)
{
    pthread_mutex_lock(&lane->box->lock);
    uint64_t *count = r == 0                            ? &lane->told.delivered
                      : result->retry == CLP_RETRY_NONE ? &lane->told.refused
                                                        : &lane->told.retried;
    ++*count;
    snprintf(lane->told.last_error, sizeof(lane->told.last_error), "%s",
             r == 0 ? "" : result->text);
    pthread_mutex_unlock(&lane->box->lock);
}

/* Whether the letter is done with: delivered, or never to be taken. */
static bool send_letter(struct lane *lane, const struct letter *l, uint64_t *pause_ns)
{
    struct clp_upload_result result;
    int r = clp_uploader_send(lane->uploader, &l->item, &result);
    note(lane, r, &result);
    if (r == 0) {
        clp_log_debug("process %d: profile to %s", l->item.pid, result.text);
        *pause_ns = 0;
        return true;
    }
    if (result.retry == CLP_RETRY_NONE) {
        clp_log_error("a profile of process %d is dropped: %s", l->item.pid, result.text);
        return true;
    }
    clp_log_warning("will try again: %s", result.text);
    *pause_ns = *pause_ns ? CLP_MIN(*pause_ns * 2, RETRY_LONGEST_NS) : RETRY_FIRST_NS;
    *pause_ns = CLP_MAX(*pause_ns, result.retry_after_ns);
    return false;
}

/* While stopping a failure is final: what is left goes to the spool. */
static bool may_go_on(const struct clp_outbox *o, bool failed)
{
    if (o->drained)
        return false;
    return !o->stopping || (!failed && clp_clock_monotonic_ns() < o->stop_at_ns);
}

static void unref(struct clp_outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool last = --o->users == 0;
    pthread_mutex_unlock(&o->lock);
    if (!last)
        return;
    for (size_t i = 0; i < o->lane_count; i++)
        clp_uploader_free(o->lanes[i].uploader);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o->spool_dir);
    free(o);
}

static void *run_lane(void *context)
{
    struct lane *lane = context;
    struct clp_outbox *o = lane->box;
    uint64_t pause_ns = 0;
    bool failed = false;
    pthread_mutex_lock(&o->lock);
    while (may_go_on(o, failed)) {
        struct letter *l = lane->first;
        if (!l) {
            if (o->stopping)
                break;
            pthread_cond_wait(&o->changed, &o->lock);
            continue;
        }
        lane->sending = l;
        pthread_mutex_unlock(&o->lock);
        bool done = send_letter(lane, l, &pause_ns);
        pthread_mutex_lock(&o->lock);
        lane->sending = NULL;
        failed = !done;
        if (done || o->drained) /* drained: the letter has been spooled meanwhile */
            remove_letter(lane, l);
        else
            wait_until(o, clp_clock_monotonic_ns() + jitter(pause_ns));
    }
    lane->ended = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    unref(o);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int open_lane(struct lane *lane, const struct clp_upload *u, struct clp_fault *fault)
{
    const char *why = NULL;
    int r = u->path ? clp_file_mkdir_p(u->path, 0750) : 0; /* better told now than after a period */
    if (r < 0)
        return clp_fault_set(fault, r,
                             "cannot make the directory %s for profiles: %s; set another "
                             "one under upload or state.dir",
                             u->path, strerror(-r));
    r = clp_uploader_new(u, &lane->uploader, &why);
    if (r < 0)
        return clp_fault_set(fault, r, "the upload to %s cannot work: %s",
                             u->url ? u->url : u->path, why ? why : strerror(-r));
    snprintf(lane->told.name, sizeof(lane->told.name), "upload %zu (%s)",
             (size_t)(lane - lane->box->lanes) + 1, clp_upload_kind_name(u->kind));
    lane->last = &lane->first;
    return 0;
}

static int add_lane(struct clp_outbox *o, const struct clp_upload *u, struct clp_fault *fault)
{
    struct lane *lane = &o->lanes[o->lane_count++];
    lane->box = o;
    int r = open_lane(lane, u, fault);
    if (r < 0)
        return r;
    o->users++;
    r = -pthread_create(&lane->thread, NULL, run_lane, lane);
    if (r < 0) {
        o->users--;
        return clp_fault_set(fault, r, "cannot start a thread: %s", strerror(-r));
    }
    lane->running = true;
    (void)pthread_detach(lane->thread);
    return 0;
}

static int add_configured(struct clp_outbox *o, const struct clp_config *config,
                          struct clp_fault *fault)
{
    for (size_t i = 0; i < config->upload_count; i++) {
        const struct clp_config_upload *c = &config->uploads[i];
        struct clp_upload u = {.url = c->url,
                               .path = c->path,
                               .headers = (const char *const *)c->headers.items,
                               .header_count = c->headers.count};
        if (clp_upload_parse_kind(c->kind, &u.kind) < 0)
            return clp_fault_set(fault, -EINVAL, "'%s' is no kind of upload", c->kind);
        int r = add_lane(o, &u, fault);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_default(struct clp_outbox *o, const struct clp_config *config,
                       struct clp_fault *fault)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/profiles", config->state_dir);
    struct clp_upload u = {.kind = CLP_UPLOAD_DIRECTORY, .path = path};
    return add_lane(o, &u, fault);
}

int clp_outbox_new(const struct clp_config *config, struct clp_outbox **ret,
                   struct clp_fault *fault)
{
    pthread_condattr_t attr;
    struct clp_outbox *o = calloc(1, sizeof(*o));
    if (!o)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    o->users = 1;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, &attr);
    pthread_condattr_destroy(&attr);
    o->spool_dir = strdup(config->spool_dir);
    int r = !o->spool_dir              ? clp_fault_set(fault, -ENOMEM, "out of memory")
            : config->upload_count > 0 ? add_configured(o, config, fault)
                                       : add_default(o, config, fault);
    if (r < 0) {
        clp_outbox_free(o);
        return r;
    }
    *ret = o;
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Whether the letter is safe in the spool. */
static bool spool_letter(struct lane *lane, struct clp_uploader *spool, const struct letter *l)
{
    struct clp_upload_result result = {.text = "spool.dir cannot be used"};
    if (spool && clp_uploader_send(spool, &l->item, &result) == 0) {
        lane->told.spooled++;
        clp_log_warning("%s did not take a profile in time; it is in %s", lane->told.name,
                        result.text);
        return true;
    }
    lane->told.lost++;
    clp_log_error("a profile of process %d is lost: %s", l->item.pid, result.text);
    return false;
}

/* A letter that is being sent is spooled as well: its outcome is not waited for, and the same
 * number tells the copies as one. The lane's thread removes it. */
static uint64_t spool_rest(struct clp_outbox *o, struct lane *lane)
{
    struct clp_upload u = {.kind = CLP_UPLOAD_DIRECTORY, .path = o->spool_dir};
    CLP_CLEANUP(clp_uploader_freep) struct clp_uploader *spool = NULL;
    uint64_t lost = 0;
    if (lane->first && clp_uploader_new(&u, &spool, NULL) < 0)
        spool = NULL;
    for (struct letter *l = lane->first, *next; l; l = next) {
        next = l->next;
        lost += !spool_letter(lane, spool, l);
        if (l != lane->sending)
            remove_letter(lane, l);
    }
    return lost;
}

static bool all_ended(const struct clp_outbox *o)
{
    for (size_t i = 0; i < o->lane_count; i++)
        if (o->lanes[i].running && !o->lanes[i].ended)
            return false;
    return true;
}

uint64_t clp_outbox_drain(struct clp_outbox *o, uint64_t deadline_ns)
{
    struct timespec t = {.tv_sec = (time_t)(deadline_ns / CLP_NSEC_PER_SEC),
                         .tv_nsec = (long)(deadline_ns % CLP_NSEC_PER_SEC)};
    uint64_t lost = 0;
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    o->stop_at_ns = deadline_ns;
    pthread_cond_broadcast(&o->changed);
    while (!all_ended(o) && clp_clock_monotonic_ns() < deadline_ns)
        if (pthread_cond_timedwait(&o->changed, &o->lock, &t) == ETIMEDOUT)
            break;
    o->drained = true;
    for (size_t i = 0; i < o->lane_count; i++)
        lost += spool_rest(o, &o->lanes[i]);
    pthread_mutex_unlock(&o->lock);
    return lost;
}

struct clp_outbox *clp_outbox_free(struct clp_outbox *o)
{
    if (!o)
        return NULL;
    if (!o->drained)
        (void)clp_outbox_drain(o, clp_clock_monotonic_ns());
    unref(o);
    return NULL;
}

static size_t waiting(const struct lane *lane)
{
    size_t n = 0;
    for (const struct letter *l = lane->first; l; l = l->next)
        n++;
    return n;
}

size_t clp_outbox_lanes(struct clp_outbox *o, struct clp_outbox_lane *ret, size_t cap)
{
    size_t n = CLP_MIN(cap, o->lane_count);
    pthread_mutex_lock(&o->lock);
    for (size_t i = 0; i < n; i++) {
        ret[i] = o->lanes[i].told;
        ret[i].waiting = waiting(&o->lanes[i]);
        ret[i].waiting_bytes = o->lanes[i].bytes;
    }
    pthread_mutex_unlock(&o->lock);
    return n;
}
