/* The parts of the reader among themselves; see nettrace.h. */
#ifndef CLP_SAMPLER_NETTRACE_PARTS_H
#define CLP_SAMPLER_NETTRACE_PARTS_H

#include "base/core/arena.h"
#include "base/core/bytes.h"
#include "base/map.h"
#include "sampler/nettrace/nettrace.h"

/* Bytes of zeros behind a block: the longest compressed header fits, so that its decoder checks its
 * end once. */
#define CLP_NT_SLACK 128u
#define CLP_NT_HEAD_BYTES 160u
#define CLP_NT_THREAD_CACHE 64u
#define CLP_NT_BLOCK_CLASSES 13u /* 4 KiB to 16 MiB */
#define CLP_NT_NAME_BYTES 48u

/* The bytes of one block; kept while events in it are held. */
struct clp_nt_block {
    struct clp_nt_block *next; /* in the pool */
    uint32_t cap, len;
    uint32_t held; /* events that are not out yet */
    uint8_t data[];
};

/* A held event: 64 bytes, offsets instead of pointers. */
struct clp_nt_held {
    uint64_t ticks;
    uint64_t thread_id;
    const struct clp_nettrace_meta *meta;
    struct clp_nt_block *block;
    uint32_t payload_at, payload_len; /* in the block */
    uint32_t stack;                   /* index + 1, 0 = none */
    uint32_t activity_at, related_at; /* in the block, 0 = none; V6: label list + 1 and 0 */
    uint32_t sequence, processor;
    uint32_t capture; /* index of the thread */
};
_Static_assert(sizeof(struct clp_nt_held) == 64, "one cache line");

struct clp_nt_key {
    uint64_t ticks;
    uint64_t at;
};

struct clp_nt_stack {
    uint32_t first, len; /* in frames */
};

struct clp_nt_thread {
    uint64_t index;  /* as the stream calls it: the OS's number before V6 */
    uint64_t os_tid; /* the same before V6 */
    uint64_t lost;
    uint32_t sequence; /* of its last event */
    bool seen;
    char name[CLP_NT_NAME_BYTES];
};

struct clp_nt_labels {
    uint8_t activity[CLP_NETTRACE_GUID_BYTES], related[CLP_NETTRACE_GUID_BYTES];
};

enum clp_nt_state { CLP_NT_MAGIC, CLP_NT_OBJECT, CLP_NT_BODY, CLP_NT_DONE, CLP_NT_BROKEN };
/* Kinds of blocks, numbered as V6 does. */
enum clp_nt_kind {
    CLP_NT_END,
    CLP_NT_TRACE,
    CLP_NT_EVENTS,
    CLP_NT_METADATA,
    CLP_NT_SEQUENCE_POINT,
    CLP_NT_STACKS,
    CLP_NT_THREADS,
    CLP_NT_THREADS_GONE,
    CLP_NT_LABELS,
    CLP_NT_UNKNOWN,
};

struct clp_nettrace {
    struct clp_nettrace_config config;
    struct clp_nettrace_info info;
    struct clp_nettrace_counts counts;
    const char *problem;

    enum clp_nt_state state; /* framing: reader.c */
    bool inside;             /* V4: an object is open, its end tag comes next */
    uint64_t offset;         /* of the stream, behind what was taken */
    uint8_t head[CLP_NT_HEAD_BYTES];
    size_t head_len;
    enum clp_nt_kind kind;
    struct clp_nt_block *body;
    uint32_t body_size;
    struct clp_nt_block *pool[CLP_NT_BLOCK_CLASSES];
    uint32_t pool_bytes;
    size_t block_bytes; /* all blocks */

    struct clp_nettrace_meta **metas; /* by id: metadata.c */
    uint32_t meta_cap;
    struct clp_arena arena; /* metadata and its texts */

    struct clp_map thread_map; /* index in the stream -> index here: threads.c */
    struct clp_nt_thread *threads;
    uint32_t thread_count, thread_cap;
    uint32_t thread_free; /* index + 1 of a removed one whose place may be used, 0 = none */
    struct {
        uint64_t index;
        uint32_t at_plus_1;
    } thread_cache[CLP_NT_THREAD_CACHE];

    struct clp_nt_stack *stacks; /* of this sequence point: stacks.c */
    uint64_t *frames;
    uint32_t stack_first_id, stack_count, stack_cap, frame_count, frame_cap;
    struct clp_nt_labels *labels;
    uint32_t label_first_id, label_count, label_cap;

    struct clp_nt_held *held; /* order.c */
    struct clp_nt_key *keys, *keys_to;
    uint32_t *runs; /* of keys in order: where each begins */
    uint32_t held_count, held_cap, key_cap, key_to_cap, run_count, run_cap;
    uint32_t slot_used,
        slot_free;         /* places in `held`: used so far; index + 1 of a free one below */
    uint32_t next_free;    /* behind slot_free, while a place is being filled */
    uint32_t sorted_count; /* of them, at the front, in order since the last release */
    uint64_t safe_ticks;   /* nothing older can come */
    uint64_t given_ticks;  /* of the last event given out */
};

/* ---- blocks: reader.c ---- */
void clp_nt_block_release(struct clp_nettrace *r, struct clp_nt_block *b);

/* ---- events: events.c ---- */
/* 0, -EPROTO where the block breaks (what came before it is held), -ENOMEM. */
int clp_nt_read_events(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
/* The blobs of a V4 metadata block. */
int clp_nt_read_metadata_v4(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;

/* ---- metadata.c ---- */
int clp_nt_read_metadata_v6(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
/* One V4 record. */
int clp_nt_add_metadata_v4(struct clp_nettrace *r, const uint8_t *data, size_t len) CLP_MUST_USE;
void clp_nt_forget_metadata(struct clp_nettrace *r);
/* A text of `n` bytes of UTF-8 in the arena, cleaned; NULL when full. */
const char *clp_nt_keep_text(struct clp_nettrace *r, const char *text, size_t n) CLP_MUST_USE;

/* ---- threads.c ---- */
/* Index of the capture thread, made when new; UINT32_MAX beyond the ceiling. */
uint32_t clp_nt_thread(struct clp_nettrace *r, uint64_t index) CLP_MUST_USE;
/* The thread's place without making one, or NULL. */
struct clp_nt_thread *clp_nt_find_thread(const struct clp_nettrace *r, uint64_t index);
void clp_nt_note_sequence(struct clp_nettrace *r, uint32_t thread, uint32_t sequence);
int clp_nt_read_sequence_point(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
int clp_nt_read_threads(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
int clp_nt_read_threads_gone(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;

/* ---- stacks.c ---- */
int clp_nt_read_stacks(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
int clp_nt_read_labels(struct clp_nettrace *r, struct clp_nt_block *b) CLP_MUST_USE;
void clp_nt_forget_stacks(struct clp_nettrace *r);

/* ---- order.c ---- */
/* Room for one more held event; the caller fills it and calls clp_nt_hold. NULL: no memory. */
struct clp_nt_held *clp_nt_held_next(struct clp_nettrace *r) CLP_MUST_USE;
/* Takes what was filled in; ticks are set. */
void clp_nt_hold(struct clp_nettrace *r);
/* Gives out what is certain, or all. */
void clp_nt_release_safe(struct clp_nettrace *r);
void clp_nt_release_all(struct clp_nettrace *r);
/* Gives out the oldest while the blocks of held events take too much memory. */
void clp_nt_bound_held(struct clp_nettrace *r);

static inline uint64_t clp_nt_uleb(const uint8_t **at)
{
    const uint8_t *p = *at;
    uint64_t v = *p & 0x7f;
    if (*p++ & 0x80)
        for (unsigned shift = 7; shift < 70; shift += 7) {
            v |= (uint64_t)(*p & 0x7f) << (shift & 63);
            if (!(*p++ & 0x80))
                break;
        }
    *at = p;
    return v;
}

#endif
