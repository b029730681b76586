#include "tests/snapshot/report.h"

#include "sampler/inproc/bodies.h"
#include "sampler/inproc/images.h"
#include "tests/snapshot/judge.h"
#include "tests/snapshot/methods.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENCES_MAX 64u
#define PROGRAM "ClpTarget."
#define TOTALS_EVERY_NS (100 * CLP_NSEC_PER_MSEC)

static uint32_t differences;
static uint64_t reported[DIFFERENCES_MAX]; /* hashes of their stacks */

static FILE *open_report(void)
{
    const char *path = getenv("CLP_TEST_VERIFY_OUT");
    return path ? fopen(path, "ae") : NULL;
}

static void put_string(FILE *f, const char *text)
{
    (void)fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)fprintf(f, "\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            (void)fputc(*text, f);
    }
    (void)fputc('"', f);
}

/* "libcoreclr.so+0x1234" */
static void native_name(const struct clp_walk_frame *w, char *buf, size_t cap)
{
    static union {
        struct clp_rec_image image;
        char bytes[8192];
    } rec;
    const char *file = "?";
    int n = clp_images_record(w->id, &rec, sizeof(rec) - 1);
    if (n > 0) {
        char *path = rec.bytes + sizeof(rec.image) + rec.image.build_id_len;
        path[rec.image.path_len] = '\0';
        file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    }
    (void)snprintf(buf, cap, "%s+0x%" PRIx64, file, w->address - w->base);
}

static void put_frame(FILE *f, const struct clp_walk_frame *w)
{
    static const char *const kinds[] = {
        [CLP_WALK_STUB] = "[stub]",
        [CLP_WALK_UNKNOWN] = "[unknown]",
        [CLP_WALK_HIJACKED_CALLER] = "[hijacked caller]",
    };
    char buf[1200];
    if (w->kind == CLP_WALK_MANAGED) {
        uint32_t method = clp_snapshot_method_of(clp_judge_function(w->id));
        (void)snprintf(buf, sizeof(buf), "%s+0x%" PRIx64, clp_snapshot_method(method)->name,
                       w->address - w->base);
    } else if (w->kind == CLP_WALK_NATIVE) {
        native_name(w, buf, sizeof(buf));
    } else {
        (void)snprintf(buf, sizeof(buf), "%s", kinds[w->kind]);
    }
    put_string(f, buf);
}

/* Another stack than those that were reported: one cause often shows in thousands. */
static bool is_new(const struct clp_snapshot *s)
{
    uint64_t hash = s->count;
    for (uint32_t i = 0; i < s->count; i++)
        hash = (hash ^ s->functions[i]) * 0x100000001b3ull; /* FNV-1a, by words */
    for (uint32_t i = 0; i < differences; i++)
        if (reported[i] == hash)
            return false;
    if (differences < DIFFERENCES_MAX)
        reported[differences] = hash;
    return differences < DIFFERENCES_MAX;
}

void clp_snapshot_report_difference(const struct clp_snapshot *s, struct clp_comparison c,
                                    const struct clp_walk_result *walk,
                                    const struct clp_walk_frame *frames)
{
    FILE *f = is_new(s) ? open_report() : NULL;
    if (!f)
        return;
    differences++;
    (void)fprintf(f, "{\"difference\":%u,\"tid\":%d,\"missing\":%u,\"invented\":%u,\"flags\":%u",
                  differences, s->tid, c.missing, c.invented, walk->flags);
    (void)fprintf(f, ",\"truth\":[");
    for (uint32_t i = 0; i < s->count; i++) {
        (void)fputs(i ? "," : "", f);
        put_string(f, clp_snapshot_method(clp_snapshot_method_of(s->functions[i]))->name);
    }
    (void)fprintf(f, "],\"walk\":[");
    for (uint32_t i = 0; i < walk->count; i++) {
        (void)fputs(i ? "," : "", f);
        put_frame(f, &frames[i]);
    }
    (void)fprintf(f, "]}\n");
    (void)fclose(f);
}

static void put_methods(FILE *f)
{
    const char *between = "";
    (void)fprintf(f, "\"methods\":{");
    for (uint32_t i = 1; i <= clp_snapshot_method_count(); i++) {
        const struct clp_snapshot_method *m = clp_snapshot_method(i);
        if (strncmp(m->name, PROGRAM, strlen(PROGRAM)) != 0)
            continue;
        (void)fputs(between, f);
        put_string(f, m->name);
        (void)fprintf(f, ":%" PRIu64, m->stacks);
        between = ",";
    }
    (void)fprintf(f, "}");
}

static void put_totals(FILE *f, const struct clp_snapshot_totals *t)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"compared", t->compared},
        {"equal", t->equal},
        {"exact", t->exact},
        {"frames", t->frames},
        {"missing", t->missing},
        {"invented", t->invented},
        {"incomplete", t->incomplete},
        {"repaired", t->repaired},
        {"refused", t->refused},
        {"skipped", t->skipped},
        {"truth_dynamic", t->truth_dynamic},
        {"our_dynamic", t->our_dynamic},
    };
    (void)fprintf(f, "{\"totals\":{");
    for (size_t i = 0; i < CLP_ARRAY_LEN(counts); i++)
        (void)fprintf(f, "\"%s\":%" PRIu64 ",", counts[i].name, counts[i].value);
    put_methods(f);
    (void)fprintf(f, "}}\n");
}

void clp_snapshot_report_totals(const struct clp_snapshot_totals *t, uint64_t now_ns)
{
    static uint64_t written_ns, written;
    uint64_t sum = t->compared + t->refused + t->skipped;
    if (sum == written || now_ns - written_ns < TOTALS_EVERY_NS)
        return;
    FILE *f = open_report();
    if (!f)
        return;
    written = sum;
    written_ns = now_ns;
    put_totals(f, t);
    (void)fclose(f);
}
