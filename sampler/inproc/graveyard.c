#include "sampler/inproc/graveyard.h"

#include "base/core/arena.h"
#include "sampler/inproc/code_index.h"
#include "sampler/inproc/code_table.h"

#include <errno.h>

#define KEEP_NS (10 * CLP_NSEC_PER_SEC)
#define KEEP_WITHOUT_SAMPLES_NS (60 * CLP_NSEC_PER_SEC)
#define LOOK_BACK_MAX 4096u

static struct clp_code_index graves;
static struct clp_body *(*body_of)(uint32_t number);
static uint32_t *ring; /* in order of death */
static uint32_t first, count;
static uint32_t longest_bytes; /* of any body in here, or more */
static uint64_t newest_sample_ns;
static uint64_t refused;

static size_t ring_bytes(void)
{
    return CLP_GRAVEYARD_MAX * sizeof(*ring);
}

int clp_graveyard_init(struct clp_body *(*body)(uint32_t number))
{
    body_of = body;
    first = count = longest_bytes = 0;
    newest_sample_ns = 0;
    refused = 0;
    ring = clp_pages_alloc(ring_bytes());
    if (!ring)
        return -ENOMEM;
    return clp_code_index_init(&graves, CLP_GRAVEYARD_MAX);
}

void clp_graveyard_done(void)
{
    clp_pages_free(ring, ring_bytes());
    ring = NULL;
    clp_code_index_done(&graves);
}

int clp_graveyard_add(uint32_t number)
{
    const struct clp_body *b = body_of(number);
    if (count == CLP_GRAVEYARD_MAX || clp_code_index_add(&graves, b->start, number) < 0) {
        refused++;
        return -ENOMEM;
    }
    ring[(first + count++) % CLP_GRAVEYARD_MAX] = number;
    longest_bytes = CLP_MAX(longest_bytes, b->code_bytes);
    return 0;
}

/* Nobody asks any more for bodies that died before this time. */
static uint64_t horizon(uint64_t now_ns)
{
    uint64_t by_samples = newest_sample_ns > KEEP_NS ? newest_sample_ns - KEEP_NS : 0;
    uint64_t by_clock = now_ns > KEEP_WITHOUT_SAMPLES_NS ? now_ns - KEEP_WITHOUT_SAMPLES_NS : 0;
    return CLP_MAX(by_samples, by_clock);
}

uint32_t clp_graveyard_oldest(uint64_t now_ns)
{
    if (count == 0)
        return 0;
    if (body_of(ring[first])->death_ns >= horizon(now_ns)) {
        if (count < CLP_GRAVEYARD_MAX)
            return 0;
        refused++;
    }
    return ring[first];
}

void clp_graveyard_remove(uint32_t number)
{
    clp_code_index_remove(&graves, body_of(number)->start, number);
    first = (first + 1) % CLP_GRAVEYARD_MAX;
    if (--count == 0)
        longest_bytes = 0;
}

void clp_graveyard_saw_sample(uint64_t time_ns)
{
    newest_sample_ns = CLP_MAX(newest_sample_ns, time_ns);
}

struct look {
    struct clp_code_place place;
    bool more;
    uint32_t steps;
};

/* The dead may overlap one another, but not at the same time: all that begin within the longest
 * body's reach before ip. 0 = no more; what lies beyond LOOK_BACK_MAX steps is not found. */
static uint32_t next_candidate(struct look *l, uint64_t ip)
{
    while (l->more && l->steps++ < LOOK_BACK_MAX) {
        uint32_t number = clp_code_index_entry(&graves, l->place);
        const struct clp_body *b = body_of(number);
        if (ip - b->start >= longest_bytes)
            return 0;
        l->more = clp_code_index_before(&graves, &l->place);
        if (ip - b->start < b->code_bytes)
            return number;
    }
    return 0;
}

static struct look look_back(uint64_t ip)
{
    struct look l = {0};
    l.more = count > 0 && clp_code_index_find(&graves, ip, &l.place);
    return l;
}

uint32_t clp_graveyard_find(uint64_t ip, uint64_t time_ns)
{
    struct look l = look_back(ip);
    for (uint32_t n = next_candidate(&l, ip); n; n = next_candidate(&l, ip)) {
        const struct clp_body *b = body_of(n);
        if (b->birth_ns <= time_ns && time_ns < b->death_ns)
            return n;
    }
    return 0;
}

bool clp_graveyard_covers(uint64_t ip)
{
    struct look l = look_back(ip);
    return next_candidate(&l, ip) != 0 || l.steps > LOOK_BACK_MAX;
}

uint64_t clp_graveyard_refused(void)
{
    return refused;
}

size_t clp_graveyard_bytes(void)
{
    return (ring ? ring_bytes() : 0) + clp_code_index_bytes(&graves);
}
