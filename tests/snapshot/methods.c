#include "tests/snapshot/methods.h"

#include "sampler/inproc/names.h"

#include <stdio.h>
#include <string.h>

#define BUCKETS (8 * CLP_SNAPSHOT_METHODS_MAX)
#define ROW(token) ((token)&0xffffffu)

static struct clp_snapshot_method methods[CLP_SNAPSHOT_METHODS_MAX];
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

static void name_into(clr_function_id function, char *buf, size_t cap)
{
    struct clp_method_texts texts;
    struct clp_function_facts facts;
    clp_names_init_texts(&texts);
    if (clp_names_facts(function, &facts) == 0 && ROW(facts.token))
        clp_names_method(&facts, &texts);
    (void)snprintf(buf, cap, "%s.%s", texts.type.buf,
                   texts.name.len ? texts.name.buf : "[dynamic]");
}

static bool is_dispatch(clr_function_id function)
{
    static const char *const types[] = {"System.Runtime.EH.", "System.Runtime.EH+"};
    char name[1024];
    name_into(function, name, sizeof(name));
    bool is = false;
    for (size_t i = 0; i < CLP_ARRAY_LEN(types); i++)
        is |= strncmp(name, types[i], strlen(types[i])) == 0;
    return is;
}

static uint32_t add(clr_function_id function, const struct clp_function_facts *facts)
{
    if (method_count + 1 >= CLP_SNAPSHOT_METHODS_MAX)
        return 0;
    methods[++method_count] = (struct clp_snapshot_method){
        .function = function,
        .module = facts->module,
        .token = facts->token,
        .dynamic = ROW(facts->token) == 0,
        .dispatch = is_dispatch(function),
    };
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
        number = add(function, &facts);
    if (ROW(facts.token))
        enter(facts.module, facts.token, number);
    enter(function, 0, number);
    return number;
}

const struct clp_snapshot_method *clp_snapshot_method(uint32_t number)
{
    return &methods[number];
}

const char *clp_snapshot_method_name(uint32_t number)
{
    static char name[1024];
    name_into(methods[number].function, name, sizeof(name));
    return name;
}
