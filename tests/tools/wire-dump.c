/* Shows what the library writes, record by record, without symbols, windows or pprof:
 *
 *     wire-dump LIBRARY PID [SECONDS [INTERVAL_MS]]
 *
 * Definitions and samples go to standard output in their order; at the end a flush, the mark that
 * answers it, and all counters. */
#include "agent/session.h"
#include "base/clock.h"
#include "sampler/eventpipe/discover.h"
#include "wire/tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (1u << 20)
#define FLUSH_ID 1

static struct {
    char *body[NAMES_MAX]; /* of its method */
    char *method[NAMES_MAX];
    char *image[NAMES_MAX];
    uint64_t cpu_ns;
    bool marked;
} seen;

static const char *name_of(char *const *names, uint32_t id)
{
    return id < NAMES_MAX && names[id] ? names[id] : "?";
}

static void remember(char **names, uint32_t id, char *name)
{
    if (id >= NAMES_MAX) {
        free(name);
        return;
    }
    free(names[id]);
    names[id] = name;
}

static void print_frame(uint64_t f)
{
    uint32_t id = clp_frame_id(f);
    switch (clp_frame_kind(f)) {
    case CLP_FRAME_MANAGED:
        printf(" %s+%" PRIu32, name_of(seen.body, id), clp_frame_offset(f));
        break;
    case CLP_FRAME_NATIVE:
        printf(" %s!0x%" PRIx32, name_of(seen.image, id), clp_frame_offset(f));
        break;
    case CLP_FRAME_SPECIAL:
        printf(" %s", clp_special_text(id));
        break;
    default:
        printf(" (unknown)");
    }
}

static void print_sample(const struct clp_reader_record *rec)
{
    const struct clp_rec_sample *s = rec->sample.rec;
    printf("sample %" PRIu64 " thread %" PRIu32 " cpu %" PRId64 " flags %x:", s->time_ns,
           s->thread_id, s->value, s->flags);
    for (uint16_t i = 0; i < s->rec.count; i++)
        print_frame(rec->sample.frames[i]);
    printf("\n");
    seen.cpu_ns += (uint64_t)s->value;
}

static void print_method(const struct clp_reader_record *rec)
{
    char *name;
    if (asprintf(&name, "%s%s%s", rec->method.type, *rec->method.type ? "." : "",
                 rec->method.name) < 0)
        return;
    printf("method %" PRIu32 " image %" PRIu32 " token %08" PRIx32 " flags %x: %s <%s> <%s> (%s)\n",
           rec->method.rec->method_id, rec->method.rec->image_id, rec->method.rec->token,
           rec->method.rec->flags, name, rec->method.type_args, rec->method.method_args,
           rec->method.signature);
    remember(seen.method, rec->method.rec->method_id, name);
}

static void print_image(const struct clp_reader_record *rec)
{
    const struct clp_rec_image *i = rec->image.rec;
    const char *slash = strrchr(rec->image.path, '/');
    printf("image %" PRIu32 " kind %u %" PRIx64 "-%" PRIx64 " bias %" PRIx64 ": %s build id ",
           i->image_id, i->kind, i->start, i->end, i->bias, rec->image.path);
    for (uint16_t k = 0; k < i->build_id_len; k++)
        printf("%02x", rec->image.build_id[k]);
    printf("\n");
    remember(seen.image, i->image_id, strdup(slash ? slash + 1 : rec->image.path));
}

static void print_record(void *context, const struct clp_reader_record *rec)
{
    (void)context;
    switch (rec->type) {
    case CLP_REC_IMAGE:
        print_image(rec);
        break;
    case CLP_REC_METHOD:
        print_method(rec);
        break;
    case CLP_REC_BODY:
        printf("body %" PRIu32 " method %" PRIu32 " %" PRIx64 "+%" PRIu32 " flags %" PRIx32 "\n",
               rec->body.rec->body_id, rec->body.rec->method_id, rec->body.rec->start,
               rec->body.rec->code_bytes, rec->body.rec->flags);
        remember(seen.body, rec->body.rec->body_id,
                 strdup(name_of(seen.method, rec->body.rec->method_id)));
        break;
    case CLP_REC_THREAD:
        printf("thread %" PRIu32 " tid %" PRId32 " kind %" PRIu32 ": %s\n",
               rec->thread.rec->thread_id, rec->thread.rec->tid, rec->thread.rec->kind,
               rec->thread.name);
        break;
    case CLP_REC_SAMPLE:
        print_sample(rec);
        break;
    case CLP_REC_MARK:
        printf("mark %" PRIu64 " at %" PRIu64 "\n", rec->mark.rec->flush_id,
               rec->mark.rec->time_ns);
        seen.marked |= rec->mark.rec->flush_id == FLUSH_ID;
        break;
    default:
        break;
    }
}

/* Until the time is over, the mark has come, or the session has ended. */
static bool run(struct clp_session *s, uint64_t until_ns)
{
    while (clp_clock_monotonic_ns() < until_ns && !seen.marked) {
        struct pollfd fds[CLP_SESSION_FDS];
        size_t n = clp_session_fds(s, fds);
        (void)poll(fds, n, 20);
        enum clp_session_state state = clp_session_step(s, clp_clock_monotonic_ns());
        if (state == CLP_SESSION_LIVE)
            state = clp_session_drain(s);
        if (state == CLP_SESSION_FAILED || state == CLP_SESSION_ENDED) {
            fprintf(stderr, "wire-dump: %s\n", clp_session_fault(s)->text);
            return false;
        }
    }
    return true;
}

static void print_counters(const struct clp_session *s)
{
    for (unsigned i = 0; i < CLP_CTR_COUNT; i++)
        printf("counter %s %" PRIu64 " %s\n", clp_counter_info(i)->name, clp_session_marked(s, i),
               clp_counter_info(i)->unit);
    printf("sum of samples %" PRIu64 "\n", seen.cpu_ns);
}

static int dump(const struct clp_dotnet *target, const char *library, double seconds,
                double interval_ms)
{
    struct clp_session_config config = {
        .library = library,
        .settings = {.sample_kinds = 1u << CLP_SAMPLE_CPU,
                     .cpu_interval_ns = (uint64_t)(interval_ms * CLP_NSEC_PER_MSEC)},
        .record = print_record,
    };
    struct clp_session *s;
    struct clp_fault fault;
    if (clp_session_start(target, &config, &s, &fault) < 0) {
        fprintf(stderr, "wire-dump: %s\n", fault.text);
        return 1;
    }
    uint64_t until = clp_clock_monotonic_ns() + (uint64_t)(seconds * CLP_NSEC_PER_SEC);
    int r = 1;
    if (run(s, until) && clp_session_flush(s, FLUSH_ID) == 0 &&
        run(s, clp_clock_monotonic_ns() + 2 * CLP_NSEC_PER_SEC) && seen.marked) {
        print_counters(s);
        r = 0;
    }
    clp_session_bye(s, false);
    clp_session_free(s);
    return r;
}

int main(int argc, char **argv)
{
    struct clp_dotnet target;
    char why[512];
    if (argc < 3) {
        fprintf(stderr, "usage: wire-dump LIBRARY PID [SECONDS [INTERVAL_MS]]\n");
        return 2;
    }
    int r = clp_dotnet_open(&clp_discover_system, atoi(argv[2]), &target);
    if (r < 0) {
        fprintf(stderr, "wire-dump: process %s: %s\n", argv[2], strerror(-r));
        return 1;
    }
    clp_dotnet_ask(&target, 1, CLP_NSEC_PER_SEC);
    if (target.state == CLP_DOTNET_READY) {
        r = dump(&target, argv[1], argc > 3 ? atof(argv[3]) : 5, argc > 4 ? atof(argv[4]) : 10);
    } else {
        clp_dotnet_explain(&target, why, sizeof(why));
        fprintf(stderr, "wire-dump: %s\n", why);
        r = 1;
    }
    clp_dotnet_done(&target);
    return r;
}
