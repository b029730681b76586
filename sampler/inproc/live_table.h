/* Sampled objects that may still be alive: which of them are kept, and what each stands for.
 *
 * A plain reservoir is biased once its members die by themselves. Here each entry has a chance of
 * its own that it is in the table, and stands for one over it. When the table is full the threshold
 * is raised and every entry is drawn once more, for its new chance over its old one: whether it
 * stays depends on its size and on chance alone, neither on its age nor on how long it will live.
 * So sums over any subset that is chosen without looking at the draws (what lives now, one path,
 * one class) are unbiased, however early or late its members came (tests/unit/test-live-table.c).
 *
 * No clocks, threads or calls of the runtime; the owner serialises. */
#ifndef CLP_SAMPLER_INPROC_LIVE_TABLE_H
#define CLP_SAMPLER_INPROC_LIVE_TABLE_H

#include "base/core/core.h"

#include <stdbool.h>

struct clp_live_entry {
    uint64_t handle; /* the owner's */
    double objects;  /* what it stands for if it is in the table for certain */
    double bytes;    /* the same, and its size for the threshold; > 0 */
    double chance;   /* that it is in the table; (0, 1] */
    uint64_t time_ns;
    uint64_t born;  /* collections that had begun when it was allocated */
    uint32_t trace; /* the owner's */
    uint8_t heap;   /* enum clp_event_heap */
    bool fresh;     /* of the epoch under way: clp_live_table_correct */
};

struct clp_live_table {
    struct clp_live_entry *entries; /* the owner's memory, `max` of them */
    uint32_t count, max;
    double threshold; /* bytes beyond which an entry is certain to be kept; 0: all are */
    uint64_t random;  /* not 0 */
    /* An entry leaves: gives back what its handle and trace stand for. */
    void (*leave)(void *user, const struct clp_live_entry *e);
    void *user;
};

/* Draws `e`, whose chance until now is e->chance, at the threshold in force, and keeps it or calls
 * `leave`. There must be room. */
void clp_live_table_add(struct clp_live_table *t, const struct clp_live_entry *e);
/* Raises the threshold until at most `most` entries may be expected to stay, and draws all of them
 * anew; again while more than that stay. most < count. */
void clp_live_table_thin(struct clp_live_table *t, uint32_t most);
/* Entries for which `dead` is true leave. How many. */
uint32_t clp_live_table_sweep(struct clp_live_table *t,
                              bool (*dead)(void *user, const struct clp_live_entry *e));
/* An epoch ends. Of those that were to come in it only one in `each` came, by no fault of their
 * own: the others stand for them. Where there is much room again, the threshold for those that
 * come is lowered; those that are there keep their chances. */
void clp_live_table_epoch(struct clp_live_table *t, double each);

#endif
