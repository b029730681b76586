#include "sampler/symbols/compiler_name.h"

#include <string.h>

#define ARITY_MAX 65535u
#define FILE_HASH_DIGITS 64

struct clp_name_text clp_name_text_of(const char *s)
{
    return (struct clp_name_text){.at = s, .len = strlen(s)};
}

struct clp_name_text clp_name_text_from(struct clp_name_text t, size_t from)
{
    from = CLP_MIN(from, t.len);
    return (struct clp_name_text){.at = t.at ? t.at + from : NULL, .len = t.len - from};
}

struct clp_name_text clp_name_text_until(struct clp_name_text t, size_t until)
{
    return (struct clp_name_text){.at = t.at, .len = CLP_MIN(until, t.len)};
}

bool clp_name_text_equal(struct clp_name_text t, const char *s)
{
    size_t n = strlen(s);
    return t.len == n && (n == 0 || memcmp(t.at, s, n) == 0);
}

bool clp_name_text_skip(struct clp_name_text *t, const char *prefix)
{
    size_t n = strlen(prefix);
    if (t->len < n || memcmp(t->at, prefix, n) != 0)
        return false;
    *t = clp_name_text_from(*t, n);
    return true;
}

static int bracket_step(char c)
{
    if (c == '<' || c == '[' || c == '(')
        return 1;
    if (c == '>' || c == ']' || c == ')')
        return -1;
    return 0;
}

size_t clp_name_text_close(struct clp_name_text t, size_t open)
{
    int depth = 0;
    for (size_t i = open; i < t.len; i++) {
        depth += bracket_step(t.at[i]);
        if (depth <= 0)
            return i;
    }
    return t.len;
}

size_t clp_name_text_find(struct clp_name_text t, size_t from, char c)
{
    int depth = 0;
    for (size_t i = from; i < t.len; i++) {
        if (depth == 0 && t.at[i] == c)
            return i;
        depth += bracket_step(t.at[i]);
        depth = CLP_MAX(depth, 0);
    }
    return t.len;
}

size_t clp_name_text_find_last(struct clp_name_text t, char c)
{
    size_t last = t.len;
    for (size_t i = 0; (i = clp_name_text_find(t, i, c)) < t.len; i++)
        last = i;
    return last;
}

bool clp_name_text_item(struct clp_name_text *list, struct clp_name_text *ret)
{
    if (list->len == 0)
        return false;
    size_t end = clp_name_text_find(*list, 0, ',');
    *ret = clp_name_text_until(*list, end);
    *list = clp_name_text_from(*list, end + 1);
    while (ret->len > 0 && ret->at[0] == ' ')
        *ret = clp_name_text_from(*ret, 1);
    return true;
}

bool clp_compiler_name_parse(struct clp_name_text name, struct clp_compiler_name *ret)
{
    if (name.len < 2 || name.at[0] != '<')
        return false;
    size_t close = clp_name_text_close(name, 0);
    if (close >= name.len || name.at[close] != '>')
        return false;
    struct clp_name_text rest = clp_name_text_from(name, close + 1);
    *ret = (struct clp_compiler_name){
        .inner = {.at = name.at + 1, .len = close - 1},
        .rest = clp_name_text_from(rest, 1),
    };
    if (rest.len)
        ret->kind = rest.at[0];
    clp_name_text_skip(&ret->rest, "__");
    return true;
}

/* Numbers of methods; after an edit in a running program they carry a generation: "3#1". */
static bool all_digits(struct clp_name_text t)
{
    for (size_t i = 0; i < t.len; i++)
        if ((t.at[i] < '0' || t.at[i] > '9') && t.at[i] != '#')
            return false;
    return true;
}

/* Splits "Name`2" into the name and 2. Metadata allows a backtick anywhere, so only digits at the
 * end count. */
static struct clp_name_text split_arity(struct clp_name_text t, uint32_t *ret_arity)
{
    *ret_arity = 0;
    size_t at = t.len;
    while (at > 0 && t.at[at - 1] >= '0' && t.at[at - 1] <= '9')
        at--;
    if (at == t.len || at < 2 || t.at[at - 1] != '`')
        return t;
    uint32_t n = 0;
    for (size_t i = at; i < t.len; i++)
        n = CLP_MIN(n * 10 + (uint32_t)(t.at[i] - '0'), ARITY_MAX);
    *ret_arity = n;
    return clp_name_text_until(t, at - 1);
}

/* "DisplayClass3_0" and "3" give 3; an empty text, the closure of all capture-free lambdas of a
 * type, gives nothing. */
static bool closure_ordinal(struct clp_name_text rest, struct clp_name_text *ret)
{
    if (clp_name_text_skip(&rest, "DisplayClass"))
        rest = clp_name_text_until(rest, clp_name_text_find(rest, 0, '_'));
    if (!all_digits(rest))
        return false;
    *ret = rest;
    return true;
}

/* The source name of a type that is visible in its own file only: <File>F{64 hex digits}__Name. */
static bool file_type(const struct clp_compiler_name *c, struct clp_name_text *ret)
{
    if (c->kind != 'F' || c->rest.len <= FILE_HASH_DIGITS + 2)
        return false;
    for (size_t i = 0; i < FILE_HASH_DIGITS; i++)
        if (!strchr("0123456789ABCDEF", c->rest.at[i]) || !c->rest.at[i])
            return false;
    struct clp_name_text name = clp_name_text_from(c->rest, FILE_HASH_DIGITS);
    if (!clp_name_text_skip(&name, "__") || name.len == 0)
        return false;
    *ret = name;
    return true;
}

static void angle_segment(const struct clp_compiler_name *c, struct clp_segment *s)
{
    bool nameless = c->inner.len == 0;
    if (file_type(c, &s->shown))
        return;
    if (nameless && c->kind == 'c' && closure_ordinal(c->rest, &s->ordinal)) {
        s->kind = CLP_SEGMENT_CLOSURE;
    } else if (!nameless && c->kind == 'd' && all_digits(c->rest)) {
        s->kind = CLP_SEGMENT_MACHINE;
        s->shown = c->inner;
        s->ordinal = c->rest;
    } else if (nameless && c->rest.len && c->kind && strchr("fzy", c->kind)) {
        s->shown = c->rest; /* AnonymousType0, ReadOnlyArray, InlineArray4 */
    } else if (nameless && (c->kind == 'A' || c->kind == 'F')) {
        s->shown = clp_name_text_of(c->kind == 'A' ? "AnonymousAction" : "AnonymousFunc");
    }
}

/* Visual Basic: _Closure$__3-0, VB$StateMachine_5_Name. */
static void basic_segment(struct clp_name_text t, struct clp_segment *s)
{
    if (clp_name_text_skip(&t, "_Closure$__")) {
        s->kind = CLP_SEGMENT_CLOSURE;
        s->ordinal = clp_name_text_until(t, clp_name_text_find(t, 0, '-'));
    } else if (clp_name_text_skip(&t, "VB$StateMachine_")) {
        size_t cut = clp_name_text_find(t, 0, '_');
        struct clp_name_text ordinal = clp_name_text_until(t, cut);
        if (cut + 1 >= t.len || !all_digits(ordinal))
            return;
        s->kind = CLP_SEGMENT_MACHINE;
        s->ordinal = ordinal;
        s->shown = clp_name_text_from(t, cut + 1);
    }
}

/* F#: the state machine of a task expression in `name` at line 12 is `name@12`. It is shown with
 * the line, which is all that tells two of them in one function apart. */
static void fsharp_segment(struct clp_name_text t, struct clp_segment *s)
{
    size_t at = clp_name_text_find_last(t, '@');
    if (at == 0 || at >= t.len)
        return;
    s->kind = CLP_SEGMENT_MACHINE;
    s->shown = t;
}

void clp_segment_parse(struct clp_name_text text, bool async_name, struct clp_segment *ret)
{
    *ret = (struct clp_segment){.kind = CLP_SEGMENT_PLAIN};
    struct clp_name_text t = split_arity(text, &ret->arity);
    ret->shown = t;
    struct clp_compiler_name c;
    if (clp_compiler_name_parse(t, &c))
        angle_segment(&c, ret);
    else
        basic_segment(t, ret);
    if (async_name && ret->kind == CLP_SEGMENT_PLAIN)
        fsharp_segment(t, ret);
}
