#include "sampler/inproc/code_table.h"

#include "base/core/lock.h"
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/code_index.h"
#include "sampler/inproc/graveyard.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/slots.h"
#include "sampler/inproc/code_lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define METHOD_BUCKETS 16384u
#define STRINGS_CEILING (32u << 20)
#define CACHE_ENTRIES 1024u
#define FORGET_STEPS 32u /* bodies forgotten for each that dies: bounds the time under the lock */

enum { BIT_OSR = 1, BIT_FUNCLET = 2, BIT_EXACT = 4 };

struct cache_entry {
    uint64_t ip;
    uint32_t body;
};

/* An unsure method. The list is in falling order of serials. */
struct unsure {
    uint32_t next;
    uint32_t serial;
    uint64_t suspect_ns;
};

static struct clp_lock lock;
static struct clp_slots methods, bodies, names, unsures, wire_bodies, wire_methods;
static uint32_t first_unsure;
static struct clp_strings strings;
static struct clp_code_index live;
static uint32_t *buckets;
static uint32_t owner_first[CLP_MODULES_MAX + 1]; /* head of the methods that die with a module */
static struct cache_entry cache[CACHE_ENTRIES];
static _Atomic uint32_t version;

void clp_code_lock(void)
{
    clp_lock(&lock);
}

void clp_code_unlock(void)
{
    clp_unlock(&lock);
}

int clp_code_table_init(void)
{
    clp_slots_init(&methods, sizeof(struct clp_method), 1024, CLP_METHODS_MAX);
    clp_slots_init(&bodies, sizeof(struct clp_body), 1024, CLP_BODIES_MAX);
    clp_slots_init(&names, sizeof(struct clp_method_name), 512, CLP_METHODS_MAX);
    clp_slots_init(&unsures, sizeof(struct unsure), 512, CLP_METHODS_MAX);
    clp_slots_init(&wire_bodies, sizeof(uint32_t), 4096, CLP_BODIES_MAX);
    clp_slots_init(&wire_methods, sizeof(uint32_t), 4096, CLP_METHODS_MAX);
    buckets = clp_pages_alloc(METHOD_BUCKETS * sizeof(*buckets));
    if (!buckets || clp_strings_init(&strings, STRINGS_CEILING) < 0 ||
        clp_code_index_init(&live, CLP_BODIES_MAX) < 0 ||
        clp_graveyard_init(clp_code_table_body_locked) < 0) {
        clp_code_table_done();
        return -ENOMEM;
    }
    return 0;
}

void clp_code_table_done(void)
{
    clp_slots_done(&methods);
    clp_slots_done(&bodies);
    clp_slots_done(&names);
    clp_slots_done(&unsures);
    first_unsure = 0;
    clp_slots_done(&wire_bodies);
    clp_slots_done(&wire_methods);
    clp_pages_free(buckets, METHOD_BUCKETS * sizeof(*buckets));
    buckets = NULL;
    clp_strings_done(&strings);
    clp_code_index_done(&live);
    clp_graveyard_done();
    memset(owner_first, 0, sizeof(owner_first));
    memset(cache, 0, sizeof(cache));
}

struct clp_strings *clp_code_table_strings_locked(void)
{
    return &strings;
}

struct clp_method *clp_code_table_method_locked(uint32_t number)
{
    return clp_slots_at(&methods, number);
}

struct clp_body *clp_code_table_body_locked(uint32_t number)
{
    return clp_slots_at(&bodies, number);
}

/* ---- methods ------------------------------------------------------------------------------- */

static uint32_t *bucket_of(clr_function_id function)
{
    return &buckets[(function * 0x9e3779b97f4a7c15ull) >> 50];
}

uint32_t clp_code_table_method_find_locked(clr_function_id function)
{
    uint32_t n = *bucket_of(function);
    while (n && clp_code_table_method_locked(n)->function != function)
        n = clp_code_table_method_locked(n)->hash_next;
    return n;
}

uint32_t clp_code_table_method_add_locked(clr_function_id function, uint32_t owner, uint16_t state)
{
    uint32_t number = clp_slots_take(&methods);
    if (!number)
        return 0;
    struct clp_method *m = clp_code_table_method_locked(number);
    *m = (struct clp_method){.function = function, .owner = (uint16_t)owner, .state = state};
    if (function) {
        m->hash_next = *bucket_of(function);
        *bucket_of(function) = number;
    }
    if (owner) {
        m->next_of_owner = owner_first[owner];
        owner_first[owner] = number;
        clp_modules_use_locked(owner);
    }
    return number;
}

static void unhash(uint32_t number)
{
    const struct clp_method *m = clp_code_table_method_locked(number);
    uint32_t *link = bucket_of(m->function);
    while (*link && *link != number)
        link = &clp_code_table_method_locked(*link)->hash_next;
    if (*link)
        *link = m->hash_next;
}

static void unlink_owner(uint32_t number)
{
    const struct clp_method *m = clp_code_table_method_locked(number);
    if (!m->owner)
        return;
    uint32_t *link = &owner_first[m->owner];
    while (*link && *link != number)
        link = &clp_code_table_method_locked(*link)->next_of_owner;
    if (*link)
        *link = m->next_of_owner;
}

static struct unsure *unsure_of(const struct clp_method *m)
{
    return clp_slots_at(&unsures, m->next_of_owner);
}

int clp_code_table_set_unsure_locked(uint32_t method, uint32_t serial)
{
    struct clp_method *m = clp_code_table_method_locked(method);
    m->next_of_owner = clp_slots_take(&unsures);
    if (!m->next_of_owner)
        return -ENOMEM;
    m->state |= CLP_METHOD_STATE_UNSURE;
    *unsure_of(m) = (struct unsure){.next = first_unsure, .serial = serial};
    first_unsure = m->next_of_owner;
    return 0;
}

void clp_code_table_set_sure_locked(uint32_t method)
{
    struct clp_method *m = clp_code_table_method_locked(method);
    if (!(m->state & CLP_METHOD_STATE_UNSURE))
        return;
    uint32_t *link = &first_unsure;
    while (*link && *link != m->next_of_owner)
        link = &((struct unsure *)clp_slots_at(&unsures, *link))->next;
    if (*link)
        *link = unsure_of(m)->next;
    clp_slots_give(&unsures, m->next_of_owner);
    m->next_of_owner = 0;
    m->state &= (uint16_t)~CLP_METHOD_STATE_UNSURE;
}

void clp_code_table_suspect_locked(uint32_t serial, uint64_t now_ns)
{
    struct unsure *u;
    for (uint32_t n = first_unsure; n; n = u->next) {
        u = clp_slots_at(&unsures, n);
        if (u->serial < serial)
            return;
        u->suspect_ns = now_ns;
    }
}

uint64_t clp_code_table_suspect_ns_locked(uint32_t method)
{
    const struct clp_method *m = clp_code_table_method_locked(method);
    return m->state & CLP_METHOD_STATE_UNSURE ? unsure_of(m)->suspect_ns : 0;
}

void clp_code_table_trust_locked(uint32_t method)
{
    const struct clp_method *m = clp_code_table_method_locked(method);
    if (m->state & CLP_METHOD_STATE_UNSURE)
        unsure_of(m)->suspect_ns = 0;
}

static void free_name(uint32_t number)
{
    if (!number)
        return;
    struct clp_method_name *n = clp_slots_at(&names, number);
    clp_strings_give(&strings, n->type);
    clp_strings_give(&strings, n->name);
    clp_strings_give(&strings, n->type_args);
    clp_strings_give(&strings, n->method_args);
    clp_strings_give(&strings, n->signature);
    clp_modules_unuse_locked(n->module);
    clp_slots_give(&names, number);
}

static void clear_wire_id(struct clp_slots *map, uint32_t wire_id)
{
    if (wire_id)
        *(uint32_t *)clp_slots_at(map, wire_id) = 0;
}

static void free_method_if_unused(uint32_t number)
{
    struct clp_method *m = clp_code_table_method_locked(number);
    if (!(m->state & CLP_METHOD_STATE_DEAD) || m->first_body)
        return;
    free_name(m->name);
    clear_wire_id(&wire_methods, m->wire_id);
    clp_modules_unuse_locked(m->owner);
    clp_slots_give(&methods, number);
}

static struct clp_string *keep(const struct clp_text *t)
{
    return clp_strings_take(&strings, t->buf, t->len);
}

void clp_code_table_method_name_locked(uint32_t method, const struct clp_method_texts *texts)
{
    struct clp_method *m = clp_code_table_method_locked(method);
    if (m->state & CLP_METHOD_STATE_NAMED)
        return;
    m->state |= CLP_METHOD_STATE_NAMED;
    m->name = clp_slots_take(&names);
    if (!m->name)
        return;
    struct clp_method_name *n = clp_slots_at(&names, m->name);
    *n = (struct clp_method_name){.type = keep(&texts->type),
                                  .name = keep(&texts->name),
                                  .type_args = keep(&texts->type_args),
                                  .method_args = keep(&texts->method_args),
                                  .signature = keep(&texts->signature),
                                  .token = texts->token,
                                  .module = (uint16_t)texts->module,
                                  .flags = texts->flags};
    clp_modules_use_locked(texts->module);
    if (texts->type.cut || texts->name.cut || texts->type_args.cut || texts->method_args.cut ||
        texts->signature.cut)
        n->flags |= CLP_METHOD_NAME_CUT;
}

const struct clp_method_name *clp_code_table_name_locked(const struct clp_method *m)
{
    return m->name ? clp_slots_at(&names, m->name) : NULL;
}

/* ---- bodies: death ------------------------------------------------------------------------- */

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
    clear_wire_id(&wire_bodies, clp_code_table_body_locked(number)->wire_id);
    unlink_body(number);
    clp_slots_give(&bodies, number);
    free_method_if_unused(method);
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
static void kill_method(uint32_t number, uint64_t now_ns)
{
    struct clp_method *m = clp_code_table_method_locked(number);
    uint32_t body;
    clp_code_table_set_sure_locked(number);
    unhash(number);
    while ((body = first_live_body(m)) != 0)
        kill_body(body, now_ns);
    m->state |= CLP_METHOD_STATE_DEAD;
    free_method_if_unused(number);
}

void clp_code_table_method_kill_locked(uint32_t method, uint64_t now_ns)
{
    unlink_owner(method);
    kill_method(method, now_ns);
}

void clp_code_table_owner_kill_locked(uint32_t module, uint64_t now_ns)
{
    uint32_t next = owner_first[module];
    owner_first[module] = 0;
    while (next) {
        uint32_t number = next;
        next = clp_code_table_method_locked(number)->next_of_owner;
        kill_method(number, now_ns);
    }
}

/* ---- bodies: birth ------------------------------------------------------------------------- */

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
    clp_code_table_changed_locked();
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

bool clp_code_table_covered_locked(uint64_t ip)
{
    struct clp_code_place p;
    if (clp_graveyard_covers(ip))
        return true;
    if (!clp_code_index_find(&live, ip, &p))
        return false;
    const struct clp_body *b = clp_code_table_body_locked(clp_code_index_entry(&live, p));
    return ip - b->start < b->code_bytes;
}

uint32_t clp_code_table_version(void)
{
    return atomic_load_explicit(&version, memory_order_acquire);
}

void clp_code_table_changed_locked(void)
{
    atomic_fetch_add_explicit(&version, 1, memory_order_release);
}

/* ---- the wire ------------------------------------------------------------------------------ */

static uint32_t wire_id(struct clp_slots *map, uint32_t *id, uint32_t number)
{
    if (!*id) {
        *id = clp_slots_take(map);
        if (*id)
            *(uint32_t *)clp_slots_at(map, *id) = number;
    }
    return *id;
}

static uint32_t of_wire(const struct clp_slots *map, uint32_t id)
{
    return id == 0 || id > map->high ? 0 : *(const uint32_t *)clp_slots_at(map, id);
}

uint32_t clp_code_table_body_wire_id_locked(uint32_t body)
{
    return wire_id(&wire_bodies, &clp_code_table_body_locked(body)->wire_id, body);
}

uint32_t clp_code_table_method_wire_id_locked(uint32_t method)
{
    return wire_id(&wire_methods, &clp_code_table_method_locked(method)->wire_id, method);
}

uint32_t clp_code_table_body_of_wire_locked(uint32_t id)
{
    return of_wire(&wire_bodies, id);
}

uint32_t clp_code_table_method_of_wire_locked(uint32_t id)
{
    return of_wire(&wire_methods, id);
}

uint32_t clp_code_table_body_wire_count_locked(void)
{
    return wire_bodies.high;
}

uint32_t clp_code_table_method_wire_count_locked(void)
{
    return wire_methods.high;
}

uint32_t clp_code_table_body_count_locked(void)
{
    return bodies.used;
}

uint64_t clp_code_table_refused_locked(void)
{
    return methods.refused + bodies.refused + names.refused + unsures.refused +
           wire_bodies.refused + wire_methods.refused + strings.arena.refused +
           clp_graveyard_refused();
}

size_t clp_code_table_bytes_locked(void)
{
    return clp_slots_bytes(&methods) + clp_slots_bytes(&bodies) + clp_slots_bytes(&names) +
           clp_slots_bytes(&unsures) + clp_slots_bytes(&wire_bodies) +
           clp_slots_bytes(&wire_methods) + METHOD_BUCKETS * sizeof(*buckets) +
           clp_strings_bytes(&strings) + clp_code_index_bytes(&live) + clp_graveyard_bytes();
}
