#include "uploader/delivery.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "uploader/delivery_parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_NS CLP_NSEC_PER_SEC /* the spool's age and `flush` are looked at as often */

const char *clp_delivery_drop_name(enum clp_delivery_drop drop)
{
    static const char *const names[] = {
        [CLP_DROP_REFUSED] = "refused",     [CLP_DROP_POISON] = "poison",
        [CLP_DROP_TOO_LARGE] = "too_large", [CLP_DROP_STALE] = "stale",
        [CLP_DROP_DAMAGED] = "damaged",
    };
    return (size_t)drop < CLP_ARRAY_LEN(names) ? names[drop] : "unknown";
}

void clp_delivery_say(const struct clp_delivery *d, enum clp_log_level level, const char *fmt, ...)
{
    char text[CLP_UPLOAD_TEXT_BYTES * 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (d->config.say)
        d->config.say(d->config.context, level, text);
}

void clp_delivery_say_losses(struct clp_delivery *d)
{
    const struct clp_spool_counts *now = clp_spool_counts(d->spool);
    for (size_t i = 0; i < CLP_SPOOL_LOSSES; i++) {
        uint64_t lost = now->lost[i] - d->told.lost[i];
        if (lost)
            clp_delivery_say(d, CLP_LOG_WARNING, "%llu profiles were dropped: %s",
                             (unsigned long long)lost, clp_spool_loss_text((enum clp_spool_loss)i));
        d->told.lost[i] = now->lost[i];
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

/* When something is to be done that no event announces. */
static uint64_t next_ns(const struct worker *w, uint64_t now_ns)
{
    const struct clp_delivery *d = w->box;
    uint64_t at = now_ns + IDLE_NS;
    for (size_t i = 0; i < d->lane_count; i++)
        if (d->lanes[i].next_try_ns > now_ns)
            at = CLP_MIN(at, d->lanes[i].next_try_ns);
    return d->stopping ? CLP_MIN(at, d->stop_at_ns) : at;
}

static void wait_for_work(struct worker *w)
{
    struct clp_delivery *d = w->box;
    uint64_t now_ns = clp_clock_monotonic_ns(), until_ns = next_ns(w, now_ns);
    until_ns = CLP_MAX(until_ns, now_ns);
    if (w->files) {
        struct timespec t = {.tv_sec = (time_t)(until_ns / CLP_NSEC_PER_SEC),
                             .tv_nsec = (long)(until_ns % CLP_NSEC_PER_SEC)};
        (void)pthread_cond_timedwait(&d->changed, &d->lock, &t);
        return;
    }
    pthread_mutex_unlock(&d->lock);
    clp_transfers_wait(w->transfers, (int)((until_ns - now_ns) / CLP_NSEC_PER_MSEC) + 1);
    clp_transfers_step(w->transfers);
    pthread_mutex_lock(&d->lock);
}

static void flush(struct clp_delivery *d)
{
    for (size_t i = 0; i < d->lane_count; i++)
        d->lanes[i].next_try_ns = 0;
}

static void keep_house(struct clp_delivery *d)
{
    clp_spool_age(d->spool, clp_clock_monotonic_ns());
    if (clp_spool_take_flush(d->spool))
        flush(d);
    clp_delivery_say_losses(d);
}

static void *run_worker(void *context)
{
    struct worker *w = context;
    struct clp_delivery *d = w->box;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        keep_house(d);
        clp_flights_start(w);
        if (d->stopping && (!clp_flights_any(w) || clp_clock_monotonic_ns() >= d->stop_at_ns))
            break;
        wait_for_work(w);
        if (!w->files)
            clp_flights_take_finished(w);
    }
    clp_flights_abandon(w);
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void wake(struct clp_delivery *d)
{
    pthread_cond_broadcast(&d->changed);
    for (size_t i = 0; i < CLP_ARRAY_LEN(d->workers); i++)
        if (d->workers[i].transfers)
            clp_transfers_wake(d->workers[i].transfers);
}

/* ---- what others call ------------------------------------------------------------------------ */

int clp_delivery_submit(struct clp_delivery *d, const struct clp_upload_header *h,
                        const void *profile, size_t len, void (*stored)(void *context),
                        void *context)
{
    bool in_memory = false;
    int why = 0;
    pthread_mutex_lock(&d->lock);
    int r = clp_spool_put(d->spool, h, profile, len, &in_memory, &why);
    if (r < 0)
        clp_delivery_say(d, CLP_LOG_ERROR, "a profile of process %d is lost: %s", h->pid,
                         strerror(-r));
    else if (in_memory && why == -EFBIG)
        clp_delivery_say(d, CLP_LOG_WARNING,
                         "a profile of process %d is larger than spool.max_size and waits in "
                         "memory; raise it, or set a shorter profile.period",
                         h->pid);
    else if (in_memory && !d->memory_only)
        clp_delivery_say(
            d, CLP_LOG_WARNING,
            "the spool %s cannot be written (%s): a profile waits in memory; free some room there "
            "or set spool.dir",
            d->config.spool_dir, strerror(-why));
    if (r == 0 && stored)
        stored(context);
    clp_delivery_say_losses(d);
    wake(d);
    pthread_mutex_unlock(&d->lock);
    return r;
}

uint64_t clp_delivery_wait(struct clp_delivery *d, uint64_t deadline_ns)
{
    struct timespec t = {.tv_sec = (time_t)(deadline_ns / CLP_NSEC_PER_SEC),
                         .tv_nsec = (long)(deadline_ns % CLP_NSEC_PER_SEC)};
    pthread_mutex_lock(&d->lock);
    while (clp_spool_counts(d->spool)->chunks > 0 && clp_clock_monotonic_ns() < deadline_ns)
        if (pthread_cond_timedwait(&d->changed, &d->lock, &t) == ETIMEDOUT)
            break;
    uint64_t left = clp_spool_counts(d->spool)->chunks;
    pthread_mutex_unlock(&d->lock);
    return left;
}

size_t clp_delivery_intakes(const struct clp_delivery *d)
{
    return d->lane_count;
}

void clp_delivery_stats(struct clp_delivery *d, size_t intake, struct clp_delivery_stats *ret)
{
    struct lane *lane = &d->lanes[intake];
    pthread_mutex_lock(&d->lock);
    *ret = lane->stats;
    for (struct clp_spool_entry *e = clp_spool_first(d->spool); e; e = e->next) {
        if (!clp_flights_pending(lane, e))
            continue;
        if (ret->backlog++ == 0)
            ret->oldest_unix_ns = e->start_unix_ns;
        ret->backlog_bytes += e->bytes;
    }
    pthread_mutex_unlock(&d->lock);
}

void clp_delivery_spool_counts(struct clp_delivery *d, struct clp_spool_counts *ret,
                               bool *ret_memory_only)
{
    pthread_mutex_lock(&d->lock);
    *ret = *clp_spool_counts(d->spool);
    *ret_memory_only = d->memory_only;
    pthread_mutex_unlock(&d->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_lanes(struct clp_delivery *d, char *why, size_t cap)
{
    const struct clp_delivery_config *c = &d->config;
    for (size_t i = 0; i < CLP_MIN(c->upload_count, (size_t)CLP_DELIVERY_INTAKES_MAX); i++) {
        const struct clp_upload *u = &c->uploads[i];
        struct lane *lane = &d->lanes[i];
        const char *reason = NULL;
        lane->box = d;
        lane->index = i;
        int r = clp_intake_open(u, &lane->intake, &reason);
        if (r < 0) {
            (void)snprintf(why, cap, "upload %zu (%s) cannot work: %s", i + 1,
                           clp_upload_kind_name(u->kind), reason);
            return r;
        }
        lane->stats.kind = u->kind;
        lane->plain_max = lane->intake->plain_max;
        (void)snprintf(lane->stats.where, sizeof(lane->stats.where), "%s", lane->intake->where);
        d->lane_count++;
    }
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Whether both go to one account at one place. */
static bool same_account(const struct clp_intake *a, const struct clp_intake *b)
{
    const struct clp_upload *x = &a->upload, *y = &b->upload;
    bool same = clp_intake_id(a) == clp_intake_id(b) && x->header_count == y->header_count &&
                same_text(a->request_url, b->request_url) && same_text(x->user, y->user) &&
                same_text(x->password, y->password) && same_text(x->token, y->token) &&
                same_text(x->api_key, y->api_key);
    for (size_t i = 0; same && i < x->header_count; i++)
        same = strcmp(x->headers[i], y->headers[i]) == 0;
    return same;
}

static void say_doubles(const struct clp_delivery *d)
{
    for (size_t i = 0; i < d->lane_count; i++)
        for (size_t k = 0; k < i; k++)
            if (same_account(d->lanes[k].intake, d->lanes[i].intake))
                clp_delivery_say(d, CLP_LOG_WARNING,
                                 "uploads %zu and %zu are the same: %s gets every profile twice; "
                                 "leave one of them out",
                                 k + 1, i + 1, d->lanes[i].intake->where);
}

/* Two uploads to one place, which differ in a key or user alone, are told apart by their order. */
static uint64_t unique_id(const struct clp_delivery *d, const uint64_t *ids, size_t at)
{
    uint64_t id = clp_intake_id(d->lanes[at].intake);
    for (size_t i = 0; i < at; i++)
        if (ids[i] == id) {
            id++;
            i = (size_t)-1; /* from the beginning: the next one may be taken as well */
        }
    return id;
}

static int open_spool(struct clp_delivery *d, char *why, size_t cap)
{
    uint64_t ids[CLP_DELIVERY_INTAKES_MAX];
    for (size_t i = 0; i < d->lane_count; i++)
        ids[i] = unique_id(d, ids, i);
    const struct clp_delivery_config *c = &d->config;
    struct clp_spool_config s = {.dir = c->spool_dir,
                                 .bytes_max = c->spool_bytes_max,
                                 .memory_max = c->memory_bytes_max,
                                 .files_max = c->spool_files_max,
                                 .age_max_ns = c->spool_age_max_ns,
                                 .intakes = ids,
                                 .intake_count = d->lane_count};
    int r = clp_spool_open(&s, &d->spool);
    if (r == -EBUSY)
        (void)snprintf(
            why, cap,
            "another agent uses the spool %s: stop it, or give this one its own spool.dir",
            c->spool_dir);
    if (r < 0 && r != -EBUSY && c->needs_spool)
        (void)snprintf(why, cap, "cannot use the spool %s: %s", c->spool_dir, strerror(-r));
    if (r == 0 || r == -EBUSY || r == -ENOMEM || c->needs_spool)
        return r;
    clp_delivery_say(
        d, CLP_LOG_WARNING,
        "the spool %s cannot be used (%s): profiles wait in memory and do not survive a crash; set "
        "spool.dir to a directory that can be written",
        c->spool_dir, strerror(-r));
    s.dir = NULL;
    d->memory_only = true;
    return clp_spool_open(&s, &d->spool);
}

static int start_worker(struct clp_delivery *d, bool files)
{
    struct worker *w = &d->workers[files];
    bool needed = false;
    for (size_t i = 0; i < d->lane_count; i++)
        needed |= d->lanes[i].intake->kind->is_files == files;
    if (!needed)
        return 0;
    w->box = d;
    w->files = files;
    int r = files ? 0 : clp_transfers_new(&w->transfers);
    if (r == 0)
        r = -pthread_create(&w->thread, NULL, run_worker, w);
    w->running = r == 0;
    return r;
}

int clp_delivery_start(const struct clp_delivery_config *c, struct clp_delivery **ret, char *why,
                       size_t why_cap)
{
    pthread_condattr_t attr;
    struct clp_delivery *d = calloc(1, sizeof(*d));
    (void)snprintf(why, why_cap, "out of memory");
    if (!d)
        return -ENOMEM;
    d->config = *c;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, &attr);
    pthread_condattr_destroy(&attr);
    int r = open_lanes(d, why, why_cap);
    if (r == 0)
        r = open_spool(d, why, why_cap);
    if (r == 0)
        say_doubles(d);
    d->memory_only |= !c->spool_dir;
    for (int files = 0; files < 2 && r == 0; files++) {
        r = start_worker(d, files);
        if (r < 0)
            (void)snprintf(why, why_cap, "cannot start a thread: %s", strerror(-r));
    }
    if (r < 0) {
        clp_delivery_stop(d, 0, NULL);
        return r;
    }
    *ret = d;
    return 0;
}

static uint64_t say_what_is_left(struct clp_delivery *d)
{
    const struct clp_spool_counts *counts = clp_spool_counts(d->spool);
    uint64_t left = counts->chunks, lost = clp_spool_close(d->spool);
    if (lost)
        clp_delivery_say(d, CLP_LOG_ERROR,
                         "%llu profiles are lost: they could not be delivered, nor written to "
                         "the spool",
                         (unsigned long long)lost);
    if (left > lost)
        clp_delivery_say(d, CLP_LOG_WARNING, "%llu profiles wait in %s for the next start",
                         (unsigned long long)(left - lost), d->config.spool_dir);
    return lost;
}

static void end_workers(struct clp_delivery *d, uint64_t deadline_ns)
{
    pthread_mutex_lock(&d->lock);
    d->stopping = true;
    d->stop_at_ns = deadline_ns;
    for (size_t i = 0; i < d->lane_count; i++) {
        d->lanes[i].next_try_ns = 0;
        d->lanes[i].failed_while_stopping = false;
    }
    wake(d);
    pthread_mutex_unlock(&d->lock);
    for (size_t i = 0; i < CLP_ARRAY_LEN(d->workers); i++) {
        struct worker *w = &d->workers[i];
        if (w->running)
            (void)pthread_join(w->thread, NULL);
        clp_transfers_free(w->transfers);
    }
}

static void free_delivery(struct clp_delivery *d)
{
    for (size_t i = 0; i < CLP_DELIVERY_INTAKES_MAX; i++)
        clp_intake_close(d->lanes[i].intake);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

struct clp_delivery *clp_delivery_retire(struct clp_delivery *d, uint64_t deadline_ns,
                                         struct clp_spool **ret)
{
    end_workers(d, deadline_ns);
    clp_delivery_say_losses(d);
    *ret = d->spool;
    free_delivery(d);
    return NULL;
}

void clp_delivery_adopt(struct clp_delivery *d, struct clp_spool *left)
{
    pthread_mutex_lock(&d->lock);
    const struct clp_spool_counts *theirs = clp_spool_counts(left);
    for (size_t i = 0; i < CLP_SPOOL_LOSSES; i++)
        d->told.lost[i] += theirs->lost[i]; /* the other one has told of them */
    uint64_t stay = clp_spool_take_over(d->spool, left);
    clp_delivery_say_losses(d);
    wake(d);
    pthread_mutex_unlock(&d->lock);
    uint64_t lost = clp_spool_close(left);
    if (lost)
        clp_delivery_say(d, CLP_LOG_ERROR, "%llu profiles are lost: out of memory",
                         (unsigned long long)lost);
    if (stay > lost)
        clp_delivery_say(d, CLP_LOG_WARNING,
                         "%llu profiles stay in the spool directory of before, from which they "
                         "cannot be renamed into the new one; move its *.chunk files there, or set "
                         "spool.dir to it again",
                         (unsigned long long)(stay - lost));
}

struct clp_delivery *clp_delivery_stop(struct clp_delivery *d, uint64_t deadline_ns,
                                       uint64_t *ret_lost)
{
    if (ret_lost)
        *ret_lost = 0;
    if (!d)
        return NULL;
    end_workers(d, deadline_ns);
    uint64_t lost = d->spool ? say_what_is_left(d) : 0;
    if (ret_lost)
        *ret_lost = lost;
    free_delivery(d);
    return NULL;
}
