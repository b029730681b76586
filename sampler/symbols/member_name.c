#include "sampler/symbols/member_name.h"

#include <string.h>

#define DEPTH_MAX 24

/* C# operators by their metadata names (ECMA-335 I.10.3 and the C# standard). */
static const struct {
    const char *metadata, *source;
} operators[] = {
    {"op_Addition", "operator +"},
    {"op_Subtraction", "operator -"},
    {"op_Multiply", "operator *"},
    {"op_Division", "operator /"},
    {"op_Modulus", "operator %"},
    {"op_BitwiseAnd", "operator &"},
    {"op_BitwiseOr", "operator |"},
    {"op_ExclusiveOr", "operator ^"},
    {"op_LeftShift", "operator <<"},
    {"op_RightShift", "operator >>"},
    {"op_UnsignedRightShift", "operator >>>"},
    {"op_Equality", "operator =="},
    {"op_Inequality", "operator !="},
    {"op_LessThan", "operator <"},
    {"op_GreaterThan", "operator >"},
    {"op_LessThanOrEqual", "operator <="},
    {"op_GreaterThanOrEqual", "operator >="},
    {"op_UnaryPlus", "operator unary +"},
    {"op_UnaryNegation", "operator unary -"},
    {"op_LogicalNot", "operator !"},
    {"op_OnesComplement", "operator ~"},
    {"op_Increment", "operator ++"},
    {"op_Decrement", "operator --"},
    {"op_True", "operator true"},
    {"op_False", "operator false"},
    {"op_Implicit", "implicit operator"},
    {"op_Explicit", "explicit operator"},
    {"op_CheckedAddition", "operator checked +"},
    {"op_CheckedSubtraction", "operator checked -"},
    {"op_CheckedMultiply", "operator checked *"},
    {"op_CheckedDivision", "operator checked /"},
    {"op_CheckedUnaryNegation", "operator checked unary -"},
    {"op_CheckedIncrement", "operator checked ++"},
    {"op_CheckedDecrement", "operator checked --"},
    {"op_CheckedExplicit", "explicit operator checked"},
    {"op_AdditionAssignment", "operator +="},
    {"op_SubtractionAssignment", "operator -="},
    {"op_MultiplicationAssignment", "operator *="},
    {"op_DivisionAssignment", "operator /="},
    {"op_ModulusAssignment", "operator %="},
    {"op_BitwiseAndAssignment", "operator &="},
    {"op_BitwiseOrAssignment", "operator |="},
    {"op_ExclusiveOrAssignment", "operator ^="},
    {"op_LeftShiftAssignment", "operator <<="},
    {"op_RightShiftAssignment", "operator >>="},
    {"op_UnsignedRightShiftAssignment", "operator >>>="},
};

static const struct {
    const char *prefix, *suffix;
    bool writes; /* its last parameter is the value, no index */
} accessors[] = {
    {"get_", ".get", false},       {"set_", ".set", true},      {"add_", ".add", false},
    {"remove_", ".remove", false}, {"raise_", ".raise", false},
};

static void add(struct clp_name_writer *w, struct clp_name_text t)
{
    if (t.len)
        clp_text_addn(w->out, t.at, t.len);
}

static uint32_t parameter_count(struct clp_name_text list)
{
    struct clp_name_text item;
    uint32_t n = 0;
    while (clp_name_text_item(&list, &item))
        n++;
    return n;
}

/* `Name.get`, or `this[int].get`: an indexer is a property named Item that has parameters. */
static bool write_accessor(struct clp_name_writer *w, const struct clp_member *m,
                           struct clp_name_text name, bool *ret_told_apart)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(accessors); i++) {
        struct clp_name_text rest = name;
        if (!clp_name_text_skip(&rest, accessors[i].prefix) || rest.len == 0)
            continue;
        unsigned value = accessors[i].writes;
        if (clp_name_text_equal(rest, "Item") && parameter_count(m->signature) > value) {
            clp_text_add(w->out, "this[");
            clp_type_name_list(w, m->signature, value);
            clp_text_char(w->out, ']');
            *ret_told_apart = true;
        } else {
            add(w, rest);
        }
        clp_text_add(w->out, accessors[i].suffix);
        return true;
    }
    return false;
}

static bool write_operator(struct clp_name_writer *w, struct clp_name_text name)
{
    if (name.len < 3 || memcmp(name.at, "op_", 3) != 0)
        return false;
    for (size_t i = 0; i < CLP_ARRAY_LEN(operators); i++)
        if (clp_name_text_equal(name, operators[i].metadata)) {
            clp_text_add(w->out, operators[i].source);
            return true;
        }
    return false;
}

/* A name of the source, perhaps with the interface that it implements in front:
 * `System.Collections.Generic.IList<T>.get_Item`. */
static bool write_source_name(struct clp_name_writer *w, const struct clp_member *m)
{
    struct clp_name_text name = m->name;
    bool told_apart = false;
    size_t dot = clp_name_text_find_last(name, '.');
    if (dot > 0 && dot + 1 < name.len && name.at[dot - 1] != '.') {
        clp_type_name_short(w, clp_name_text_until(name, dot));
        clp_text_char(w->out, '.');
        name = clp_name_text_from(name, dot + 1);
    }
    if (!write_operator(w, name) && !write_accessor(w, m, name, &told_apart))
        add(w, name);
    clp_type_name_args(w, m->tail.args, m->tail.first_arg, m->tail.arg_count);
    return told_apart;
}

/* Writes the method that a piece of code was written in. */
static void write_host(struct clp_name_writer *w, const struct clp_member *m,
                       struct clp_name_text host)
{
    struct clp_member outer = {.name = host, .tail = m->tail, .overloaded = m->overloaded};
    clp_member_name_write(w, &outer);
}

/* "3_0", or "0" in a closure whose own name has the 3. */
static void write_number(struct clp_name_writer *w, const struct clp_member *m,
                         struct clp_name_text number)
{
    clp_text_char(w->out, '#');
    size_t cut = 0;
    for (size_t i = 0; i < number.len; i++)
        if (number.at[i] == '_' || number.at[i] == '-')
            cut = i + 1;
    if (m->overloaded) {
        struct clp_name_text method = cut ? clp_name_text_until(number, cut - 1) : m->tail.ordinal;
        add(w, method);
        if (method.len)
            clp_text_char(w->out, '_');
    }
    add(w, clp_name_text_from(number, cut));
}

static void write_lambda(struct clp_name_writer *w, const struct clp_member *m,
                         const struct clp_compiler_name *c)
{
    write_host(w, m, c->inner);
    clp_text_add(w->out, ".lambda");
    write_number(w, m, c->rest);
}

/* <M>g__Name|3_0 */
static void write_local_function(struct clp_name_writer *w, const struct clp_member *m,
                                 const struct clp_compiler_name *c)
{
    size_t bar = clp_name_text_find(c->rest, 0, '|');
    write_host(w, m, c->inner);
    clp_text_char(w->out, '.');
    add(w, clp_name_text_until(c->rest, bar));
    if (m->overloaded)
        write_number(w, m, clp_name_text_from(c->rest, bar + 1));
}

/* Members without a name in the source: <>m__Finally1, <>n__0. */
static bool write_nameless(struct clp_name_writer *w, const struct clp_compiler_name *c)
{
    struct clp_name_text rest = c->rest;
    if (c->kind == 'm' && clp_name_text_skip(&rest, "Finally"))
        clp_text_add(w->out, "finally#");
    else if (c->kind == 'n' && rest.len)
        clp_text_add(w->out, "base#");
    else
        return false;
    add(w, rest);
    return true;
}

static bool write_compiler_name(struct clp_name_writer *w, const struct clp_member *m)
{
    struct clp_compiler_name c;
    if (!clp_compiler_name_parse(m->name, &c))
        return false;
    if (c.inner.len == 0)
        return write_nameless(w, &c);
    if (c.kind == 'b' && c.rest.len)
        write_lambda(w, m, &c);
    else if (c.kind == 'g' && c.rest.len)
        write_local_function(w, m, &c);
    else if (c.kind == '$' && c.rest.len == 0)
        write_host(w, m, c.inner); /* <Main>$, <Clone>$ */
    else
        return false;
    return true;
}

/* Visual Basic's lambdas do not say which method they are from: _Lambda$__3-0. */
static bool write_basic_lambda(struct clp_name_writer *w, const struct clp_member *m)
{
    struct clp_name_text number = m->name;
    if (!clp_name_text_skip(&number, "_Lambda$__") || number.len == 0)
        return false;
    clp_text_add(w->out, "lambda#");
    add(w, number);
    return true;
}

bool clp_member_name_write(struct clp_name_writer *w, const struct clp_member *member)
{
    if (w->depth >= DEPTH_MAX) {
        add(w, member->name);
        return true;
    }
    w->depth++;
    bool told_apart = write_compiler_name(w, member) || write_basic_lambda(w, member);
    if (!told_apart)
        told_apart = write_source_name(w, member);
    w->depth--;
    return told_apart;
}
