/* The parts of eventpipe_build.h among themselves. */
#ifndef CLP_AGENT_EVENTPIPE_PARTS_H
#define CLP_AGENT_EVENTPIPE_PARTS_H

#include "agent/eventpipe_bodies.h"
#include "agent/eventpipe_build.h"
#include "agent/eventpipe_spans.h"
#include "base/index.h"
#include "base/map.h"

enum clp_epb_kind {
    CLP_EPB_WALL, /* values: CPU and wall, both known when settled */
    CLP_EPB_EXCEPTION,
    CLP_EPB_ALLOCATION, /* objects, bytes */
    CLP_EPB_LOCK,       /* contentions, ns */
    CLP_EPB_GC,         /* collections, ns of pause */
};

/* Sample types of the profile, in this order. */
enum clp_epb_value {
    CLP_EPB_V_CPU,
    CLP_EPB_V_WALL,
    CLP_EPB_V_EXCEPTIONS,
    CLP_EPB_V_ALLOC_OBJECTS,
    CLP_EPB_V_ALLOC_SPACE,
    CLP_EPB_V_LOCK_CONTENTIONS,
    CLP_EPB_V_LOCK_DELAY,
    CLP_EPB_V_GC_COLLECTIONS,
    CLP_EPB_V_GC_PAUSE,
    CLP_EPB_V_COUNT,
};

#define CLP_EPB_NO_STACK UINT32_MAX
#define CLP_EPB_NO_LABEL 0u

struct clp_epb_sample {
    uint64_t ticks, tid;
    double values[2];
    uint32_t stack; /* interned, or CLP_EPB_NO_STACK */
    uint32_t label; /* text: class, type, generation */
    uint32_t activity;
    uint8_t kind;
    bool settled;
};

struct clp_epb_stack {
    uint32_t first, len;  /* frames */
    uint64_t version;     /* of the bodies when it was resolved, +1; 0 = never */
    uint64_t missing;     /* the same, when a name was missing */
    uint64_t from, until; /* valid for these moments */
    uint32_t resolved;    /* in the profile */
    uint32_t window;
    uint8_t kind; /* exceptions lose the frames that throw */
};

struct clp_epb_clock {
    uint64_t tid, from, to, cpu_ns;
};

struct clp_epb_burst {
    uint64_t from, to, period;
    uint64_t first, last; /* samples in it, 0 = none yet */
};

struct clp_epb_thread {
    double carry_ns;     /* CPU that waits for a sample */
    uint64_t lock_ticks; /* contention that has begun, 0 = none */
    uint32_t lock_stack, lock_activity;
    bool lock_told;          /* its beginning was in a window before */
    uint32_t window, labels; /* thread labels of that window */
    char name[64];
    bool named;
};

struct clp_epb {
    struct clp_epb_config config;
    struct clp_bodies *bodies;
    struct clp_profile *profile;
    uint32_t window; /* from 1 */
    uint64_t start_ticks;

    struct clp_epb_sample *samples;
    uint32_t sample_count, sample_cap;
    struct clp_epb_clock *clocks;
    uint32_t clock_count, clock_cap;
    struct clp_epb_burst *bursts;
    uint32_t burst_count, burst_cap;
    uint32_t *sorted; /* scratch: samples by thread and time */
    uint32_t sorted_cap;

    struct clp_epb_stack *stacks;
    uint64_t *frames;
    uint32_t stack_count, stack_cap, frame_count, frame_cap;
    struct clp_index stack_index;

    char **texts; /* labels, from 1 */
    uint32_t text_count, text_cap;
    struct clp_map text_map;
    struct clp_epb_spans spans;
    struct clp_span_labels span_labels;
    struct clp_map threads; /* tid -> struct clp_epb_thread */

    uint64_t gc_began, gc_number; /* suspension for a collection: ticks, 0 = none */
    uint32_t gc_label;
    double gc_count;
    uint64_t short_lived_ns;
    uint32_t columns[CLP_EPB_V_COUNT + 1]; /* of the profile; those not wanted have the last */
    uint32_t column_count;
    /* Counted per window. */
    uint64_t all_samples, wall_samples, lost_samples, truncated, unknown_frames, gone_frames,
        ticks_used, exceptions, contentions;
    uint32_t specials[8]; /* locations + 1 */
    uint32_t special_window;
};

/* ---- eventpipe_build.c ---- */
uint32_t clp_epb_stack_of(struct clp_epb *b, const struct clp_nettrace_event *e,
                          enum clp_epb_kind kind);
uint32_t clp_epb_text(struct clp_epb *b, const char *text); /* CLP_EPB_NO_LABEL when full */
struct clp_epb_thread *clp_epb_thread_of(struct clp_epb *b, uint64_t tid); /* NULL: no memory */
void clp_epb_add(struct clp_epb *b, const struct clp_epb_sample *s);

/* ---- eventpipe_place.c ---- */
/* Puts a settled sample into the profile. False when a frame has no name yet and `force` is not
 * set. */
bool clp_epb_place(struct clp_epb *b, struct clp_epb_sample *s, bool force);
/* Whether a frame of the sample is of code that nobody has told of. */
bool clp_epb_is_nameless(struct clp_epb *b, const struct clp_epb_sample *s);
/* A stack of one frame that says in words what it is. */
uint32_t clp_epb_word_stack(struct clp_epb *b, const char *word);
struct clp_epb_labels {
    const char *key, *text;          /* of the kind of sample; NULL: none */
    const struct clp_def_span *span; /* NULL: none */
};
uint32_t clp_epb_thread_labels(struct clp_epb *b, uint64_t tid, const struct clp_epb_labels *more);

/* ---- eventpipe_settle.c ---- */
void clp_epb_settle_values(struct clp_epb *b, uint64_t until);

#endif
