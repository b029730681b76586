/* One profile for each kind of sample, and the labels of its series. */
#include "uploader/intake.h"

#include "base/core/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types and periods in our own spelling (docs/pprof.md), beside the one that grafana/pyroscope and
 * parca-dev/parca know and show as what it is. */
static const struct clp_series series[] = {
    {"cpu", "process_cpu", {{"cpu", NULL, NULL}}, {"cpu", "nanoseconds"}},
    {"wall", "wall", {{"wall", NULL, NULL}}, {"wall", "nanoseconds"}},
    {"exceptions", "exception", {{"exceptions", "exception", NULL}}, {"exceptions", "count"}},
    {"allocations",
     "memory",
     {{"alloc_objects", NULL, NULL}, {"alloc_space", NULL, NULL}},
     {"space", "bytes"}},
    {"locks",
     "mutex",
     {{"lock_contentions", "contentions", NULL}, {"lock_delay", "delay", NULL}},
     {"lock_contentions", "count"}},
    {"waits",
     "block",
     {{"waits", "contentions", NULL}, {"wait_time", "delay", NULL}},
     {"waits", "count"}},
    {"liveheap",
     "memory",
     {{"inuse_objects", NULL, NULL}, {"inuse_space", NULL, NULL}},
     {"space", "bytes"}},
    {"gc",
     "gc",
     {{"gc_collections", NULL, NULL}, {"gc_pause", NULL, NULL}},
     {"gc_collections", "count"}},
};

const struct clp_series *clp_series_of(const char *type)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(series); i++)
        for (size_t k = 0; k < 2 && series[i].values[k].from; k++)
            if (strcmp(series[i].values[k].from, type) == 0)
                return &series[i];
    return NULL;
}

/* A period that is one of the types is spelt as that type is. */
static void spell(const struct clp_series *s, enum clp_spelling spelling,
                  struct clp_reshape_value values[2], struct clp_reshape *how)
{
    how->values = values;
    how->value_count = s->values[1].from ? 2 : 1;
    how->period_type = s->period_type;
    for (size_t i = 0; i < how->value_count; i++) {
        const struct clp_reshape_value *v = &s->values[i];
        values[i] = *v;
        if (spelling == CLP_SPELLING_OWN)
            values[i].type = NULL;
        else if (v->type && strcmp(v->from, s->period_type.type) == 0)
            how->period_type.type = v->type;
    }
}

/* The series' part of `p`. */
static int make(const struct clp_intake *in, const struct clp_series *s, enum clp_spelling spelling,
                const struct clp_profile *p, const struct clp_reshape *how,
                struct clp_reshaped *ret)
{
    struct clp_reshape_value values[2];
    struct clp_reshape h = *how;
    spell(s, spelling, values, &h);
    /* The period itself is only of the CPU's sampling. */
    h.period = strcmp(s->part, "cpu") == 0 ? 0 : 1;
    h.plain_max = in->plain_max;
    return clp_profile_reshape(p, &h, ret);
}

int clp_series_build(const struct clp_intake *in, const struct clp_chunk *c,
                     const struct clp_profile *p, enum clp_spelling spelling,
                     const struct clp_reshape *how, clp_series_finish *finish,
                     struct clp_requests *ret)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(series); i++) {
        struct clp_reshaped shaped;
        int r = make(in, &series[i], spelling, p, how, &shaped);
        if (r == -ENODATA)
            continue;
        if (r < 0)
            return r;
        struct clp_request *q = clp_requests_add(ret, series[i].part);
        if (!q) {
            clp_reshaped_done(&shaped);
            return -EFBIG;
        }
        clp_request_take(q, &shaped);
        r = finish ? finish(in, &series[i], c, q) : 0;
        if (r < 0)
            return r;
    }
    return ret->count ? 0 : -ENODATA;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static char *label_name(const char *text, size_t most)
{
    char *name = strndup(text, most);
    for (char *c = name; c && *c; c++) {
        bool digit = *c >= '0' && *c <= '9';
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && !(digit && c > name))
            *c = '_';
    }
    return name;
}

static char *label_value(const char *text, size_t most)
{
    return strndup(text, clp_text_whole(text, most));
}

static bool has_tag(const struct clp_tags *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->items[i].name, name) == 0)
            return true;
    return false;
}

int clp_tags_add(struct clp_tags *t, const char *name, const char *value)
{
    if (!value || !*value || !*name)
        return 0;
    struct clp_tag tag = {label_name(name, t->name_max), label_value(value, t->value_max)};
    bool ok = tag.name && tag.value;
    if (ok && !has_tag(t, tag.name) &&
        t->count < CLP_MIN(t->most, (size_t)CLP_ARRAY_LEN(t->items))) {
        t->items[t->count++] = tag;
        return 0;
    }
    free(tag.name);
    free(tag.value);
    return ok ? 0 : -ENOMEM;
}

int clp_tags_add_own(struct clp_tags *t, const struct clp_upload_header *h)
{
    int r = 0;
    for (size_t i = 0; i < h->tag_count && r == 0; i++) {
        char name[256];
        const char *colon = strchr(h->tags[i], ':');
        if (!colon || colon == h->tags[i])
            continue;
        (void)snprintf(name, sizeof(name), "%.*s", (int)CLP_MIN(colon - h->tags[i], 255),
                       h->tags[i]);
        r = clp_tags_add(t, name, colon + 1);
    }
    return r;
}

void clp_tags_done(struct clp_tags *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->items[i].name);
        free(t->items[i].value);
    }
    t->count = 0;
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* FNV-1a: not against an adversary, only to be the same in every run. */
static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

void clp_part_id(const struct clp_upload_header *h, const char *part, uint8_t ret[16])
{
    for (size_t half = 0; half < 2; half++) {
        uint64_t hash = mix(0xcbf29ce484222325ull, &half, sizeof(half));
        hash = mix(hash, h->runtime_id, strlen(h->runtime_id) + 1);
        hash = mix(hash, &h->seq, sizeof(h->seq));
        hash = mix(hash, &h->start_unix_ns, sizeof(h->start_unix_ns));
        hash = mix(hash, part, strlen(part));
        memcpy(ret + half * 8, &hash, 8);
    }
    /* The form of a UUID of version 8: one's own scheme. */
    ret[6] = (uint8_t)((ret[6] & 0x0f) | 0x80);
    ret[8] = (uint8_t)((ret[8] & 0x3f) | 0x80);
}

const char *clp_part_uuid(const struct clp_upload_header *h, const char *part, char buf[37])
{
    uint8_t id[16];
    size_t at = 0;
    clp_part_id(h, part, id);
    for (size_t i = 0; i < 16; i++)
        at += (size_t)snprintf(buf + at, 37 - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
    return buf;
}
