/* What the events of a stream are: their names and the trees of their fields. */
#include "sampler/nettrace/parts.h"

#include "base/core/text.h"
#include "base/vec.h"
#include "sampler/nettrace/clr.h"

#include <errno.h>
#include <string.h>

#define TEXT_UNITS_MAX 1024u /* of a name; the rest is cut */

const char *clp_nettrace_provider_name(enum clp_nettrace_provider p)
{
    static const char *const names[] = {
        [CLP_PROVIDER_OTHER] = "",
#define CLP_PROVIDER(id, name) [CLP_PROVIDER_##id] = name,
#include "sampler/nettrace/providers.def"
#undef CLP_PROVIDER
    };
    return names[p];
}

static enum clp_nettrace_provider known_provider(const char *name)
{
    enum clp_nettrace_provider p = CLP_PROVIDER_OTHER + 1;
    for (; p <= CLP_PROVIDER_TPL; p++)
        if (strcmp(clp_nettrace_provider_name(p), name) == 0)
            return p;
    return CLP_PROVIDER_OTHER;
}

/* ---- texts --------------------------------------------------------------------------------- */

const char *clp_nt_keep_text(struct clp_nettrace *r, const char *text, size_t n)
{
    if (n == 0)
        return "";
    size_t cap = 3 * CLP_MIN(n, TEXT_UNITS_MAX) + 1; /* each bad byte becomes U+FFFD */
    char *to = clp_arena_alloc(&r->arena, cap);
    if (!to)
        return NULL;
    struct clp_text t = clp_text_in(to, cap);
    clp_text_utf8_clean(&t, text, CLP_MIN(n, TEXT_UNITS_MAX));
    return to;
}

/* A UTF-16 text with its NUL. Without room it is empty and the record is refused later. */
static const char *take_text16(struct clp_nettrace *r, struct clp_bytes *c)
{
    uint16_t units[TEXT_UNITS_MAX];
    size_t n = 0;
    for (uint16_t u; (u = clp_bytes_u16(c)) != 0 && !c->bad;)
        if (n < TEXT_UNITS_MAX)
            units[n++] = u;
    char text[3 * TEXT_UNITS_MAX + 1];
    struct clp_text t = clp_text_in(text, sizeof(text));
    clp_text_utf16(&t, units, n);
    if (t.len == 0)
        return "";
    char *to = clp_arena_alloc(&r->arena, t.len + 1);
    if (to)
        memcpy(to, text, t.len + 1);
    return to;
}

static const char *take_text8(struct clp_nettrace *r, struct clp_bytes *c)
{
    uint64_t n = clp_bytes_uleb(c);
    const uint8_t *p = clp_bytes_take(c, n > SIZE_MAX ? SIZE_MAX : (size_t)n);
    return p ? clp_nt_keep_text(r, (const char *)p, (size_t)n) : "";
}

/* ---- fields -------------------------------------------------------------------------------- */

/* The tree of one event while it is read. */
struct tree {
    struct clp_nettrace *r;
    struct clp_nettrace_field nodes[CLP_NETTRACE_FIELDS_MAX];
    uint32_t count;
    bool bad; /* too many, too deep, no room, or a type that does not exist */
};

static uint32_t add_node(struct tree *t, uint32_t type)
{
    bool exists =
        (type >= CLP_FIELD_OBJECT && type <= CLP_FIELD_DATALOC && type != 2 && type != 15) ||
        (type >= CLP_FIELD_POINTER && type <= CLP_FIELD_COUNTED);
    if (!exists || t->count >= CLP_NETTRACE_FIELDS_MAX) {
        t->bad = true;
        return 0;
    }
    t->nodes[t->count] = (struct clp_nettrace_field){.name = "", .type = (uint8_t)type};
    return t->count++;
}

static void close_node(struct tree *t, uint32_t at)
{
    t->nodes[at].span = (uint16_t)(t->count - at - 1);
}

static void set_name(struct tree *t, uint32_t at, const char *name)
{
    if (!name || t->bad)
        t->bad = true;
    else
        t->nodes[at].name = name;
}

/* i32 count, then each { i32 type, the fields of an object, name }. */
static void read_fields_v1(struct tree *t, struct clp_bytes *c, unsigned depth)
{
    uint32_t count = clp_bytes_u32(c);
    if (depth > CLP_NETTRACE_DEPTH_MAX)
        t->bad = true;
    for (uint32_t i = 0; i < count && !c->bad && !t->bad; i++) {
        uint32_t type = clp_bytes_u32(c);
        uint32_t at = add_node(t, type);
        if (type == CLP_FIELD_OBJECT && !t->bad)
            read_fields_v1(t, c, depth + 1);
        set_name(t, at, take_text16(t->r, c));
        if (!t->bad)
            close_node(t, at);
    }
}

static void read_fields_v2(struct tree *t, struct clp_bytes *c, unsigned depth);

/* i32 type, then the element's type of an array or the fields of an object. */
static uint32_t read_type_v2(struct tree *t, struct clp_bytes *c, unsigned depth)
{
    uint32_t type = clp_bytes_u32(c), at = add_node(t, type);
    if (depth > CLP_NETTRACE_DEPTH_MAX || c->bad)
        t->bad = true;
    if (t->bad)
        return 0;
    if (type == CLP_FIELD_ARRAY)
        (void)read_type_v2(t, c, depth + 1);
    else if (type == CLP_FIELD_OBJECT)
        read_fields_v2(t, c, depth + 1);
    close_node(t, at);
    return at;
}

/* i32 count, then each { i32 size of all of it, name, type }. */
static void read_fields_v2(struct tree *t, struct clp_bytes *c, unsigned depth)
{
    uint32_t count = clp_bytes_u32(c);
    for (uint32_t i = 0; i < count && !c->bad && !t->bad; i++) {
        uint32_t size = clp_bytes_u32(c);
        const uint8_t *p = size < 4 ? NULL : clp_bytes_take(c, size - 4);
        if (!p) {
            c->bad = true;
            return;
        }
        struct clp_bytes field = clp_bytes_of(p, size - 4);
        const char *name = take_text16(t->r, &field);
        set_name(t, read_type_v2(t, &field, depth), name);
    }
}

static void read_fields_v6(struct tree *t, struct clp_bytes *c, unsigned depth);

static bool has_element(uint32_t type)
{
    return type == CLP_FIELD_ARRAY || type == CLP_FIELD_FIXED_ARRAY || type == CLP_FIELD_RELLOC ||
           type == CLP_FIELD_DATALOC;
}

static uint32_t read_type_v6(struct tree *t, struct clp_bytes *c, unsigned depth)
{
    uint8_t type = clp_bytes_u8(c);
    uint32_t at = add_node(t, type >= CLP_FIELD_POINTER ? 0 : type);
    if (depth > CLP_NETTRACE_DEPTH_MAX || c->bad)
        t->bad = true;
    if (t->bad)
        return 0;
    if (has_element(type))
        (void)read_type_v6(t, c, depth + 1);
    if (type == CLP_FIELD_FIXED_ARRAY)
        t->nodes[at].count = clp_bytes_u16(c);
    if (type == CLP_FIELD_OBJECT)
        read_fields_v6(t, c, depth + 1);
    close_node(t, at);
    return at;
}

/* u16 count, then each { u16 size of the rest, name, type }. */
static void read_fields_v6(struct tree *t, struct clp_bytes *c, unsigned depth)
{
    uint16_t count = clp_bytes_u16(c);
    for (uint32_t i = 0; i < count && !c->bad && !t->bad; i++) {
        uint16_t size = clp_bytes_u16(c);
        const uint8_t *p = clp_bytes_take(c, size);
        if (!p)
            return;
        struct clp_bytes field = clp_bytes_of(p, size);
        const char *name = take_text8(t->r, &field);
        set_name(t, read_type_v6(t, &field, depth), name);
    }
}

/* ---- layouts of the CLR table -------------------------------------------------------------- */

static const struct {
    const char *word;
    uint8_t type;
} words[] = {
    {"u8", CLP_FIELD_U8},     {"u16", CLP_FIELD_U16},   {"u32", CLP_FIELD_U32},
    {"u64", CLP_FIELD_U64},   {"i32", CLP_FIELD_I32},   {"i64", CLP_FIELD_I64},
    {"f64", CLP_FIELD_F64},   {"p", CLP_FIELD_POINTER}, {"z", CLP_FIELD_TEXT16},
    {"guid", CLP_FIELD_GUID}, {"z8", CLP_FIELD_TEXT8},
};

static uint8_t type_of_word(const char *s, size_t n)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(words); i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, s, n) == 0)
            return words[i].type;
    return 0;
}

static uint32_t node_called(const struct tree *t, const char *s, size_t n)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (strlen(t->nodes[i].name) == n && memcmp(t->nodes[i].name, s, n) == 0)
            return i;
    return UINT32_MAX;
}

static const char *compile_fields(struct tree *t, const char *s);

/* "type", "[Count]type" or "[Count]{fields}". */
static const char *compile_type(struct tree *t, const char *s, const char *name)
{
    uint32_t at;
    if (*s == '[') {
        size_t n = strcspn(s + 1, "]");
        uint32_t counter = node_called(t, s + 1, n);
        at = add_node(t, counter == UINT32_MAX ? 0 : CLP_FIELD_COUNTED);
        if (t->bad)
            return s;
        t->nodes[at].count = counter;
        s = compile_type(t, s + n + 2, "");
    } else if (*s == '{') {
        at = add_node(t, CLP_FIELD_OBJECT);
        s = compile_fields(t, s + 1);
        s += *s == '}';
    } else {
        size_t n = strcspn(s, " }");
        at = add_node(t, type_of_word(s, n));
        s += n;
    }
    set_name(t, at, name);
    if (!t->bad)
        close_node(t, at);
    return s;
}

static const char *compile_fields(struct tree *t, const char *s)
{
    while (*s && *s != '}' && !t->bad) {
        size_t n = strcspn(s, ":");
        const char *name = clp_nt_keep_text(t->r, s, n);
        s = compile_type(t, s + n + 1, name);
        s += *s == ' ';
    }
    return s;
}

static void use_table(struct tree *t, struct clp_nettrace_meta *m)
{
    const struct clp_clr_event *e = clp_clr_event(m->known, m->event_id);
    if (!e)
        return;
    if (!*m->name)
        m->name = e->name;
    if (t->count > 0)
        return;
    (void)compile_fields(t, e->layout);
    m->from_table = !t->bad;
}

/* ---- records ------------------------------------------------------------------------------- */

static int keep_meta(struct clp_nettrace *r, struct clp_nettrace_meta *m, const struct tree *t)
{
    uint32_t had = r->meta_cap;
    struct clp_nettrace_meta *to = clp_arena_alloc(&r->arena, sizeof(*to));
    struct clp_nettrace_field *fields =
        clp_arena_alloc(&r->arena, (size_t)t->count * sizeof(*fields) + 1);
    int e = m->id >= CLP_NETTRACE_METADATA_MAX_ID
                ? -ENOSPC
                : CLP_VEC_GROW(r->metas, r->meta_cap, m->id + 1, CLP_NETTRACE_METADATA_MAX_ID);
    if (e == -ENOMEM)
        return e;
    if (r->meta_cap > had)
        memset(r->metas + had, 0, (r->meta_cap - had) * sizeof(*r->metas));
    if (!to || !fields || e < 0 || !m->provider || !m->name) {
        r->counts.metadata_refused++;
        return 0;
    }
    if (t->count > 0)
        memcpy(fields, t->nodes, (size_t)t->count * sizeof(*fields));
    *to = *m;
    to->fields = fields;
    to->field_count = t->count;
    r->metas[m->id] = to;
    return 0;
}

/* Fields that do not hold leave the event without any: its payload can still be shown as bytes. */
static int finish_meta(struct tree *t, struct clp_nettrace_meta *m)
{
    if (t->bad)
        t->count = 0;
    t->bad = false;
    if (m->provider && m->name) {
        m->known = known_provider(m->provider);
        use_table(t, m);
    }
    if (t->bad)
        t->count = 0;
    return keep_meta(t->r, m, t);
}

enum { TAG_OPCODE = 1, TAG_V2_FIELDS = 2 };

static void read_tags_v4(struct tree *t, struct clp_bytes *c, struct clp_nettrace_meta *m)
{
    while (clp_bytes_left(c) >= 5) {
        uint32_t size = clp_bytes_u32(c);
        uint8_t kind = clp_bytes_u8(c);
        const uint8_t *p = clp_bytes_take(c, size);
        if (!p)
            return;
        struct clp_bytes tag = clp_bytes_of(p, size);
        if (kind == TAG_OPCODE)
            m->opcode = clp_bytes_u8(&tag);
        if (kind == TAG_V2_FIELDS && !t->bad) {
            t->count = 0;
            read_fields_v2(t, &tag, 0);
        }
    }
}

int clp_nt_add_metadata_v4(struct clp_nettrace *r, const uint8_t *data, size_t len)
{
    struct clp_bytes c = clp_bytes_of(data, len);
    struct clp_nettrace_meta m = {.id = clp_bytes_u32(&c)};
    struct tree t = {.r = r};
    m.provider = take_text16(r, &c);
    m.event_id = clp_bytes_u32(&c);
    m.name = take_text16(r, &c);
    m.keywords = clp_bytes_u64(&c);
    m.version = clp_bytes_u32(&c);
    m.level = (uint8_t)clp_bytes_u32(&c);
    read_fields_v1(&t, &c, 0);
    if (c.bad && !t.bad)
        return -EPROTO;
    if (!t.bad)
        read_tags_v4(&t, &c, &m);
    return finish_meta(&t, &m);
}

enum {
    V6_OPCODE = 1,
    V6_KEYWORDS = 3,
    V6_MESSAGE,
    V6_DESCRIPTION,
    V6_KEY_VALUE,
    V6_PROVIDER_GUID,
    V6_LEVEL,
    V6_VERSION,
};

static void skip_text8(struct clp_bytes *c)
{
    uint64_t n = clp_bytes_uleb(c);
    (void)clp_bytes_take(c, n > SIZE_MAX ? SIZE_MAX : (size_t)n);
}

static void read_more_v6(struct clp_bytes *c, struct clp_nettrace_meta *m)
{
    while (clp_bytes_left(c) > 0 && !c->bad) {
        switch (clp_bytes_u8(c)) {
        case V6_OPCODE:
            m->opcode = clp_bytes_u8(c);
            break;
        case V6_KEYWORDS:
            m->keywords = clp_bytes_u64(c);
            break;
        case V6_KEY_VALUE:
            skip_text8(c);
            skip_text8(c);
            break;
        case V6_MESSAGE:
        case V6_DESCRIPTION:
            skip_text8(c);
            break;
        case V6_PROVIDER_GUID:
            (void)clp_bytes_take(c, CLP_NETTRACE_GUID_BYTES);
            break;
        case V6_LEVEL:
            m->level = clp_bytes_u8(c);
            break;
        case V6_VERSION:
            m->version = clp_bytes_u8(c);
            break;
        default:
            return; /* nothing says how long it is */
        }
    }
}

static int read_row_v6(struct clp_nettrace *r, struct clp_bytes *c)
{
    struct clp_nettrace_meta m = {.id = (uint32_t)clp_bytes_uleb(c)};
    struct tree t = {.r = r};
    m.provider = take_text8(r, c);
    m.event_id = (uint32_t)clp_bytes_uleb(c);
    m.name = take_text8(r, c);
    read_fields_v6(&t, c, 0);
    if (c->bad)
        return -EPROTO;
    uint16_t size = t.bad ? 0 : clp_bytes_u16(c);
    const uint8_t *p = clp_bytes_take(c, size);
    if (p) {
        struct clp_bytes more = clp_bytes_of(p, size);
        read_more_v6(&more, &m);
    }
    return finish_meta(&t, &m);
}

int clp_nt_read_metadata_v6(struct clp_nettrace *r, struct clp_nt_block *b)
{
    struct clp_bytes c = clp_bytes_of(b->data, b->len);
    uint16_t header = clp_bytes_u16(&c);
    (void)clp_bytes_take(&c, header);
    while (clp_bytes_left(&c) > 0) {
        uint16_t size = clp_bytes_u16(&c);
        const uint8_t *p = clp_bytes_take(&c, size);
        if (!p)
            return -EPROTO;
        struct clp_bytes row = clp_bytes_of(p, size);
        int e = read_row_v6(r, &row);
        if (e < 0)
            return e;
    }
    return 0;
}

void clp_nt_forget_metadata(struct clp_nettrace *r)
{
    if (r->metas)
        memset(r->metas, 0, r->meta_cap * sizeof(*r->metas));
    clp_arena_done(&r->arena);
}
