/* A cursor over foreign bytes.  Every read is checked; a read past the end yields 0 and sets `bad`
 * for good, so that a parser may read a whole structure and test once.  Signal-safe. */
#ifndef CLP_BASE_CORE_BYTES_H
#define CLP_BASE_CORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clp_bytes {
    const uint8_t *at;
    const uint8_t *end;
    bool bad; /* a read went past the end, or a number was malformed */
};

struct clp_bytes clp_bytes_of(const void *data, size_t len);
size_t clp_bytes_left(const struct clp_bytes *b);

uint8_t clp_bytes_u8(struct clp_bytes *b);
uint16_t clp_bytes_u16(struct clp_bytes *b); /* all numbers little-endian, any alignment */
uint32_t clp_bytes_u32(struct clp_bytes *b);
uint64_t clp_bytes_u64(struct clp_bytes *b);
uint64_t clp_bytes_uleb(struct clp_bytes *b); /* DWARF/protobuf varint, at most 10 bytes */
int64_t clp_bytes_sleb(struct clp_bytes *b);

/* The next `n` bytes, or NULL (and `bad`) when fewer are left. */
const uint8_t *clp_bytes_take(struct clp_bytes *b, size_t n);
/* A NUL-terminated string inside the bytes, or NULL (and `bad`). */
const char *clp_bytes_cstr(struct clp_bytes *b);

#endif
