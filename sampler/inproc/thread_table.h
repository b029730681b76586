/* The records behind threads.h: who is where.  Private to threads.c and the
 * thread_*.c files, and to wall.c.
 *
 * Two kinds of writers meet here.  Runtime callbacks run on any thread and hold the leaf lock for
 * a few steps: they may add a record, and leave word in the inbox of one.  Everything else in
 * a record belongs to the loop thread, which reads the inboxes once a pass and is the only one to
 * take records away.  While sampling is off the loop stays away and callbacks also free records. */
#ifndef CLP_SAMPLER_INPROC_THREAD_TABLE_H
#define CLP_SAMPLER_INPROC_THREAD_TABLE_H

#include "base/core/lock.h"
#include "sampler/inproc/clp_span.h"
#include "sampler/inproc/threads.h"
#include "sampler/inproc/wall_account.h"

#define CLP_RECORD_NONE UINT32_MAX

enum clp_record_state {
    CLP_RECORD_FREE = 0,
    CLP_RECORD_LIVE = 1,
    CLP_RECORD_ENDED =
        2, /* the thread is gone; kept for one pass, for captures still in the ring */
};

enum {                             /* inbox bits */
       CLP_INBOX_MANAGED = 1 << 0, /* became managed: key_clr is its Thread object */
       CLP_INBOX_DESTROYED =
           1 << 1,               /* its Thread object is gone; final_ns is its clock then, or 0 */
       CLP_INBOX_NAMED = 1 << 2, /* a new managed name waits among the names */
       CLP_INBOX_REPLACED = 1 << 3, /* its tid belongs to another thread now */
};

/* In which span a thread was found, and whether it could run. */
struct clp_wall_look {
    struct clp_span span;
    bool could_run;
};

/* What wall.c knows of a thread. Loop, except while a callback makes the record. */
struct clp_wall_thread {
    struct clp_wall_account account;
    uint64_t clock_ns;   /* CPU clock when its stack was taken: while it stands, the stack holds */
    uint64_t changed_ns; /* when the clock was last seen to have moved */
    uint64_t hash;       /* of the stack; 0 none */
    uint64_t delay_ns;   /* time on the run queue that was told */
    struct clp_wall_look look;          /* the last one */
    uint64_t version;                   /* of its span's cell then */
    struct clp_span ran_span;           /* of its last CPU sample since */
    uint32_t copy_bytes;                /* of its stack */
    bool begun, has_stack, delay_known; /* has_stack: every reader has it */
    bool looked, ran;                   /* whether `look` and `ran_span` say something */
};

struct clp_record {
    _Atomic uint32_t state;
    uint32_t next_dirty; /* under the lock, like `queued` */
    bool queued;         /* in the list that next_dirty makes */

    struct clp_thread pub; /* loop, except while a callback makes the record */

    /* under the lock */
    int32_t key_tid;      /* 0 when not in the tid table */
    uint64_t key_clr;     /* 0 when not in the Thread object table */
    uint64_t final_ns;    /* clock at ThreadDestroyed, read on the thread itself */
    uint64_t ended_at_ns; /* CLOCK_MONOTONIC then; 0 not told */
    uint32_t inbox;
    uint32_t next_free, next_by_tid, next_by_clr;
    uint64_t alloc_bytes; /* alloc_totals.c: allocated by it when that was last read */
    uint64_t alloc_met;   /* the slot's, just before */
    bool alloc_unsure;    /* it was there before counting began, and was not read yet */

    _Atomic uint64_t clock_read_ns; /* clock at the loop's last visit; callbacks read it */

    /* loop */
    uint64_t made_at_ns;
    uint64_t timed_from_ns; /* clock when its timer was armed: CPU time before had no timer */
    uint64_t idle_limit_ns; /* how long an idle thread keeps its timer when timers are plentiful */
    uint64_t timer_lost_ns; /* when the timer was taken away; 0 never had one */
    uint64_t rearmed_ns;    /* when the loop last armed it */
    uint64_t counted_at_ns; /* when accounted_ns last rose, or the timer was armed */
    uint64_t ended_at_pass;
    uint64_t fs_base;     /* of a capture without bounds */
    bool fresh;           /* not yet looked at: kind and name are to be found */
    bool sampled;         /* had a sample: time may go to its last stack */
    bool waits_for_timer; /* refused by the quota */
    bool unsignalled;     /* blocks the signal, or is a kernel worker: never gets a timer */
    bool seen_blocked;    /* had the signal blocked when its sample was overdue */
    bool managed_name;
    uint64_t name_hash;  /* of a name that was found once, and is to be found again */
    uint64_t name_at_ns; /* when */
    bool replaced;       /* another thread has its tid */
    bool bounds_wanted;
    bool bounds_tried;
    struct clp_wall_thread wall;
};

struct clp_thread_table {
    struct clp_lock lock;
    struct clp_record *records;
    uint32_t capacity;
    _Atomic uint32_t high_water; /* records ever used: the loop looks no further */

    /* under the lock */
    uint32_t *by_tid, *by_clr; /* heads of chains */
    uint32_t free_head, dirty_head;
    uint32_t next_thread_id;
    bool native_stacks; /* loop only */
    /* Loop only: told of a thread that has ended before its record is freed, or NULL. */
    void (*ended)(struct clp_record *r, uint64_t now_ns);
    bool sampling; /* also read by the loop, its only writer */
    uint64_t interval_ns, tick_ns;

    _Atomic uint32_t used;
    _Atomic uint32_t timers;         /* held now */
    _Atomic uint32_t timers_allowed; /* share of the quota */
    _Atomic uint64_t refused;        /* threads beyond the capacity */
    size_t fixed_bytes;
};

extern struct clp_thread_table clp_thread_table;

int clp_table_init(uint32_t capacity) CLP_MUST_USE;

/* Under the lock. A record for a thread that is not in the table; NULL at the ceiling. The loop
 * does not see it before it is published. */
struct clp_record *clp_table_add(int32_t tid, uint64_t clr_thread, enum clp_thread_kind kind);
void clp_table_publish(struct clp_record *r);
struct clp_record *clp_table_by_tid(int32_t tid);
/* Under the lock. Takes it out of both hash tables; the record stays. */
void clp_table_unlink(struct clp_record *r);
/* Under the lock. Gives the record away; its slot gets a new generation. */
void clp_table_free(struct clp_record *r);

/* Loop: records ever used, and one of them; NULL when it is free. */
uint32_t clp_table_count(void);
struct clp_record *clp_table_at(uint32_t index);

uint32_t clp_table_index(const struct clp_record *r);
struct clp_thread_slot *clp_table_slot(const struct clp_record *r);

/* Loop: applies what the callbacks left word of. Takes the lock. */
void clp_table_read_inboxes(void);

/* ---- thread_timers.c; loop, except clp_table_arm_new ---- */

/* Under the lock, on the new thread itself: its first timer, if the quota has one. */
void clp_table_arm_new(struct clp_record *r);
bool clp_record_has_timer(const struct clp_record *r);
bool clp_record_wants_stacks(const struct clp_record *r);
/* Creates and arms a timer that expires after `ns` of CPU time. False: quota. */
bool clp_record_give_timer(struct clp_record *r, uint64_t clock_ns, uint64_t now_ns, uint64_t ns);
void clp_record_take_timer(struct clp_record *r, uint64_t now_ns);
/* A random first expiry in (0, interval]. */
uint64_t clp_record_first_expiry(struct clp_record *r);

/* Moves timers among the threads that want one when there are not enough for all. */
void clp_timers_rotate(uint64_t now_ns);
bool clp_timers_plentiful(void);

/* ---- thread_account.c; loop ---- */

void clp_account_init(const struct clp_threads_sink *sink, int32_t pid);
void clp_account_set_unit(uint64_t ns); /* the interval, or the kernel's tick if that is longer */
/* What all threads have used so far is not ours to tell. */
void clp_account_baseline(uint64_t now_ns);
/* CPU time beyond three intervals without a sample, while a timer ran; 0 = not overdue. */
uint64_t clp_account_overdue(const struct clp_record *r, uint64_t clock_ns, uint32_t lost);
/* Gives out all up to the last reading of the record's clock. */
void clp_account_residual(struct clp_record *r, uint64_t now_ns);
/* Process clock minus all that is known. `slack_ns`: what running threads may have used between the
 * reading of their clocks and that of the process. `force`: at once, however little. */
void clp_account_short_lived(uint64_t now_ns, uint64_t slack_ns, bool force);

/* ---- thread_bounds.c; loop ---- */

/* A capture of a thread of unknown bounds. */
void clp_bounds_want(struct clp_record *r, const struct clp_capture *c);
/* Looks for all bounds that are wanted; at most 50 times a second. */
void clp_bounds_learn(uint64_t now_ns);

#endif
