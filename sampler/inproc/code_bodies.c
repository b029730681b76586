/* Bodies of the code table: birth, death, and which one covered an address when. */
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/code_index.h"
#include "sampler/inproc/code_parts.h"
#include "sampler/inproc/graveyard.h"
#include "sampler/inproc/slots.h"
#include "sampler/inproc/wire_ids.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define CACHE_ENTRIES 1024u
#define VERSIONS 256u
#define REGION_BITS 22u
#define FORGET_STEPS 32u /* bodies forgotten for each that dies: bounds the time under the lock */

enum { BIT_OSR = 1, BIT_FUNCLET = 2, BIT_EXACT = 4 };

struct cache_entry {
    uint64_t ip;
    uint32_t body;
};

static struct clp_slots bodies, wire_bodies;
static struct clp_code_index live;
static struct cache_entry cache[CACHE_ENTRIES];

/* One for each 4 MB, many to one: code that is compiled leaves what is known of libraries valid. */
static _Atomic uint32_t versions[VERSIONS];

int clp_code_bodies_init(void)
{
    clp_slots_init(&bodies, sizeof(struct clp_body), 1024, CLP_BODIES_MAX);
    clp_wire_ids_init(&wire_bodies, CLP_BODIES_MAX);
    memset(cache, 0, sizeof(cache));
    if (clp_code_index_init(&live, CLP_BODIES_MAX) < 0)
        return -ENOMEM;
    return clp_graveyard_init(clp_code_table_body_locked);
}

void clp_code_bodies_done(void)
{
    clp_slots_done(&bodies);
    clp_slots_done(&wire_bodies);
    clp_code_index_done(&live);
    clp_graveyard_done();
}

struct clp_body *clp_code_table_body_locked(uint32_t number)
{
    return clp_slots_at(&bodies, number);
}

/* ---- death ------------------------------------------------------------------------- */

static void unlink_body(uint32_t number)
{
    const struct clp_body *b = clp_code_table_body_locked(number);
    uint32_t *link = &clp_code_table_method_locked(b->method)->first_body;
    while (*link && *link != number)
        link = &clp_code_table_body_locked(*link)->next;
    if (*link)
        *link = b->next;
}

static void forget_body(uint32_t number)
{
    uint32_t method = clp_code_table_body_locked(number)->method;
    clp_wire_ids_forget(&wire_bodies, clp_code_table_body_locked(number)->wire_id);
    unlink_body(number);
    clp_slots_give(&bodies, number);
    clp_code_table_method_unused_locked(method);
}

static void kill_body(uint32_t number, uint64_t now_ns)
{
    struct clp_body *b = clp_code_table_body_locked(number);
    clp_code_index_remove(&live, b->start, number);
    b->death_ns = now_ns;
    b->state |= CLP_BODY_STATE_DEAD;
    uint32_t old;
    for (uint32_t i = 0; i < FORGET_STEPS && (old = clp_graveyard_oldest(now_ns)) != 0; i++) {
        clp_graveyard_remove(old);
        forget_body(old);
    }
    if (clp_graveyard_add(number) < 0)
        forget_body(number);
}

static uint32_t first_live_body(const struct clp_method *m)
{
    uint32_t n = m->first_body;
    while (n && (clp_code_table_body_locked(n)->state & CLP_BODY_STATE_DEAD))
        n = clp_code_table_body_locked(n)->next;
    return n;
}

/* Each death may make the graveyard forget another body of the same method: start anew each time.
 */
void clp_code_bodies_kill_locked(struct clp_method *m, uint64_t now_ns)
{
    uint32_t body;
    while ((body = first_live_body(m)) != 0)
        kill_body(body, now_ns);
}

/* ---- birth ------------------------------------------------------------------------- */

static uint64_t end_of(const struct clp_body *b)
{
    return b->start + b->code_bytes;
}

/* Makes room for a body: what is older and lies there has died unnoticed. false when the body must
 * not be added: it is known already, or itself the older one. */
static bool clear_range(uint32_t method, uint64_t start, uint64_t end, uint64_t birth_ns)
{
    struct clp_code_place p;
    while (clp_code_index_find(&live, end - 1, &p)) {
        uint32_t number = clp_code_index_entry(&live, p);
        const struct clp_body *b = clp_code_table_body_locked(number);
        if (end_of(b) <= start)
            break;
        if ((b->start == start && b->method == method) || b->birth_ns >= birth_ns)
            return false;
        kill_body(number, birth_ns);
    }
    return true;
}

uint32_t clp_code_table_body_add_locked(uint32_t method, uint64_t start, uint32_t code_bytes,
                                        uint64_t birth_ns, uint8_t state)
{
    if (code_bytes == 0 || !clear_range(method, start, start + code_bytes, birth_ns))
        return 0;
    uint32_t number = clp_slots_take(&bodies);
    if (!number)
        return 0;
    struct clp_method *m = clp_code_table_method_locked(method);
    if (m->state & CLP_METHOD_STATE_UNSURE)
        state |= CLP_BODY_STATE_UNSURE;
    *clp_code_table_body_locked(number) = (struct clp_body){.next = m->first_body,
                                                            .method = method,
                                                            .start = start,
                                                            .birth_ns = birth_ns,
                                                            .death_ns = CLP_ALIVE_NS,
                                                            .code_bytes = code_bytes,
                                                            .state = state};
    m->first_body = number;
    clp_code_table_changed_locked(start, start + code_bytes);
    if (clp_code_index_add(&live, start, number) < 0) {
        bodies.refused++;
        forget_body(number);
        return 0;
    }
    return number;
}

bool clp_code_table_body_known_locked(uint32_t method, uint64_t start)
{
    uint32_t n = clp_code_table_method_locked(method)->first_body;
    for (; n; n = clp_code_table_body_locked(n)->next) {
        const struct clp_body *b = clp_code_table_body_locked(n);
        if (b->start == start && !(b->state & CLP_BODY_STATE_DEAD))
            return true;
    }
    return false;
}

void clp_code_table_body_set_frame_locked(uint32_t body, const struct clp_managed_frame *frame)
{
    struct clp_body *b = clp_code_table_body_locked(body);
    b->frame_bytes = frame->frame_bytes;
    b->lea_disp = frame->lea_disp;
    b->prologue_bytes = frame->prologue_bytes;
    b->push_count = frame->push_count;
    b->base = frame->base;
    b->bits = (uint8_t)((frame->osr ? BIT_OSR : 0) | (frame->funclet ? BIT_FUNCLET : 0) |
                        (frame->exact ? BIT_EXACT : 0));
    b->state |= CLP_BODY_STATE_DECODED;
}

void clp_code_table_body_get_frame(const struct clp_body *b, struct clp_managed_frame *ret)
{
    *ret = (struct clp_managed_frame){.base = b->base,
                                      .prologue_bytes = b->prologue_bytes,
                                      .push_count = b->push_count,
                                      .osr = b->bits & BIT_OSR,
                                      .funclet = b->bits & BIT_FUNCLET,
                                      .exact = b->bits & BIT_EXACT,
                                      .frame_bytes = b->frame_bytes,
                                      .lea_disp = b->lea_disp};
}

/* ---- lookup -------------------------------------------------------------------------------- */

static bool covers(const struct clp_body *b, uint64_t ip, uint64_t time_ns)
{
    return ip - b->start < b->code_bytes && b->birth_ns <= time_ns && time_ns < b->death_ns;
}

static uint32_t find_live(uint64_t ip, uint64_t time_ns)
{
    struct clp_code_place p;
    if (!clp_code_index_find(&live, ip, &p))
        return 0;
    uint32_t number = clp_code_index_entry(&live, p);
    return covers(clp_code_table_body_locked(number), ip, time_ns) ? number : 0;
}

/* Stacks repeat: most addresses were asked for a moment ago.  An entry is checked like any other
 * answer, so it needs no invalidation (a forgotten body has no bytes). */
uint32_t clp_code_table_find_locked(uint64_t ip, uint64_t time_ns)
{
    struct cache_entry *c = &cache[(ip * 0x9e3779b97f4a7c15ull) >> 54];
    clp_graveyard_saw_sample(time_ns);
    if (c->ip == ip && c->body && covers(clp_code_table_body_locked(c->body), ip, time_ns))
        return c->body;
    uint32_t number = find_live(ip, time_ns);
    if (number)
        *c = (struct cache_entry){.ip = ip, .body = number};
    else
        number = clp_graveyard_find(ip, time_ns);
    return number;
}

/* Alive, whenever it was born; NULL: none. */
static struct clp_body *live_at(uint64_t ip)
{
    struct clp_code_place p;
    if (!clp_code_index_find(&live, ip, &p))
        return NULL;
    struct clp_body *b = clp_code_table_body_locked(clp_code_index_entry(&live, p));
    return ip - b->start < b->code_bytes ? b : NULL;
}

bool clp_code_table_covered_locked(uint64_t ip)
{
    return clp_graveyard_covers(ip) || live_at(ip);
}

void clp_code_table_seen_locked(uint64_t ip, uint64_t time_ns)
{
    struct clp_body *b = live_at(ip);
    if (b)
        b->birth_ns = CLP_MIN(b->birth_ns, time_ns);
}

uint32_t clp_code_table_version(uint64_t ip)
{
    return atomic_load_explicit(&versions[(ip >> REGION_BITS) % VERSIONS], memory_order_acquire);
}

void clp_code_table_changed_locked(uint64_t start, uint64_t end)
{
    uint64_t first = start >> REGION_BITS, last = (end - 1) >> REGION_BITS;
    last = CLP_MIN(last, first + VERSIONS - 1);
    for (uint64_t region = first; region <= last; region++)
        atomic_fetch_add_explicit(&versions[region % VERSIONS], 1, memory_order_release);
}

/* ---- the wire, counts -------------------------------------------------------------------- */

uint32_t clp_code_table_body_wire_id_locked(uint32_t body)
{
    return clp_wire_ids_of(&wire_bodies, &clp_code_table_body_locked(body)->wire_id, body);
}

uint32_t clp_code_table_body_of_wire_locked(uint32_t id)
{
    return clp_wire_ids_entry(&wire_bodies, id);
}

uint32_t clp_code_table_body_wire_count_locked(void)
{
    return wire_bodies.high;
}

uint32_t clp_code_table_body_count_locked(void)
{
    return bodies.used;
}

uint64_t clp_code_bodies_refused_locked(void)
{
    return bodies.refused + wire_bodies.refused + clp_graveyard_refused();
}

size_t clp_code_bodies_bytes_locked(void)
{
    return clp_slots_bytes(&bodies) + clp_slots_bytes(&wire_bodies) + clp_code_index_bytes(&live) +
           clp_graveyard_bytes();
}
