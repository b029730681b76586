#include "sampler/nettrace/payload.h"

#include "base/core/bytes.h"
#include "base/core/text.h"

#include <stdio.h>
#include <string.h>

/* ---- walking ------------------------------------------------------------------------------- */

struct walk {
    const struct clp_nettrace_event *e;
    struct clp_bytes c;
    uint32_t pointer_bytes;
    uint32_t elements; /* left to show */
    clp_nettrace_visit visit;
    void *context;
    uint64_t counters[CLP_NETTRACE_FIELDS_MAX]; /* whole numbers by node, for COUNTED */
};

static void walk_node(struct walk *w, const struct clp_nettrace_field *f, uint32_t depth);

/* Bytes of a type of a fixed size, else 0. */
static size_t width_of(const struct walk *w, uint8_t type)
{
    switch (type) {
    case CLP_FIELD_I8:
    case CLP_FIELD_U8:
    case CLP_FIELD_CHAR8:
        return 1;
    case CLP_FIELD_CHAR:
    case CLP_FIELD_I16:
    case CLP_FIELD_U16:
        return 2;
    case CLP_FIELD_BOOL:
    case CLP_FIELD_I32:
    case CLP_FIELD_U32:
    case CLP_FIELD_F32:
        return 4;
    case CLP_FIELD_I64:
    case CLP_FIELD_U64:
    case CLP_FIELD_F64:
        return 8;
    case CLP_FIELD_POINTER:
        return w->pointer_bytes;
    case CLP_FIELD_DATE:
    case CLP_FIELD_GUID:
        return 16;
    default:
        return 0;
    }
}

static uint64_t extend(uint8_t type, uint64_t v)
{
    switch (type) {
    case CLP_FIELD_I8:
        return (uint64_t)(int64_t)(int8_t)v;
    case CLP_FIELD_I16:
        return (uint64_t)(int64_t)(int16_t)v;
    case CLP_FIELD_I32:
        return (uint64_t)(int64_t)(int32_t)v;
    default:
        return v;
    }
}

static void take_fixed(struct walk *w, size_t width, struct clp_nettrace_value *v)
{
    const uint8_t *p = clp_bytes_take(&w->c, width);
    if (!p)
        return;
    v->at = p;
    v->len = (uint32_t)width;
    if (width <= 8)
        memcpy(&v->number, p, width);
    v->number = extend(v->field->type, v->number);
}

/* A text without its end is a text to the end: the runtime cuts long messages so. */
static void take_text(struct walk *w, size_t unit, struct clp_nettrace_value *v)
{
    v->at = w->c.at;
    for (size_t left; (left = clp_bytes_left(&w->c)) >= unit;) {
        const uint8_t *p = clp_bytes_take(&w->c, unit);
        if (p[0] == 0 && p[unit - 1] == 0)
            return;
        v->len += (uint32_t)unit;
    }
}

static bool is_bytes(const struct clp_nettrace_field *f)
{
    return f->span == 1 && (f[1].type == CLP_FIELD_U8 || f[1].type == CLP_FIELD_CHAR8);
}

static void walk_elements(struct walk *w, const struct clp_nettrace_field *f, uint64_t count,
                          uint32_t depth)
{
    struct clp_nettrace_value v = {.field = f, .depth = depth};
    if (is_bytes(f)) {
        v.at = clp_bytes_take(&w->c, (size_t)CLP_MIN(count, SIZE_MAX));
        v.len = v.at ? (uint32_t)count : 0;
        if (v.at)
            w->visit(w->context, CLP_STEP_VALUE, &v);
        return;
    }
    w->visit(w->context, CLP_STEP_BEGIN, &v);
    for (uint64_t i = 0; i < count && f->span > 0 && !w->c.bad; i++) {
        const uint8_t *before = w->c.at;
        if (w->elements == 0 || clp_bytes_left(&w->c) == 0) {
            w->c.bad = true;
            break;
        }
        w->elements--;
        walk_node(w, f + 1, depth + 1);
        if (w->c.at == before) /* elements of no bytes would go on for ever */
            break;
    }
    w->visit(w->context, CLP_STEP_END, &v);
}

/* Elements that lie elsewhere in the payload. */
static void walk_located(struct walk *w, const struct clp_nettrace_field *f, uint32_t depth)
{
    uint16_t at = clp_bytes_u16(&w->c), bytes = clp_bytes_u16(&w->c);
    size_t from = at;
    if (w->c.bad)
        return;
    if (f->type == CLP_FIELD_RELLOC)
        from += (size_t)(w->c.at - w->e->payload);
    if (from + bytes > w->e->payload_len) {
        w->c.bad = true;
        return;
    }
    struct clp_bytes saved = w->c;
    w->c = clp_bytes_of(w->e->payload + from, bytes);
    size_t width = f->span > 0 ? width_of(w, f[1].type) : 0;
    walk_elements(w, f, width ? bytes / width : UINT16_MAX, depth);
    w->c = saved;
}

static void walk_children(struct walk *w, const struct clp_nettrace_field *f, uint32_t count,
                          uint32_t depth)
{
    for (uint32_t i = 0; i < count && !w->c.bad; i += 1u + f[i].span) {
        if (clp_bytes_left(&w->c) == 0) /* of an older version */
            return;
        walk_node(w, f + i, depth);
    }
}

static void walk_scalar(struct walk *w, const struct clp_nettrace_field *f, uint32_t depth)
{
    struct clp_nettrace_value v = {.field = f, .depth = depth};
    size_t width = width_of(w, f->type);
    if (width)
        take_fixed(w, width, &v);
    else if (f->type == CLP_FIELD_TEXT16 || f->type == CLP_FIELD_TEXT8)
        take_text(w, f->type == CLP_FIELD_TEXT16 ? 2 : 1, &v);
    else if (f->type == CLP_FIELD_VARUINT)
        v.number = clp_bytes_uleb(&w->c);
    else if (f->type == CLP_FIELD_VARINT) {
        uint64_t n = clp_bytes_uleb(&w->c);
        v.number = (n >> 1) ^ (0 - (n & 1));
    } else {
        w->c.bad = true;
    }
    if (w->c.bad)
        return;
    w->counters[f - w->e->meta->fields] = v.number;
    w->visit(w->context, CLP_STEP_VALUE, &v);
}

static void walk_node(struct walk *w, const struct clp_nettrace_field *f, uint32_t depth)
{
    struct clp_nettrace_value v = {.field = f, .depth = depth};
    switch (f->type) {
    case CLP_FIELD_OBJECT:
        w->visit(w->context, CLP_STEP_BEGIN, &v);
        walk_children(w, f + 1, f->span, depth + 1);
        w->visit(w->context, CLP_STEP_END, &v);
        return;
    case CLP_FIELD_ARRAY:
        walk_elements(w, f, clp_bytes_u16(&w->c), depth);
        return;
    case CLP_FIELD_FIXED_ARRAY:
        walk_elements(w, f, f->count, depth);
        return;
    case CLP_FIELD_COUNTED:
        walk_elements(w, f, w->counters[f->count % CLP_NETTRACE_FIELDS_MAX], depth);
        return;
    case CLP_FIELD_RELLOC:
    case CLP_FIELD_DATALOC:
        walk_located(w, f, depth);
        return;
    default:
        walk_scalar(w, f, depth);
    }
}

size_t clp_nettrace_walk(const struct clp_nettrace_event *e, uint32_t pointer_bytes,
                         clp_nettrace_visit visit, void *context)
{
    struct walk w = {
        .e = e,
        .c = clp_bytes_of(e->payload, e->payload_len),
        .pointer_bytes = pointer_bytes,
        .elements = CLP_PAYLOAD_ELEMENTS_MAX,
        .visit = visit,
        .context = context,
    };
    walk_children(&w, e->meta->fields, e->meta->field_count, 0);
    return (size_t)(w.c.at - e->payload);
}

/* ---- printing ------------------------------------------------------------------------------ */

#define TEXT_MAX_UNITS 2048u
#define HEX_MAX_BYTES 64u

struct print {
    struct clp_strbuf *out;
    bool json;
    bool first; /* nothing came yet at this level */
    uint64_t
        arrays; /* bit of a depth: what is open there is an array, whose elements have no names */
};

static void separate(struct print *p, const struct clp_nettrace_field *f, uint32_t depth)
{
    bool element = depth > 0 && (p->arrays >> ((depth - 1) & 63) & 1);
    const char *name = *f->name ? f->name : "value"; /* some sources leave names out */
    if (!p->first)
        clp_strbuf_str(p->out, p->json ? "," : " ");
    p->first = false;
    if (element)
        return;
    if (p->json) {
        clp_strbuf_json(p->out, name, strlen(name));
        clp_strbuf_char(p->out, ':');
    } else {
        clp_strbuf_printf(p->out, "%s=", name);
    }
}

static void print_text(struct print *p, const struct clp_nettrace_value *v)
{
    char text[3 * TEXT_MAX_UNITS + 1];
    struct clp_text t = clp_text_in(text, sizeof(text));
    if (v->field->type == CLP_FIELD_TEXT16) {
        uint16_t units[TEXT_MAX_UNITS];
        size_t n = CLP_MIN(v->len / 2, TEXT_MAX_UNITS);
        if (n > 0)
            memcpy(units, v->at, n * 2);
        clp_text_utf16(&t, units, n);
    } else {
        clp_text_utf8_clean(&t, (const char *)v->at, CLP_MIN(v->len, TEXT_MAX_UNITS));
    }
    clp_strbuf_json(p->out, text, t.len);
}

static void print_hex(struct print *p, const uint8_t *at, size_t len)
{
    if (p->json)
        clp_strbuf_char(p->out, '"');
    for (size_t i = 0; i < CLP_MIN(len, HEX_MAX_BYTES); i++)
        clp_strbuf_printf(p->out, "%02x", at[i]);
    if (len > HEX_MAX_BYTES)
        clp_strbuf_str(p->out, "...");
    if (p->json)
        clp_strbuf_char(p->out, '"');
}

static void print_guid(struct print *p, const uint8_t *g)
{
    const char *quote = p->json ? "\"" : "";
    clp_strbuf_printf(p->out,
                      "%s%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x%s",
                      quote, g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6], g[8], g[9], g[10],
                      g[11], g[12], g[13], g[14], g[15], quote);
}

static void print_date(struct print *p, const uint8_t *at)
{
    uint16_t t[8];
    const char *quote = p->json ? "\"" : "";
    memcpy(t, at, sizeof(t));
    clp_strbuf_printf(p->out, "%s%04u-%02u-%02uT%02u:%02u:%02u.%03uZ%s", quote, t[0], t[1], t[3],
                      t[4], t[5], t[6], t[7], quote);
}

/* JSON has no NaN and no infinities. */
static void print_float(struct print *p, double v)
{
    bool finite = v - v == 0;
    clp_strbuf_printf(p->out, p->json && !finite ? "\"%.17g\"" : "%.17g", v);
}

static void print_scalar(struct print *p, const struct clp_nettrace_value *v)
{
    float f32;
    double f64;
    uint32_t low = (uint32_t)v->number;
    switch (v->field->type) {
    case CLP_FIELD_BOOL:
        clp_strbuf_str(p->out, v->number ? "true" : "false");
        break;
    case CLP_FIELD_I8:
    case CLP_FIELD_I16:
    case CLP_FIELD_I32:
    case CLP_FIELD_I64:
    case CLP_FIELD_VARINT:
        clp_strbuf_printf(p->out, "%lld", (long long)v->number);
        break;
    case CLP_FIELD_F32:
        memcpy(&f32, &low, sizeof(f32));
        print_float(p, (double)f32);
        break;
    case CLP_FIELD_F64:
        memcpy(&f64, &v->number, sizeof(f64));
        print_float(p, f64);
        break;
    case CLP_FIELD_POINTER:
        clp_strbuf_printf(p->out, p->json ? "\"0x%llx\"" : "0x%llx", (unsigned long long)v->number);
        break;
    case CLP_FIELD_GUID:
        print_guid(p, v->at);
        break;
    case CLP_FIELD_DATE:
        print_date(p, v->at);
        break;
    case CLP_FIELD_TEXT16:
    case CLP_FIELD_TEXT8:
        print_text(p, v);
        break;
    case CLP_FIELD_ARRAY:
    case CLP_FIELD_FIXED_ARRAY:
    case CLP_FIELD_COUNTED:
    case CLP_FIELD_RELLOC:
    case CLP_FIELD_DATALOC:
        print_hex(p, v->at, v->len);
        break;
    default:
        clp_strbuf_printf(p->out, "%llu", (unsigned long long)v->number);
    }
}

static void print_step(void *context, enum clp_nettrace_step step,
                       const struct clp_nettrace_value *v)
{
    struct print *p = context;
    bool object = v->field->type == CLP_FIELD_OBJECT;
    switch (step) {
    case CLP_STEP_VALUE:
        separate(p, v->field, v->depth);
        print_scalar(p, v);
        break;
    case CLP_STEP_BEGIN:
        separate(p, v->field, v->depth);
        clp_strbuf_char(p->out, object ? '{' : '[');
        p->first = true;
        p->arrays &= ~(1ull << (v->depth & 63));
        p->arrays |= (uint64_t)!object << (v->depth & 63);
        break;
    case CLP_STEP_END:
        clp_strbuf_char(p->out, object ? '}' : ']');
        p->first = false;
        break;
    }
}

void clp_nettrace_print_payload(const struct clp_nettrace_event *e, uint32_t pointer_bytes,
                                bool json, struct clp_strbuf *out)
{
    struct print p = {.out = out, .json = json, .first = true};
    static const struct clp_nettrace_field rest = {.name = "rest", .type = CLP_FIELD_ARRAY};
    if (json)
        clp_strbuf_char(out, '{');
    size_t used = clp_nettrace_walk(e, pointer_bytes, print_step, &p);
    if (used < e->payload_len) {
        separate(&p, &rest, 0);
        print_hex(&p, e->payload + used, e->payload_len - used);
    }
    if (json)
        clp_strbuf_char(out, '}');
}
