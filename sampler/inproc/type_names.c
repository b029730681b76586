#include "sampler/inproc/type_names.h"

#include "sampler/inproc/code_table.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/code_lock.h"

#include <string.h>

#define CACHE_ENTRIES 1024u
#define NAME_BYTES 512u
#define DEPTH_MAX 8u
#define SPEC_DEPTH_MAX 1u /* a TypeSpec may name TypeSpecs, itself among them */

/* Names of TypeDefs and TypeRefs. The key is 0 for an empty entry. */
static struct {
    uint64_t key;
    struct clp_string *name;
} cache[CACHE_ENTRIES];

void clp_type_names_done(void)
{
    memset(cache, 0, sizeof(cache));
}

struct clp_metadata_scope clp_metadata_open(uint32_t module)
{
    struct clp_metadata_scope s = {.module = module};
    if (!module)
        return s;
    s.md = clp_modules_metadata(module);
    clp_code_lock();
    s.serial = clp_modules_at_locked(module)->serial;
    clp_code_unlock();
    return s;
}

/* ---- cache --------------------------------------------------------------------------------- */

static uint64_t key_of(const struct clp_metadata_scope *s, uint32_t token)
{
    return (uint64_t)s->serial << 32 | token;
}

static size_t place_of(uint64_t key)
{
    return (key * 0x9e3779b97f4a7c15ull) >> 54;
}

static bool from_cache(uint64_t key, struct clp_text *out)
{
    size_t at = place_of(key);
    clp_code_lock();
    const struct clp_string *name = cache[at].key == key ? cache[at].name : NULL;
    if (name)
        clp_text_addn(out, name->text, name->len);
    clp_code_unlock();
    return name != NULL;
}

static void to_cache(uint64_t key, const struct clp_text *name)
{
    size_t at = place_of(key);
    if (name->cut || name->len == 0)
        return;
    clp_code_lock();
    struct clp_string *text =
        clp_strings_take(clp_code_table_strings_locked(), name->buf, name->len);
    if (text) {
        clp_strings_give(clp_code_table_strings_locked(), cache[at].name);
        cache[at].key = key;
        cache[at].name = text;
    }
    clp_code_unlock();
}

/* ---- tokens -------------------------------------------------------------------------------- */

static void add_units(struct clp_text *out, const uint16_t *name, uint32_t len_with_nul)
{
    if (len_with_nul > CLP_TYPE_NAME_UNITS)
        out->cut = true;
    clp_text_utf16(out, name, CLP_MIN(len_with_nul, CLP_TYPE_NAME_UNITS) - 1);
}

static void typedef_name(const struct clp_metadata_scope *s, uint32_t token, unsigned depth,
                         struct clp_text *out)
{
    uint16_t name[CLP_TYPE_NAME_UNITS];
    uint32_t len = 0, flags = 0, enclosing = 0;
    struct clr_metadata *md = s->md;
    clr_hresult hr =
        md->slots->get_typedef_props(md, token, name, CLP_TYPE_NAME_UNITS, &len, &flags, NULL);
    if (!CLR_OK(hr) || len == 0)
        return;
    if (CLR_TYPEDEF_NESTED(flags) &&
        CLR_OK(md->slots->get_nested_class_props(md, token, &enclosing))) {
        clp_type_name_token(s, enclosing, depth + 1, out);
        clp_text_char(out, '+');
    }
    add_units(out, name, len);
}

static void typeref_name(const struct clp_metadata_scope *s, uint32_t token, unsigned depth,
                         struct clp_text *out)
{
    uint16_t name[CLP_TYPE_NAME_UNITS];
    uint32_t len = 0, scope = 0;
    struct clr_metadata *md = s->md;
    clr_hresult hr =
        md->slots->get_typeref_props(md, token, &scope, name, CLP_TYPE_NAME_UNITS, &len);
    if (!CLR_OK(hr) || len == 0)
        return;
    if (CLR_TOKEN_TABLE(scope) == CLR_TOKEN_TYPEREF) {
        clp_type_name_token(s, scope, depth + 1, out);
        clp_text_char(out, '+');
    }
    add_units(out, name, len);
}

static void typespec_name(const struct clp_metadata_scope *s, uint32_t token, unsigned depth,
                          struct clp_text *out)
{
    const uint8_t *sig = NULL;
    uint32_t len = 0;
    if (depth > SPEC_DEPTH_MAX || !CLR_OK(s->md->slots->get_typespec(s->md, token, &sig, &len)) ||
        !sig)
        return;
    struct clp_bytes b = clp_bytes_of(sig, len);
    struct clp_signature_names names = clp_type_name_signature(s);
    clp_signature_type(&b, &names, depth + 1, out);
}

void clp_type_name_token(const struct clp_metadata_scope *s, uint32_t token, unsigned depth,
                         struct clp_text *out)
{
    char bytes[NAME_BYTES];
    struct clp_text name = clp_text_in(bytes, sizeof(bytes));
    if (!s->md || depth > DEPTH_MAX)
        return;
    if (CLR_TOKEN_TABLE(token) == CLR_TOKEN_TYPESPEC) {
        typespec_name(s, token, depth, out);
        return;
    }
    if (from_cache(key_of(s, token), out))
        return;
    if (CLR_TOKEN_TABLE(token) == CLR_TOKEN_TYPEDEF)
        typedef_name(s, token, depth, &name);
    else if (CLR_TOKEN_TABLE(token) == CLR_TOKEN_TYPEREF)
        typeref_name(s, token, depth, &name);
    to_cache(key_of(s, token), &name);
    clp_text_addn(out, name.buf, name.len);
    out->cut |= name.cut;
}

static void token_of_signature(void *user, uint32_t token, unsigned depth, struct clp_text *out)
{
    clp_type_name_token(user, token, depth, out);
}

static void class_of_signature(void *user, uint64_t type, unsigned depth, struct clp_text *out)
{
    (void)user;
    clp_type_name_class(type, depth, out);
}

struct clp_signature_names clp_type_name_signature(const struct clp_metadata_scope *s)
{
    return (struct clp_signature_names){
        .user = (void *)s, .token = token_of_signature, .address = class_of_signature};
}

/* ---- loaded classes ------------------------------------------------------------------------ */

static bool array_name(struct clr_info *info, clr_class_id id, unsigned depth, struct clp_text *out)
{
    uint32_t element_type = 0, rank = 0;
    clr_class_id element = 0;
    if (info->slots->is_array_class(info, id, &element_type, &element, &rank) != CLR_S_OK)
        return false;
    clp_type_name_class(element, depth + 1, out);
    clp_text_char(out, '[');
    for (uint32_t i = 1; i < rank && i < 32; i++)
        clp_text_char(out, ',');
    clp_text_char(out, ']');
    return true;
}

static void class_arguments(const clr_class_id *args, uint32_t count, unsigned depth,
                            struct clp_text *out)
{
    if (count == 0)
        return;
    clp_text_char(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            clp_text_char(out, ',');
        clp_type_name_class(args[i], depth + 1, out);
    }
    clp_text_char(out, ']');
}

void clp_type_name_class(clr_class_id id, unsigned depth, struct clp_text *out)
{
    clr_class_id args[CLP_TYPE_ARGS_MAX];
    uint32_t token = 0, count = 0;
    clr_module_id module = 0;
    struct clr_info *info = clp_runtime_info();
    if (!info || !id || depth > DEPTH_MAX || array_name(info, id, depth, out))
        return;
    if (!CLR_OK(info->slots->get_class_id_info2(info, id, &module, &token, NULL, CLP_TYPE_ARGS_MAX,
                                                &count, args)))
        return;
    struct clp_metadata_scope s = clp_metadata_open(clp_modules_learn(module));
    clp_type_name_token(&s, token, depth, out);
    class_arguments(args, CLP_MIN(count, CLP_TYPE_ARGS_MAX), depth, out);
}
