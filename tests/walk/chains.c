#include "tests/walk/chains.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/core/core.h"

/* Root first.  Whenever a stack holds one of a chain's own methods (from `own` on), everything
 * before it must be there, in this order, without anything in between unless a "*" stands for
 * native and runtime frames. */
struct chain {
    const char *own; /* part of the names that only this chain has */
    const char *steps[8];
};

static const struct chain all[] = {
    {"StraightChain::",
     {"StraightChain::Drive", "StraightChain::First", "StraightChain::Second",
      "StraightChain::Third", "StraightChain::Fourth"}},
    {"LoopChain::",
     {"LoopChain::Drive", "LoopChain::First", "LoopChain::Second", "LoopChain::Third",
      "LoopChain::Fourth"}},
    {"AllocChain::",
     {"AllocChain::Drive", "AllocChain::First", "AllocChain::Second", "AllocChain::Third",
      "AllocChain::Fourth"}},
    {"OsrLoops::Simple", {"OsrLoops::CallSimple", "OsrLoops::Simple"}},
    {"OsrLoops::InTry", {"OsrLoops::CallTry", "OsrLoops::InTry"}},
    {"OsrLoops::LargeFrame", {"OsrLoops::CallLarge", "OsrLoops::LargeFrame"}},
    {"OsrLoops::WithCalls", {"OsrLoops::CallCalls", "OsrLoops::WithCalls"}},
    {"QsortMode::CompareUnmanaged",
     {"QsortMode::SortUnmanaged", "*", "QsortMode::CompareUnmanaged"}},
    {"QsortMode::CompareDelegate", {"QsortMode::SortDelegate", "*", "QsortMode::CompareDelegate"}},
    {"DeepMode::Leaf", {"DeepMode::Down", "DeepMode::Leaf"}},
};
static_assert(CLP_ARRAY_LEN(all) <= CHAINS_MAX, "one counter each");

static bool is(const char *name, const char *step)
{
    const char *at = strstr(name, step);
    size_t n = strlen(step);
    return at && (at[n] == 0 || at[n] == '%');
}

/* `at` is the index (leaf first) of the chain's last method in the stack, `step` its number. */
static bool prefix_matches(const struct chain *c, char (*names)[200], uint32_t n, uint32_t at,
                           int step)
{
    while (--step >= 0) {
        bool gap = c->steps[step][0] == '*';
        if (gap)
            step--;
        do {
            if (++at >= n)
                return false;
        } while (gap && !is(names[at], c->steps[step]));
        if (!is(names[at], c->steps[step]))
            return false;
        /* A method may not occur twice in a row. */
        if (at + 1 < n && !gap && strstr(names[at], "Deep") == NULL &&
            is(names[at + 1], c->steps[step]))
            return false;
    }
    return true;
}

static int step_of(const struct chain *c, const char *name)
{
    for (int s = 0; s < 8 && c->steps[s]; s++)
        if (c->steps[s][0] != '*' && is(name, c->steps[s]))
            return s;
    return -1;
}

const char *chains_check(struct chains *c, char (*names)[200], uint32_t n)
{
    for (size_t k = 0; k < CLP_ARRAY_LEN(all); k++) {
        uint32_t at = 0;
        while (at < n && !strstr(names[at], all[k].own))
            at++;
        if (at == n)
            continue;
        int step = step_of(&all[k], names[at]);
        if (step < 0)
            continue;
        c->seen[k]++;
        if (!prefix_matches(&all[k], names, n, at, step))
            return all[k].own;
        c->exact[k]++;
    }
    return NULL;
}

bool chains_report(const struct chains *c, unsigned long wanted)
{
    unsigned long seen = 0;
    bool good = true;
    for (size_t k = 0; k < CLP_ARRAY_LEN(all); k++) {
        if (c->seen[k])
            printf("chain %-28s seen %6lu exact %6lu\n", all[k].own, c->seen[k], c->exact[k]);
        good = good && c->seen[k] == c->exact[k];
        seen += c->seen[k];
    }
    if (seen < wanted)
        printf("%lu stacks held a known chain, %lu wanted\n", seen, wanted);
    return good && seen >= wanted;
}
