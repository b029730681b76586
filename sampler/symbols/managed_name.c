#include "sampler/symbols/managed_name.h"
#include "sampler/symbols/member_name.h"
#include "sampler/symbols/text_guard.h"
#include "sampler/symbols/type_name.h"
#include "wire/wire.h"

#include <string.h>

/* Raw texts are read up to here: four times what can be shown, so that hostile ones cost nothing.
 */
#define RAW_MAX 4096

static const struct {
    const char *metadata, *words;
} stubs[] = {
    {"PInvoke", "P/Invoke"},
    {"ReversePInvoke", "reverse P/Invoke"},
    {"StructMarshal", "struct marshalling"},
    {"CLRtoCOM", "COM call"},
    {"COMtoCLR", "COM callback"},
    {"UnboxingStub", "unboxing"},
    {"InstantiatingStub", "instantiating"},
    {"StoreTailCallArgs", "tail call arguments"},
    {"CallTailCallTarget", "tail call"},
    {"Array_Get", "array get"},
    {"Array_Set", "array set"},
    {"Array_Address", "array address"},
    {"Delegate_Invoke", "delegate"},
    {"WrapperDelegate_Invoke", "wrapped delegate"},
    {"MulticastDelegate_Invoke", "multicast delegate"},
    {"DelegateShuffleThunk", "delegate shuffle"},
    {"VirtualStaticMethodDispatch", "static virtual call"},
    {"AsyncResume", "async resume"},
};

static void write_parameters(struct clp_name_writer *w, struct clp_name_text signature)
{
    clp_text_char(w->out, '(');
    clp_type_name_list(w, signature, 0);
    clp_text_char(w->out, ')');
}

/* A stub is shared by all calls of one signature, so the signature is what tells stubs apart. */
static bool write_stub(struct clp_name_writer *w, const struct clp_managed_raw *raw)
{
    struct clp_name_text kind = raw->name;
    bool named = clp_name_text_skip(&kind, "IL_STUB");
    if (!named && !(raw->flags & CLP_METHOD_STUB))
        return false;
    clp_name_text_skip(&kind, "_");
    const char *words = NULL;
    for (size_t i = 0; named && i < CLP_ARRAY_LEN(stubs); i++)
        if (clp_name_text_equal(kind, stubs[i].metadata))
            words = stubs[i].words;
    clp_text_char(w->out, '[');
    if (words) {
        clp_text_add(w->out, words);
        clp_text_char(w->out, ' ');
    }
    clp_text_add(w->out, "stub]");
    if (!words && kind.len) {
        clp_text_char(w->out, ' ');
        clp_text_addn(w->out, kind.at, kind.len);
    }
    if (raw->signature.len) {
        clp_text_char(w->out, ' ');
        write_parameters(w, raw->signature);
    }
    return true;
}

/* DynamicMethod and the like: the name is the program's own text, not a metadata name. */
static bool write_dynamic(struct clp_name_writer *w, const struct clp_managed_raw *raw)
{
    bool nowhere = clp_name_text_equal(raw->type, "dynamicClass") ||
                   clp_name_text_equal(raw->type, "(dynamicClass)");
    if (!nowhere && !((raw->flags & CLP_METHOD_DYNAMIC) && raw->type.len == 0))
        return false;
    clp_text_addn(w->out, raw->name.at, raw->name.len);
    if (raw->flags & CLP_METHOD_OVERLOADED)
        write_parameters(w, raw->signature);
    return true;
}

static void write_machine_suffix(struct clp_text *out, const struct clp_managed_raw *raw,
                                 const struct clp_type_tail *tail)
{
    bool async = raw->flags & CLP_METHOD_ASYNC, iterator = raw->flags & CLP_METHOD_ITERATOR;
    clp_text_add(out, async && iterator ? " (async iterator"
                      : async           ? " (async"
                      : iterator        ? " (iterator"
                                        : " (state machine");
    if ((raw->flags & CLP_METHOD_OVERLOADED) && tail->ordinal.len) {
        clp_text_add(out, " #");
        clp_text_addn(out, tail->ordinal.at, tail->ordinal.len);
    }
    clp_text_char(out, ')');
}

/* Members of a closure that are not somebody's lambda: its constructors. */
static void write_closure_name(struct clp_name_writer *w, struct clp_name_text member,
                               struct clp_type_tail *tail)
{
    struct clp_compiler_name ignored;
    if (!tail->closure || clp_compiler_name_parse(member, &ignored) || member.len == 0 ||
        member.at[0] == '_')
        return;
    clp_text_add(w->out, ".closure");
    clp_type_name_args(w, tail->args, tail->first_arg, tail->arg_count);
    tail->arg_count = 0;
}

static void write_declaring(struct clp_name_writer *w, const struct clp_managed_raw *raw,
                            bool resumes, struct clp_type_tail *ret_tail)
{
    struct clp_declaring_options options = {
        .async_machine = resumes && (raw->flags & CLP_METHOD_ASYNC),
        .overloaded = raw->flags & CLP_METHOD_OVERLOADED,
    };
    if (raw->type.len == 0)
        return;
    clp_type_name_declaring(w, raw->type, options, ret_tail);
    write_closure_name(w, raw->name, ret_tail);
}

static void write_method(struct clp_name_writer *w, const struct clp_managed_raw *raw)
{
    struct clp_type_tail tail = {0};
    bool resumes = clp_name_text_equal(raw->name, "MoveNext");
    write_declaring(w, raw, resumes, &tail);
    if (tail.machine && resumes) {
        write_machine_suffix(w->out, raw, &tail);
        return;
    }
    struct clp_member member = {.name = raw->name,
                                .signature = raw->signature,
                                .tail = tail,
                                .overloaded = raw->flags & CLP_METHOD_OVERLOADED};
    if (raw->type.len)
        clp_text_char(w->out, '.');
    bool told_apart = clp_member_name_write(w, &member);
    clp_type_name_args(w, &w->method_args, 0, w->method_args.count);
    if (tail.machine)
        write_machine_suffix(w->out, raw, &tail);
    else if (member.overloaded && !told_apart)
        write_parameters(w, raw->signature);
}

static struct clp_managed_raw bounded(const struct clp_managed_raw *raw)
{
    struct clp_managed_raw r = *raw;
    r.type = clp_name_text_until(r.type, RAW_MAX);
    r.name = clp_name_text_until(r.name, RAW_MAX);
    r.type_args = clp_name_text_until(r.type_args, RAW_MAX);
    r.method_args = clp_name_text_until(r.method_args, RAW_MAX);
    r.signature = clp_name_text_until(r.signature, RAW_MAX);
    return r;
}

void clp_managed_name(const struct clp_managed_raw *raw, char *buf, size_t cap)
{
    char work[CLP_NAME_MAX];
    struct clp_text out = clp_text_in(work, sizeof(work));
    struct clp_managed_raw r = bounded(raw);
    struct clp_name_writer w = {
        .out = &out,
        .type_args = clp_generic_args_of(r.type_args, clp_type_name_arity(r.type), 'T'),
    };
    w.method_args = clp_generic_args_of(r.method_args, 0, w.type_args.count ? 'U' : 'T');
    if (!write_stub(&w, &r) && !write_dynamic(&w, &r))
        write_method(&w, &r);
    clp_text_guard(&out, buf, cap);
}

/* Copies generic arguments without the parameter names that a shared one may carry. */
static void add_raw_args(struct clp_text *out, struct clp_name_text list)
{
    for (size_t i = 0; i < list.len; i++) {
        struct clp_name_text rest = clp_name_text_from(list, i);
        if (!clp_name_text_skip(&rest, "System.__Canon:")) {
            clp_text_char(out, list.at[i]);
            continue;
        }
        clp_text_add(out, "System.__Canon");
        size_t end = 0;
        while (end < rest.len && rest.at[end] != ',' && rest.at[end] != ']')
            end++;
        i = list.len - rest.len + end - 1;
    }
}

static void add_bracketed(struct clp_text *out, struct clp_name_text list)
{
    if (list.len == 0)
        return;
    clp_text_char(out, '[');
    add_raw_args(out, list);
    clp_text_char(out, ']');
}

void clp_managed_system_name(const struct clp_managed_raw *raw, char *buf, size_t cap)
{
    char work[CLP_NAME_MAX];
    struct clp_text out = clp_text_in(work, sizeof(work));
    struct clp_managed_raw r = bounded(raw);
    if (r.type.len) {
        clp_text_addn(&out, r.type.at, r.type.len);
        add_bracketed(&out, r.type_args);
        clp_text_char(&out, '.');
    }
    if (r.name.len)
        clp_text_addn(&out, r.name.at, r.name.len);
    add_bracketed(&out, r.method_args);
    clp_text_char(&out, '(');
    if (r.signature.len)
        clp_text_addn(&out, r.signature.at, r.signature.len);
    clp_text_char(&out, ')');
    clp_text_guard(&out, buf, cap);
}

/* A type that is nested in a generic one has arguments without a '`' of its own: the runtime tells
 * an array of Dictionary<int, int>.Entry as Entry[System.Int32,System.Int32][]. */
static bool has_arguments(struct clp_name_text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (t.at[i] == '`' || (t.at[i] == '[' && i + 1 < t.len && !memchr("],*", t.at[i + 1], 3)))
            return true;
    return false;
}

void clp_managed_type_name(const char *type, char *buf, size_t cap)
{
    char work[CLP_NAME_MAX];
    struct clp_text out = clp_text_in(work, sizeof(work));
    struct clp_name_writer w = {.out = &out};
    struct clp_name_text t = {type, strnlen(type, RAW_MAX)};
    if (has_arguments(t)) {
        clp_type_name_short(&w, t);
    } else {
        for (size_t i = 0; i < t.len; i++)
            clp_text_char(&out, type[i] == '+' ? '.' : type[i]);
    }
    clp_text_guard(&out, buf, cap);
}
