#include "sampler/inproc/strings.h"

#include <errno.h>
#include <string.h>

/* Whole-block sizes, header included: steps of a quarter of a power of two keep the waste small. */
static const uint16_t class_bytes[CLP_STRINGS_CLASSES] = {
    32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 448, 640, 1024, 1536, 2112};

static uint32_t hash_of(const char *text, size_t len)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)text[i]) * 16777619u;
    return h;
}

int clp_strings_init(struct clp_strings *s, size_t ceiling_bytes)
{
    memset(s, 0, sizeof(*s));
    clp_arena_init(&s->arena, ceiling_bytes);
    s->buckets = clp_pages_alloc(CLP_STRINGS_BUCKETS * sizeof(*s->buckets));
    return s->buckets ? 0 : -ENOMEM;
}

void clp_strings_done(struct clp_strings *s)
{
    clp_pages_free(s->buckets, CLP_STRINGS_BUCKETS * sizeof(*s->buckets));
    clp_arena_done(&s->arena);
    memset(s, 0, sizeof(*s));
}

static struct clp_string **bucket_of(struct clp_strings *s, uint32_t hash)
{
    return &s->buckets[hash % CLP_STRINGS_BUCKETS];
}

static struct clp_string *find(struct clp_strings *s, uint32_t hash, const char *text, size_t len)
{
    struct clp_string *e = *bucket_of(s, hash);
    while (e && !(e->hash == hash && e->len == len && memcmp(e->text, text, len) == 0))
        e = e->next;
    return e;
}

static struct clp_string *new_block(struct clp_strings *s, size_t len)
{
    size_t need = sizeof(struct clp_string) + len;
    uint8_t c = 0;
    while (class_bytes[c] < need)
        c++;
    struct clp_string *e = s->free[c];
    if (e)
        s->free[c] = e->next;
    else
        e = clp_arena_alloc(&s->arena, class_bytes[c]);
    if (e)
        e->size_class = c;
    return e;
}

struct clp_string *clp_strings_take(struct clp_strings *s, const char *text, size_t len)
{
    if (len == 0 || len > CLP_STRING_MAX_BYTES)
        return NULL;
    uint32_t hash = hash_of(text, len);
    struct clp_string *e = find(s, hash, text, len);
    if (e)
        return clp_strings_again(e);
    e = new_block(s, len);
    if (!e)
        return NULL;
    struct clp_string **bucket = bucket_of(s, hash);
    e->next = *bucket;
    e->hash = hash;
    e->uses = 1;
    e->len = (uint16_t)len;
    memcpy(e->text, text, len);
    *bucket = e;
    s->count++;
    return e;
}

struct clp_string *clp_strings_again(struct clp_string *string)
{
    if (string)
        string->uses++;
    return string;
}

void clp_strings_give(struct clp_strings *s, struct clp_string *string)
{
    if (!string || --string->uses > 0)
        return;
    struct clp_string **link = bucket_of(s, string->hash);
    while (*link != string)
        link = &(*link)->next;
    *link = string->next;
    string->next = s->free[string->size_class];
    s->free[string->size_class] = string;
    s->count--;
}

size_t clp_strings_bytes(const struct clp_strings *s)
{
    return s->arena.mapped_bytes + (s->buckets ? CLP_STRINGS_BUCKETS * sizeof(*s->buckets) : 0);
}
