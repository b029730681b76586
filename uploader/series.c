/* One profile for each kind of sample, and the labels of its series. */
#include "uploader/intake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct clp_series clp_series_own[] = {
    {"cpu", "cpu", {{"cpu", NULL, NULL}}, {"cpu", "nanoseconds"}},
    {"wall", "wall", {{"wall", NULL, NULL}}, {"wall", "nanoseconds"}},
    {"exceptions", "exceptions", {{"exceptions", NULL, NULL}}, {"exceptions", "count"}},
    {"allocations",
     "allocations",
     {{"alloc_objects", NULL, NULL}, {"alloc_space", NULL, NULL}},
     {"space", "bytes"}},
    {"locks",
     "locks",
     {{"lock_contentions", NULL, NULL}, {"lock_delay", NULL, NULL}},
     {"lock_contentions", "count"}},
    {"liveheap",
     "liveheap",
     {{"inuse_objects", NULL, NULL}, {"inuse_space", NULL, NULL}},
     {"space", "bytes"}},
    {"gc",
     "gc",
     {{"gc_collections", NULL, NULL}, {"gc_pause", NULL, NULL}},
     {"gc_collections", "count"}},
};
const size_t clp_series_own_count = CLP_ARRAY_LEN(clp_series_own);

/* grafana/pyroscope and parca-dev/parca know these names and units, and show them as what they are.
 */
const struct clp_series clp_series_known[] = {
    {"cpu", "process_cpu", {{"cpu", NULL, NULL}}, {"cpu", "nanoseconds"}},
    {"wall", "wall", {{"wall", NULL, NULL}}, {"wall", "nanoseconds"}},
    {"exceptions", "exception", {{"exceptions", "exception", "count"}}, {"exception", "count"}},
    {"allocations",
     "memory",
     {{"alloc_objects", NULL, NULL}, {"alloc_space", NULL, NULL}},
     {"space", "bytes"}},
    {"locks",
     "mutex",
     {{"lock_contentions", "contentions", "count"}, {"lock_delay", "delay", "nanoseconds"}},
     {"contentions", "count"}},
    {"liveheap",
     "memory",
     {{"inuse_objects", NULL, NULL}, {"inuse_space", NULL, NULL}},
     {"space", "bytes"}},
    {"gc",
     "gc",
     {{"gc_collections", NULL, NULL}, {"gc_pause", NULL, NULL}},
     {"gc_collections", "count"}},
};
const size_t clp_series_known_count = CLP_ARRAY_LEN(clp_series_known);

int clp_series_make(const struct clp_intake *in, const struct clp_series *s,
                    const struct clp_profile *p, const struct clp_reshape *how,
                    struct clp_reshaped *ret)
{
    struct clp_reshape h = *how;
    h.values = s->values;
    h.value_count = s->values[1].from ? 2 : 1;
    /* The period itself is only of the CPU's sampling. */
    h.period_type = s->period_type;
    h.period = strcmp(s->part, "cpu") == 0 ? 0 : 1;
    h.plain_max = in->plain_max;
    return clp_profile_reshape(p, &h, ret);
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

/* At most so many bytes, cut on a character's boundary. */
static char *label_value(const char *text, size_t most)
{
    size_t len = strnlen(text, most + 1);
    if (len > most)
        for (len = most; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    return strndup(text, len);
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
