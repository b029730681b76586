/* Delivery's own state, shared by its two parts: delivery.c (life, threads, what others call) and
 * delivery_flights.c (profiles on their way, and what becomes of them). Nobody else includes this.
 */
#ifndef CLP_UPLOADER_DELIVERY_PARTS_H
#define CLP_UPLOADER_DELIVERY_PARTS_H

#include "uploader/delivery.h"
#include "uploader/intake.h"
#include "uploader/transfer.h"

#include <pthread.h>

/* One profile on its way to one intake. */
struct flight {
    struct lane *lane;
    struct clp_spool_entry *entry;
    uint8_t *bytes;
    struct clp_chunk chunk;
    struct clp_requests requests;
    size_t at;         /* the request under way */
    uint32_t failures; /* of the lane when that began: tells a failure that it knew of from news */
    struct clp_transfer *transfer;
};

struct lane {
    struct clp_delivery *box;
    struct clp_intake *intake;
    size_t plain_max; /* the intake's limit before anything was learned */
    size_t index;
    struct flight *flights[CLP_DELIVERY_FLIGHTS];
    size_t flight_count;
    uint32_t failures;  /* in a row */
    uint32_t successes; /* profiles taken, to tell a sick intake from a bad profile */
    uint64_t next_try_ns;
    bool failed_while_stopping;
    struct clp_delivery_stats stats;
};

struct worker {
    struct clp_delivery *box;
    bool files; /* else HTTP */
    struct clp_transfers *transfers;
    pthread_t thread;
    bool running;
};

struct clp_delivery {
    struct clp_delivery_config config;
    pthread_mutex_t lock; /* never held while building, sending or waiting */
    pthread_cond_t changed;
    struct clp_spool *spool;
    bool memory_only;
    struct clp_spool_counts told; /* losses that were said already */
    bool stopping;
    uint64_t stop_at_ns;
    struct lane lanes[CLP_DELIVERY_INTAKES_MAX];
    size_t lane_count;
    struct worker workers[2];
};

/* Tells the owner; `text` has no secrets. */
void clp_delivery_say(const struct clp_delivery *d, enum clp_log_level level, const char *fmt, ...)
    CLP_PRINTF(3, 4);
/* Losses of the spool since the last time. */
void clp_delivery_say_losses(struct clp_delivery *d);

/* Those of a worker's lanes; called with the lock, which is given back while there is work. */
void clp_flights_start(struct worker *w);
bool clp_flights_any(const struct worker *w);
void clp_flights_take_finished(struct worker *w);
void clp_flights_abandon(struct worker *w);
/* Whether the lane's intake lacks this one. */
bool clp_flights_pending(const struct lane *lane, const struct clp_spool_entry *e);

#endif
