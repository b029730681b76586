#include "sampler/inproc/contract.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define MAGIC 0x0043414443434e44ull /* "DNCCDAC\0" */
#define FLAG_SET 1u                 /* always; the second bit says that pointers have four bytes */
#define OFFSET_MAX (64u << 10)      /* of a field in its structure */

int clp_contract_header(const uint8_t bytes[CLP_CONTRACT_HEADER_BYTES], uint64_t *ret_address,
                        uint32_t *ret_bytes)
{
    uint64_t magic, address;
    uint32_t flags, len;
    memcpy(&magic, bytes, sizeof(magic));
    memcpy(&flags, bytes + 8, sizeof(flags));
    memcpy(&len, bytes + 12, sizeof(len));
    memcpy(&address, bytes + 16, sizeof(address));
    if (magic != MAGIC || (flags & 3) != FLAG_SET || !address || !len ||
        len > CLP_CONTRACT_BYTES_MAX)
        return -EBADMSG;
    *ret_address = address;
    *ret_bytes = len;
    return 0;
}

/* ---- JSON, as much of it as is needed ---- */

/* Stands before a value, or `bad`. */
struct text {
    const char *at, *end;
    bool bad;
};

/* The next character that is no space; 0 at the end. */
static char peek(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\r' || *t->at == '\t'))
        t->at++;
    return t->at < t->end ? *t->at : '\0';
}

static bool take(struct text *t, char c)
{
    if (peek(t) != c || t->bad)
        return false;
    t->at++;
    return true;
}

struct name {
    const char *at;
    size_t len;
};

/* As it is written: no name that we look for needs an escape. */
static struct name take_string(struct text *t)
{
    if (!take(t, '"'))
        t->bad = true;
    const char *from = t->at;
    while (t->at < t->end && *t->at != '"')
        t->at += *t->at == '\\' ? CLP_MIN(2, t->end - t->at) : 1;
    struct name s = {from, (size_t)(t->at - from)};
    if (!take(t, '"'))
        t->bad = true;
    return s;
}

static bool ends_value(char next)
{
    return next == ',' || next == '}' || next == ']' || next == '\0';
}

/* To behind the value; what is inside of it need not be well-formed but for strings and brackets.
 */
static void skip(struct text *t)
{
    unsigned depth = 0;
    do {
        char c = peek(t);
        if (c == '"') {
            (void)take_string(t);
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && depth-- == 0)
            c = '\0';
        if (c == '\0')
            t->bad = true;
        t->at += !t->bad;
    } while (!t->bad && (depth > 0 || !ends_value(peek(t))));
}

static bool is(struct name s, const char *what)
{
    return s.len == strlen(what) && memcmp(s.at, what, s.len) == 0;
}

/* From before an object to before the value of a member of it. */
static bool enter(struct text *t, const char *member)
{
    if (!take(t, '{'))
        return false;
    while (!t->bad && peek(t) == '"') {
        struct name s = take_string(t);
        if (!take(t, ':'))
            t->bad = true;
        if (is(s, member))
            return !t->bad;
        skip(t);
        if (!take(t, ','))
            break;
    }
    return false;
}

static bool number(struct text *t, uint32_t *ret)
{
    char c = peek(t);
    uint32_t n = 0;
    if (c < '0' || c > '9')
        return false;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && n <= OFFSET_MAX; t->at++)
        n = n * 10 + (uint32_t)(*t->at - '0');
    if (n > OFFSET_MAX || !ends_value(peek(t)))
        return false;
    *ret = n;
    return true;
}

/* ---- the descriptor ---- */

static bool has_type(struct text root, const char *type)
{
    return enter(&root, "types") && enter(&root, type);
}

/* A field is OFFSET or [OFFSET,"type"]. */
static bool field(struct text root, const char *type, const char *name, uint32_t *ret)
{
    if (!enter(&root, "types") || !enter(&root, type) || !enter(&root, name))
        return false;
    (void)take(&root, '[');
    return number(&root, ret);
}

/* Offsets are told as they are, not as differences from a baseline. */
static bool is_known(struct text root)
{
    struct text version = root, baseline = root, threads = root;
    uint32_t n;
    return enter(&version, "version") && number(&version, &n) && n == 0 &&
           enter(&baseline, "baseline") && is(take_string(&baseline), "empty") &&
           enter(&threads, "contracts") && enter(&threads, "Thread") && number(&threads, &n) &&
           n == 1;
}

int clp_contract_parse(const char *json, size_t len, struct clp_contract *ret)
{
    struct text root = {json, json + len, false}, all = root;
    struct clp_contract c;
    uint32_t inner = 0, pointer, limit;
    if (peek(&all) != '{')
        return -EBADMSG;
    skip(&all);
    if (all.bad)
        return -EBADMSG;
    if (!is_known(root) || !field(root, "Thread", "OSId", &c.os_id) ||
        !field(root, "Thread", "RuntimeThreadLocals", &c.locals) ||
        !field(root, "RuntimeThreadLocals", "AllocContext", &c.context) ||
        !field(root, "GCAllocContext", "Pointer", &pointer) ||
        !field(root, "GCAllocContext", "Limit", &limit))
        return -ENOTSUP;
    /* Since .NET 10 the collector's context is part of one of the runtime's. */
    if (has_type(root, "EEAllocContext") &&
        !field(root, "EEAllocContext", "GCAllocationContext", &inner))
        return -ENOTSUP;
    if (limit != pointer + 8)
        return -ENOTSUP;
    c.context += inner + pointer;
    *ret = c;
    return 0;
}
