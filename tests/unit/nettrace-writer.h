/* Writes .nettrace streams of versions 4 and 6 for tests, byte by byte as the format says. */
#ifndef CLP_TESTS_UNIT_NETTRACE_WRITER_H
#define CLP_TESTS_UNIT_NETTRACE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NTW_MAX_BYTES (16u << 20)

struct ntw {
    uint8_t *bytes; /* NTW_MAX_BYTES of malloc */
    size_t len;
    unsigned version;
    size_t block_at; /* of the size of the block that is open */
    size_t body_at;
};

struct ntw_event {
    uint32_t metadata, sequence, stack, processor;
    uint64_t thread, capture, ticks; /* V6: thread indexes */
    bool sorted;
    const uint8_t *activity; /* V4, may be NULL */
    uint32_t labels;         /* V6 */
    const void *payload;
    uint32_t payload_len;
};

struct ntw_field {
    uint32_t type;
    const char *name;
};

/* Everything up to and with the description of the trace. */
void ntw_begin(struct ntw *w, unsigned version, uint32_t pointer_bytes);
void ntw_done(struct ntw *w);
void ntw_put(struct ntw *w, const void *data, size_t len);
void ntw_u16(struct ntw *w, uint16_t v);
void ntw_u32(struct ntw *w, uint32_t v);
void ntw_u64(struct ntw *w, uint64_t v);
void ntw_uleb(struct ntw *w, uint64_t v);
void ntw_text16(struct ntw *w, const char *ascii); /* with its NUL */
void ntw_text8(struct ntw *w, const char *s);      /* with its length */
/* "EventBlock" and so on; V6 takes the kind's number. */
void ntw_open(struct ntw *w, const char *type, unsigned kind);
void ntw_close(struct ntw *w);
void ntw_end(struct ntw *w);
/* Header of an event or V4 metadata block. */
void ntw_block_header(struct ntw *w, bool compressed);
/* One row in the compressed form, whole (every field present). */
void ntw_event(struct ntw *w, const struct ntw_event *e);
/* The same in the plain form. */
void ntw_event_plain(struct ntw *w, const struct ntw_event *e);
/* A block that describes one kind of event; fields are scalars. */
void ntw_metadata(struct ntw *w, uint32_t id, const char *provider, uint32_t event_id,
                  const char *name, const struct ntw_field *fields, uint32_t count);
/* A block of stacks of 8-byte frames, `count` frames each taken from `frames`. */
void ntw_stacks(struct ntw *w, uint32_t first_id, const uint64_t *frames, uint32_t stacks,
                uint32_t count);
void ntw_sequence_point(struct ntw *w, uint32_t flags, const uint64_t *threads,
                        const uint32_t *sequences, uint32_t count);

#endif
