#include "wire/reader.h"

#include "base/core/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Cleaning turns one bad byte into the three of U+FFFD; each text gets its NUL. */
#define TEXT_BYTES (3 * CLP_WIRE_RECORD_MAX_BYTES + 16)

struct clp_reader {
    struct clp_wire_header *header;
    const uint8_t *data;
    uint32_t bytes;
    uint64_t tail; /* ours; the shared word is only for the writer */
    uint64_t end;  /* head at the last poll */
    const char *error;
    size_t text_used;
    union clp_rec_any record; /* the copy that is checked and shown */
    char text[TEXT_BYTES];
};

int clp_reader_new(void *mapping, uint32_t ring_bytes, struct clp_reader **ret)
{
    if (!mapping || ring_bytes < CLP_WIRE_RING_MIN_BYTES || ring_bytes > CLP_WIRE_RING_MAX_BYTES ||
        (ring_bytes & (ring_bytes - 1)) != 0)
        return -EINVAL;
    struct clp_reader *r = malloc(sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->header = mapping;
    r->data = (const uint8_t *)mapping + CLP_WIRE_HEADER_BYTES;
    r->bytes = ring_bytes;
    r->tail = r->end = 0;
    r->error = "";
    *ret = r;
    return 0;
}

struct clp_reader *clp_reader_free(struct clp_reader *r)
{
    free(r);
    return NULL;
}

static int bad(struct clp_reader *r, const char *why)
{
    if (!*r->error)
        r->error = why;
    return -EBADMSG;
}

int64_t clp_reader_poll(struct clp_reader *r)
{
    if (*r->error)
        return -EBADMSG;
    uint64_t head = atomic_load_explicit(&r->header->head, memory_order_acquire);
    if (head - r->tail > r->bytes || head % 8 != 0 || head < r->end)
        return bad(r, "impossible write position");
    r->end = head;
    return (int64_t)(head - r->tail);
}

/* ---- copying out ---- */

/* Copies the record at the tail. 1, 0 for padding, -EBADMSG. The size is read once: what the target
 * makes of it afterwards does not matter. */
static int copy_record(struct clp_reader *r, struct clp_rec *ret)
{
    uint32_t at = (uint32_t)(r->tail & (r->bytes - 1));
    uint64_t left = CLP_MIN(r->end - r->tail, (uint64_t)(r->bytes - at));
    uint64_t word = *(const volatile uint64_t *)(r->data + at);
    struct clp_rec rec;
    memcpy(&rec, &word, sizeof(rec));
    if (rec.size < sizeof(rec) || rec.size % 8 != 0 || rec.size > CLP_WIRE_RECORD_MAX_BYTES ||
        rec.size > left)
        return bad(r, "impossible record size");
    *ret = rec;
    if (rec.type == CLP_REC_PAD)
        return 0;
    memcpy(r->record.bytes, r->data + at, rec.size);
    __asm__ volatile("" ::: "memory"); /* no second look at the ring */
    r->record.rec = rec;
    return 1;
}

static void advance(struct clp_reader *r, uint32_t size)
{
    r->tail += size;
    atomic_store_explicit(&r->header->tail, r->tail, memory_order_release);
}

/* ---- texts ---- */

/* The variable part of a record: what its fixed part announces must lie inside it. */
struct tail {
    const uint8_t *at;
    size_t left;
};

static struct tail tail_after(const struct clp_reader *r, size_t fixed_bytes)
{
    return (struct tail){r->record.bytes + fixed_bytes, r->record.rec.size - fixed_bytes};
}

static const uint8_t *take(struct tail *t, size_t n)
{
    const uint8_t *p = t->at;
    if (n > t->left)
        return NULL;
    t->at += n;
    t->left -= n;
    return p;
}

static const char *take_text(struct clp_reader *r, struct tail *t, size_t n)
{
    const char *s = (const char *)take(t, n);
    if (!s)
        return NULL;
    struct clp_text out = clp_text_in(r->text + r->text_used, TEXT_BYTES - r->text_used);
    for (size_t i = 0; i < n;) {
        size_t run = strnlen(s + i, n - i);
        clp_text_utf8_clean(&out, s + i, run);
        i += run;
        if (i < n) {
            clp_text_add(&out, "\xef\xbf\xbd");
            i++;
        }
    }
    r->text_used += out.len + 1;
    return out.buf;
}

static bool id_ok(uint32_t id)
{
    return id >= 1 && id <= CLP_WIRE_ID_MAX;
}

/* ---- one function a record type; 1 or -EBADMSG ---- */

static int check_image(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_image *rec = &r->record.image;
    if (rec->rec.size < sizeof(*rec) || !id_ok(rec->image_id) || rec->kind < CLP_IMAGE_ELF ||
        rec->kind > CLP_IMAGE_VDSO || rec->build_id_len > CLP_WIRE_BUILD_ID_MAX ||
        rec->start > rec->end)
        return bad(r, "malformed image");
    struct tail t = tail_after(r, sizeof(*rec));
    ret->image.rec = rec;
    ret->image.build_id = take(&t, rec->build_id_len);
    ret->image.path = ret->image.build_id ? take_text(r, &t, rec->path_len) : NULL;
    return ret->image.path ? 1 : bad(r, "an image's texts exceed its record");
}

static int check_method(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_method *rec = &r->record.method;
    if (rec->rec.size < sizeof(*rec) || !id_ok(rec->method_id) || rec->image_id > CLP_WIRE_ID_MAX)
        return bad(r, "malformed method");
    struct tail t = tail_after(r, sizeof(*rec));
    ret->method.rec = rec;
    const char **texts[] = {&ret->method.type, &ret->method.name, &ret->method.type_args,
                            &ret->method.method_args, &ret->method.signature};
    const uint16_t lens[] = {rec->type_len, rec->name_len, rec->type_args_len, rec->method_args_len,
                             rec->signature_len};
    for (size_t i = 0; i < CLP_ARRAY_LEN(lens); i++) {
        *texts[i] = take_text(r, &t, lens[i]);
        if (!*texts[i])
            return bad(r, "a method's texts exceed its record");
    }
    return 1;
}

static int check_body(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_body *rec = &r->record.body;
    if (rec->rec.size != sizeof(*rec) || !id_ok(rec->body_id) || !id_ok(rec->method_id) ||
        rec->start + rec->code_bytes < rec->start)
        return bad(r, "malformed code body");
    ret->body.rec = rec;
    return 1;
}

static int check_thread(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_thread *rec = &r->record.thread;
    if (rec->rec.size < sizeof(*rec) || rec->thread_id == 0 || rec->kind < CLP_THREAD_MANAGED ||
        rec->kind > CLP_THREAD_PROCESS)
        return bad(r, "malformed thread");
    struct tail t = tail_after(r, sizeof(*rec));
    ret->thread.rec = rec;
    ret->thread.name = take_text(r, &t, rec->name_len);
    return ret->thread.name ? 1 : bad(r, "a thread's name exceeds its record");
}

static bool frame_ok(uint64_t frame)
{
    uint32_t id = clp_frame_id(frame);
    switch (frame >> 60) {
    case CLP_FRAME_MANAGED:
    case CLP_FRAME_NATIVE:
        return id != 0;
    case CLP_FRAME_SPECIAL:
        return id > CLP_SPECIAL_NONE && id < CLP_SPECIAL_COUNT;
    case CLP_FRAME_UNKNOWN:
        return id == 0;
    default:
        return false;
    }
}

static int check_frames(struct clp_reader *r, const uint64_t *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!frame_ok(frames[i]))
            return bad(r, "malformed frame");
    return 1;
}

static int check_sample(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_sample *rec = &r->record.sample;
    if (rec->rec.count > CLP_WIRE_FRAMES_MAX ||
        rec->rec.size != sizeof(*rec) + 8ull * rec->rec.count)
        return bad(r, "a sample's frames do not fit its record");
    if ((rec->kind != CLP_SAMPLE_CPU && rec->kind != CLP_SAMPLE_WALL) || rec->thread_id == 0 ||
        rec->value < 0 || rec->value > CLP_WIRE_VALUE_MAX || rec->value2 < 0 ||
        rec->value2 > CLP_WIRE_VALUE_MAX || rec->time_ns > INT64_MAX ||
        (rec->flags & ~CLP_SAMPLE_FLAGS_ALL) != 0)
        return bad(r, "malformed sample");
    ret->sample.rec = rec;
    ret->sample.frames = &r->record.words[sizeof(*rec) / 8];
    return check_frames(r, ret->sample.frames, rec->rec.count);
}

/* Not a number is in no range. */
static bool estimate_ok(double value)
{
    return value >= 0 && value <= (double)CLP_WIRE_VALUE_MAX;
}

static int check_event(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_event *rec = &r->record.event;
    if (rec->rec.size < sizeof(*rec) + 8ull * rec->rec.count || rec->rec.count == 0 ||
        rec->rec.count > CLP_WIRE_FRAMES_MAX || rec->other_count >= rec->rec.count)
        return bad(r, "an event's frames do not fit its record");
    if (rec->kind >= CLP_SAMPLE_KIND_COUNT || !(1u << rec->kind & CLP_SAMPLE_KINDS_EVENT) ||
        rec->thread_id == 0 || !estimate_ok(rec->value) || !estimate_ok(rec->value2) ||
        rec->time_ns > INT64_MAX || (rec->flags & ~CLP_SAMPLE_FLAGS_ALL) != 0)
        return bad(r, "malformed event");
    struct tail t = tail_after(r, sizeof(*rec) + 8u * rec->rec.count);
    ret->event.rec = rec;
    ret->event.frames = &r->record.words[sizeof(*rec) / 8];
    for (size_t i = 0; i < CLP_EVENT_TEXTS; i++) {
        ret->event.texts[i] = rec->text_len[i] <= CLP_EVENT_TEXT_MAX_BYTES
                                  ? take_text(r, &t, rec->text_len[i])
                                  : NULL;
        if (!ret->event.texts[i])
            return bad(r, "an event's texts exceed its record");
    }
    return check_frames(r, ret->event.frames, rec->rec.count);
}

static int check_mark(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_mark *rec = &r->record.mark;
    if (rec->rec.size != sizeof(*rec) || rec->time_ns > INT64_MAX)
        return bad(r, "malformed mark");
    ret->mark.rec = rec;
    return 1;
}

static int check_span(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_span *rec = &r->record.span;
    if (rec->rec.size != sizeof(*rec) || rec->thread_id == 0 || rec->span_id == 0 ||
        (rec->trace_high | rec->trace_low) == 0)
        return bad(r, "malformed span");
    ret->span.rec = rec;
    return 1;
}

static int check_endpoint(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_endpoint *rec = &r->record.endpoint;
    if (rec->rec.size < sizeof(*rec) || rec->endpoint <= CLP_ENDPOINT_OTHER || rec->name_len == 0 ||
        rec->name_len > CLP_ENDPOINT_NAME_MAX_BYTES)
        return bad(r, "malformed endpoint");
    struct tail t = tail_after(r, sizeof(*rec));
    ret->endpoint.rec = rec;
    ret->endpoint.name = take_text(r, &t, rec->name_len);
    return ret->endpoint.name ? 1 : bad(r, "an endpoint's name exceeds its record");
}

static int check_root(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_root *rec = &r->record.root;
    if (rec->rec.size != sizeof(*rec) || rec->endpoint == 0 ||
        (rec->local_root_span_id == 0 && rec->ended == 0))
        return bad(r, "malformed root");
    ret->root.rec = rec;
    return 1;
}

static int check_gone(struct clp_reader *r, struct clp_reader_record *ret)
{
    const struct clp_rec_gone *rec = &r->record.gone;
    bool known =
        rec->what == CLP_REC_IMAGE || rec->what == CLP_REC_METHOD || rec->what == CLP_REC_THREAD;
    if (rec->rec.size != sizeof(*rec) || !known || rec->id == 0)
        return bad(r, "malformed end of a definition");
    ret->gone.rec = rec;
    return 1;
}

static int check_record(struct clp_reader *r, uint16_t type, struct clp_reader_record *ret)
{
    ret->type = type;
    r->text_used = 0;
    switch (type) {
    case CLP_REC_IMAGE:
        return check_image(r, ret);
    case CLP_REC_METHOD:
        return check_method(r, ret);
    case CLP_REC_BODY:
        return check_body(r, ret);
    case CLP_REC_THREAD:
        return check_thread(r, ret);
    case CLP_REC_SAMPLE:
        return check_sample(r, ret);
    case CLP_REC_EVENT:
        return check_event(r, ret);
    case CLP_REC_MARK:
        return check_mark(r, ret);
    case CLP_REC_SPAN:
        return check_span(r, ret);
    case CLP_REC_ENDPOINT:
        return check_endpoint(r, ret);
    case CLP_REC_ROOT:
        return check_root(r, ret);
    case CLP_REC_GONE:
        return check_gone(r, ret);
    default:
        return bad(r, "unknown record type");
    }
}

int clp_reader_next(struct clp_reader *r, struct clp_reader_record *ret)
{
    /* At most ring_bytes / 8 turns: each takes at least 8 bytes of a fixed distance. */
    while (!*r->error && r->tail < r->end) {
        struct clp_rec rec;
        int got = copy_record(r, &rec);
        if (got > 0)
            got = check_record(r, rec.type, ret);
        if (got < 0)
            return got;
        advance(r, rec.size);
        if (got > 0)
            return 1;
    }
    return *r->error ? -EBADMSG : 0;
}

const char *clp_reader_error(const struct clp_reader *r)
{
    return r->error;
}

uint64_t clp_reader_counter(const struct clp_reader *r, enum clp_counter counter)
{
    if ((unsigned)counter >= CLP_CTR_COUNT)
        return 0;
    return atomic_load_explicit(&r->header->counters[counter], memory_order_relaxed);
}

uint64_t clp_reader_marked(const struct clp_reader *r, enum clp_counter counter)
{
    if ((unsigned)counter >= CLP_CTR_COUNT)
        return 0;
    return atomic_load_explicit(&r->header->marked[counter], memory_order_relaxed);
}

uint64_t clp_reader_heartbeat_ns(const struct clp_reader *r)
{
    return atomic_load_explicit(&r->header->heartbeat_ns, memory_order_acquire);
}

uint64_t clp_reader_opened_ns(const struct clp_reader *r)
{
    return atomic_load_explicit(&r->header->opened_ns, memory_order_relaxed);
}
