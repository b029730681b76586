/* The reader over a ring whose whole content comes from the target, and the socket messages.
 *
 * Input: one byte of mode, then bytes.  Bit 0 of the mode places them just before the ring's end,
 * so that records meet the wrap; bit 1 publishes more than was written; else everything is a
 * message. */
#include "wire/memory.h"
#include "wire/message.h"
#include "wire/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING CLP_WIRE_RING_MIN_BYTES

static _Alignas(4096) uint8_t shared[CLP_WIRE_HEADER_BYTES + RING];

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "broken promise: %s\n", what);
    abort();
}

static void check_text(const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        must(*p != 0xff && *p != 0xc0, "texts are valid UTF-8");
}

static void use(const struct clp_reader_record *rec)
{
    switch (rec->type) {
    case CLP_REC_IMAGE:
        must(rec->image.rec->build_id_len <= CLP_WIRE_BUILD_ID_MAX, "build id is bounded");
        for (int i = 0; i < rec->image.rec->build_id_len; i++)
            must(rec->image.build_id[i] + 1 > 0, "build id is readable");
        check_text(rec->image.path);
        break;
    case CLP_REC_METHOD:
        check_text(rec->method.type);
        check_text(rec->method.name);
        check_text(rec->method.type_args);
        check_text(rec->method.method_args);
        check_text(rec->method.signature);
        break;
    case CLP_REC_THREAD:
        check_text(rec->thread.name);
        break;
    case CLP_REC_SAMPLE:
        for (int i = 0; i < rec->sample.rec->rec.count; i++)
            must(clp_frame_kind(rec->sample.frames[i]) <= CLP_FRAME_UNKNOWN, "kinds are known");
        break;
    default:
        must(rec->type < CLP_REC_TYPE_COUNT && rec->type != CLP_REC_PAD, "types are known");
    }
}

static uint64_t fill(const uint8_t *data, size_t size, uint8_t mode)
{
    struct clp_wire_header *h = (struct clp_wire_header *)shared;
    uint8_t *ring = shared + CLP_WIRE_HEADER_BYTES;
    uint64_t at = 0;
    memset(shared, 0, sizeof(shared));
    if (mode & 1) {
        for (; at < RING - 512; at += CLP_WIRE_RECORD_MAX_BYTES) {
            uint64_t left = RING - 512 - at;
            struct clp_rec pad = {.type = CLP_REC_PAD};
            pad.size = (uint32_t)CLP_MIN(left, (uint64_t)CLP_WIRE_RECORD_MAX_BYTES);
            memcpy(ring + at, &pad, sizeof(pad));
        }
        at = RING - 512;
    }
    for (size_t i = 0; i < size; i++)
        ring[(at + i) % RING] = data[i];
    atomic_store(&h->head, at);
    return CLP_MIN(CLP_ALIGN_UP(size, 8) + (mode & 2 ? 64 : 0), (uint64_t)RING);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_wire_header *h = (struct clp_wire_header *)shared;
    struct clp_reader *reader = NULL;
    struct clp_reader_record rec;
    if (size < 1 || size > RING / 2 || clp_reader_new(shared, RING, &reader) < 0)
        return 0;
    uint64_t bytes = fill(data + 1, size - 1, data[0]);
    must(clp_reader_poll(reader) >= 0, "padding is accepted");
    while (clp_reader_next(reader, &rec) == 1)
        use(&rec);
    atomic_fetch_add(&h->head, bytes);
    uint64_t turns = 0;
    for (int i = 0; i < 2 && clp_reader_poll(reader) >= 0; i++)
        for (; clp_reader_next(reader, &rec) == 1; turns++)
            use(&rec);
    must(turns <= RING / 8, "a poll ends");
    clp_reader_free(reader);

    uint64_t message[32];
    size_t n = CLP_MIN(size - 1, sizeof(message));
    memcpy(message, data + 1, n);
    char version[8];
    if (clp_msg_check(message, n) == CLP_MSG_HELLO &&
        clp_msg_hello_check((const void *)message, data + 1, version, sizeof(version)) == 0)
        check_text(version);
    struct clp_attach_data attach;
    if (clp_attach_data_check(data + 1, size - 1, &attach) == 0)
        must(strlen(attach.socket_path) < sizeof(attach.socket_path), "the path ends");
    return 0;
}
