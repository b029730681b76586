#include "pprof/top.h"
#include "base/cleanup.h"
#include "pprof/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One slot for each string, since functions of one name are one row. */
struct sums {
    int64_t flat, cum;
    uint32_t seen_in; /* the last sample that was added to cum, + 1 */
    bool used;
};

static void add_to_cum(struct sums *sums, uint32_t name, uint32_t sample, int64_t value)
{
    struct sums *s = &sums[name];
    if (s->seen_in == sample + 1)
        return;
    s->seen_in = sample + 1;
    s->cum += value;
    s->used = true;
}

static void add_sample(const struct clp_profile *p, struct sums *sums, uint32_t at, int64_t value)
{
    uint32_t frames, lines;
    const uint32_t *stack = clp_model_stack(p, clp_model_sample(p, at)->stack, &frames);
    for (uint32_t i = 0; i < frames; i++) {
        const struct clp_profile_line *line =
            clp_model_lines(p, clp_model_location(p, stack[i]), &lines);
        for (uint32_t k = 0; k < lines; k++)
            add_to_cum(sums, clp_model_function(p, line[k].function)->name, at, value);
        if (i == 0 && lines > 0)
            sums[clp_model_function(p, line[0].function)->name].flat += value;
    }
}

static int by_weight(const void *a, const void *b)
{
    const struct clp_top_row *x = a, *y = b;
    if (x->flat != y->flat)
        return x->flat > y->flat ? -1 : 1;
    if (x->cum != y->cum)
        return x->cum > y->cum ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int collect(const struct clp_profile *p, const struct sums *sums, struct clp_top *t)
{
    size_t count = 0;
    for (uint32_t i = 0; i < p->strings.len; i++)
        count += sums[i].used;
    t->rows = calloc(count ? count : 1, sizeof(*t->rows));
    if (!t->rows)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->strings.len; i++)
        if (sums[i].used)
            t->rows[t->count++] = (struct clp_top_row){
                .name = clp_model_text(p, i), .flat = sums[i].flat, .cum = sums[i].cum};
    qsort(t->rows, t->count, sizeof(*t->rows), by_weight);
    return 0;
}

static bool is_idle(const struct clp_profile *p, uint32_t at)
{
    uint32_t n;
    const struct clp_model_label *l = clp_model_labels(p, clp_model_sample(p, at)->labels, &n);
    for (uint32_t i = 0; i < n; i++)
        if (l[i].str && !strcmp(clp_model_text(p, l[i].key), "wait"))
            return !strcmp(clp_model_text(p, l[i].str), "idle");
    return false;
}

static int make(const struct clp_profile *p, size_t value, bool all, struct clp_top *ret)
{
    if (value >= p->value_count)
        return -EINVAL;
    CLP_CLEANUP(clp_cleanup_free) int64_t *values = calloc(p->samples.len, sizeof(*values));
    CLP_CLEANUP(clp_cleanup_free) struct sums *sums = calloc(p->strings.len, sizeof(*sums));
    if (!values || !sums)
        return -ENOMEM;
    int r = clp_model_round(p, value, values);
    if (r < 0)
        return r;
    struct clp_top t = {.type = clp_model_text(p, p->value_types[value].type),
                        .unit = clp_model_text(p, p->value_types[value].unit)};
    for (uint32_t i = 0; i < p->samples.len; i++) {
        if (values[i] && !all && is_idle(p, i)) {
            t.idle += values[i];
            continue;
        }
        t.total += values[i];
        if (values[i])
            add_sample(p, sums, i, values[i]);
    }
    r = collect(p, sums, &t);
    if (r == 0)
        *ret = t;
    return r;
}

int clp_top_make(const struct clp_profile *p, size_t value, struct clp_top *ret)
{
    return make(p, value, false, ret);
}

int clp_top_make_all(const struct clp_profile *p, size_t value, struct clp_top *ret)
{
    return make(p, value, true, ret);
}

void clp_top_done(struct clp_top *t)
{
    free(t->rows);
    *t = (struct clp_top){0};
}

/* ---- printing ------------------------------------------------------------------------------- */

struct scale {
    const char *unit; /* as the profile has it */
    double from;      /* used for values of at least this */
    double divisor;
    const char *suffix;
};

/* The first line that fits is taken. */
static const struct scale scales[] = {
    {"nanoseconds", 1e9, 1e9, "s"},     {"nanoseconds", 1e6, 1e6, "ms"},
    {"nanoseconds", 1, 1e3, "us"},      {"bytes", 1 << 30, 1 << 30, "GiB"},
    {"bytes", 1 << 20, 1 << 20, "MiB"}, {"bytes", 1 << 10, 1 << 10, "KiB"},
};

static void print_value(FILE *out, const char *unit, int64_t v)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%" PRId64, v);
    for (size_t i = 0; i < CLP_ARRAY_LEN(scales); i++) {
        const struct scale *s = &scales[i];
        if (strcmp(s->unit, unit) == 0 && (double)v >= s->from) {
            (void)snprintf(text, sizeof(text), "%.2f%s", (double)v / s->divisor, s->suffix);
            break;
        }
    }
    (void)fprintf(out, "%11s", text);
}

static void print_share(FILE *out, int64_t v, int64_t total)
{
    (void)fprintf(out, " %6.2f%%", total ? 100.0 * (double)v / (double)total : 0.0);
}

/* A name comes from the target: nothing in it may reach the terminal as a command. */
static void print_name(FILE *out, const char *name)
{
    for (; *name; name++)
        (void)fputc((unsigned char)*name < 0x20 || *name == 0x7f ? '?' : *name, out);
}

int clp_top_print(const struct clp_top *t, FILE *out, size_t max_rows)
{
    (void)fprintf(out, "%s: ", t->type);
    print_value(out, t->unit, t->total);
    (void)fprintf(out, " in all\n%11s %7s %11s %7s  function\n", "flat", "flat%", "cum", "cum%");
    for (size_t i = 0; i < t->count && i < max_rows; i++) {
        print_value(out, t->unit, t->rows[i].flat);
        print_share(out, t->rows[i].flat, t->total);
        (void)fputc(' ', out);
        print_value(out, t->unit, t->rows[i].cum);
        print_share(out, t->rows[i].cum, t->total);
        (void)fputs("  ", out);
        print_name(out, t->rows[i].name);
        (void)fputc('\n', out);
    }
    return fflush(out) == EOF || ferror(out) ? -EIO : 0;
}
