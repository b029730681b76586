#include "tests/unit/nettrace-writer.h"

#include "tests/unit/clp-cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ntw_put(struct ntw *w, const void *data, size_t len)
{
    assert_true(w->len + len <= NTW_MAX_BYTES);
    if (len > 0)
        memcpy(w->bytes + w->len, data, len);
    w->len += len;
}

void ntw_u16(struct ntw *w, uint16_t v)
{
    ntw_put(w, &v, sizeof(v));
}

void ntw_u32(struct ntw *w, uint32_t v)
{
    ntw_put(w, &v, sizeof(v));
}

void ntw_u64(struct ntw *w, uint64_t v)
{
    ntw_put(w, &v, sizeof(v));
}

void ntw_uleb(struct ntw *w, uint64_t v)
{
    do {
        uint8_t byte = (v & 0x7f) | (v > 0x7f ? 0x80 : 0);
        ntw_put(w, &byte, 1);
        v >>= 7;
    } while (v);
}

void ntw_text16(struct ntw *w, const char *ascii)
{
    do
        ntw_u16(w, (uint16_t)*ascii);
    while (*ascii++);
}

void ntw_text8(struct ntw *w, const char *s)
{
    ntw_uleb(w, strlen(s));
    ntw_put(w, s, strlen(s));
}

void ntw_open(struct ntw *w, const char *type, unsigned kind)
{
    static const uint8_t zeros[3];
    w->block_at = w->len;
    if (w->version >= 6) {
        ntw_u32(w, kind << 24);
        w->body_at = w->len;
        return;
    }
    ntw_put(w, "\x05\x05\x01", 3);
    ntw_u32(w, w->version);
    ntw_u32(w, w->version);
    ntw_u32(w, (uint32_t)strlen(type));
    ntw_put(w, type, strlen(type));
    ntw_put(w, "\x06", 1);
    if (strcmp(type, "Trace") != 0) {
        w->block_at = w->len;
        ntw_u32(w, 0);
        ntw_put(w, zeros, (0 - w->len) & 3);
    }
    w->body_at = w->len;
}

void ntw_close(struct ntw *w)
{
    uint32_t size = (uint32_t)(w->len - w->body_at);
    if (w->version >= 6) {
        memcpy(w->bytes + w->block_at, &size, 3);
        return;
    }
    if (w->bytes[w->block_at] != 5) /* the trace object has no size */
        memcpy(w->bytes + w->block_at, &size, 4);
    ntw_put(w, "\x06", 1);
}

void ntw_end(struct ntw *w)
{
    if (w->version >= 6)
        ntw_u32(w, 0);
    else
        ntw_put(w, "\x01", 1);
}

void ntw_begin(struct ntw *w, unsigned version, uint32_t pointer_bytes)
{
    static const uint16_t time[8] = {2026, 2, 0, 3, 4, 5, 6, 7};
    *w = (struct ntw){.version = version, .bytes = malloc(NTW_MAX_BYTES)};
    assert_non_null(w->bytes);
    ntw_put(w, "Nettrace", 8);
    if (version >= 6) {
        ntw_u32(w, 0);
        ntw_u32(w, version);
        ntw_u32(w, 0);
    } else {
        ntw_u32(w, 20);
        ntw_put(w, "!FastSerialization.1", 20);
    }
    ntw_open(w, "Trace", 1);
    ntw_put(w, time, sizeof(time));
    ntw_u64(w, 1000);       /* sync ticks */
    ntw_u64(w, 1000000000); /* frequency */
    ntw_u32(w, pointer_bytes);
    if (version >= 6) {
        ntw_u32(w, 1);
        ntw_text8(w, "ProcessId");
        ntw_text8(w, "4711");
    } else {
        ntw_u32(w, 4711);
        ntw_u32(w, 2);
        ntw_u32(w, 1000000);
    }
    ntw_close(w);
}

/* CLP_WRITE_CORPUS=FOLDER makes each stream a seed for tests/fuzz/fuzz-nettrace.c, whose first byte
 * says the size of the pieces. */
static void write_corpus(const struct ntw *w)
{
    static unsigned number;
    char path[512];
    const char *folder = getenv("CLP_WRITE_CORPUS");
    if (!folder || w->len < 60 || w->len > 8192)
        return;
    snprintf(path, sizeof(path), "%s/stream-%u", folder, number++);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fputc((int)number % 64, f), number % 64);
    assert_int_equal(fwrite(w->bytes, 1, w->len, f), w->len);
    assert_int_equal(fclose(f), 0);
}

void ntw_done(struct ntw *w)
{
    if (w->bytes)
        write_corpus(w);
    free(w->bytes);
    w->bytes = NULL;
}

void ntw_block_header(struct ntw *w, bool compressed)
{
    ntw_u16(w, 20);
    ntw_u16(w, compressed);
    ntw_u64(w, 0);
    ntw_u64(w, 0);
}

/* The state before a row is not kept: all numbers are made absolute, which a block of one row is by
 * itself. So there is one block per row, or the plain form. */
void ntw_event(struct ntw *w, const struct ntw_event *e)
{
    uint8_t flags = 0x01 | 0x02 | 0x04 | 0x08 | 0x80 | (e->sorted ? 0x40 : 0);
    if (e->activity || e->labels)
        flags |= 0x10;
    ntw_open(w, "EventBlock", 2);
    ntw_block_header(w, true);
    ntw_put(w, &flags, 1);
    ntw_uleb(w, e->metadata);
    ntw_uleb(w, (uint32_t)(e->sequence - 1));
    ntw_uleb(w, e->capture);
    ntw_uleb(w, e->processor);
    ntw_uleb(w, e->thread);
    ntw_uleb(w, e->stack);
    ntw_uleb(w, e->ticks);
    if (w->version >= 6 && e->labels)
        ntw_uleb(w, e->labels);
    else if (e->activity)
        ntw_put(w, e->activity, 16);
    ntw_uleb(w, e->payload_len);
    ntw_put(w, e->payload, e->payload_len);
    ntw_close(w);
}

void ntw_event_plain(struct ntw *w, const struct ntw_event *e)
{
    static const uint8_t zeros[32];
    ntw_u32(w, 0); /* the row's size: no reader needs it */
    ntw_u32(w, e->metadata | (e->sorted ? 0x80000000u : 0));
    ntw_u32(w, e->sequence);
    ntw_u64(w, e->thread);
    ntw_u64(w, e->capture);
    ntw_u32(w, e->processor);
    ntw_u32(w, e->stack);
    ntw_u64(w, e->ticks);
    ntw_put(w, zeros, 32);
    ntw_u32(w, e->payload_len);
    ntw_put(w, e->payload, e->payload_len);
    ntw_put(w, zeros, (0 - (w->len - w->body_at)) & 3);
}

static void metadata_v6(struct ntw *w, uint32_t id, const char *provider, uint32_t event_id,
                        const char *name, const struct ntw_field *fields, uint32_t count)
{
    ntw_open(w, "", 3);
    ntw_u16(w, 0);
    size_t size_at = w->len;
    ntw_u16(w, 0);
    ntw_uleb(w, id);
    ntw_text8(w, provider);
    ntw_uleb(w, event_id);
    ntw_text8(w, name);
    ntw_u16(w, (uint16_t)count);
    for (uint32_t i = 0; i < count; i++) {
        ntw_u16(w, (uint16_t)(strlen(fields[i].name) + 2));
        ntw_text8(w, fields[i].name);
        ntw_put(w, &fields[i].type, 1);
    }
    ntw_u16(w, 2); /* more: the level */
    ntw_put(w, "\x08\x04", 2);
    uint16_t size = (uint16_t)(w->len - size_at - 2);
    memcpy(w->bytes + size_at, &size, 2);
    ntw_close(w);
}

void ntw_metadata(struct ntw *w, uint32_t id, const char *provider, uint32_t event_id,
                  const char *name, const struct ntw_field *fields, uint32_t count)
{
    if (w->version >= 6) {
        metadata_v6(w, id, provider, event_id, name, fields, count);
        return;
    }
    struct ntw row = {.bytes = malloc(NTW_MAX_BYTES), .version = w->version};
    assert_non_null(row.bytes);
    ntw_u32(&row, id);
    ntw_text16(&row, provider);
    ntw_u32(&row, event_id);
    ntw_text16(&row, name);
    ntw_u64(&row, 0);
    ntw_u32(&row, 1);
    ntw_u32(&row, 4);
    ntw_u32(&row, count);
    for (uint32_t i = 0; i < count; i++) {
        ntw_u32(&row, fields[i].type);
        ntw_text16(&row, fields[i].name);
    }
    ntw_open(w, "MetadataBlock", 3);
    ntw_block_header(w, true);
    ntw_put(w, "\x80\x00", 2); /* size; time */
    ntw_uleb(w, row.len);
    ntw_put(w, row.bytes, row.len);
    ntw_close(w);
    ntw_done(&row);
}

void ntw_stacks(struct ntw *w, uint32_t first_id, const uint64_t *frames, uint32_t stacks,
                uint32_t count)
{
    ntw_open(w, "StackBlock", 5);
    ntw_u32(w, first_id);
    ntw_u32(w, stacks);
    for (uint32_t i = 0; i < stacks; i++) {
        ntw_u32(w, count * 8);
        ntw_put(w, frames + (size_t)i * count, (size_t)count * 8);
    }
    ntw_close(w);
}

void ntw_sequence_point(struct ntw *w, uint32_t flags, const uint64_t *threads,
                        const uint32_t *sequences, uint32_t count)
{
    ntw_open(w, "SPBlock", 4);
    ntw_u64(w, 0);
    if (w->version >= 6)
        ntw_u32(w, flags);
    ntw_u32(w, count);
    for (uint32_t i = 0; i < count; i++) {
        if (w->version >= 6) {
            ntw_uleb(w, threads[i]);
            ntw_uleb(w, sequences[i]);
        } else {
            ntw_u64(w, threads[i]);
            ntw_u32(w, sequences[i]);
        }
    }
    ntw_close(w);
}
