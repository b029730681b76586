#include "sampler/inproc/signature.h"

#include <errno.h>

/* ECMA-335 II.23.1.16 and, from 0x21 on, dotnet/runtime's corhdr.h. */
enum element {
    ELEMENT_VOID = 0x01,
    ELEMENT_OBJECT_LAST_SIMPLE = 0x0e,
    ELEMENT_PTR = 0x0f,
    ELEMENT_BYREF = 0x10,
    ELEMENT_VALUETYPE = 0x11,
    ELEMENT_CLASS = 0x12,
    ELEMENT_VAR = 0x13,
    ELEMENT_ARRAY = 0x14,
    ELEMENT_GENERICINST = 0x15,
    ELEMENT_TYPEDBYREF = 0x16,
    ELEMENT_I = 0x18,
    ELEMENT_U = 0x19,
    ELEMENT_FNPTR = 0x1b,
    ELEMENT_OBJECT = 0x1c,
    ELEMENT_SZARRAY = 0x1d,
    ELEMENT_MVAR = 0x1e,
    ELEMENT_CMOD_REQD = 0x1f,
    ELEMENT_CMOD_OPT = 0x20,
    ELEMENT_INTERNAL = 0x21,
    ELEMENT_CMOD_INTERNAL = 0x22,
    ELEMENT_SENTINEL = 0x41,
    ELEMENT_PINNED = 0x45,
};

enum {
    CALL_GENERIC = 0x10,
    CALL_FIELD = 0x06,
    CALL_KIND_MASK = 0x0f,
};

static const char *const simple_names[] = {
    [0x01] = "System.Void",   [0x02] = "System.Boolean", [0x03] = "System.Char",
    [0x04] = "System.SByte",  [0x05] = "System.Byte",    [0x06] = "System.Int16",
    [0x07] = "System.UInt16", [0x08] = "System.Int32",   [0x09] = "System.UInt32",
    [0x0a] = "System.Int64",  [0x0b] = "System.UInt64",  [0x0c] = "System.Single",
    [0x0d] = "System.Double", [0x0e] = "System.String",
};

/* `out` is NULL while a type is only skipped. */
static void put(struct clp_text *out, const char *s)
{
    if (out)
        clp_text_add(out, s);
}

/* II.23.2: one, two or four bytes, big-endian, length in the top bits. */
static uint32_t compressed(struct clp_bytes *b)
{
    uint32_t first = clp_bytes_u8(b);
    if ((first & 0x80) == 0)
        return first;
    if ((first & 0x40) == 0)
        return (first & 0x3f) << 8 | clp_bytes_u8(b);
    if (first & 0x20) {
        b->bad = true;
        return 0;
    }
    uint32_t n = (first & 0x1f) << 24;
    n |= (uint32_t)clp_bytes_u8(b) << 16;
    n |= (uint32_t)clp_bytes_u8(b) << 8;
    return n | clp_bytes_u8(b);
}

/* TypeDefOrRefOrSpecEncoded, II.23.2.8. */
static uint32_t type_token(struct clp_bytes *b)
{
    static const uint32_t tables[] = {0x02000000, 0x01000000, 0x1b000000};
    uint32_t coded = compressed(b);
    if ((coded & 3) == 3) {
        b->bad = true;
        return 0;
    }
    return tables[coded & 3] | coded >> 2;
}

static void named_type(struct clp_bytes *b, const struct clp_signature_names *names, unsigned depth,
                       struct clp_text *out)
{
    uint32_t token = type_token(b);
    if (!b->bad && out)
        names->token(names->user, token, depth, out);
}

static void address_type(struct clp_bytes *b, const struct clp_signature_names *names,
                         unsigned depth, struct clp_text *out)
{
    uint64_t address = clp_bytes_u64(b);
    if (!b->bad && out)
        names->address(names->user, address, depth, out);
}

static void skip_modifier(struct clp_bytes *b, uint8_t element)
{
    if (element == ELEMENT_CMOD_INTERNAL)
        (void)clp_bytes_take(b, 1 + sizeof(uint64_t));
    else
        (void)type_token(b);
}

/* Custom modifiers, `pinned` and the varargs sentinel say nothing that a name shows. */
static uint8_t next_element(struct clp_bytes *b)
{
    for (;;) {
        uint8_t element = clp_bytes_u8(b);
        if (element == ELEMENT_CMOD_REQD || element == ELEMENT_CMOD_OPT ||
            element == ELEMENT_CMOD_INTERNAL)
            skip_modifier(b, element);
        else if (element != ELEMENT_PINNED && element != ELEMENT_SENTINEL)
            return element;
    }
}

static void array_type(struct clp_bytes *b, const struct clp_signature_names *names, unsigned depth,
                       struct clp_text *out)
{
    clp_signature_type(b, names, depth, out);
    uint32_t rank = compressed(b);
    uint32_t sizes = compressed(b);
    for (uint32_t i = 0; i < sizes && !b->bad; i++)
        (void)compressed(b);
    uint32_t bounds = compressed(b);
    for (uint32_t i = 0; i < bounds && !b->bad; i++)
        (void)compressed(b);
    if (rank == 0 || rank > 32)
        b->bad = true;
    if (b->bad)
        return;
    put(out, "[");
    for (uint32_t i = 1; i < rank; i++)
        put(out, ",");
    put(out, rank == 1 ? "*]" : "]");
}

static void type_list(struct clp_bytes *b, uint32_t count, const struct clp_signature_names *names,
                      unsigned depth, struct clp_text *out)
{
    for (uint32_t i = 0; i < count && !b->bad && !(out && out->cut); i++) {
        if (i > 0)
            put(out, ",");
        clp_signature_type(b, names, depth, out);
    }
}

static void generic_type(struct clp_bytes *b, const struct clp_signature_names *names,
                         unsigned depth, struct clp_text *out)
{
    if (clp_bytes_u8(b) == ELEMENT_INTERNAL)
        address_type(b, names, depth, out);
    else
        named_type(b, names, depth, out);
    uint32_t count = compressed(b);
    put(out, "[");
    type_list(b, count, names, depth, out);
    put(out, "]");
}

static uint32_t method_head(struct clp_bytes *b)
{
    uint8_t kind = clp_bytes_u8(b);
    if ((kind & CALL_KIND_MASK) == CALL_FIELD)
        b->bad = true;
    if (kind & CALL_GENERIC)
        (void)compressed(b);
    return compressed(b);
}

/* As System.Type prints it: result(parameters). */
static void function_type(struct clp_bytes *b, const struct clp_signature_names *names,
                          unsigned depth, struct clp_text *out)
{
    uint32_t count = method_head(b);
    clp_signature_type(b, names, depth, out);
    put(out, "(");
    type_list(b, count, names, depth, out);
    put(out, ")");
}

static void suffixed_type(struct clp_bytes *b, const struct clp_signature_names *names,
                          unsigned depth, const char *suffix, struct clp_text *out)
{
    clp_signature_type(b, names, depth, out);
    put(out, suffix);
}

static void variable(struct clp_bytes *b, const char *prefix, struct clp_text *out)
{
    uint32_t number = compressed(b);
    put(out, prefix);
    if (out)
        clp_text_dec(out, number);
}

static void composed_type(uint8_t element, struct clp_bytes *b,
                          const struct clp_signature_names *names, unsigned depth,
                          struct clp_text *out)
{
    switch (element) {
    case ELEMENT_PTR:
        suffixed_type(b, names, depth, "*", out);
        break;
    case ELEMENT_BYREF:
        suffixed_type(b, names, depth, "&", out);
        break;
    case ELEMENT_SZARRAY:
        suffixed_type(b, names, depth, "[]", out);
        break;
    case ELEMENT_ARRAY:
        array_type(b, names, depth, out);
        break;
    case ELEMENT_GENERICINST:
        generic_type(b, names, depth, out);
        break;
    case ELEMENT_FNPTR:
        function_type(b, names, depth, out);
        break;
    default:
        b->bad = true;
        break;
    }
}

static void plain_type(uint8_t element, struct clp_bytes *b,
                       const struct clp_signature_names *names, unsigned depth,
                       struct clp_text *out)
{
    switch (element) {
    case ELEMENT_VALUETYPE:
    case ELEMENT_CLASS:
        named_type(b, names, depth, out);
        break;
    case ELEMENT_INTERNAL:
        address_type(b, names, depth, out);
        break;
    case ELEMENT_VAR:
        variable(b, "!", out);
        break;
    case ELEMENT_MVAR:
        variable(b, "!!", out);
        break;
    case ELEMENT_I:
        put(out, "System.IntPtr");
        break;
    case ELEMENT_U:
        put(out, "System.UIntPtr");
        break;
    case ELEMENT_OBJECT:
        put(out, "System.Object");
        break;
    case ELEMENT_TYPEDBYREF:
        put(out, "System.TypedReference");
        break;
    default:
        composed_type(element, b, names, depth, out);
        break;
    }
}

void clp_signature_type(struct clp_bytes *b, const struct clp_signature_names *names,
                        unsigned depth, struct clp_text *out)
{
    if (depth >= CLP_SIGNATURE_DEPTH_MAX)
        b->bad = true;
    uint8_t element = next_element(b);
    if (b->bad)
        return;
    if (element >= ELEMENT_VOID && element <= ELEMENT_OBJECT_LAST_SIMPLE)
        put(out, simple_names[element]);
    else
        plain_type(element, b, names, depth + 1, out);
}

int clp_signature_params(const uint8_t *sig, size_t len, const struct clp_signature_names *names,
                         struct clp_text *out)
{
    struct clp_bytes b = clp_bytes_of(sig, len);
    uint32_t count = method_head(&b);
    clp_signature_type(&b, names, 0, NULL); /* the result */
    type_list(&b, count, names, 0, out);
    return b.bad ? -EBADMSG : 0;
}
