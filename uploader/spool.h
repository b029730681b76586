/* Profiles that wait for their intakes: a chunk each, in files, or in memory where no directory can
 * be written.
 *
 * Files of the directory:
 *
 *     START-RUNTIME-SEQ.chunk       a chunk (chunk.h); START: 20 digits of Unix nanoseconds
 *     START-RUNTIME-SEQ.sent        which parts which intakes have: a line "INTAKE PART" each,
 *                                   INTAKE: 16 hexadecimal digits, PART: a name, "*" for all
 *     X.bad                         a chunk that could not be read, set aside
 *     lock                          held by the agent while it runs
 *     flush                         made by `clrpulse spool flush`: send now
 *
 * The index is in memory and knows only what the names say; contents are read when they are sent.
 * Not thread-safe: the owner has a lock. Files are written and removed in the caller's thread. */
#ifndef CLP_UPLOADER_SPOOL_H
#define CLP_UPLOADER_SPOOL_H

#include "base/core/core.h"
#include "uploader/chunk.h"

#include <stdbool.h>

#define CLP_SPOOL_INTAKES_MAX 8u
#define CLP_SPOOL_PARTS_MAX 16u
#define CLP_SPOOL_BAD_MAX 16u
#define CLP_SPOOL_NAME_BYTES 128u
#define CLP_SPOOL_PART_BYTES 24u

struct clp_spool_config {
    const char *dir;         /* NULL: memory only */
    uint64_t bytes_max;      /* of all chunks in files */
    uint64_t memory_max;     /* of all chunks in memory */
    uint32_t files_max;      /* chunks, wherever they are */
    uint64_t age_max_ns;     /* from the window's start; see clp_spool_age */
    const uint64_t *intakes; /* ids of those who are to get each chunk */
    size_t intake_count;     /* at most CLP_SPOOL_INTAKES_MAX */
};

/* One chunk. Fields are the spool's, except where said. */
struct clp_spool_entry {
    struct clp_spool_entry *prev, *next; /* ordered by start, then seq */
    char name[CLP_SPOOL_NAME_BYTES];     /* without ending */
    uint64_t start_unix_ns, seq;
    int64_t born_ns; /* CLOCK_MONOTONIC at the window's start; before the machine's own: negative */
    uint64_t bytes;
    uint8_t *data; /* in memory only; NULL: in a file */
    uint32_t done; /* bit i: intake i has it, or will never take it */
    uint32_t uses; /* the owner's: > 0 keeps it from being dropped */
    struct clp_spool_progress {
        /* That the intake has, while it lacks others; few have any, so NULL until the first. */
        char (*parts)[CLP_SPOOL_PART_BYTES];
        uint8_t part_count;
        /* The owner's, all that follow. */
        bool lacking; /* a part was dropped */
        uint8_t refusals, blamed;
        uint32_t mark;
    } * progress; /* one for each intake */
};

enum clp_spool_loss {
    CLP_SPOOL_FULL,    /* beyond bytes or files */
    CLP_SPOOL_OLD,     /* beyond the age */
    CLP_SPOOL_NO_ROOM, /* neither disk nor memory would take it */
    CLP_SPOOL_BAD,     /* damaged, set aside */
    CLP_SPOOL_LOSSES
};

struct clp_spool_counts {
    uint64_t chunks, bytes; /* now, all */
    uint64_t in_memory;     /* chunks among them that are in memory only */
    uint64_t lost[CLP_SPOOL_LOSSES];
};

struct clp_spool;

/* Tells the numbers of the chunks in a directory by their names; nothing is opened or changed, so
 * it does not matter who has the spool. `runtime` is the runtime's id with '_' for all but small
 * letters and digits. 0, or what the file system said. */
int clp_spool_numbers(const char *dir,
                      void (*found)(void *context, const char *runtime, uint64_t seq),
                      void *context) CLP_MUST_USE;

/* Takes up what the directory holds. 0; -EBUSY: another agent has it; -ENOMEM; otherwise what the
 * file system said, and then there is no spool: the caller may ask for one in memory. */
int clp_spool_open(const struct clp_spool_config *c, struct clp_spool **ret) CLP_MUST_USE;
/* What is only in memory is written if that is possible now; how many chunks were lost for good.
 * Accepts NULL. */
uint64_t clp_spool_close(struct clp_spool *s);

/* Takes over what `from` holds, with what intakes of both have of it and with the counts of what
 * was lost. What waits in files moves where one rename does it; the number of chunks that stay in
 * the directory of `from`, and in its index. No `uses`. */
uint64_t clp_spool_take_over(struct clp_spool *s, struct clp_spool *from);
/* Lets go of the directory: what waits in files stays there, for who opens it next. */
void clp_spool_leave_directory(struct clp_spool *s);

/* Stores a profile: after 0 it survives a crash and a power cut, unless *ret_memory is true (the
 * disk did not take it; *ret_why is its errno, or -EFBIG: it is larger than bytes_max). Drops the
 * oldest ones beyond the bounds. 0, -EFBIG, -ENOMEM (lost, and counted). */
int clp_spool_put(struct clp_spool *s, const struct clp_upload_header *h, const void *profile,
                  size_t len, bool *ret_memory, int *ret_why) CLP_MUST_USE;

/* The oldest; then entry->next. Valid until the next call that may drop one. */
struct clp_spool_entry *clp_spool_first(const struct clp_spool *s);
bool clp_spool_same_target(const struct clp_spool_entry *a, const struct clp_spool_entry *b);

/* The chunk's bytes (free). A damaged one is the caller's to report with clp_spool_set_aside. May
 * be called without the lock while `uses` is > 0. */
int clp_spool_load(const struct clp_spool *s, const struct clp_spool_entry *e, uint8_t **ret,
                   size_t *ret_len) CLP_MUST_USE;
/* Notes that an intake has a part, or all of it (part NULL). The chunk is removed when all have
 * all; the entry is gone then if `uses` is 0. */
void clp_spool_sent(struct clp_spool *s, struct clp_spool_entry *e, size_t intake,
                    const char *part);
bool clp_spool_has_part(const struct clp_spool_entry *e, size_t intake, const char *part);
/* Out of the index; a damaged one is counted, and its file goes to X.bad, else it is gone already.
 * `uses` must be 0. */
void clp_spool_set_aside(struct clp_spool *s, struct clp_spool_entry *e, bool damaged);
/* Drops what is too old at `now_ns`, CLOCK_MONOTONIC; looks once a second. The wall clock counts
 * for what was there at the start alone, so a step of it ages nothing that this process has stored.
 */
void clp_spool_age(struct clp_spool *s, uint64_t now_ns);
/* After the last use: removes what all have. */
void clp_spool_release(struct clp_spool *s, struct clp_spool_entry *e);

/* Whether `clrpulse spool flush` asked to send now; forgets that it did. */
bool clp_spool_take_flush(struct clp_spool *s);
const struct clp_spool_counts *clp_spool_counts(const struct clp_spool *s);

/* "the spool was full"... */
const char *clp_spool_loss_text(enum clp_spool_loss loss);

#endif
