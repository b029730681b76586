#include "agent/numbers.h"

#include "base/core/text.h"
#include "wire/tables.h"

#include <stdio.h>
#include <string.h>

/* One function for each value, which sees s, m and l. */
#define CLP_NUMBER(scope, key, kind, value, text)                                                  \
    static uint64_t scope##_##key(const struct clp_subject *of)                                    \
    {                                                                                              \
        const struct clp_status *s = of->s;                                                        \
        const struct clp_member *m = of->m;                                                        \
        const struct clp_outbox_lane *l = of->l;                                                   \
        (void)s, (void)m, (void)l;                                                                 \
        return (value);                                                                            \
    }
#include "agent/numbers.def"
#undef CLP_NUMBER

enum { STATE, SUM };

static const struct number {
    enum clp_number_scope scope;
    int kind;
    const char *key, *text;
    uint64_t (*value)(const struct clp_subject *of);
} numbers[] = {
#define CLP_NUMBER(scope, key, kind, value, text)                                                  \
    {CLP_NUMBER_##scope, kind, #key, text, scope##_##key},
#include "agent/numbers.def"
#undef CLP_NUMBER
};

bool clp_counter_is_state(unsigned c)
{
    return clp_counter_info(c)->kind == CLP_COUNTER_STATE;
}

void clp_numbers_json(enum clp_number_scope scope, const struct clp_subject *of,
                      struct clp_strbuf *to)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(numbers); i++)
        if (numbers[i].scope == scope)
            clp_strbuf_printf(to, ",\"%s\":%llu", numbers[i].key,
                              (unsigned long long)numbers[i].value(of));
}

/* ---- names of metrics ---------------------------------------------------------------------- */

#define NAME_BYTES 96
static const char *const prefixes[] = {"clrpulse_", "clrpulse_target_", "clrpulse_upload_"};

static bool is_time(const char *key)
{
    size_t n = strlen(key);
    return n > 3 && strcmp(key + n - 3, "_ns") == 0;
}

static void metric_name(const struct number *n, char *buf)
{
    size_t len = strlen(n->key) - (is_time(n->key) ? 3 : 0);
    snprintf(buf, NAME_BYTES, "%s%.*s%s%s", prefixes[n->scope], (int)len, n->key,
             is_time(n->key) ? "_seconds" : "", n->kind == SUM ? "_total" : "");
}

static bool is_nanoseconds(unsigned counter)
{
    return strcmp(clp_counter_info(counter)->unit, "nanoseconds") == 0;
}

/* Names of the library's counters begin with clrpulse_library_ once. */
static void counter_name(unsigned counter, char *buf)
{
    static const char prefix[] = "library_";
    const char *name = clp_counter_info(counter)->name;
    bool has_it = strncmp(name, prefix, sizeof(prefix) - 1) == 0;
    snprintf(buf, NAME_BYTES, "clrpulse_%s%s%s%s", has_it ? "" : prefix, name,
             is_nanoseconds(counter) ? "_seconds" : "",
             clp_counter_is_state(counter) ? "" : "_total");
}

/* ---- metrics ------------------------------------------------------------------------------- */

/* A label's value: what a target says of itself, made harmless. */
static void add_label(struct clp_strbuf *to, const char *key, const char *value, char before)
{
    char clean[1024];
    struct clp_text t = clp_text_in(clean, sizeof(clean));
    clp_text_utf8_clean(&t, value, strnlen(value, 300));
    clp_strbuf_printf(to, "%c%s=\"", before, key);
    for (size_t i = 0; i < t.len; i++) {
        char c = clean[i];
        if (c == '"' || c == '\\')
            clp_strbuf_char(to, '\\');
        clp_strbuf_char(to, (unsigned char)c < 0x20 || c == 0x7f ? '?' : c);
    }
    clp_strbuf_char(to, '"');
}

static void add_labels(struct clp_strbuf *to, const struct clp_subject *of, const char *key,
                       const char *value)
{
    char before = '{';
    if (of->m) {
        clp_strbuf_printf(to, "{pid=\"%d\"", of->m->pid);
        add_label(to, "service", *of->m->service ? of->m->service : of->m->comm, ',');
        before = ',';
    }
    if (of->l) {
        add_label(to, "upload", of->l->name, '{');
        before = ',';
    }
    if (key)
        add_label(to, key, value, before);
    clp_strbuf_str(to, before == ',' || key ? "} " : " ");
}

static void add_value(struct clp_strbuf *to, uint64_t value, bool nanoseconds)
{
    if (nanoseconds)
        clp_strbuf_printf(to, "%llu.%09llu\n", (unsigned long long)(value / CLP_NSEC_PER_SEC),
                          (unsigned long long)(value % CLP_NSEC_PER_SEC));
    else
        clp_strbuf_printf(to, "%llu\n", (unsigned long long)value);
}

static void add_head(struct clp_strbuf *to, const char *name, bool sum, const char *text)
{
    clp_strbuf_printf(to, "# HELP %s %s\n# TYPE %s %s\n", name, text, name,
                      sum ? "counter" : "gauge");
}

/* The i-th of those that a scope is about; false: there is none. */
static bool subject_at(const struct clp_status *s, enum clp_number_scope scope, size_t i,
                       struct clp_subject *ret)
{
    *ret = (struct clp_subject){.s = s};
    if (scope == CLP_NUMBER_TARGET && i < s->roster->count)
        ret->m = s->roster->members[i];
    else if (scope == CLP_NUMBER_UPLOAD && i < s->lane_count)
        ret->l = &s->lanes[i];
    else
        return scope == CLP_NUMBER_AGENT && i == 0;
    return true;
}

static void metrics_of_number(const struct clp_status *s, const struct number *n,
                              struct clp_strbuf *to)
{
    char name[NAME_BYTES];
    struct clp_subject of;
    metric_name(n, name);
    if (!subject_at(s, n->scope, 0, &of))
        return;
    add_head(to, name, n->kind == SUM, n->text);
    for (size_t i = 0; subject_at(s, n->scope, i, &of); i++) {
        clp_strbuf_str(to, name);
        add_labels(to, &of, NULL, NULL);
        add_value(to, n->value(&of), is_time(n->key));
    }
}

static void metrics_of_counter(const struct clp_status *s, unsigned counter, struct clp_strbuf *to)
{
    char name[NAME_BYTES];
    struct clp_subject of;
    counter_name(counter, name);
    if (s->roster->count == 0)
        return;
    add_head(to, name, !clp_counter_is_state(counter), clp_counter_info(counter)->text);
    for (size_t i = 0; subject_at(s, CLP_NUMBER_TARGET, i, &of); i++) {
        clp_strbuf_str(to, name);
        add_labels(to, &of, NULL, NULL);
        add_value(to, of.m->totals.counters[counter], is_nanoseconds(counter));
    }
}

#define TARGETS_NAME "clrpulse_targets"
#define TARGETS_TEXT "processes by what the agent does with them"
#define DROPPED_NAME "clrpulse_upload_dropped_total"
#define DROPPED_TEXT "profiles that were given up, by reason"
#define BUILD_NAME "clrpulse_build_info"
#define BUILD_TEXT "1, with the version as a label"

static void metrics_of_states(const struct clp_status *s, struct clp_strbuf *to)
{
    const struct clp_subject of = {.s = s};
    add_head(to, TARGETS_NAME, false, TARGETS_TEXT);
    for (unsigned state = 0; state < CLP_MEMBER_STATE_COUNT; state++) {
        uint64_t n = 0;
        for (size_t i = 0; i < s->roster->count; i++)
            n += (unsigned)s->roster->members[i]->state == state;
        clp_strbuf_str(to, TARGETS_NAME);
        add_labels(to, &of, "state", clp_member_state_name((enum clp_member_state)state));
        add_value(to, n, false);
    }
}

static void metrics_of_drops(const struct clp_status *s, struct clp_strbuf *to)
{
    struct clp_subject of;
    if (s->lane_count == 0)
        return;
    add_head(to, DROPPED_NAME, true, DROPPED_TEXT);
    for (size_t i = 0; subject_at(s, CLP_NUMBER_UPLOAD, i, &of); i++)
        for (unsigned d = 0; d < CLP_DROPS; d++) {
            clp_strbuf_str(to, DROPPED_NAME);
            add_labels(to, &of, "reason", clp_delivery_drop_name((enum clp_delivery_drop)d));
            add_value(to, of.l->dropped[d], false);
        }
}

void clp_numbers_metrics(const struct clp_status *s, struct clp_strbuf *to)
{
    add_head(to, BUILD_NAME, false, BUILD_TEXT);
    clp_strbuf_str(to, BUILD_NAME "{version=\"" CLP_VERSION "\"} 1\n");
    metrics_of_states(s, to);
    for (size_t i = 0; i < CLP_ARRAY_LEN(numbers); i++)
        metrics_of_number(s, &numbers[i], to);
    metrics_of_drops(s, to);
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++)
        metrics_of_counter(s, c, to);
}

/* ---- in words ------------------------------------------------------------------------------ */

static void explain(struct clp_strbuf *to, const char *name, const char *text, const char *key)
{
    clp_strbuf_printf(to, "  %s  %s", name, text);
    if (key)
        clp_strbuf_printf(to, " (JSON: %s)", key);
    clp_strbuf_char(to, '\n');
}

void clp_numbers_explain(struct clp_strbuf *to)
{
    static const char *const heads[] = {"The agent", "Each process (labels pid, service)",
                                        "Each upload (label upload)"};
    char name[NAME_BYTES];
    for (unsigned scope = 0; scope < CLP_ARRAY_LEN(heads); scope++) {
        clp_strbuf_printf(to, "%s:\n", heads[scope]);
        if (scope == CLP_NUMBER_AGENT) {
            explain(to, BUILD_NAME, BUILD_TEXT, "version");
            explain(to, TARGETS_NAME, TARGETS_TEXT, "state, of each target");
        }
        for (size_t i = 0; i < CLP_ARRAY_LEN(numbers); i++) {
            if ((unsigned)numbers[i].scope != scope)
                continue;
            metric_name(&numbers[i], name);
            explain(to, name, numbers[i].text, numbers[i].key);
        }
        if (scope == CLP_NUMBER_UPLOAD)
            explain(to, DROPPED_NAME, DROPPED_TEXT, "dropped");
    }
    clp_strbuf_str(to, "The library in each process (labels pid, service; JSON: counters):\n");
    for (unsigned c = 0; c < CLP_CTR_COUNT; c++) {
        counter_name(c, name);
        explain(to, name, clp_counter_info(c)->text, clp_counter_info(c)->name);
    }
}
