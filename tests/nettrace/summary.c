/* What our reader makes of a .nettrace file, added up in the same way as TraceSummary does with
 * Microsoft's library, so that the two can be compared line by line.
 *
 *   nettrace-summary FILE          sums per kind of event and per field
 *   nettrace-summary --count FILE  only counts, and says how long it took and how much memory */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "base/file.h"
#include "base/map.h"
#include "sampler/nettrace/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (256u << 10)
#define FNV_START 14695981039346656037ull

struct kind {
    const struct clp_nettrace_meta *meta;
    uint64_t count, headers, payloads, stacks;
};

struct summary {
    struct clp_map kinds;  /* provider, id -> struct kind */
    struct clp_map fields; /* provider, id, field -> sum */
    uint32_t pointer_bytes;
    const struct clp_nettrace_event *event;
    struct clp_nettrace *reader;
};

static uint64_t fnv(uint64_t h, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

static struct kind *kind_of(struct summary *s, const struct clp_nettrace_meta *m)
{
    char key[512];
    int n = snprintf(key, sizeof(key), "%s\t%u", m->provider, m->event_id);
    struct kind *k = clp_map_get_ptr(&s->kinds, key, (size_t)n);
    if (k)
        return k;
    k = calloc(1, sizeof(*k));
    if (!k || clp_map_put(&s->kinds, key, (size_t)n, (union clp_map_value){.ptr = k}) < 0)
        exit(1);
    k->meta = m;
    return k;
}

static void add_field(struct summary *s, const char *name, uint64_t hash)
{
    const struct clp_nettrace_meta *m = s->event->meta;
    char key[1024];
    int n = snprintf(key, sizeof(key), "%s\t%u\t%s", m->provider, m->event_id, name);
    union clp_map_value *v = clp_map_get(&s->fields, key, (size_t)n);
    if (v)
        v->u64 += hash;
    else if (clp_map_put(&s->fields, key, (size_t)n, (union clp_map_value){.u64 = hash}) < 0)
        exit(1);
}

static void text_of(const struct clp_nettrace_value *v, char *buf, size_t cap)
{
    struct clp_text t = clp_text_in(buf, cap);
    const uint8_t *g = v->at;
    switch (v->field->type) {
    case CLP_FIELD_TEXT16: {
        uint16_t units[32768];
        size_t n = CLP_MIN(v->len / 2, CLP_ARRAY_LEN(units));
        memcpy(units, v->at, n * 2);
        clp_text_utf16(&t, units, n);
        return;
    }
    case CLP_FIELD_GUID:
        snprintf(buf, cap, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                 g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6], g[8], g[9], g[10], g[11], g[12],
                 g[13], g[14], g[15]);
        return;
    case CLP_FIELD_I64:
    case CLP_FIELD_U64:
    case CLP_FIELD_F64:
    case CLP_FIELD_POINTER:
        clp_text_dec(&t, v->number);
        return;
    default:
        clp_text_dec(&t, (uint32_t)v->number);
    }
}

static void visit(void *context, enum clp_nettrace_step step, const struct clp_nettrace_value *v)
{
    static char text[1 << 18];
    struct summary *s = context;
    if (step != CLP_STEP_VALUE || v->depth != 0 || v->field->span > 0)
        return;
    text_of(v, text, sizeof(text));
    add_field(s, v->field->name, fnv(FNV_START, text, strlen(text)));
}

static void add_event(void *context, const struct clp_nettrace_event *e)
{
    struct summary *s = context;
    struct kind *k = kind_of(s, e->meta);
    uint32_t thread = (uint32_t)e->thread_id;
    uint64_t wide = thread;
    uint64_t header = fnv(FNV_START, &e->ticks, sizeof(e->ticks));
    header = fnv(header, &wide, sizeof(wide));
    k->count++;
    k->headers += fnv(header, e->activity, CLP_NETTRACE_GUID_BYTES);
    k->payloads += fnv(FNV_START, e->payload, e->payload_len);
    k->stacks += fnv(FNV_START, e->stack, (size_t)e->stack_len * sizeof(*e->stack));
    s->event = e;
    s->pointer_bytes = clp_nettrace_info(s->reader)->pointer_bytes;
    (void)clp_nettrace_walk(e, s->pointer_bytes, visit, s);
}

static void count_event(void *context, const struct clp_nettrace_event *e)
{
    uint64_t *counts = context;
    counts[e->meta->event_id & 0xff]++;
}

static int feed_file(struct clp_nettrace *r, int fd)
{
    static uint8_t chunk[CHUNK_BYTES];
    ssize_t n;
    int e = 0;
    while (e == 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        e = clp_nettrace_feed(r, chunk, (size_t)n);
    clp_nettrace_finish(r);
    return e;
}

static void print_counts(const struct clp_nettrace *r)
{
    const struct clp_nettrace_counts *c = clp_nettrace_counts(r);
#define CLP_NETTRACE_COUNT(field, text)                                                            \
    fprintf(stderr, "%12llu %s\n", (unsigned long long)c->field, text);
#include "sampler/nettrace/counts.def"
#undef CLP_NETTRACE_COUNT
    fprintf(stderr, "%s\n", clp_nettrace_is_complete(r) ? "complete" : "partial");
}

static int summarize(int fd)
{
    struct summary s = {0};
    struct clp_map_item i;
    struct clp_nettrace_config config = {.event = add_event, .context = &s};
    clp_map_init(&s.kinds, 1 << 16);
    clp_map_init(&s.fields, 1 << 18);
    if (clp_nettrace_new(&config, &s.reader) < 0)
        return 1;
    int e = feed_file(s.reader, fd);
    print_counts(s.reader);
    printf("lost\t%llu\n", (unsigned long long)clp_nettrace_counts(s.reader)->lost);
    for (uint32_t at = clp_map_begin(&s.kinds); clp_map_next(&s.kinds, &at, &i);) {
        const struct kind *k = i.value->ptr;
        printf("event\t%.*s\t%llu\t%016llx\t%016llx\t%016llx\n", (int)i.len, (const char *)i.key,
               (unsigned long long)k->count, (unsigned long long)k->headers,
               (unsigned long long)k->payloads, (unsigned long long)k->stacks);
    }
    for (uint32_t at = clp_map_begin(&s.fields); clp_map_next(&s.fields, &at, &i);)
        printf("field\t%.*s\t%016llx\n", (int)i.len, (const char *)i.key,
               (unsigned long long)i.value->u64);
    if (e < 0)
        fprintf(stderr, "%s\n", clp_nettrace_problem(s.reader));
    clp_nettrace_free(s.reader);
    return e < 0;
}

/* Of this program alone: getrusage counts what its parent had when it was started. */
static unsigned long long peak_kib(void)
{
    CLP_CLEANUP(clp_cleanup_free) char *status = clp_file_read_proc(0, "status", 65536, NULL);
    const char *line = status ? strstr(status, "VmHWM:") : NULL;
    return line ? strtoull(line + strlen("VmHWM:"), NULL, 10) : 0;
}

static int count(int fd)
{
    static uint64_t counts[256];
    struct clp_nettrace *r;
    struct clp_nettrace_config config = {.event = count_event, .context = counts};
    uint64_t start_ns = clp_clock_monotonic_ns();
    if (clp_nettrace_new(&config, &r) < 0)
        return 1;
    int e = feed_file(r, fd);
    double seconds = (double)(clp_clock_monotonic_ns() - start_ns) / 1e9;
    printf("{\"events\":%llu,\"bytes\":%llu,\"seconds\":%.6f,\"peak_bytes\":%llu,"
           "\"reader_bytes\":%zu}\n",
           (unsigned long long)clp_nettrace_counts(r)->events,
           (unsigned long long)clp_nettrace_counts(r)->bytes, seconds, peak_kib() * 1024,
           clp_nettrace_bytes(r));
    print_counts(r);
    clp_nettrace_free(r);
    return e < 0;
}

int main(int argc, char **argv)
{
    bool only_count = argc == 3 && strcmp(argv[1], "--count") == 0;
    if (argc != 2 && !only_count) {
        fprintf(stderr, "usage: nettrace-summary [--count] FILE\n");
        return 2;
    }
    int fd = open(argv[argc - 1], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        perror(argv[argc - 1]);
        return 1;
    }
    int code = only_count ? count(fd) : summarize(fd);
    close(fd);
    return code;
}
