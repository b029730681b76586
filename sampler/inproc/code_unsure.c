/* Methods of which the runtime does not tell with what they die. */
#include "sampler/inproc/bodies.h"
#include "sampler/inproc/code_parts.h"
#include "sampler/inproc/slots.h"

#include <errno.h>

/* An unsure method. The list is in falling order of serials. */
struct unsure {
    uint32_t next;
    uint32_t serial;
    uint64_t suspect_ns;
};

static struct clp_slots unsures;
static uint32_t first_unsure;

void clp_code_unsure_init(void)
{
    clp_slots_init(&unsures, sizeof(struct unsure), 512, CLP_METHODS_MAX);
    first_unsure = 0;
}

void clp_code_unsure_done(void)
{
    clp_slots_done(&unsures);
    first_unsure = 0;
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

uint64_t clp_code_unsure_refused_locked(void)
{
    return unsures.refused;
}

size_t clp_code_unsure_bytes_locked(void)
{
    return clp_slots_bytes(&unsures);
}
