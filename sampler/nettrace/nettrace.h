/* Reader of .nettrace streams: bytes in, events out in the order of their time.
 *
 * Formats: version 4 and 5 ("!FastSerialization.1", what .NET 3 to 10 writes) and version 6 (what
 * other tools write); both are described in microsoft/perfview, NetTraceFormat*.md. No I/O; after
 * warm-up no allocation per event; memory is bounded by the ceilings below, however long the
 * stream.
 *
 * Order: inside one capture thread the stream is in order, across threads it is not. Events are
 * held until an event with the IsSorted flag says that nothing older can come, or until a sequence
 * point. Where a stream holds back more than the ceilings allow, the oldest half is given out and
 * counted (counts.forced); what then comes too late is given out late (counts.late).
 *
 * The bytes are foreign: a block that does not hold is dropped from where it breaks and counted, a
 * broken frame ends the stream. A reader has one owner; not thread-safe, not signal-safe. */
#ifndef CLP_SAMPLER_NETTRACE_NETTRACE_H
#define CLP_SAMPLER_NETTRACE_NETTRACE_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_NETTRACE_GUID_BYTES 16u
#define CLP_NETTRACE_HEADER_BYTES 8u /* enough to know a .nettrace file: "Nettrace" */
/* Ceilings. */
#define CLP_NETTRACE_BLOCK_MAX_BYTES (16u << 20)
#define CLP_NETTRACE_HELD_MAX_BYTES (16u << 20) /* blocks with events that are not out yet */
#define CLP_NETTRACE_HELD_MAX_EVENTS (1u << 17)
#define CLP_NETTRACE_FRAMES_MAX (1u << 20) /* of all stacks between two sequence points */
#define CLP_NETTRACE_STACKS_MAX (1u << 18)
#define CLP_NETTRACE_METADATA_MAX_BYTES (8u << 20)
#define CLP_NETTRACE_METADATA_MAX_ID (1u << 16)
#define CLP_NETTRACE_FIELDS_MAX 512u /* of one event */
#define CLP_NETTRACE_DEPTH_MAX 8u
#define CLP_NETTRACE_THREADS_MAX (1u << 16)
#define CLP_NETTRACE_LABELS_MAX (1u << 16)

/* Providers that the product knows by name. */
enum clp_nettrace_provider {
    CLP_PROVIDER_OTHER,
#define CLP_PROVIDER(id, name) CLP_PROVIDER_##id,
#include "sampler/nettrace/providers.def"
#undef CLP_PROVIDER
};

/* Type codes of fields: those of the format, and from 128 on those of the CLR table. */
enum clp_nettrace_type {
    CLP_FIELD_OBJECT = 1, /* children follow */
    CLP_FIELD_BOOL = 3,   /* 4 bytes */
    CLP_FIELD_CHAR = 4,
    CLP_FIELD_I8 = 5,
    CLP_FIELD_U8 = 6,
    CLP_FIELD_I16 = 7,
    CLP_FIELD_U16 = 8,
    CLP_FIELD_I32 = 9,
    CLP_FIELD_U32 = 10,
    CLP_FIELD_I64 = 11,
    CLP_FIELD_U64 = 12,
    CLP_FIELD_F32 = 13,
    CLP_FIELD_F64 = 14,
    CLP_FIELD_DATE = 16, /* 8 x i16 */
    CLP_FIELD_GUID = 17,
    CLP_FIELD_TEXT16 = 18, /* NUL-terminated UTF-16 */
    CLP_FIELD_ARRAY = 19,  /* u16 count, then elements; one child is the element */
    CLP_FIELD_VARINT = 20,
    CLP_FIELD_VARUINT = 21,
    CLP_FIELD_FIXED_ARRAY = 22, /* `count` elements; one child */
    CLP_FIELD_CHAR8 = 23,
    CLP_FIELD_RELLOC = 24,  /* u16 offset behind this field, u16 bytes; one child */
    CLP_FIELD_DATALOC = 25, /* the same from the start of the payload */
    CLP_FIELD_POINTER = 128,
    CLP_FIELD_TEXT8,  /* NUL-terminated UTF-8 */
    CLP_FIELD_COUNTED /* as many elements as the field number `count` of this event says; one child
                       */
};

/* One node of the tree of an event's fields, in the order of the payload. */
struct clp_nettrace_field {
    const char *name; /* UTF-8, "" for elements */
    uint8_t type;     /* enum clp_nettrace_type */
    uint16_t span;    /* nodes of its children, which follow it */
    uint32_t count;   /* FIXED_ARRAY, COUNTED */
};

/* What an event is. Valid as long as the reader, or until a V6 stream flushes its metadata. */
struct clp_nettrace_meta {
    const char *provider; /* UTF-8, clean */
    const char *name;     /* as the stream or the CLR table has it; "" when neither */
    enum clp_nettrace_provider known;
    uint32_t id; /* in the stream */
    uint32_t event_id;
    uint32_t version;
    uint64_t keywords;
    uint8_t level, opcode;
    bool from_table; /* fields of the CLR table, not of the stream */
    uint32_t field_count;
    const struct clp_nettrace_field *fields; /* preorder */
};

/* Valid only during the call. */
struct clp_nettrace_event {
    const struct clp_nettrace_meta *meta;
    uint64_t ticks;          /* info.frequency a second; CLOCK_MONOTONIC ns from a runtime */
    uint64_t thread_id;      /* whom it is about: the OS's number as the target sees it */
    uint64_t capture_thread; /* who wrote it */
    uint32_t sequence;       /* of the capture thread */
    uint32_t processor;      /* UINT32_MAX: unknown */
    const uint64_t *stack;   /* return addresses, leaf first */
    uint32_t stack_len;
    uint32_t payload_len;
    const uint8_t *payload;  /* any alignment */
    const uint8_t *activity; /* CLP_NETTRACE_GUID_BYTES each, zero when there is none */
    const uint8_t *related;
};

struct clp_nettrace_info {
    uint32_t version; /* 4, 5 or 6; 0 until known */
    uint32_t pointer_bytes;
    uint32_t processors;
    uint64_t pid;          /* in the target's namespace; 0 when not told */
    uint64_t sync_ticks;   /* this moment ... */
    uint64_t sync_unix_ms; /* ... was this time */
    uint64_t frequency;    /* ticks a second, never 0 */
};

/* What the reader saw and what it could not use; a loss has a reason. */
struct clp_nettrace_counts {
#define CLP_NETTRACE_COUNT(field, text) uint64_t field;
#include "sampler/nettrace/counts.def"
#undef CLP_NETTRACE_COUNT
};

struct clp_nettrace_config {
    void (*event)(void *context, const struct clp_nettrace_event *e);
    /* `lost` events of a capture thread are missing before what comes next from it. May be NULL. */
    void (*gap)(void *context, uint64_t capture_thread, uint64_t lost);
    void *context;
};

struct clp_nettrace;

/* 0 or -ENOMEM. */
int clp_nettrace_new(const struct clp_nettrace_config *config,
                     struct clp_nettrace **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. Gives no events. */
struct clp_nettrace *clp_nettrace_free(struct clp_nettrace *r);

/* Takes the next bytes of the stream, in pieces of any size, and gives out what is in order. 0;
 * -EPROTO when this is no stream of a known version or its frame is broken, -ENOMEM: the reader
 * takes nothing more then. Bytes behind the end of the stream are ignored. */
int clp_nettrace_feed(struct clp_nettrace *r, const void *data, size_t len) CLP_MUST_USE;
/* The stream is over, or its writer is known to pause: gives out all that is held. Call it also
 * after a failure. */
void clp_nettrace_finish(struct clp_nettrace *r);
/* Whether the writer closed the stream; without that it was cut or its writer killed. */
bool clp_nettrace_is_complete(const struct clp_nettrace *r);
/* Why feed failed, a phrase; "" when it did not. */
const char *clp_nettrace_problem(const struct clp_nettrace *r);

const struct clp_nettrace_info *clp_nettrace_info(const struct clp_nettrace *r);
const struct clp_nettrace_counts *clp_nettrace_counts(const struct clp_nettrace *r);
/* Unix time of a moment of the stream in ns, as precise as the stream's own (milliseconds). */
uint64_t clp_nettrace_unix_ns(const struct clp_nettrace *r, uint64_t ticks);
/* Moment of the last event given out: all older ones of the stream have been. 0 before the first.
 */
uint64_t clp_nettrace_given_ticks(const struct clp_nettrace *r);
/* Events that a capture thread lost so far. */
uint64_t clp_nettrace_thread_lost(const struct clp_nettrace *r, uint64_t capture_thread);
/* The name that a V6 stream gives a thread, "" for others. */
const char *clp_nettrace_thread_name(const struct clp_nettrace *r, uint64_t capture_thread);
/* Memory in use. */
size_t clp_nettrace_bytes(const struct clp_nettrace *r);

const char *clp_nettrace_provider_name(enum clp_nettrace_provider p);

#endif
