#include "agent/outbox.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

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
    char name[32];
    pthread_t thread;
    bool running;
    /* Guarded by the box's lock. */
    struct letter *first, **last;
    size_t bytes;
    struct letter *sending; /* the thread's for the moment; still in the queue */
};

struct clp_outbox {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
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
            "%s is behind: the profile of process %d from %llu s ago is dropped", lane->name,
            oldest->item.pid,
            (unsigned long long)((clp_clock_realtime_ns() - oldest->item.start_unix_ns) /
                                 CLP_NSEC_PER_SEC));
        remove_letter(lane, oldest);
    }
}

void clp_outbox_put(struct clp_outbox *o, const struct clp_upload_item *item)
{
    for (size_t i = 0; i < o->lane_count; i++) {
        struct lane *lane = &o->lanes[i];
        struct letter *l = copy_item(item);
        if (!l) {
            clp_log_error("a profile of process %d was lost: out of memory", item->pid);
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

/* Whether the letter is done with: delivered, or never to be taken. */
static bool send_letter(struct lane *lane, const struct letter *l, uint64_t *pause_ns)
{
    struct clp_upload_result result;
    int r = clp_uploader_send(lane->uploader, &l->item, &result);
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
    return !o->stopping || (!failed && clp_clock_monotonic_ns() < o->stop_at_ns);
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
        if (done)
            remove_letter(lane, l);
        else
            wait_until(o, clp_clock_monotonic_ns() + jitter(pause_ns));
    }
    pthread_mutex_unlock(&o->lock);
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
    snprintf(lane->name, sizeof(lane->name), "upload %zu (%s)",
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
    r = -pthread_create(&lane->thread, NULL, run_lane, lane);
    if (r < 0)
        return clp_fault_set(fault, r, "cannot start a thread: %s", strerror(-r));
    lane->running = true;
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
        clp_outbox_free(o, 0);
        return r;
    }
    *ret = o;
    return 0;
}

static void spool_rest(struct clp_outbox *o, struct lane *lane)
{
    const char *why = NULL;
    struct clp_uploader *spool = NULL;
    struct clp_upload u = {.kind = CLP_UPLOAD_DIRECTORY, .path = o->spool_dir};
    struct clp_upload_result result;
    if (lane->first && clp_uploader_new(&u, &spool, &why) < 0)
        clp_log_error("spool.dir cannot be used: %s", why ? why : "out of memory");
    while (lane->first) {
        if (spool && clp_uploader_send(spool, &lane->first->item, &result) < 0)
            clp_log_error("a profile of process %d is lost: %s", lane->first->item.pid,
                          result.text);
        else if (spool)
            clp_log_warning("%s did not take a profile in time; it is in %s", lane->name,
                            result.text);
        remove_letter(lane, lane->first);
    }
    clp_uploader_free(spool);
}

struct clp_outbox *clp_outbox_free(struct clp_outbox *o, uint64_t deadline_ns)
{
    if (!o)
        return NULL;
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    o->stop_at_ns = deadline_ns;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    for (size_t i = 0; i < o->lane_count; i++) {
        struct lane *lane = &o->lanes[i];
        if (lane->running)
            (void)pthread_join(lane->thread, NULL); /* one exchange has its own time-out */
        spool_rest(o, lane);
        clp_uploader_free(lane->uploader);
    }
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o->spool_dir);
    free(o);
    return NULL;
}
