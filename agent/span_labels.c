#include "agent/span_labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINAL (1ull << 32) /* beside an endpoint's number */

void clp_span_labels_init(struct clp_span_labels *s, enum clp_span_mode mode)
{
    *s = (struct clp_span_labels){.mode = mode};
    clp_map_init(&s->endpoints, CLP_SPAN_ENDPOINTS_KNOWN);
    clp_map_init(&s->roots, CLP_SPAN_ROOTS_WINDOW);
    clp_map_init(&s->closed, CLP_SPAN_ROOTS_WINDOW);
    clp_map_init(&s->names, CLP_SPAN_ENDPOINTS_WINDOW);
    clp_map_init(&s->requests, CLP_SPAN_ENDPOINTS_KNOWN);
}

void clp_span_labels_done(struct clp_span_labels *s)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&s->endpoints); clp_map_next(&s->endpoints, &at, &i);)
        free(i.value->ptr);
    clp_map_done(&s->endpoints);
    clp_map_done(&s->roots);
    clp_map_done(&s->closed);
    clp_map_done(&s->names);
    clp_map_done(&s->requests);
}

/* The target's numbers grow for ever. Beyond the ceiling, far above what the library keeps at a
 * time, new ones stay without a name. */
static void add_endpoint(struct clp_span_labels *s, uint32_t number, const char *name)
{
    if (clp_map_get_u64(&s->endpoints, number))
        return;
    union clp_map_value v = {.ptr = strdup(name)};
    if (!v.ptr || clp_map_put_u64(&s->endpoints, number, v) < 0)
        free(v.ptr);
}

static void note_root(struct clp_span_labels *s, uint64_t root, uint64_t endpoint)
{
    const union clp_map_value *known = clp_map_get_u64(&s->roots, root);
    if (!root || (known && (known->u64 & FINAL || endpoint == 0)))
        return;
    union clp_map_value v = {.u64 = endpoint};
    (void)!clp_map_put_u64(&s->roots, root, v); /* beyond the ceiling: no endpoint */
}

/* A root of the window before that ends now: its samples there get the name as well. */
static void end_root(struct clp_span_labels *s, uint64_t root, uint64_t endpoint)
{
    const union clp_map_value *known = clp_map_get_u64(&s->closed, root);
    note_root(s, root, endpoint | FINAL);
    if (!known || known->u64 & FINAL)
        return;
    union clp_map_value v = {.u64 = endpoint | FINAL};
    (void)!clp_map_put_u64(&s->closed, root, v); /* it is there: needs no room */
    s->open--;
}

static void take_root(struct clp_span_labels *s, const struct clp_rec_root *r)
{
    const union clp_map_value *known = clp_map_get_u64(&s->requests, r->endpoint);
    union clp_map_value v = {.u64 = (known ? known->u64 : 0) + r->ended};
    if (r->ended)
        (void)!clp_map_put_u64(&s->requests, r->endpoint, v);
    if (r->local_root_span_id)
        end_root(s, r->local_root_span_id, r->endpoint);
}

void clp_span_labels_record(struct clp_span_labels *s, const struct clp_reader_record *r)
{
    if (s->mode == CLP_SPANS_OFF)
        return;
    if (r->type == CLP_REC_ENDPOINT)
        add_endpoint(s, r->endpoint.rec->endpoint, r->endpoint.name);
    else if (r->type == CLP_REC_ROOT)
        take_root(s, r->root.rec);
}

size_t clp_span_labels_of(struct clp_span_labels *s, const struct clp_def_span *span,
                          struct clp_span_texts *texts, struct clp_profile_label *ret)
{
    size_t n = 0;
    if (s->mode == CLP_SPANS_OFF || span->span_id == 0)
        return 0;
    if (s->sets == CLP_SPAN_SETS_WINDOW) {
        s->without++;
        return 0;
    }
    s->sets++;
    note_root(s, span->local_root_span_id, span->endpoint);
    snprintf(texts->trace, sizeof(texts->trace), "%016llx%016llx",
             (unsigned long long)span->trace_high, (unsigned long long)span->trace_low);
    snprintf(texts->span, sizeof(texts->span), "%016llx", (unsigned long long)span->span_id);
    snprintf(texts->root, sizeof(texts->root), "%016llx",
             (unsigned long long)span->local_root_span_id);
    ret[n++] = (struct clp_profile_label){.key = "trace_id", .str = texts->trace};
    if (s->mode == CLP_SPANS_FULL)
        ret[n++] = (struct clp_profile_label){.key = "span_id", .str = texts->span};
    if (span->local_root_span_id)
        ret[n++] = (struct clp_profile_label){.key = "local_root_span_id", .str = texts->root};
    return n;
}

/* ---- endpoints ----------------------------------------------------------------------------- */

/* The window's names are bounded; what comes after them is shown as one. */
static const char *bounded(struct clp_span_labels *s, const char *name)
{
    size_t n = strlen(name);
    union clp_map_value v = {.u64 = 1};
    if (clp_map_get(&s->names, name, n) || clp_map_put(&s->names, name, n, v) == 0)
        return name;
    return CLP_PROFILE_OTHER_NAME;
}

static const char *endpoint_of(void *user, const char *root)
{
    struct clp_span_labels *s = user;
    const union clp_map_value *known = clp_map_get_u64(&s->closed, strtoull(root, NULL, 16));
    if (!known)
        return NULL;
    uint32_t number = (uint32_t)known->u64;
    if (number == CLP_ENDPOINT_OTHER)
        return CLP_PROFILE_OTHER_NAME;
    const char *name = clp_map_get_ptr_u64(&s->endpoints, number);
    return name ? bounded(s, name) : NULL;
}

static int by_value(const void *a, const void *b)
{
    const struct clp_upload_number *x = a, *y = b;
    return (x->value < y->value) - (x->value > y->value);
}

/* The busiest endpoints of the window that ends. The least of those that are kept makes room. */
static void close_requests(struct clp_span_labels *s)
{
    struct clp_map_item i;
    size_t n = 0;
    for (uint32_t at = clp_map_begin(&s->requests); clp_map_next(&s->requests, &at, &i);) {
        struct clp_upload_number e = {.value = (double)i.value->u64};
        e.name = i.key_u64 == CLP_ENDPOINT_OTHER ? CLP_PROFILE_OTHER_NAME
                                                 : clp_map_get_ptr_u64(&s->endpoints, i.key_u64);
        if (!e.name || (n == CLP_UPLOAD_NUMBERS_MAX && e.value <= s->ended[n - 1].value))
            continue;
        n = CLP_MIN(n + 1, (size_t)CLP_UPLOAD_NUMBERS_MAX);
        s->ended[n - 1] = e;
        if (n == CLP_UPLOAD_NUMBERS_MAX)
            qsort(s->ended, n, sizeof(*s->ended), by_value);
    }
    qsort(s->ended, n, sizeof(*s->ended), by_value);
    s->ended_count = n;
    clp_map_done(&s->requests);
}

static uint32_t count_open(const struct clp_map *roots)
{
    uint32_t n = 0;
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(roots); clp_map_next(roots, &at, &i);)
        n += !(i.value->u64 & FINAL);
    return n;
}

void clp_span_labels_close(struct clp_span_labels *s, struct clp_profile *p)
{
    if (s->without)
        (void)!clp_profile_comment(p, "agent_samples_without_span=%llu count",
                                   (unsigned long long)s->without);
    s->without = 0;
    s->sets = 0;
    clp_map_done(&s->closed);
    s->closed = s->roots;
    clp_map_init(&s->roots, CLP_SPAN_ROOTS_WINDOW);
    s->open = count_open(&s->closed);
    close_requests(s);
}

void clp_span_labels_name(struct clp_span_labels *s, struct clp_profile *p)
{
    if (s->closed.len)
        clp_profile_label_late(p, "local_root_span_id", "endpoint", endpoint_of, s);
    clp_map_done(&s->closed);
    clp_map_done(&s->names);
    s->open = 0;
}
