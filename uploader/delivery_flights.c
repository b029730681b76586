#include "uploader/delivery_parts.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RETRY_FIRST_NS CLP_NSEC_PER_SEC
#define RETRY_LONGEST_NS (60 * CLP_NSEC_PER_SEC)
#define SUSPECT_AFTER 3u /* refusals by 5xx before others are tried first */
#define BLAMED_MAX 3u    /* refusals of a suspect, each after another one was taken */
#define REFUSALS_MAX 20u /* in all; for one that is alone */
#define SMALLEST_PLAIN_BYTES 16384u

/* ---- after a try ----------------------------------------------------------------------------- */

/* Half to one and a half times: agents that failed together do not come back together. */
static uint64_t jitter(uint64_t ns)
{
    uint32_t r = 0;
    (void)!getrandom(&r, sizeof(r), GRND_NONBLOCK);
    return ns / 2 + (uint64_t)((double)ns * (r / 4294967296.0));
}

/* Of flights that were under way together only the first failure makes the pauses longer. */
static void pause_flight(struct flight *f, const struct clp_upload_result *result)
{
    struct lane *lane = f->lane;
    const struct clp_delivery_config *c = &lane->box->config;
    uint64_t first = c->retry_first_ns ? c->retry_first_ns : RETRY_FIRST_NS;
    uint64_t longest = c->retry_longest_ns ? c->retry_longest_ns : RETRY_LONGEST_NS;
    bool news = f->failures == lane->failures;
    uint32_t doublings = CLP_MIN(lane->failures, 20u);
    lane->failures += news;
    /* Added to what the intake asked for: it told all others the same. */
    uint64_t pause_ns = result->retry_after_ns + jitter(CLP_MIN(first << doublings, longest));
    lane->failed_while_stopping = true;
    lane->stats.failing = true;
    lane->stats.retried++;
    uint64_t try_ns = clp_clock_monotonic_ns() + pause_ns;
    lane->next_try_ns = CLP_MAX(lane->next_try_ns, try_ns);
    /* At 1, 2, 4, 8...: the log tells of a long outage, but not over and over. */
    if (news && (lane->failures & (lane->failures - 1)) == 0)
        clp_delivery_say(lane->box, CLP_LOG_WARNING, "will try again in %.1f s: %s",
                         (double)pause_ns / 1e9, result->text);
}

static void note_error(struct lane *lane, const struct clp_upload_result *result)
{
    lane->stats.error_unix_ns = clp_clock_realtime_ns();
    memcpy(lane->stats.error, result->text, sizeof(lane->stats.error));
}

/* A success of what was under way when another failed does not shorten the pause: the intake may
 * have said how long it must be. */
static void lane_is_well(struct flight *f)
{
    struct lane *lane = f->lane;
    lane->successes++;
    if (f->failures != lane->failures)
        return;
    if (lane->failures)
        clp_delivery_say(lane->box, CLP_LOG_INFO, "%s takes profiles again", lane->intake->where);
    lane->failures = f->failures = 0;
    lane->stats.failing = false;
    lane->next_try_ns = 0;
}

static struct clp_spool_progress *progress(const struct flight *f)
{
    return &f->entry->progress[f->lane->index];
}

/* All of it that the intake does not have yet. */
static void drop(struct flight *f, enum clp_delivery_drop why, const char *text)
{
    struct lane *lane = f->lane;
    if (!progress(f)->lacking)
        lane->stats.dropped[why]++;
    clp_spool_sent(lane->box->spool, f->entry, lane->index, NULL);
    clp_delivery_say(lane->box, CLP_LOG_ERROR, "a profile of process %d is dropped: %s",
                     f->chunk.header.pid, text);
}

/* Notes that the part at hand is over. Whether the flight goes on with the next one; not into a
 * pause that another flight has brought about. */
static bool next_part(struct flight *f)
{
    struct lane *lane = f->lane;
    const struct clp_request *q = &f->requests.items[f->at];
    progress(f)->refusals = progress(f)->blamed = 0;
    if (++f->at < f->requests.count) {
        /* A file that is written once more is the same file: no mark on the disk for each. */
        if (!lane->intake->kind->is_files)
            clp_spool_sent(lane->box->spool, f->entry, lane->index, q->part);
        return clp_clock_monotonic_ns() >= lane->next_try_ns;
    }
    lane->stats.sent += !progress(f)->lacking;
    clp_spool_sent(lane->box->spool, f->entry, lane->index, NULL);
    return false;
}

/* One kind of sample will never be taken: the others go on their way. */
static bool drop_part(struct flight *f, enum clp_delivery_drop why, const char *text)
{
    struct lane *lane = f->lane;
    if (f->requests.count == 1) {
        drop(f, why, text);
        return false;
    }
    if (!progress(f)->lacking)
        lane->stats.dropped[why]++;
    progress(f)->lacking = true;
    clp_delivery_say(lane->box, CLP_LOG_ERROR, "the %s profile of process %d is dropped: %s",
                     f->requests.items[f->at].part, f->chunk.header.pid, text);
    return next_part(f);
}

/* 5xx for this one over and over, while others were taken in between: it is not the intake. */
static bool is_poison(struct flight *f)
{
    struct clp_spool_progress *p = progress(f);
    bool others_went = p->refusals >= SUSPECT_AFTER && p->mark != f->lane->successes;
    p->refusals++;
    p->blamed += others_went;
    p->mark = f->lane->successes;
    return p->refusals >= REFUSALS_MAX || p->blamed >= BLAMED_MAX;
}

/* The limit is learned for good: the next profile would be as large. If nothing is small enough it
 * was no matter of size, and nothing is learned. */
static bool learn_limit(struct flight *f)
{
    struct clp_intake *in = f->lane->intake;
    size_t was = f->requests.items[f->at].plain_len, limit = was / 2;
    if (in->plain_max && in->plain_max < was)
        return true; /* learned from another one since this was made */
    if (limit < SMALLEST_PLAIN_BYTES) {
        in->plain_max = f->lane->plain_max;
        return false;
    }
    in->plain_max = limit;
    clp_delivery_say(f->lane->box, CLP_LOG_WARNING,
                     "%s takes no profile of %zu KiB; they are folded to %zu KiB from now on",
                     in->where, was / 1024, limit / 1024);
    return true;
}

/* Whether the flight goes on with its next part. */
static bool part_is_done(struct flight *f)
{
    struct lane *lane = f->lane;
    const struct clp_request *q = &f->requests.items[f->at];
    lane->stats.folded += q->folded;
    if (q->folded)
        clp_delivery_say(
            lane->box, CLP_LOG_WARNING,
            "the %s profile of process %d was too large for %s (%s): %zu small samples are "
            "together in [other]",
            q->part, f->chunk.header.pid, lane->intake->where, q->note, q->folded);
    lane_is_well(f);
    return next_part(f);
}

/* Statuses that speak of the bytes of this request, and not of who sends them or where to. */
static bool is_about_part(int status)
{
    return status == 400 || status == 413 || status == 422;
}

static bool take_outcome(struct flight *f, const struct clp_upload_result *result)
{
    if (result->outcome != CLP_OUTCOME_DONE)
        note_error(f->lane, result);
    switch (result->outcome) {
    case CLP_OUTCOME_DONE:
        return part_is_done(f);
    case CLP_OUTCOME_SUSPECT:
        if (is_poison(f))
            return drop_part(f, CLP_DROP_POISON, result->text);
        pause_flight(f, result);
        return false;
    case CLP_OUTCOME_LATER:
        pause_flight(f, result);
        return false;
    case CLP_OUTCOME_SMALLER:
        f->lane->stats.retried++;
        return !learn_limit(f) && drop_part(f, CLP_DROP_TOO_LARGE, result->text);
    case CLP_OUTCOME_DROP:
        if (is_about_part(result->http_status))
            return drop_part(f, CLP_DROP_REFUSED, result->text);
        drop(f, CLP_DROP_REFUSED, result->text);
        return false;
    }
    return false;
}

/* ---- flights: the functions below are called with the lock and give it back while they work ----
 */

static void end_flight(struct worker *w, struct flight *f)
{
    struct lane *lane = f->lane;
    struct clp_delivery *d = lane->box;
    clp_transfer_end(w->transfers, f->transfer);
    for (size_t i = 0; i < lane->flight_count; i++)
        if (lane->flights[i] == f)
            lane->flights[i] = lane->flights[--lane->flight_count];
    f->entry->uses--;
    clp_spool_release(d->spool, f->entry);
    clp_requests_done(&f->requests);
    clp_chunk_done(&f->chunk);
    free(f->bytes);
    free(f);
    pthread_cond_broadcast(&d->changed);
}

static void skip_parts_that_are_there(struct flight *f)
{
    while (f->at < f->requests.count &&
           clp_spool_has_part(f->entry, f->lane->index, f->requests.items[f->at].part))
        f->at++;
}

/* Bytes to requests. 0, or it is over for this flight. */
static int prepare(struct flight *f, const char **ret_why, struct clp_upload_result *result)
{
    size_t len = 0;
    int r = clp_spool_load(f->lane->box->spool, f->entry, &f->bytes, &len);
    if (r < 0) {
        *ret_why = strerror(-r);
        return r;
    }
    r = clp_chunk_read(f->bytes, len, &f->chunk, ret_why);
    if (r == 0)
        r = clp_intake_build(f->lane->intake, &f->chunk, &f->requests, result);
    /* Only what it is about is needed from here on; many flights may be under way. */
    free(CLP_TAKE(f->bytes));
    f->chunk.profile = NULL;
    f->chunk.profile_len = 0;
    return r;
}

static void set_aside(struct worker *w, struct flight *f, bool gone, const char *why)
{
    struct clp_delivery *d = f->lane->box;
    struct clp_spool_entry *e = f->entry;
    if (gone)
        clp_delivery_say(d, CLP_LOG_INFO, "the spooled profile %s was removed by somebody",
                         e->name);
    else
        clp_delivery_say(d, CLP_LOG_ERROR, "the spooled profile %s cannot be read: %s", e->name,
                         why);
    if (e->uses > 1) { /* another intake has it in its hands; this one lets go */
        clp_spool_sent(d->spool, e, f->lane->index, NULL);
        end_flight(w, f);
        return;
    }
    e->uses++; /* past end_flight */
    end_flight(w, f);
    e->uses--;
    clp_spool_set_aside(d->spool, e, !gone);
    clp_delivery_say_losses(d);
}

static void cannot_build(struct worker *w, struct flight *f, int error,
                         const struct clp_upload_result *result)
{
    struct lane *lane = f->lane;
    if (error == -ENODATA) { /* nothing for this intake: it has all that there is */
        clp_spool_sent(lane->box->spool, f->entry, lane->index, NULL);
    } else {
        note_error(lane, result);
        if (result->outcome == CLP_OUTCOME_LATER)
            pause_flight(f, result);
        else
            drop(f,
                 error == -ESTALE  ? CLP_DROP_STALE
                 : error == -EFBIG ? CLP_DROP_TOO_LARGE
                                   : CLP_DROP_DAMAGED,
                 result->text);
    }
    end_flight(w, f);
}

/* The part at hand, without the lock: file, or the beginning of a transfer. */
static int start_part(struct worker *w, struct flight *f, struct clp_upload_result *result)
{
    const struct clp_request *q = &f->requests.items[f->at];
    if (w->files)
        return f->lane->intake->kind->store(f->lane->intake, &f->chunk, q, result);
    f->transfer = clp_transfer_end(w->transfers, f->transfer);
    int r = clp_transfer_start(w->transfers, f->lane->intake, q, f, &f->transfer, result);
    if (r < 0 && !*result->text) {
        result->outcome = CLP_OUTCOME_LATER;
        clp_upload_say(result, "cannot send to %s: %s", f->lane->intake->where, strerror(-r));
    }
    return r;
}

/* Parts until one is under way or the flight is over. */
static void fly(struct worker *w, struct flight *f)
{
    struct clp_delivery *d = f->lane->box;
    for (;;) {
        struct clp_upload_result result = {.outcome = CLP_OUTCOME_DONE};
        skip_parts_that_are_there(f);
        if (f->at == f->requests.count) { /* the last mark was lost; all of it is there */
            clp_spool_sent(d->spool, f->entry, f->lane->index, NULL);
            break;
        }
        pthread_mutex_unlock(&d->lock);
        int r = start_part(w, f, &result);
        pthread_mutex_lock(&d->lock);
        if (r == 0 && !w->files)
            return;
        if (!take_outcome(f, &result))
            break;
    }
    end_flight(w, f);
}

/* False: this machine is short of something; not again at once. */
static bool begin_flight(struct worker *w, struct lane *lane, struct clp_spool_entry *e)
{
    struct clp_delivery *d = lane->box;
    const char *why = "";
    struct clp_upload_result result = {.outcome = CLP_OUTCOME_LATER};
    struct flight *f = calloc(1, sizeof(*f));
    if (!f)
        return false;
    f->lane = lane;
    f->entry = e;
    f->failures = lane->failures;
    e->uses++;
    lane->flights[lane->flight_count++] = f;
    pthread_mutex_unlock(&d->lock);
    int r = prepare(f, &why, &result);
    pthread_mutex_lock(&d->lock);
    bool ours = r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO;
    if (r == 0)
        fly(w, f);
    else if (f->chunk.own)
        cannot_build(w, f, r, &result);
    else if (ours)
        end_flight(w, f);
    else
        set_aside(w, f, r == -ENOENT, why);
    return !ours;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static bool in_flight(const struct lane *lane, const struct clp_spool_entry *e)
{
    for (size_t i = 0; i < lane->flight_count; i++)
        if (clp_spool_same_target(lane->flights[i]->entry, e))
            return true;
    return false;
}

bool clp_flights_pending(const struct lane *lane, const struct clp_spool_entry *e)
{
    return !(e->done & (1u << lane->index));
}

/* The oldest whose target has none under way.
 *
 * One that was refused by 5xx several times, a suspect, may be what the intake chokes on, or the
 * intake may be ill. Another one tells: of another target, or else the next of the same. Once that
 * is taken the suspect has its turn again before anything else. */
static struct clp_spool_entry *pick(const struct lane *lane)
{
    struct clp_spool_entry *suspect = NULL, *behind = NULL;
    for (struct clp_spool_entry *e = clp_spool_first(lane->box->spool); e; e = e->next) {
        const struct clp_spool_progress *p = &e->progress[lane->index];
        if (!clp_flights_pending(lane, e) || in_flight(lane, e))
            continue;
        bool is_suspect = p->refusals >= SUSPECT_AFTER;
        if (is_suspect ? p->mark != lane->successes : !suspect)
            return e;
        if (!suspect)
            suspect = e;
        else if (!is_suspect && !clp_spool_same_target(e, suspect))
            return e;
        else if (!is_suspect && !behind)
            behind = e;
    }
    return behind ? behind : suspect;
}

static bool may_start(const struct lane *lane, uint64_t now_ns)
{
    const struct clp_delivery *d = lane->box;
    /* To one that is not well, one knocks with one hand. */
    size_t most = lane->failures ? 1 : CLP_DELIVERY_FLIGHTS;
    if (d->stopping && (lane->failed_while_stopping || now_ns >= d->stop_at_ns))
        return false;
    return lane->flight_count < most && now_ns >= lane->next_try_ns;
}

void clp_flights_start(struct worker *w)
{
    struct clp_delivery *d = w->box;
    for (size_t i = 0; i < d->lane_count; i++) {
        struct lane *lane = &d->lanes[i];
        struct clp_spool_entry *e;
        if (lane->intake->kind->is_files != w->files)
            continue;
        while (may_start(lane, clp_clock_monotonic_ns()) && (e = pick(lane)))
            if (!begin_flight(w, lane, e))
                break;
    }
}

bool clp_flights_any(const struct worker *w)
{
    for (size_t i = 0; i < w->box->lane_count; i++)
        if (w->box->lanes[i].intake->kind->is_files == w->files && w->box->lanes[i].flight_count)
            return true;
    return false;
}

/* ---- ends ----------------------------------------------------------------------------------- */

void clp_flights_take_finished(struct worker *w)
{
    struct clp_upload_result result;
    void *context;
    while (clp_transfers_next(w->transfers, &context, &result)) {
        struct flight *f = context;
        if (take_outcome(f, &result))
            fly(w, f);
        else
            end_flight(w, f);
    }
}

void clp_flights_abandon(struct worker *w)
{
    for (size_t i = 0; i < w->box->lane_count; i++)
        while (w->box->lanes[i].intake->kind->is_files == w->files && w->box->lanes[i].flight_count)
            end_flight(w, w->box->lanes[i].flights[0]);
}
