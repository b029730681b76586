/* The reader's side of a ring: foreign memory, written by a target that may be hostile.
 *
 * Each record is copied out first and checked then, field by field; nothing that the target changes
 * meanwhile has an effect.  Head and tail are only believed within the ring's bounds.  The first
 * thing that is wrong ends the session for good: a target that writes nonsense is not profiled.
 *
 * One thread at a time; uses the heap (agent side only). */
#ifndef CLP_WIRE_READER_H
#define CLP_WIRE_READER_H

#include "base/core/core.h"
#include "wire/wire.h"

struct clp_reader;

/* Views of one checked record. Texts are valid UTF-8, NUL-terminated, without NUL inside (bad bytes
 * and NULs became U+FFFD). All pointers live until the next call of clp_reader_next. */
struct clp_reader_record {
    enum clp_rec_type type; /* never PAD */
    union {
        struct {
            const struct clp_rec_image *rec;
            const uint8_t *build_id; /* rec->build_id_len bytes, at most CLP_WIRE_BUILD_ID_MAX */
            const char *path;
        } image;
        struct {
            const struct clp_rec_method *rec;
            const char *type, *name, *type_args, *method_args, *signature;
        } method;
        struct {
            const struct clp_rec_body *rec;
        } body;
        struct {
            const struct clp_rec_thread *rec;
            const char *name;
        } thread;
        struct {
            const struct clp_rec_sample
                *rec;               /* rec->rec.count frames, at most CLP_WIRE_FRAMES_MAX */
            const uint64_t *frames; /* kinds and id ranges checked; ids may be undefined */
        } sample;
        struct {
            const struct clp_rec_event *rec; /* values finite and in range */
            const uint64_t *frames;          /* as of samples */
            const char *texts[CLP_EVENT_TEXTS];
        } event;
        struct {
            const struct clp_rec_mark *rec;
        } mark;
        struct {
            const struct clp_rec_span *rec;
        } span;
        struct {
            const struct clp_rec_endpoint *rec;
            const char *name;
        } endpoint;
        struct {
            const struct clp_rec_root *rec;
        } root;
        struct {
            const struct clp_rec_gone *rec; /* the id may be undefined */
        } gone;
    };
};

/* `mapping` and `ring_bytes` as clp_wire_memory_create made them; the caller keeps the mapping,
 * which must outlive the reader. 0, -EINVAL, -ENOMEM. */
int clp_reader_new(void *mapping, uint32_t ring_bytes, struct clp_reader **ret) CLP_MUST_USE;
struct clp_reader *clp_reader_free(struct clp_reader *r); /* NULL is fine; returns NULL */

/* Takes note of what the target has published up to now: clp_reader_next stops there, however fast
 * the target goes on writing. Bytes to read, or -EBADMSG for good. */
int64_t clp_reader_poll(struct clp_reader *r) CLP_MUST_USE;
/* The next record: 1 with *ret, 0 at the end of what the last poll saw, or -EBADMSG for good. */
int clp_reader_next(struct clp_reader *r, struct clp_reader_record *ret) CLP_MUST_USE;
/* What was wrong, a few words; "" while all is well. Static storage. */
const char *clp_reader_error(const struct clp_reader *r);

/* The library's own words: foreign, for display and plausibility only. 0 beyond the table. */
uint64_t clp_reader_counter(const struct clp_reader *r, enum clp_counter counter);
/* The same as of the last MARK: totals that belong to the samples in front of it. */
uint64_t clp_reader_marked(const struct clp_reader *r, enum clp_counter counter);
/* 0 before the first. Counters that are read after it are at least as new. */
uint64_t clp_reader_heartbeat_ns(const struct clp_reader *r);
/* From when on the library tells, CLOCK_MONOTONIC; 0: it has not said, or does not say. */
uint64_t clp_reader_opened_ns(const struct clp_reader *r);

#endif
