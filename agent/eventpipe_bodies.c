#include "agent/eventpipe_bodies.h"

#include "base/hash.h"
#include "base/index.h"
#include "base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLAG_DYNAMIC 1u
#define LOOK_BACK_MAX 512u /* bodies that begin before an address and may reach it */

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
    uint64_t version, refused;
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

static bool is_same(const struct clp_body *y, const struct clp_body *n)
{
    return y->start == n->start && y->size == n->size && y->type == n->type && y->name == n->name &&
           y->signature == n->signature;
}

static bool overlaps(const struct clp_body *y, const struct clp_body *n)
{
    return y->start < n->start + n->size && n->start < y->start + y->size;
}

/* An older body and a new one at the same place: the same that is told twice (the new one goes), or
 * the old one was replaced without a word. It was alive when last heard of; what came after is not
 * known. */
static void settle_two(struct clp_body *y, struct clp_body *n)
{
    if (is_same(y, n) && (n->birth == 0 || y->birth == 0)) {
        y->confirmed = CLP_MAX(y->confirmed, n->confirmed);
        y->birth = CLP_MAX(y->birth, n->birth); /* listed first, its load comes late */
        n->death = n->birth = 0;
    } else if (n->birth) {
        y->death = n->birth;
    } else {
        y->death = y->confirmed + 1;
        n->birth = n->confirmed;
    }
}

static void settle(struct clp_bodies *b, uint32_t id)
{
    struct clp_body *n = &b->items[id];
    uint32_t steps = 0;
    for (uint32_t i = count_up_to(b, n->start + n->size - 1); i-- > 0 && steps < LOOK_BACK_MAX;
         steps++) {
        struct clp_body *y = &b->items[b->order[i]];
        if (y->start + b->largest <= n->start || n->death == 0)
            return;
        if (b->order[i] < id && y->death == UINT64_MAX && overlaps(y, n))
            settle_two(y, n);
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
    uint32_t answer = CLP_BODY_NONE, steps = 0;
    sort(b);
    for (uint32_t i = count_up_to(b, address); i-- > 0 && steps < LOOK_BACK_MAX; steps++) {
        uint32_t id = b->order[i];
        const struct clp_body *y = &b->items[id];
        if (address - y->start >= b->largest)
            break;
        if (!holds(y, address))
            continue;
        if (y->birth <= ticks && ticks < y->death)
            return id;
        if (y->flags & FLAG_DYNAMIC)
            answer = CLP_BODY_GONE;
    }
    return answer;
}

/* ---- news ---------------------------------------------------------------------------------- */

static int add(struct clp_bodies *b, const struct clp_body *n)
{
    uint32_t need = b->count + 1;
    int r = CLP_VEC_GROW(b->items, b->cap, need, CLP_BODIES_MAX);
    if (r == 0)
        r = CLP_VEC_GROW(b->order, b->order_cap, need, CLP_BODIES_MAX);
    if (r == 0)
        r = CLP_VEC_GROW(b->merged, b->merged_cap, need, CLP_BODIES_MAX);
    if (r < 0)
        return r;
    b->items[b->count] = *n;
    b->order[b->count] = b->count;
    b->count++;
    b->largest = CLP_MAX(b->largest, n->size);
    b->version++;
    return 0;
}

void clp_bodies_load(struct clp_bodies *b, const struct clp_body_load *load)
{
    struct clp_body n = {
        .start = load->start,
        .size = load->size,
        .flags = load->flags,
        .birth = load->listed ? 0 : load->ticks,
        .death = UINT64_MAX,
        .confirmed = load->ticks,
    };
    if (n.size == 0 || n.start + n.size < n.start)
        return;
    int r = keep_text(b, load->type, &n.type);
    if (r == 0)
        r = keep_text(b, load->name, &n.name);
    if (r == 0)
        r = keep_text(b, load->signature, &n.signature);
    if (r == 0)
        r = add(b, &n);
    b->refused += r < 0;
}

void clp_bodies_unload(struct clp_bodies *b, uint64_t start, uint64_t ticks)
{
    sort(b);
    for (uint32_t i = count_up_to(b, start); i-- > 0;) {
        struct clp_body *y = &b->items[b->order[i]];
        if (y->start != start)
            return;
        if (y->death == UINT64_MAX && y->birth <= ticks) {
            y->death = ticks;
            b->version++;
        }
    }
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
    *ret = b;
    return 0;
}

struct clp_bodies *clp_bodies_free(struct clp_bodies *b)
{
    if (!b)
        return NULL;
    clp_index_done(&b->text_index);
    free(b->items);
    free(b->order);
    free(b->merged);
    free(b->texts);
    free(b);
    return NULL;
}
