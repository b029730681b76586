/* A stream that anybody may have written, in pieces of any size; what comes out must lie inside
 * what went in, and printing must cope with every field tree. The first byte of the input is the
 * size of the pieces. */
#include "base/strbuf.h"
#include "sampler/nettrace/payload.h"

#include <stdlib.h>
#include <string.h>

struct sums {
    struct clp_nettrace *r;
    struct clp_strbuf out;
    uint64_t sum, last_ticks, late, prints;
};

static void touch(struct sums *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        s->sum += p[i];
}

static void take(void *context, const struct clp_nettrace_event *e)
{
    struct sums *s = context;
    touch(s, e->payload, e->payload_len);
    touch(s, e->stack, (size_t)e->stack_len * sizeof(*e->stack));
    touch(s, e->activity, CLP_NETTRACE_GUID_BYTES);
    touch(s, e->related, CLP_NETTRACE_GUID_BYTES);
    touch(s, e->meta->provider, strlen(e->meta->provider));
    touch(s, e->meta->name, strlen(e->meta->name));
    if (e->ticks < s->last_ticks)
        s->late++;
    else
        s->last_ticks = e->ticks;
    if (s->prints++ > 200)
        return;
    clp_strbuf_reset(&s->out);
    clp_nettrace_print_payload(e, clp_nettrace_info(s->r)->pointer_bytes, s->prints & 1, &s->out);
}

static void check(const struct sums *s)
{
    const struct clp_nettrace_counts *c = clp_nettrace_counts(s->r);
    if (s->late != c->late || clp_nettrace_bytes(s->r) > (96u << 20))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sums s = {0};
    struct clp_nettrace_config config = {.event = take, .context = &s};
    if (size < 1 || clp_nettrace_new(&config, &s.r) < 0)
        return 0;
    clp_strbuf_init(&s.out, 1 << 16);
    size_t piece = data[0] ? data[0] : size;
    for (size_t at = 1; at < size; at += piece)
        if (clp_nettrace_feed(s.r, data + at, CLP_MIN(piece, size - at)) < 0)
            break;
    clp_nettrace_finish(s.r);
    check(&s);
    clp_strbuf_done(&s.out);
    clp_nettrace_free(s.r);
    return 0;
}
