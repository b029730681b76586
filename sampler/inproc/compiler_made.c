#include "sampler/inproc/compiler_made.h"

#include "sampler/inproc/compiler_from.h"
#include "wire/wire.h"

#include <string.h>

#define NAME_UNITS 256u
#define NESTING_MAX 16u

static uint32_t units_of(const uint16_t *name)
{
    uint32_t n = 0;
    while (name[n])
        n++;
    return n;
}

/* ---- overloads ----------------------------------------------------------------------------- */

/* Whether a type has two methods of this name. */
static bool has_two(const struct clp_metadata_scope *s, uint32_t type, const uint16_t *name)
{
    uint32_t methods[2], got = 0;
    void *handle = NULL;
    struct clr_metadata *md = s->md;
    (void)md->slots->enum_methods_with_name(md, &handle, type, name, methods, 2, &got);
    md->slots->close_enum(md, handle);
    return got == 2;
}

struct type_facts {
    uint32_t token, enclosing; /* enclosing 0: not nested */
    uint32_t len;
    uint16_t name[NAME_UNITS]; /* without its enclosing types */
};

static bool read_type(const struct clp_metadata_scope *s, uint32_t token, struct type_facts *ret)
{
    uint32_t len = 0, flags = 0;
    struct clr_metadata *md = s->md;
    *ret = (struct type_facts){.token = token};
    if (!CLR_OK(
            md->slots->get_typedef_props(md, token, ret->name, NAME_UNITS, &len, &flags, NULL)) ||
        len == 0 || len > NAME_UNITS)
        return false;
    ret->len = len - 1;
    if (CLR_TYPEDEF_NESTED(flags) &&
        !CLR_OK(md->slots->get_nested_class_props(md, token, &ret->enclosing)))
        ret->enclosing = 0;
    return true;
}

/* The type that people wrote: out of closures and state machines. */
static uint32_t written_in(const struct clp_metadata_scope *s, struct type_facts type)
{
    for (unsigned i = 0; i < NESTING_MAX && type.enclosing && type.name[0] == '<'; i++) {
        uint32_t outer = type.enclosing;
        if (!read_type(s, outer, &type))
            return outer;
    }
    return type.token;
}

static bool is_overloaded(const struct clp_metadata_scope *s, const struct type_facts *type,
                          const uint16_t *name)
{
    const uint16_t *from;
    uint16_t member[NAME_UNITS];
    uint32_t len = clp_compiler_made_from(name, units_of(name), &from);
    if (len == 0)
        len = clp_compiler_made_from(type->name, type->len, &from);
    if (len == 0 || len >= NAME_UNITS)
        return has_two(s, type->token, name);
    memcpy(member, from, len * sizeof(*member));
    member[len] = 0;
    return has_two(s, written_in(s, *type), member);
}

/* ---- state machines ------------------------------------------------------------------------ */

static bool begins_with(const struct clp_text *t, const char *s)
{
    size_t n = strlen(s);
    return t->len >= n && memcmp(t->buf, s, n) == 0;
}

static uint16_t kind_of_interface(const struct clp_metadata_scope *s, uint32_t impl)
{
    char bytes[256];
    struct clp_text name = clp_text_in(bytes, sizeof(bytes));
    uint32_t token = 0;
    if (!CLR_OK(s->md->slots->get_interface_impl_props(s->md, impl, NULL, &token)))
        return 0;
    clp_type_name_token(s, token, 0, &name);
    if (begins_with(&name, "System.Runtime.CompilerServices.IAsyncStateMachine"))
        return CLP_METHOD_ASYNC;
    bool iterator = begins_with(&name, "System.Collections.Generic.IAsyncEnumerator`1") ||
                    (begins_with(&name, "System.Collections.IEnumerator") &&
                     name.len == strlen("System.Collections.IEnumerator"));
    return iterator ? CLP_METHOD_ITERATOR : 0;
}

static uint16_t machine_flags(const struct clp_metadata_scope *s, uint32_t type)
{
    uint32_t impls[16], got = 0;
    uint16_t flags = 0;
    void *handle = NULL;
    struct clr_metadata *md = s->md;
    (void)md->slots->enum_interface_impls(md, &handle, type, impls, CLP_ARRAY_LEN(impls), &got);
    md->slots->close_enum(md, handle);
    for (uint32_t i = 0; i < CLP_MIN(got, CLP_ARRAY_LEN(impls)); i++)
        flags |= kind_of_interface(s, impls[i]);
    return flags;
}

/* C# writes `<M>d__1`, Visual Basic VB$StateMachine_1_M. */
static bool may_be_machine(const struct type_facts *type)
{
    static const char vb[] = "VB$StateMachine";
    size_t i = 0;
    while (vb[i] && type->name[i] == (uint16_t)vb[i])
        i++;
    return type->name[0] == '<' || !vb[i];
}

uint16_t clp_compiler_made_flags(const struct clp_metadata_scope *s, uint32_t type,
                                 const uint16_t *name)
{
    struct type_facts facts;
    if (!read_type(s, type, &facts))
        return 0;
    uint16_t flags = is_overloaded(s, &facts, name) ? CLP_METHOD_OVERLOADED : 0;
    return may_be_machine(&facts) ? (uint16_t)(flags | machine_flags(s, type)) : flags;
}
