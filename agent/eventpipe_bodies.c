#include "agent/eventpipe_bodies.h"

#include "base/hash.h"
#include "base/index.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLAG_DYNAMIC 1u
#define LOOK_BACK_MAX 4096u /* bodies that begin before an address and may reach it */
#define FORGET_MIN 1024u    /* fewer dead ones are not worth a copy */

struct clp_bodies {
    struct clp_body *items; /* in the order of their coming */
    uint32_t count, cap;
    uint32_t *order; /* of the items, by start; the first `sorted` are in order */
    uint32_t sorted, order_cap;
    uint32_t *merged; /* room for the news while they are merged */
    uint32_t merged_cap;
    uint32_t largest; /* size */
    char *texts;
    uint32_t text_len, text_cap;
    struct clp_index text_index;
    struct clp_index start_index; /* the first body at each start; `next` has the others */
    uint64_t version, refused;
    uint64_t doubted; /* until then loads may have been lost */
};

/* ---- texts --------------------------------------------------------------------------------- */

static bool same_text(const void *table, uint32_t at, const void *key)
{
    const struct clp_bodies *b = table;
    return strcmp(b->texts + at, key) == 0;
}

static int keep_text(struct clp_bodies *b, const char *s, uint32_t *ret)
{
    uint32_t len = (uint32_t)strlen(s) + 1;
    uint64_t hash = clp_hash_bytes(s, len);
    uint32_t at = clp_index_find(&b->text_index, hash, same_text, b, s);
    if (at != CLP_INDEX_NONE) {
        *ret = at;
        return 0;
    }
    int r = CLP_VEC_GROW(b->texts, b->text_cap, b->text_len + len, CLP_BODIES_TEXT_MAX_BYTES);
    if (r == 0)
        r = clp_index_reserve(&b->text_index);
    if (r < 0)
        return r;
    memcpy(b->texts + b->text_len, s, len);
    clp_index_add(&b->text_index, hash, b->text_len);
    *ret = b->text_len;
    b->text_len += len;
    return 0;
}

const char *clp_bodies_text(const struct clp_bodies *b, uint32_t text)
{
    return b->texts + text;
}

/* ---- order --------------------------------------------------------------------------------- */

static int compare_starts(const void *x, const void *y, void *context)
{
    const struct clp_bodies *b = context;
    uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
    if (b->items[i].start != b->items[k].start)
        return b->items[i].start < b->items[k].start ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* How many bodies of the order begin at or before the address. */
static uint32_t count_up_to(const struct clp_bodies *b, uint64_t address)
{
    uint32_t low = 0, high = b->sorted;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->items[b->order[middle]].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool overlaps(const struct clp_body *y, const struct clp_body *n)
{
    return y->start < n->start + n->size && n->start < y->start + y->size;
}

/* Two bodies that cannot have lived at the same time; `a` is known to have been alive earlier.
 * Where neither's border is known, the time between is nobody's. */
static void part(struct clp_body *a, struct clp_body *c)
{
    if (c->born) {
        a->death = CLP_MIN(a->death, c->birth);
    } else if (a->death <= c->first) {
        c->birth = CLP_MAX(c->birth, a->death);
    } else {
        a->death = CLP_MIN(a->confirmed + 1, c->first);
        c->birth = CLP_MAX(c->birth, c->first);
    }
}

/* Compares a new body with the older ones at its addresses. */
static void settle(struct clp_bodies *b, uint32_t id)
{
    struct clp_body *n = &b->items[id];
    uint32_t steps = 0;
    for (uint32_t i = count_up_to(b, n->start + n->size - 1); i-- > 0 && steps < LOOK_BACK_MAX;
         steps++) {
        struct clp_body *y = &b->items[b->order[i]];
        if (y->start + b->largest <= n->start)
            return;
        if (b->order[i] >= id || !overlaps(y, n))
            continue;
        if (n->first < y->first)
            part(n, y);
        else
            part(y, n);
    }
}

/* News are sorted by themselves and merged from behind: lists come by the thousands, loads one by
 * one. Then they are compared with what lies at the same addresses, in the order of their coming.
 */
static void sort(struct clp_bodies *b)
{
    uint32_t first = b->sorted, news = b->count - first, i = first, at = b->count;
    if (news == 0)
        return;
    qsort_r(b->order + first, news, sizeof(*b->order), compare_starts, b);
    memcpy(b->merged, b->order + first, news * sizeof(*b->order));
    for (uint32_t k = news; k > 0;) {
        if (i > 0 && compare_starts(&b->order[i - 1], &b->merged[k - 1], b) > 0)
            b->order[--at] = b->order[--i];
        else
            b->order[--at] = b->merged[--k];
    }
    b->sorted = b->count;
    for (uint32_t id = first; id < b->count; id++)
        settle(b, id);
}

static bool holds(const struct clp_body *y, uint64_t address)
{
    return address >= y->start && address - y->start < y->size;
}

uint32_t clp_bodies_find(struct clp_bodies *b, uint64_t address, uint64_t ticks)
{
    const struct clp_body *best = NULL;
    bool gone = false;
    uint32_t steps = 0;
    sort(b);
    for (uint32_t i = count_up_to(b, address); i-- > 0 && steps < LOOK_BACK_MAX; steps++) {
        const struct clp_body *y = &b->items[b->order[i]];
        if (address - y->start >= b->largest)
            break;
        if (!holds(y, address))
            continue;
        if (y->birth <= ticks && ticks < y->death)
            best = !best || y->birth > best->birth ? y : best;
        gone |= (y->flags & FLAG_DYNAMIC) != 0;
    }
    if (best)
        return (uint32_t)(best - b->items);
    return gone ? CLP_BODY_GONE : CLP_BODY_NONE;
}

/* ---- news ---------------------------------------------------------------------------------- */

static bool starts_at(const void *table, uint32_t at, const void *key)
{
    const struct clp_bodies *b = table;
    return b->items[at].start == *(const uint64_t *)key;
}

static uint64_t hash_start(uint64_t start)
{
    return clp_hash_bytes(&start, sizeof(start));
}

static uint32_t first_at(const struct clp_bodies *b, uint64_t start)
{
    return clp_index_find(&b->start_index, hash_start(start), starts_at, b, &start);
}

static void link_start(struct clp_bodies *b, uint32_t id)
{
    struct clp_body *n = &b->items[id];
    uint32_t first = first_at(b, n->start);
    n->next = 0;
    if (first == CLP_INDEX_NONE) {
        clp_index_add(&b->start_index, hash_start(n->start), id);
        return;
    }
    n->next = b->items[first].next;
    b->items[first].next = id + 1;
}

static int add(struct clp_bodies *b, const struct clp_body *n)
{
    uint32_t need = b->count + 1;
    int r = CLP_VEC_GROW(b->items, b->cap, need, CLP_BODIES_MAX);
    if (r == 0)
        r = CLP_VEC_GROW(b->order, b->order_cap, need, CLP_BODIES_MAX);
    if (r == 0)
        r = CLP_VEC_GROW(b->merged, b->merged_cap, need, CLP_BODIES_MAX);
    if (r == 0)
        r = clp_index_reserve(&b->start_index);
    if (r < 0)
        return r;
    b->items[b->count] = *n;
    b->order[b->count] = b->count;
    link_start(b, b->count++);
    b->largest = CLP_MAX(b->largest, n->size);
    b->version++;
    return 0;
}

static int read_told(struct clp_bodies *b, const struct clp_body_told *t, struct clp_body *ret)
{
    *ret = (struct clp_body){
        .start = t->start,
        .size = t->size,
        .flags = t->flags,
        .death = UINT64_MAX,
        .first = t->ticks,
        .confirmed = t->ticks,
    };
    if (t->size == 0 || t->start + t->size < t->start)
        return -EINVAL;
    int r = keep_text(b, t->type, &ret->type);
    if (r == 0)
        r = keep_text(b, t->name, &ret->name);
    if (r == 0)
        r = keep_text(b, t->signature, &ret->signature);
    b->refused += r < 0;
    return r;
}

static bool is_same(const struct clp_body *y, const struct clp_body *n)
{
    return y->start == n->start && y->size == n->size && y->type == n->type && y->name == n->name &&
           y->signature == n->signature;
}

/* What is known of the same method at the same place: the next one behind *at, or NULL. */
static struct clp_body *next_same(struct clp_bodies *b, const struct clp_body *n, uint32_t *at)
{
    uint32_t i = *at == 0 ? first_at(b, n->start) + 1 : b->items[*at - 1].next;
    for (; i != 0; i = b->items[i - 1].next)
        if (is_same(&b->items[i - 1], n)) {
            *at = i;
            return &b->items[i - 1];
        }
    return NULL;
}

static void confirm(struct clp_bodies *b, struct clp_body *y, uint64_t ticks)
{
    y->first = CLP_MIN(y->first, ticks);
    y->confirmed = CLP_MAX(y->confirmed, ticks);
    b->version++;
}

/* A load whose body a list had told already says when that was born; a second load of the same
 * says nothing new. */
void clp_bodies_load(struct clp_bodies *b, const struct clp_body_told *t)
{
    struct clp_body n, *y;
    uint32_t at = 0;
    if (read_told(b, t, &n) < 0)
        return;
    while ((y = next_same(b, &n, &at))) {
        if (t->ticks >= y->death || (y->born && t->ticks < y->birth))
            continue;
        if (!y->born && t->ticks <= y->first) {
            y->birth = t->ticks;
            y->born = true;
        }
        confirm(b, y, t->ticks);
        return;
    }
    n.birth = t->ticks;
    n.born = true;
    b->refused += add(b, &n) < 0;
}

/* While it makes a list the runtime keeps what is freed, and may list it: what has been unloaded
 * lives again only by a load, which would have been told. */
void clp_bodies_list(struct clp_bodies *b, const struct clp_body_told *t)
{
    struct clp_body n, *y;
    uint32_t at = 0;
    bool dead = false;
    if (read_told(b, t, &n) < 0)
        return;
    while ((y = next_same(b, &n, &at))) {
        if (y->birth <= t->ticks && t->ticks < y->death) {
            confirm(b, y, t->ticks);
            return;
        }
        dead |= y->unloaded && y->death > b->doubted && y->death <= t->ticks;
    }
    if (!dead)
        b->refused += add(b, &n) < 0;
}

/* The unload of something that nobody has told yet is kept as well: it was alive until then. */
void clp_bodies_unload(struct clp_bodies *b, const struct clp_body_told *t)
{
    struct clp_body n, *y;
    uint32_t at = 0;
    if (read_told(b, t, &n) < 0)
        return;
    while ((y = next_same(b, &n, &at))) {
        if (y->birth > t->ticks || t->ticks > y->death)
            continue;
        y->death = t->ticks;
        y->unloaded = true;
        b->version++;
        return;
    }
    n.first = n.confirmed = t->ticks ? t->ticks - 1 : 0;
    n.death = t->ticks;
    n.unloaded = true;
    b->refused += add(b, &n) < 0;
}

void clp_bodies_doubt(struct clp_bodies *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct clp_body *y = &b->items[i];
        b->doubted = CLP_MAX(b->doubted, y->confirmed);
        if ((y->flags & FLAG_DYNAMIC) && y->death == UINT64_MAX)
            y->death = y->confirmed + 1;
    }
    b->version++;
}

static void copy_living(struct clp_bodies *to, struct clp_bodies *b, uint64_t ticks)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct clp_body y = b->items[i];
        if (y.death <= ticks)
            continue;
        int r = keep_text(to, b->texts + y.type, &y.type);
        if (r == 0)
            r = keep_text(to, b->texts + y.name, &y.name);
        if (r == 0)
            r = keep_text(to, b->texts + y.signature, &y.signature);
        y.window = 0;
        to->refused += r < 0 || add(to, &y) < 0;
    }
}

void clp_bodies_forget_dead(struct clp_bodies *b, uint64_t ticks)
{
    struct clp_bodies *to, old;
    uint32_t dead = 0;
    sort(b);
    for (uint32_t i = 0; i < b->count; i++)
        dead += b->items[i].death <= ticks;
    if (dead < FORGET_MIN || dead < b->count / 4 || clp_bodies_new(&to) < 0)
        return;
    copy_living(to, b, ticks);
    to->version += b->version;
    to->refused += b->refused;
    to->doubted = b->doubted;
    old = *b;
    *b = *to;
    *to = old;
    clp_bodies_free(to);
}

/* ---- life ---------------------------------------------------------------------------------- */

struct clp_body *clp_bodies_at(struct clp_bodies *b, uint32_t id)
{
    return &b->items[id];
}

uint64_t clp_bodies_version(const struct clp_bodies *b)
{
    return b->version;
}

uint64_t clp_bodies_refused(const struct clp_bodies *b)
{
    return b->refused;
}

uint32_t clp_bodies_count(const struct clp_bodies *b)
{
    return b->count;
}

int clp_bodies_new(struct clp_bodies **ret)
{
    struct clp_bodies *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    clp_index_init(&b->text_index);
    clp_index_init(&b->start_index);
    *ret = b;
    return 0;
}

struct clp_bodies *clp_bodies_free(struct clp_bodies *b)
{
    if (!b)
        return NULL;
    clp_index_done(&b->text_index);
    clp_index_done(&b->start_index);
    free(b->items);
    free(b->order);
    free(b->merged);
    free(b->texts);
    free(b);
    return NULL;
}
