#include "agent/scan.h"

#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

#define PIDS_MAX (1u << 20)
#define FIRST_PAUSE_NS CLP_NSEC_PER_SEC
/* A process may become a .NET one by exec, which its start time does not show; a pid may be used
 * again. */
#define LONGEST_PAUSE_NS (30 * CLP_NSEC_PER_SEC)

/* What is known of a pid. */
struct known {
    uint64_t look_at_ns; /* not before */
    uint64_t pause_ns;   /* the last one */
    uint64_t seen_round;
};

struct clp_scan {
    const struct clp_discover_roots *roots;
    struct clp_map pids; /* pid -> struct known */
    uint64_t round;
    uint64_t now_ns;
    struct clp_dotnet candidates[CLP_SCAN_AT_ONCE];
    size_t count;
};

int clp_scan_new(const struct clp_discover_roots *roots, struct clp_scan **ret)
{
    struct clp_scan *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->roots = roots;
    clp_map_init(&s->pids, PIDS_MAX);
    *ret = s;
    return 0;
}

struct clp_scan *clp_scan_free(struct clp_scan *s)
{
    struct clp_map_item i;
    if (!s)
        return NULL;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);)
        free(i.value->ptr);
    clp_map_done(&s->pids);
    free(s);
    return NULL;
}

static struct known *know(struct clp_scan *s, int32_t pid)
{
    struct known *k = clp_map_get_ptr_u64(&s->pids, (uint64_t)pid);
    if (k)
        return k;
    k = calloc(1, sizeof(*k));
    if (k && clp_map_put_u64(&s->pids, (uint64_t)pid, (union clp_map_value){.ptr = k}) < 0) {
        free(k);
        return NULL;
    }
    return k;
}

static void pause_longer(struct known *k, uint64_t now_ns)
{
    k->pause_ns = k->pause_ns ? CLP_MIN(k->pause_ns * 2, LONGEST_PAUSE_NS) : FIRST_PAUSE_NS;
    k->look_at_ns = now_ns + k->pause_ns;
}

static int look(void *context, int32_t pid)
{
    struct clp_scan *s = context;
    struct known *k = know(s, pid);
    if (!k)
        return 0;
    k->seen_round = s->round;
    if (s->now_ns < k->look_at_ns || s->count == CLP_SCAN_AT_ONCE)
        return 0;
    struct clp_dotnet *d = &s->candidates[s->count];
    if (clp_dotnet_open(s->roots, pid, d) < 0) {
        pause_longer(k, s->now_ns);
        return 0;
    }
    if (d->state == CLP_DOTNET_PORT && d->run_state != 'T' && d->run_state != 't') {
        s->count++;
        return 0;
    }
    pause_longer(k, s->now_ns);
    clp_dotnet_done(d);
    return 0;
}

static void forget_gone(struct clp_scan *s)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&s->pids); clp_map_next(&s->pids, &at, &i);) {
        struct known *k = i.value->ptr;
        if (k->seen_round == s->round)
            continue;
        uint64_t pid = i.key_u64;
        free(k);
        (void)clp_map_remove_u64(&s->pids, pid, NULL);
    }
}

int clp_scan_round(struct clp_scan *s, uint64_t now_ns,
                   void (*found)(void *context, struct clp_dotnet *d), void *context)
{
    s->round++;
    s->now_ns = now_ns;
    s->count = 0;
    int r = clp_discover_pids(s->roots, look, s);
    clp_dotnet_ask(s->candidates, s->count, CLP_DISCOVER_ASK_NS);
    for (size_t i = 0; i < s->count; i++) {
        struct clp_dotnet *d = &s->candidates[i];
        struct known *k = know(s, d->pid);
        if (k)
            pause_longer(k, now_ns);
        if (d->state == CLP_DOTNET_READY)
            found(context, d);
        clp_dotnet_done(d);
    }
    if (r == 0)
        forget_gone(s);
    return r;
}

void clp_scan_hold(struct clp_scan *s, int32_t pid, uint64_t until_ns)
{
    struct known *k = know(s, pid);
    if (!k)
        return;
    k->look_at_ns = until_ns;
    k->seen_round = CLP_MAX(k->seen_round, s->round);
}
