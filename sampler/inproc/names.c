#include "sampler/inproc/names.h"

#include "sampler/inproc/compiler_made.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/type_names.h"
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#define NAME_UNITS 512u
#define OWNER_DEPTH_MAX 8u

void clp_names_init_texts(struct clp_method_texts *t)
{
    t->type = clp_text_in(t->type_bytes, sizeof(t->type_bytes));
    t->name = clp_text_in(t->name_bytes, sizeof(t->name_bytes));
    t->type_args = clp_text_in(t->type_args_bytes, sizeof(t->type_args_bytes));
    t->method_args = clp_text_in(t->method_args_bytes, sizeof(t->method_args_bytes));
    t->signature = clp_text_in(t->signature_bytes, sizeof(t->signature_bytes));
    t->token = 0;
    t->module = 0;
    t->flags = 0;
}

void clp_names_done(void)
{
    clp_type_names_done();
}

int clp_names_facts(clr_function_id function, struct clp_function_facts *ret)
{
    struct clr_info *info = clp_runtime_info();
    *ret = (struct clp_function_facts){0};
    if (!info)
        return -ENOENT;
    clr_hresult hr =
        info->slots->get_function_info2(info, function, 0, &ret->class_id, &ret->module,
                                        &ret->token, CLP_TYPE_ARGS_MAX, &ret->arg_count, ret->args);
    ret->arg_count = CLP_MIN(ret->arg_count, CLP_TYPE_ARGS_MAX);
    return CLR_OK(hr) ? 0 : -ENOENT;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

/* The younger of two modules that may unload; 0 = none. */
static uint32_t younger(uint32_t a, clr_module_id module)
{
    uint32_t b = clp_modules_learn(module);
    clp_code_lock();
    if (!clp_modules_collectible_locked(b))
        b = 0;
    if (a && b && clp_modules_at_locked(a)->serial > clp_modules_at_locked(b)->serial)
        b = a;
    clp_code_unlock();
    return b ? b : a;
}

static uint32_t owner_of_class(uint32_t owner, clr_class_id id, unsigned depth)
{
    clr_class_id args[CLP_TYPE_ARGS_MAX], element = 0;
    uint32_t count = 0, unused;
    clr_module_id module = 0;
    struct clr_info *info = clp_runtime_info();
    if (!info || !id || depth > OWNER_DEPTH_MAX)
        return owner;
    if (info->slots->is_array_class(info, id, &unused, &element, &unused) == CLR_S_OK)
        return owner_of_class(owner, element, depth + 1);
    if (!CLR_OK(info->slots->get_class_id_info2(info, id, &module, &unused, NULL, CLP_TYPE_ARGS_MAX,
                                                &count, args)))
        return owner;
    owner = younger(owner, module);
    for (uint32_t i = 0; i < CLP_MIN(count, CLP_TYPE_ARGS_MAX); i++)
        owner = owner_of_class(owner, args[i], depth + 1);
    return owner;
}

uint32_t clp_names_owner(const struct clp_function_facts *facts, bool *ret_sure)
{
    uint32_t owner = younger(0, facts->module);
    *ret_sure = facts->class_id != 0;
    owner = owner_of_class(owner, facts->class_id, 0);
    for (uint32_t i = 0; i < facts->arg_count; i++)
        owner = owner_of_class(owner, facts->args[i], 0);
    return owner;
}

/* ---- generic arguments --------------------------------------------------------------------- */

/* The name of generic parameter `number` of a type or method. */
static void parameter_name(const struct clp_metadata_scope *s, uint32_t owner, uint32_t number,
                           struct clp_text *out)
{
    uint32_t params[CLP_TYPE_ARGS_MAX], got = 0, at = 0, len = 0;
    uint16_t name[64];
    void *handle = NULL;
    struct clr_metadata *md = s->md;
    (void)md->slots->enum_generic_params(md, &handle, owner, params, CLP_TYPE_ARGS_MAX, &got);
    md->slots->close_enum(md, handle);
    for (uint32_t i = 0; i < CLP_MIN(got, CLP_TYPE_ARGS_MAX); i++)
        if (CLR_OK(md->slots->get_generic_param_props(md, params[i], &at, NULL, NULL, NULL, name,
                                                      CLP_ARRAY_LEN(name), &len)) &&
            at == number && len > 1)
            clp_text_utf16(out, name, CLP_MIN(len, CLP_ARRAY_LEN(name)) - 1);
}

static uint32_t parameter_count(const struct clp_metadata_scope *s, uint32_t owner)
{
    uint32_t params[CLP_TYPE_ARGS_MAX], got = 0;
    void *handle = NULL;
    (void)s->md->slots->enum_generic_params(s->md, &handle, owner, params, CLP_TYPE_ARGS_MAX, &got);
    s->md->slots->close_enum(s->md, handle);
    return CLP_MIN(got, CLP_TYPE_ARGS_MAX);
}

static const char canon[] = "System.__Canon";

/* Code shared by all reference types carries the name of the parameter. */
static void add_argument(const struct clp_metadata_scope *s, uint32_t owner, uint32_t number,
                         clr_class_id id, struct clp_text *out)
{
    char bytes[128];
    struct clp_text parameter = clp_text_in(bytes, sizeof(bytes));
    size_t from = out->len, len = sizeof(canon) - 1;
    if (id)
        clp_type_name_class(id, 0, out);
    else
        clp_text_add(out, canon);
    if (out->len - from != len || memcmp(out->buf + from, canon, len) != 0)
        return;
    parameter_name(s, owner, number, &parameter);
    if (parameter.len > 0) {
        clp_text_char(out, ':');
        clp_text_addn(out, parameter.buf, parameter.len);
    }
}

static void add_arguments(const struct clp_metadata_scope *s, uint32_t owner,
                          const clr_class_id *args, uint32_t count, struct clp_text *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            clp_text_char(out, ',');
        add_argument(s, owner, i, args ? args[i] : 0, out);
    }
}

/* When the class is not told the code is shared, and its parameters' names are all that is known.
 */
static void type_arguments(const struct clp_metadata_scope *s, uint32_t type, clr_class_id id,
                           struct clp_text *out)
{
    clr_class_id args[CLP_TYPE_ARGS_MAX];
    uint32_t count = 0;
    struct clr_info *info = clp_runtime_info();
    if (!id) {
        add_arguments(s, type, NULL, parameter_count(s, type), out);
        return;
    }
    if (info && CLR_OK(info->slots->get_class_id_info2(info, id, NULL, NULL, NULL,
                                                       CLP_TYPE_ARGS_MAX, &count, args)))
        add_arguments(s, type, args, CLP_MIN(count, CLP_TYPE_ARGS_MAX), out);
}

/* ---- methods ------------------------------------------------------------------------------- */

static void fill_method(const struct clp_metadata_scope *s, const struct clp_function_facts *facts,
                        struct clp_method_texts *ret)
{
    uint16_t name[NAME_UNITS];
    uint32_t type = 0, len = 0, sig_len = 0;
    const uint8_t *sig = NULL;
    struct clr_metadata *md = s->md;
    if (!CLR_OK(md->slots->get_method_props(md, facts->token, &type, name, NAME_UNITS, &len, NULL,
                                            &sig, &sig_len, NULL, NULL)) ||
        len == 0)
        return;
    clp_text_utf16(&ret->name, name, CLP_MIN(len, NAME_UNITS) - 1);
    ret->name.cut |= len > NAME_UNITS;
    if (type != CLR_TYPEDEF_GLOBAL)
        clp_type_name_token(s, type, 0, &ret->type);
    struct clp_signature_names names = clp_type_name_signature(s);
    if (sig && clp_signature_params(sig, sig_len, &names, &ret->signature) < 0)
        ret->signature.cut = true;
    type_arguments(s, type, facts->class_id, &ret->type_args);
    add_arguments(s, facts->token, facts->args, facts->arg_count, &ret->method_args);
    if (len <= NAME_UNITS)
        ret->flags |= clp_compiler_made_flags(s, type, name);
}

void clp_names_method(const struct clp_function_facts *facts, struct clp_method_texts *ret)
{
    ret->token = facts->token;
    ret->module = clp_modules_learn(facts->module);
    struct clp_metadata_scope s = clp_metadata_open(ret->module);
    if (s.md)
        fill_method(&s, facts, ret);
}

/* ---- dynamic methods ----------------------------------------------------------------------- */

static bool is_il_stub(const struct clp_text *name)
{
    static const char prefix[] = "IL_STUB";
    return name->len >= sizeof(prefix) - 1 && memcmp(name->buf, prefix, sizeof(prefix) - 1) == 0;
}

static void dynamic_signature(struct clp_method_texts *ret, const uint8_t *sig, uint32_t len)
{
    struct clp_metadata_scope s = clp_metadata_open(ret->module);
    struct clp_signature_names names = clp_type_name_signature(&s);
    if (clp_signature_params(sig, len, &names, &ret->signature) < 0)
        ret->signature.cut = true;
}

int clp_names_dynamic(clr_function_id function, bool with_signature, struct clp_method_texts *ret)
{
    uint16_t name[NAME_UNITS];
    uint32_t len = 0, sig_len = 0;
    const uint8_t *sig = NULL;
    clr_module_id module = 0;
    struct clr_info *info = clp_runtime_info();
    if (!info)
        return -ENOENT;
    name[0] = 0;
    clr_hresult hr = info->slots->get_dynamic_function_info(info, function, &module, &sig, &sig_len,
                                                            NAME_UNITS, &len, name);
    /* A name that does not fit is not given in part. */
    bool too_long = !CLR_OK(hr) && len > NAME_UNITS;
    if (!CLR_OK(hr) && !too_long)
        return -ENOENT;
    if (!too_long)
        clp_text_utf16(&ret->name, name, len > 0 ? len - 1 : 0);
    ret->name.cut |= too_long;
    ret->flags |= is_il_stub(&ret->name) ? CLP_METHOD_STUB : CLP_METHOD_DYNAMIC;
    ret->module = clp_modules_learn(module);
    if (with_signature && sig)
        dynamic_signature(ret, sig, sig_len);
    return 0;
}
