#include "sampler/inproc/alloc_totals.h"

#include "base/core/arena.h"
#include "sampler/inproc/contract.h"
#include "sampler/inproc/event_thread.h"
#include "sampler/inproc/exported.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/thread_table.h"

#include <errno.h>
#include <string.h>

#define BATCH 64u      /* threads that are read together */
#define APART_MAX 504u /* between what is read of a Thread object; 264 on .NET 9 and 10 */
#define TRIES 4u       /* of a thread whose counters were just being changed */
static_assert(BATCH <= CLP_READS_MAX, "a step is one call");

enum knowledge {
    NOT_ASKED = 0,
    KNOWN = 1,
    NOT_TOLD = 2,
};

static struct {
    enum knowledge knowledge;
    struct clp_contract contract; /* when KNOWN */
    bool counts;
    _Atomic uint64_t strays; /* samples of threads that are not known */
    uint64_t strays_before;
} A;

/* ---- what the runtime says ---- */

static int read_contract(uint64_t runtime, struct clp_contract *ret)
{
    uint8_t header[CLP_CONTRACT_HEADER_BYTES];
    uint64_t at;
    uint32_t len;
    int r = clp_exported_find(runtime, CLP_CONTRACT_SYMBOL, &at);
    if (r < 0)
        return r;
    if (clp_images_read(at, header, sizeof(header)) != sizeof(header))
        return -EFAULT;
    r = clp_contract_header(header, &at, &len);
    if (r < 0)
        return r;
    char *json = clp_pages_alloc(len);
    if (!json)
        return -ENOMEM;
    r = clp_images_read(at, json, len) == (int64_t)len ? clp_contract_parse(json, len, ret)
                                                       : -EFAULT;
    clp_pages_free(json, len);
    if (r == 0 && CLP_MAX(ret->os_id, ret->locals) - CLP_MIN(ret->os_id, ret->locals) > APART_MAX)
        r = -ENOTSUP;
    return r;
}

static bool is_told(uint64_t runtime)
{
    if (A.knowledge == NOT_ASKED)
        A.knowledge = read_contract(runtime, &A.contract) == 0 ? KNOWN : NOT_TOLD;
    return A.knowledge == KNOWN;
}

void clp_alloc_totals_use(const struct clp_contract *c)
{
    if (c)
        A.contract = *c;
    A.knowledge = c ? KNOWN : NOT_ASKED;
}

/* ---- a thread's counters ---- */

struct owner { /* what a Thread object says */
    uint64_t os_id, locals;
};
struct counters {
    uint64_t alloc_ptr, alloc_limit, bytes, bytes_uoh;
};

/* What is left of a thread's buffer was counted when it got it. Between two writes of the runtime
 * the four may not fit together. */
static bool add_up(const struct counters *c, uint64_t *ret_bytes)
{
    uint64_t all = c->bytes + c->bytes_uoh, rest = c->alloc_limit - c->alloc_ptr;
    if (c->alloc_ptr > c->alloc_limit || c->bytes >= INT64_MAX || c->bytes_uoh >= INT64_MAX ||
        rest > c->bytes)
        return false;
    *ret_bytes = all - rest;
    return true;
}

/* ---- what samples say ---- */

/* Only the thread itself writes: no locked instruction. */
void clp_alloc_totals_met(struct clp_event_thread *t, uint64_t bytes)
{
    if (!t) {
        atomic_fetch_add(&A.strays, 1);
        return;
    }
    clp_event_thread_look(t);
    struct clp_thread_slot *s = clp_capture_slot(t->slot);
    if (s)
        atomic_store_explicit(&s->alloc_met,
                              atomic_load_explicit(&s->alloc_met, memory_order_relaxed) + bytes,
                              memory_order_release);
}

/* ---- all threads ---- */

struct look {
    struct clp_record *record;
    uint64_t object, met;
    uint32_t thread_id;
    int32_t tid;
    uint64_t locals; /* as the object had it before the counters were read */
    struct counters counters;
    uint64_t bytes;
    bool is_its, has_bytes; /* the object is the thread's; its counters were whole */
};

/* Samples first: the runtime counts an object before it tells of it, so none is told of here that
 * is not counted. */
static uint32_t choose(uint32_t *at, struct look *looks)
{
    uint32_t n = 0;
    clp_lock(&clp_thread_table.lock);
    for (; *at < clp_table_count() && n < BATCH; ++*at) {
        struct clp_record *r = clp_table_at(*at);
        if (r && r->key_clr)
            looks[n++] = (struct look){.record = r,
                                       .object = r->key_clr,
                                       .met = atomic_load(&clp_table_slot(r)->alloc_met),
                                       .thread_id = r->pub.thread_id,
                                       .tid = r->key_tid};
    }
    clp_unlock(&clp_thread_table.lock);
    return n;
}

/* Both words with one read: what lies between them costs less than another one. */
static void read_owners(struct look *looks, uint32_t n, bool after)
{
    const struct clp_contract *k = &A.contract;
    uint32_t from = CLP_MIN(k->os_id, k->locals), to = CLP_MAX(k->os_id, k->locals) + 8;
    uint8_t bytes[BATCH][APART_MAX + 8];
    struct clp_read reads[BATCH];
    for (uint32_t i = 0; i < n; i++)
        reads[i] = (struct clp_read){looks[i].object + from, bytes[i], to - from, false};
    clp_images_read_many(reads, n);
    for (uint32_t i = 0; i < n; i++) {
        struct owner o = {0};
        if (reads[i].done) {
            memcpy(&o.os_id, bytes[i] + (k->os_id - from), sizeof(o.os_id));
            memcpy(&o.locals, bytes[i] + (k->locals - from), sizeof(o.locals));
        }
        looks[i].is_its =
            o.os_id == (uint64_t)looks[i].tid && (!after || o.locals == looks[i].locals);
        if (!after)
            looks[i].locals = o.locals;
    }
}

/* Those that were not whole, again; one without storage has allocated nothing yet. */
static void read_counters(struct look *looks, uint32_t n)
{
    struct clp_read reads[BATCH];
    struct look *of[BATCH];
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct look *l = &looks[i];
        if (!l->is_its || l->has_bytes || !l->locals)
            continue;
        of[count] = l;
        reads[count++] = (struct clp_read){l->locals + A.contract.context, &l->counters,
                                           sizeof(l->counters), false};
    }
    clp_images_read_many(reads, count);
    for (uint32_t i = 0; i < count; i++)
        of[i]->has_bytes = reads[i].done && add_up(&of[i]->counters, &of[i]->bytes);
}

/* Under the lock. What was read in a moment of change is read the next time; the first time only
 * says where a thread stands that was there before. */
static void apply(const struct look *l, struct clp_alloc_counted *all)
{
    struct clp_record *r = l->record;
    if (r->key_clr != l->object || r->pub.thread_id != l->thread_id || !l->is_its)
        return; /* ended meanwhile */
    bool whole = l->has_bytes || !l->locals;
    if (!whole || l->bytes < r->alloc_bytes)
        return;
    if (!r->alloc_unsure) {
        all->bytes += l->bytes - r->alloc_bytes;
        all->met += l->met - r->alloc_met;
    }
    r->alloc_unsure = false;
    r->alloc_bytes = l->bytes;
    r->alloc_met = l->met;
}

static struct clp_alloc_counted look_at_all(void)
{
    struct look looks[BATCH];
    struct clp_alloc_counted all = {0};
    for (uint32_t at = 0, n; (n = choose(&at, looks)) > 0;) {
        read_owners(looks, n, false);
        for (unsigned i = 0; i < TRIES; i++)
            read_counters(looks, n);
        read_owners(looks, n, true);
        clp_lock(&clp_thread_table.lock);
        for (uint32_t i = 0; i < n; i++)
            apply(&looks[i], &all);
        clp_unlock(&clp_thread_table.lock);
    }
    return all;
}

static bool had_strays(void)
{
    uint64_t strays = atomic_load(&A.strays);
    bool some = strays != A.strays_before;
    A.strays_before = strays;
    return some;
}

/* Threads that are there count from here on; what becomes managed later begins with nothing. */
static void begin(void)
{
    clp_lock(&clp_thread_table.lock);
    for (uint32_t i = 0; i < clp_table_count(); i++) {
        struct clp_record *r = clp_table_at(i);
        if (!r)
            continue;
        r->alloc_unsure = r->key_clr != 0;
        r->alloc_bytes = 0;
        r->alloc_met = atomic_load(&clp_table_slot(r)->alloc_met);
    }
    clp_unlock(&clp_thread_table.lock);
    A.counts = true;
    (void)look_at_all();
    (void)had_strays();
}

void clp_alloc_totals_want(bool on, uint64_t runtime)
{
    if (on && !A.counts && runtime && is_told(runtime))
        begin();
    A.counts &= on;
}

bool clp_alloc_totals_take(struct clp_alloc_counted *ret)
{
    if (!A.counts)
        return false;
    *ret = look_at_all();
    return !had_strays();
}
