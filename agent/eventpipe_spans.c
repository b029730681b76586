#include "agent/eventpipe_spans.h"

#include "base/core/bytes.h"
#include "base/hash.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

#define KEY_CHARS 16u
#define VALUE_CHARS 40u

void clp_epb_spans_init(struct clp_epb_spans *s)
{
    *s = (struct clp_epb_spans){.items = NULL};
    clp_index_init(&s->index);
}

void clp_epb_spans_done(struct clp_epb_spans *s)
{
    clp_index_done(&s->index);
    free(s->items);
}

static bool same_id(const void *table, uint32_t at, const void *key)
{
    const struct clp_epb_spans *s = table;
    return memcmp(s->items[at].id, key, CLP_NETTRACE_GUID_BYTES) == 0;
}

uint32_t clp_epb_spans_note(struct clp_epb_spans *s, const uint8_t *id)
{
    static const uint8_t nothing[CLP_NETTRACE_GUID_BYTES];
    if (memcmp(id, nothing, sizeof(nothing)) == 0)
        return CLP_EPB_NO_ACTIVITY;
    uint64_t hash = clp_hash_bytes(id, CLP_NETTRACE_GUID_BYTES);
    uint32_t at = clp_index_find(&s->index, hash, same_id, s, id);
    if (at != CLP_INDEX_NONE)
        return at + 1;
    if (CLP_VEC_GROW(s->items, s->cap, s->count + 1, CLP_EPB_ACTIVITIES_MAX) < 0 ||
        clp_index_reserve(&s->index) < 0)
        return CLP_EPB_NO_ACTIVITY;
    s->items[s->count] = (struct clp_epb_activity){.ended = false};
    memcpy(s->items[s->count].id, id, CLP_NETTRACE_GUID_BYTES);
    clp_index_add(&s->index, hash, s->count);
    return ++s->count;
}

uint32_t clp_epb_spans_copy(struct clp_epb_spans *s, const struct clp_epb_spans *from,
                            uint32_t activity)
{
    if (activity == CLP_EPB_NO_ACTIVITY || activity > from->count)
        return CLP_EPB_NO_ACTIVITY;
    uint32_t at = clp_epb_spans_note(s, from->items[activity - 1].id);
    if (at != CLP_EPB_NO_ACTIVITY)
        s->items[at - 1] = from->items[activity - 1];
    return at;
}

/* The beginning of a NUL-terminated UTF-16 text, as far as it is ASCII. */
static void take_ascii(struct clp_bytes *c, char *buf, size_t cap)
{
    size_t n = 0;
    for (uint16_t u; clp_bytes_left(c) >= 2 && (u = clp_bytes_u16(c)) != 0;)
        if (n + 1 < cap && u < 128)
            buf[n++] = (char)u;
    buf[n] = '\0';
}

static uint64_t hex(const char *text, size_t digits)
{
    uint64_t v = 0;
    for (size_t i = 0; i < digits && text[i]; i++) {
        int d = text[i] >= 'a' ? text[i] - 'a' + 10 : text[i] - '0';
        v = v << 4 | ((unsigned)d & 15);
    }
    return v;
}

/* Source, activity, how many arguments, then each as key and value; see the ActivityStart of
 * DiagnosticSourceEventSource.cs in dotnet/runtime. */
static void take_arguments(const struct clp_nettrace_event *e, struct clp_def_span *ret)
{
    char key[KEY_CHARS], value[VALUE_CHARS];
    struct clp_bytes c = clp_bytes_of(e->payload, e->payload_len);
    take_ascii(&c, key, sizeof(key));
    take_ascii(&c, key, sizeof(key));
    for (unsigned n = clp_bytes_u16(&c); n > 0 && !c.bad && clp_bytes_left(&c) > 0; n--) {
        take_ascii(&c, key, sizeof(key));
        take_ascii(&c, value, sizeof(value));
        if (strcmp(key, "TraceId") == 0 && strlen(value) == 32) {
            ret->trace_high = hex(value, 16);
            ret->trace_low = hex(value + 16, 16);
        } else if (strcmp(key, "SpanId") == 0 && strlen(value) == 16) {
            ret->span_id = hex(value, 16);
        }
    }
}

/* A span whose parent was not told of is the first of this process. */
static void begin_span(struct clp_epb_spans *s, const struct clp_nettrace_event *e)
{
    uint32_t parent = clp_epb_spans_note(s, e->related), at = clp_epb_spans_note(s, e->activity);
    const struct clp_def_span *above = clp_epb_spans_of(s, parent);
    if (at == CLP_EPB_NO_ACTIVITY)
        return;
    struct clp_def_span *span = &s->items[at - 1].span;
    take_arguments(e, span);
    span->local_root_span_id = above ? above->local_root_span_id : span->span_id;
}

/* The numbers of these events differ from version to version. */
void clp_epb_spans_event(struct clp_epb_spans *s, const struct clp_nettrace_event *e)
{
    if (strcmp(e->meta->name, "ActivityStart") == 0) {
        begin_span(s, e);
    } else if (strcmp(e->meta->name, "ActivityStop") == 0) {
        uint32_t at = clp_epb_spans_note(s, e->activity);
        if (at != CLP_EPB_NO_ACTIVITY)
            s->items[at - 1].ended = true;
    }
}

const struct clp_def_span *clp_epb_spans_of(const struct clp_epb_spans *s, uint32_t activity)
{
    if (activity == CLP_EPB_NO_ACTIVITY || activity > s->count)
        return NULL;
    const struct clp_def_span *span = &s->items[activity - 1].span;
    return span->span_id ? span : NULL;
}
