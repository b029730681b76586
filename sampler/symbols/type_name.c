#include "sampler/symbols/type_name.h"
#include "sampler/symbols/member_name.h"

#include <string.h>

#define DEPTH_MAX 24
#define MACHINE_NAME_MAX 512
#define TUPLE_FLAT 7 /* System.ValueTuple`8 keeps the rest of a long tuple in its last argument */

static const struct {
    const char *metadata, *source;
} keywords[] = {
    {"System.Boolean", "bool"},  {"System.Byte", "byte"},       {"System.SByte", "sbyte"},
    {"System.Char", "char"},     {"System.Decimal", "decimal"}, {"System.Double", "double"},
    {"System.Single", "float"},  {"System.Int32", "int"},       {"System.UInt32", "uint"},
    {"System.IntPtr", "nint"},   {"System.UIntPtr", "nuint"},   {"System.Int64", "long"},
    {"System.UInt64", "ulong"},  {"System.Int16", "short"},     {"System.UInt16", "ushort"},
    {"System.Object", "object"}, {"System.String", "string"},   {"System.Void", "void"},
};

static void add(struct clp_name_writer *w, struct clp_name_text t)
{
    if (t.len)
        clp_text_addn(w->out, t.at, t.len);
}

static uint32_t count_items(struct clp_name_text list)
{
    struct clp_name_text item;
    uint32_t n = 0;
    while (clp_name_text_item(&list, &item))
        n++;
    return n;
}

struct clp_generic_args clp_generic_args_of(struct clp_name_text list, uint32_t arity, char letter)
{
    uint32_t items = count_items(list);
    return (struct clp_generic_args){
        .list = list, .count = CLP_MAX(items, arity), .letter = letter};
}

/* Takes the next type of a nesting chain. A '+' inside <> belongs to a compiler's name. */
static bool next_segment(struct clp_name_text *chain, struct clp_name_text *ret)
{
    if (chain->len == 0)
        return false;
    size_t end = clp_name_text_find(*chain, 0, '+');
    *ret = clp_name_text_until(*chain, end);
    *chain = clp_name_text_from(*chain, end + 1);
    return true;
}

uint32_t clp_type_name_arity(struct clp_name_text type)
{
    struct clp_name_text text;
    struct clp_segment segment;
    uint32_t sum = 0;
    while (next_segment(&type, &text)) {
        clp_segment_parse(text, false, &segment);
        sum += segment.arity;
    }
    return sum;
}

/* ---- generic arguments ---------------------------------------------------------------------- */

/* One argument; `item` is empty when it is not known. `number` is 0 where there is no other. */
static void write_item(struct clp_name_writer *w, struct clp_name_text item, char letter,
                       uint32_t number)
{
    struct clp_name_text shared = item;
    if (clp_name_text_skip(&shared, "System.__Canon") && (shared.len == 0 || shared.at[0] == ':'))
        item = clp_name_text_from(shared, 1);
    if (item.len == 0) {
        clp_text_char(w->out, letter);
        if (number)
            clp_text_dec(w->out, number);
        return;
    }
    clp_type_name_short(w, item);
}

static void write_arg(struct clp_name_writer *w, const struct clp_generic_args *args,
                      uint32_t index)
{
    struct clp_name_text list = args->list, item = {0};
    for (uint32_t i = 0; i <= index; i++)
        if (!clp_name_text_item(&list, &item))
            item.len = 0;
    write_item(w, item, args->letter, args->count > 1 ? index + 1 : 0);
}

void clp_type_name_args(struct clp_name_writer *w, const struct clp_generic_args *args,
                        uint32_t first, uint32_t count)
{
    if (count == 0)
        return;
    clp_text_char(w->out, '<');
    for (uint32_t i = 0; i < count && !w->out->cut; i++) {
        if (i)
            clp_text_add(w->out, ", ");
        write_arg(w, args, first + i);
    }
    clp_text_char(w->out, '>');
}

/* !N and !!N of a signature. */
static bool write_parameter_reference(struct clp_name_writer *w, struct clp_name_text t)
{
    if (w->plain_args || !clp_name_text_skip(&t, "!"))
        return false;
    const struct clp_generic_args *args = &w->type_args;
    if (clp_name_text_skip(&t, "!"))
        args = &w->method_args;
    uint32_t n = 0;
    for (size_t i = 0; i < t.len; i++) {
        if (t.at[i] < '0' || t.at[i] > '9' || n > 9999)
            return false;
        n = n * 10 + (uint32_t)(t.at[i] - '0');
    }
    if (t.len == 0)
        return false;
    struct clp_generic_args known = *args;
    known.count = CLP_MAX(known.count, n + 1);
    w->plain_args = true; /* a reference in there would lead back here */
    write_arg(w, &known, n);
    w->plain_args = false;
    return true;
}

/* ---- nesting chains ------------------------------------------------------------------------- */

struct chain {
    const struct clp_generic_args *args;
    uint32_t next_arg;
    bool async_machine, overloaded, any;
    struct clp_type_tail tail;
};

/* The name of a state machine's method; a type's simple name has '-' in place of dots.  True when
 * the name has the method's number already. */
static bool write_machine(struct clp_name_writer *w, const struct chain *c,
                          const struct clp_segment *segment)
{
    char dotted[MACHINE_NAME_MAX];
    struct clp_member member = {
        .name = segment->shown, .tail = c->tail, .overloaded = c->overloaded};
    if (segment->shown.at[0] != '<' && segment->shown.len <= sizeof(dotted)) {
        size_t line = clp_name_text_find(segment->shown, 0, '@'); /* F#: `name@12-1` */
        memcpy(dotted, segment->shown.at, segment->shown.len);
        for (size_t i = 0; i < line; i++)
            if (dotted[i] == '-')
                dotted[i] = '.';
        member.name.at = dotted;
    }
    return clp_member_name_write(w, &member);
}

static void write_segment(struct clp_name_writer *w, struct chain *c, struct clp_name_text text)
{
    struct clp_segment s;
    clp_segment_parse(text, c->async_machine, &s);
    uint32_t first = c->next_arg;
    c->next_arg += s.arity;
    if (s.kind == CLP_SEGMENT_CLOSURE) {
        c->tail = (struct clp_type_tail){.closure = true,
                                         .ordinal = s.ordinal,
                                         .args = c->args,
                                         .first_arg = first,
                                         .arg_count = s.arity};
        return;
    }
    if (c->any)
        clp_text_char(w->out, '.');
    c->any = true;
    if (s.kind == CLP_SEGMENT_MACHINE && s.shown.len) {
        bool numbered = write_machine(w, c, &s);
        c->tail = (struct clp_type_tail){.machine = true};
        if (!numbered)
            c->tail.ordinal = s.ordinal;
    } else {
        if (c->tail.closure)
            clp_text_add(w->out, "closure.");
        add(w, s.shown);
        c->tail = (struct clp_type_tail){0};
    }
    clp_type_name_args(w, c->args, first, s.arity);
}

static void write_chain(struct clp_name_writer *w, struct clp_name_text chain, bool with_namespace,
                        struct chain *c)
{
    size_t outer_end = clp_name_text_find(chain, 0, '+');
    size_t dot = clp_name_text_find_last(clp_name_text_until(chain, outer_end), '.');
    if (dot < outer_end) {
        if (with_namespace)
            add(w, clp_name_text_until(chain, dot + 1));
        chain = clp_name_text_from(chain, dot + 1);
    }
    struct clp_name_text segment;
    while (!w->out->cut && next_segment(&chain, &segment))
        write_segment(w, c, segment);
}

void clp_type_name_declaring(struct clp_name_writer *w, struct clp_name_text type,
                             struct clp_declaring_options options, struct clp_type_tail *ret)
{
    struct chain c = {.args = &w->type_args,
                      .async_machine = options.async_machine,
                      .overloaded = options.overloaded};
    write_chain(w, type, true, &c);
    *ret = c.tail;
}

/* ---- one type ------------------------------------------------------------------------------- */

/* Start of the generic arguments: '[' of metadata, or '<' of a source-like name (explicit
 * implementations), which follows a name; a '<' that begins one is a compiler's. */
static size_t find_args(struct clp_name_text t)
{
    for (size_t i = 0; i < t.len; i++) {
        if (t.at[i] == '[')
            return i;
        if (t.at[i] != '<')
            continue;
        if (i > 0 && t.at[i - 1] != '.' && t.at[i - 1] != '+')
            return i;
        i = clp_name_text_close(t, i);
    }
    return t.len;
}

static void write_tuple(struct clp_name_writer *w, struct clp_name_text items)
{
    struct clp_name_text item;
    for (uint32_t i = 0; !w->out->cut && clp_name_text_item(&items, &item); i++) {
        struct clp_name_text rest = item;
        if (i > 0 && i % TUPLE_FLAT == 0 && clp_name_text_skip(&rest, "System.ValueTuple`")) {
            size_t open = find_args(rest);
            size_t close = clp_name_text_close(rest, open);
            items = clp_name_text_from(clp_name_text_until(rest, close), open + 1);
            if (!clp_name_text_item(&items, &item))
                return;
        }
        if (i)
            clp_text_add(w->out, ", ");
        write_item(w, item, 'T', i + 1);
    }
}

static bool write_special_generic(struct clp_name_writer *w, struct clp_name_text name,
                                  struct clp_name_text args)
{
    if (args.len && (clp_name_text_equal(name, "System.Nullable`1") ||
                     clp_name_text_equal(name, "System.Nullable"))) {
        write_item(w, args, 'T', 0);
        clp_text_char(w->out, '?');
        return true;
    }
    struct clp_name_text comma = clp_name_text_from(args, clp_name_text_find(args, 0, ','));
    if (comma.len && clp_name_text_skip(&name, "System.ValueTuple")) {
        clp_text_char(w->out, '(');
        write_tuple(w, args);
        clp_text_char(w->out, ')');
        return true;
    }
    return false;
}

/* A pointer to a function is "System.Void(System.Int32)" in metadata, delegate*<int, void> in C#.
 */
static bool write_function_pointer(struct clp_name_writer *w, struct clp_name_text t)
{
    size_t open = clp_name_text_find(t, 0, '(');
    if (open == 0 || open >= t.len || clp_name_text_close(t, open) != t.len - 1)
        return false;
    struct clp_name_text parameters =
        clp_name_text_from(clp_name_text_until(t, t.len - 1), open + 1);
    clp_text_add(w->out, "delegate*<");
    clp_type_name_list(w, parameters, 0);
    if (parameters.len)
        clp_text_add(w->out, ", ");
    clp_type_name_short(w, clp_name_text_until(t, open));
    clp_text_char(w->out, '>');
    return true;
}

static void write_core(struct clp_name_writer *w, struct clp_name_text t)
{
    if (write_parameter_reference(w, t) || write_function_pointer(w, t))
        return;
    for (size_t i = 0; i < CLP_ARRAY_LEN(keywords); i++)
        if (clp_name_text_equal(t, keywords[i].metadata)) {
            clp_text_add(w->out, keywords[i].source);
            return;
        }
    size_t open = find_args(t);
    struct clp_name_text name = clp_name_text_until(t, open);
    struct clp_name_text list = {0};
    if (open < t.len)
        list = clp_name_text_from(clp_name_text_until(t, clp_name_text_close(t, open)), open + 1);
    if (write_special_generic(w, name, list))
        return;
    /* The runtime leaves out what a type is nested in, but not the arguments of that. */
    if (count_items(list) > clp_type_name_arity(name) &&
        clp_name_text_find(name, 0, '+') == name.len)
        name = clp_name_text_until(name, clp_name_text_find_last(name, '`'));
    struct clp_generic_args args = clp_generic_args_of(list, clp_type_name_arity(name), 'T');
    struct chain c = {.args = &args};
    write_chain(w, name, false, &c);
    if (c.tail.closure)
        clp_text_add(w->out, c.any ? ".closure" : "closure");
    if (c.next_arg < args.count)
        clp_type_name_args(w, &args, c.next_arg, args.count - c.next_arg);
}

/* Where the suffixes of arrays, pointers and references begin. */
static size_t find_suffix(struct clp_name_text t)
{
    size_t at = t.len;
    while (at > 0) {
        char c = t.at[at - 1];
        if (c == '*' || c == '&') {
            at--;
            continue;
        }
        size_t open = at - 1;
        while (open > 0 && c == ']' && strchr(",*", t.at[open - 1]) && t.at[open - 1])
            open--;
        if (c != ']' || open == 0 || t.at[open - 1] != '[')
            break;
        at = open - 1;
    }
    return at;
}

/* Metadata writes the element's brackets first, C# the outermost: an array of int[,] is
 * Int32[,][] there and int[][,] here. */
static void write_arrays(struct clp_name_writer *w, struct clp_name_text run)
{
    while (run.len > 0 && !w->out->cut) {
        size_t open = run.len - 1;
        while (open > 0 && run.at[open] != '[')
            open--;
        add(w, clp_name_text_from(run, open));
        run = clp_name_text_until(run, open);
    }
}

static void write_suffix(struct clp_name_writer *w, struct clp_name_text suffix)
{
    while (suffix.len > 0) {
        size_t run = 0;
        while (run < suffix.len && suffix.at[run] == '[')
            run = clp_name_text_close(suffix, run) + 1;
        write_arrays(w, clp_name_text_until(suffix, run));
        suffix = clp_name_text_from(suffix, run);
        if (suffix.len > 0) {
            if (suffix.at[0] == '*')
                clp_text_char(w->out, '*');
            suffix = clp_name_text_from(suffix, 1);
        }
    }
}

/* "[System.Int32, System.Private.CoreLib, Version=...]" is how reflection quotes a type. */
static struct clp_name_text without_assembly(struct clp_name_text t)
{
    if (t.len < 2 || t.at[0] != '[' || clp_name_text_close(t, 0) != t.len - 1)
        return t;
    t = clp_name_text_from(clp_name_text_until(t, t.len - 1), 1);
    return clp_name_text_until(t, clp_name_text_find(t, 0, ','));
}

void clp_type_name_short(struct clp_name_writer *w, struct clp_name_text type)
{
    type = without_assembly(type);
    if (w->depth >= DEPTH_MAX) {
        add(w, type);
        return;
    }
    w->depth++;
    size_t at = find_suffix(type);
    struct clp_name_text suffix = clp_name_text_from(type, at);
    if (suffix.len && suffix.at[suffix.len - 1] == '&')
        clp_text_add(w->out, "ref ");
    write_core(w, clp_name_text_until(type, at));
    write_suffix(w, suffix);
    w->depth--;
}

void clp_type_name_list(struct clp_name_writer *w, struct clp_name_text list, unsigned skip_last)
{
    uint32_t count = count_items(list);
    struct clp_name_text item;
    for (uint32_t i = 0; i + skip_last < count && !w->out->cut; i++) {
        if (!clp_name_text_item(&list, &item))
            return;
        if (i)
            clp_text_add(w->out, ", ");
        clp_type_name_short(w, item);
    }
}
