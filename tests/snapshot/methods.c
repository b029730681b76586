#include "tests/snapshot/methods.h"

#include "sampler/inproc/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS (8 * CLP_SNAPSHOT_METHODS_MAX)
#define ROW(token) ((token)&0xffffffu)

static char nameless[] = "?";
static struct clp_snapshot_method methods[CLP_SNAPSHOT_METHODS_MAX] = {{.name = nameless}};
static uint32_t method_count;

/* From functions, and from modules with tokens, to numbers. */
static struct entry {
    uint64_t a, b;
    uint32_t number;
} entries[BUCKETS];
static uint32_t entry_count;

/* The entry of a pair, empty (number 0) when it has none yet. */
static struct entry *entry_of(uint64_t a, uint64_t b)
{
    uint64_t at = (a * 0x9e3779b97f4a7c15ull ^ b * 0xc2b2ae3d27d4eb4full) >> 32;
    struct entry *e = &entries[at % BUCKETS];
    while (e->number && (e->a != a || e->b != b))
        e = &entries[++at % BUCKETS];
    return e;
}

static void enter(uint64_t a, uint64_t b, uint32_t number)
{
    struct entry *e = entry_of(a, b);
    entry_count += e->number == 0 && number != 0;
    *e = (struct entry){a, b, number};
}

static char *name_of(const struct clp_function_facts *facts)
{
    struct clp_method_texts texts;
    char *name = NULL;
    clp_names_init_texts(&texts);
    if (ROW(facts->token))
        clp_names_method(facts, &texts);
    if (asprintf(&name, "%s.%s", texts.type.buf, texts.name.len ? texts.name.buf : "?") < 0)
        abort();
    return name;
}

static bool is_dispatch(const char *name)
{
    static const char *const types[] = {"System.Runtime.EH.", "System.Runtime.EH+"};
    bool is = false;
    for (size_t i = 0; i < CLP_ARRAY_LEN(types); i++)
        is |= strncmp(name, types[i], strlen(types[i])) == 0;
    return is;
}

static uint32_t add(const struct clp_function_facts *facts)
{
    if (method_count + 1 >= CLP_SNAPSHOT_METHODS_MAX)
        return 0;
    char *name = name_of(facts);
    methods[++method_count] = (struct clp_snapshot_method){
        .name = name, .dynamic = ROW(facts->token) == 0, .dispatch = is_dispatch(name)};
    return method_count;
}

uint32_t clp_snapshot_method_of(clr_function_id function)
{
    struct clp_function_facts facts = {0};
    uint32_t number = function ? entry_of(function, 0)->number : 0;
    if (!function || number || entry_count > BUCKETS / 2)
        return number;
    if (clp_names_facts(function, &facts) < 0)
        facts.token = 0;
    if (ROW(facts.token))
        number = entry_of(facts.module, facts.token)->number;
    if (!number)
        number = add(&facts);
    if (ROW(facts.token))
        enter(facts.module, facts.token, number);
    enter(function, 0, number);
    return number;
}

struct clp_snapshot_method *clp_snapshot_method(uint32_t number)
{
    return &methods[number];
}

uint32_t clp_snapshot_method_count(void)
{
    return method_count;
}
