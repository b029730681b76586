#include "sampler/inproc/code_table.h"

#include "base/core/lock.h"
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_parts.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/slots.h"
#include "sampler/inproc/wire_ids.h"

#include <errno.h>
#include <string.h>

#define METHOD_BUCKETS 16384u
#define STRINGS_CEILING (32u << 20)

static struct clp_lock lock;
static struct clp_slots methods, names, wire_methods;
static struct clp_strings strings;
static uint32_t *buckets;
static uint32_t owner_first[CLP_MODULES_MAX + 1]; /* head of the methods that die with a module */

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
    clp_slots_init(&names, sizeof(struct clp_method_name), 512, CLP_METHODS_MAX);
    clp_wire_ids_init(&wire_methods, CLP_METHODS_MAX);
    clp_code_unsure_init();
    buckets = clp_pages_alloc(METHOD_BUCKETS * sizeof(*buckets));
    if (!buckets || clp_strings_init(&strings, STRINGS_CEILING) < 0 || clp_code_bodies_init() < 0) {
        clp_code_table_done();
        return -ENOMEM;
    }
    return 0;
}

void clp_code_table_done(void)
{
    clp_slots_done(&methods);
    clp_slots_done(&names);
    clp_slots_done(&wire_methods);
    clp_code_unsure_done();
    clp_code_bodies_done();
    clp_pages_free(buckets, METHOD_BUCKETS * sizeof(*buckets));
    buckets = NULL;
    clp_strings_done(&strings);
    memset(owner_first, 0, sizeof(owner_first));
}

struct clp_strings *clp_code_table_strings_locked(void)
{
    return &strings;
}

struct clp_method *clp_code_table_method_locked(uint32_t number)
{
    return clp_slots_at(&methods, number);
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

void clp_code_table_method_unused_locked(uint32_t number)
{
    struct clp_method *m = clp_code_table_method_locked(number);
    if (!(m->state & CLP_METHOD_STATE_DEAD) || m->first_body)
        return;
    free_name(m->name);
    clp_wire_ids_forget(&wire_methods, m->wire_id);
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

/* ---- death ------------------------------------------------------------------------------- */

static void kill_method(uint32_t number, uint64_t now_ns)
{
    struct clp_method *m = clp_code_table_method_locked(number);
    clp_code_table_set_sure_locked(number);
    unhash(number);
    clp_code_bodies_kill_locked(m, now_ns);
    m->state |= CLP_METHOD_STATE_DEAD;
    clp_code_table_method_unused_locked(number);
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

void clp_code_table_mortal_kill_locked(uint64_t now_ns)
{
    for (uint32_t i = 1; i <= methods.high; i++) {
        const struct clp_method *m = clp_code_table_method_locked(i);
        if ((m->state & (CLP_METHOD_STATE_MORTAL | CLP_METHOD_STATE_DEAD)) ==
            CLP_METHOD_STATE_MORTAL)
            clp_code_table_method_kill_locked(i, now_ns);
    }
}

/* ---- the wire ------------------------------------------------------------------------------ */

uint32_t clp_code_table_method_wire_id_locked(uint32_t method)
{
    return clp_wire_ids_of(&wire_methods, &clp_code_table_method_locked(method)->wire_id, method);
}

uint32_t clp_code_table_method_of_wire_locked(uint32_t id)
{
    return clp_wire_ids_entry(&wire_methods, id);
}

uint32_t clp_code_table_method_wire_count_locked(void)
{
    return wire_methods.high;
}

uint64_t clp_code_table_refused_locked(void)
{
    return methods.refused + names.refused + wire_methods.refused + strings.arena.refused +
           clp_code_unsure_refused_locked() + clp_code_bodies_refused_locked();
}

size_t clp_code_table_bytes_locked(void)
{
    return clp_slots_bytes(&methods) + clp_slots_bytes(&names) + clp_slots_bytes(&wire_methods) +
           METHOD_BUCKETS * sizeof(*buckets) + clp_strings_bytes(&strings) +
           clp_code_unsure_bytes_locked() + clp_code_bodies_bytes_locked();
}
