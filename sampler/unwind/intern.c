#include "sampler/unwind/intern.h"

#include <string.h>

#define HASH_SLOTS 65536u

int clp_rule_intern_init(struct clp_rule_intern *in)
{
    size_t rules = CLP_RULES_MAX * sizeof(struct clp_rule);
    /* The extras of a rule that is being looked up lie behind those that are owned. */
    size_t extras = (CLP_EXTRAS_MAX + CLP_REG_COUNT) * sizeof(struct clp_rule_extra);
    size_t hash = HASH_SLOTS * sizeof(uint16_t);
    struct clp_scratch memory;
    int r = clp_scratch_alloc(rules + extras + hash + CLP_POOL_MAX, &memory);
    if (r < 0)
        return r;
    *in = (struct clp_rule_intern){.memory = memory};
    in->rule = (struct clp_rule *)memory.at;
    in->extra = (struct clp_rule_extra *)(memory.at + rules);
    in->hash = (uint16_t *)(memory.at + rules + extras);
    in->pool = memory.at + rules + extras + hash;
    in->rule[CLP_RULE_ID_NONE] = (struct clp_rule){.cfa_reg = CLP_CFA_NONE};
    in->rule[CLP_RULE_ID_BAD] = (struct clp_rule){.cfa_reg = CLP_CFA_BAD};
    in->rules = 2;
    return 0;
}

void clp_rule_intern_done(struct clp_rule_intern *in)
{
    clp_scratch_done(&in->memory);
}

static int intern_expr(struct clp_rule_intern *in, const struct clp_place *p)
{
    uint32_t at = 0;
    while (at < in->pool_bytes) {
        uint16_t len;
        memcpy(&len, in->pool + at, sizeof(len));
        if (len == p->expr_len && memcmp(in->pool + at + sizeof(len), p->expr, len) == 0)
            return (int)at;
        at += (uint32_t)sizeof(len) + len;
    }
    if (p->expr_len > CLP_POOL_MAX - sizeof(uint16_t) - at)
        return -1;
    memcpy(in->pool + at, &p->expr_len, sizeof(p->expr_len));
    memcpy(in->pool + at + sizeof(p->expr_len), p->expr, p->expr_len);
    in->pool_bytes = at + (uint32_t)sizeof(p->expr_len) + p->expr_len;
    return (int)at;
}

static bool compact_cfa(struct clp_rule_intern *in, const struct clp_place *cfa,
                        struct clp_rule *ret)
{
    if (cfa->kind == CLP_PLACE_VAL_OFFSET) {
        ret->cfa_reg = cfa->reg;
        ret->cfa_off = cfa->value;
        return true;
    }
    int at = cfa->kind == CLP_PLACE_EXPR ? intern_expr(in, cfa) : -1;
    ret->cfa_reg = CLP_CFA_EXPR;
    ret->cfa_off = at;
    return at >= 0;
}

/* The slot number for a register's place, or CLP_SLOT_EXTRA when it needs more words. */
static uint8_t compact_slot(const struct clp_place *p)
{
    if (p->kind == CLP_PLACE_SAME)
        return CLP_SLOT_SAME;
    if (p->kind == CLP_PLACE_UNDEFINED)
        return CLP_SLOT_UNDEFINED;
    if (p->kind == CLP_PLACE_OFFSET && p->value < 0 && p->value % 8 == 0 &&
        p->value >= -8 * CLP_SLOT_MAX)
        return (uint8_t)(-p->value / 8);
    return CLP_SLOT_EXTRA;
}

static int save_index(unsigned reg)
{
    for (int i = 0; i < CLP_SAVE_COUNT; i++)
        if (clp_save_register[i] == reg)
            return i;
    return -1;
}

static bool add_extra(struct clp_rule_intern *in, unsigned reg, const struct clp_place *p,
                      struct clp_rule *rule)
{
    struct clp_rule_extra e = {
        .value = p->value, .reg = (uint8_t)reg, .kind = p->kind, .other = p->reg};
    if (p->kind == CLP_PLACE_BAD)
        return false;
    if (p->kind == CLP_PLACE_EXPR || p->kind == CLP_PLACE_VAL_EXPR) {
        int at = intern_expr(in, p);
        if (at < 0)
            return false;
        e.expr = (uint16_t)at;
    }
    in->extra[in->extras + rule->extra_count++] = e; /* kept when the rule turns out to be new */
    return true;
}

static bool compact(struct clp_rule_intern *in, const struct clp_cfi_row *row, bool signal_frame,
                    struct clp_rule *ret)
{
    struct clp_rule rule = {.flags = signal_frame ? CLP_RULE_SIGNAL : 0};
    if (!compact_cfa(in, &row->cfa, &rule))
        return false;
    memset(rule.saved, CLP_SLOT_SAME, sizeof(rule.saved));
    for (unsigned reg = 0; reg < CLP_REG_COUNT; reg++) {
        const struct clp_place *p = &row->reg[reg];
        if (p->kind == CLP_PLACE_SAME) /* most of them */
            continue;
        int i = save_index(reg);
        uint8_t slot = i >= 0 ? compact_slot(p) : CLP_SLOT_EXTRA;
        if (i >= 0)
            rule.saved[i] = slot;
        if (slot == CLP_SLOT_EXTRA && !add_extra(in, reg, p, &rule))
            return false;
    }
    clp_rule_settle(&rule);
    *ret = rule;
    return true;
}

static bool same_extra(const struct clp_rule_extra *a, const struct clp_rule_extra *b)
{
    return a->value == b->value && a->expr == b->expr && a->reg == b->reg && a->kind == b->kind &&
           a->other == b->other;
}

/* Extras of `b` lie at the end of the array, not yet owned by a rule. */
static bool same_rule(const struct clp_rule_intern *in, const struct clp_rule *a,
                      const struct clp_rule *b)
{
    if (a->cfa_reg != b->cfa_reg || a->cfa_off != b->cfa_off || a->flags != b->flags ||
        a->extra_count != b->extra_count || memcmp(a->saved, b->saved, sizeof(a->saved)) != 0)
        return false;
    for (unsigned i = 0; i < a->extra_count; i++)
        if (!same_extra(&in->extra[a->extra_first + i], &in->extra[in->extras + i]))
            return false;
    return true;
}

static uint32_t hash_rule(const struct clp_rule *r)
{
    uint64_t h = ((uint64_t)(uint32_t)r->cfa_off << 8 | r->cfa_reg) * 0x9e3779b97f4a7c15ull;
    for (unsigned i = 0; i < CLP_SAVE_COUNT; i++)
        h = (h ^ r->saved[i]) * 0x100000001b3ull;
    return (uint32_t)(h >> 40) % HASH_SLOTS;
}

uint16_t clp_rule_intern(struct clp_rule_intern *in, const struct clp_cfi_row *row,
                         bool signal_frame)
{
    struct clp_rule rule;
    if (!compact(in, row, signal_frame, &rule))
        return CLP_RULE_ID_BAD;
    uint32_t at = hash_rule(&rule);
    while (in->hash[at]) {
        if (same_rule(in, &in->rule[in->hash[at]], &rule))
            return in->hash[at];
        at = (at + 1) % HASH_SLOTS;
    }
    if (in->rules == CLP_RULES_MAX || in->extras + rule.extra_count > CLP_EXTRAS_MAX)
        return CLP_RULE_ID_BAD;
    rule.extra_first = (uint16_t)in->extras;
    in->extras += rule.extra_count;
    in->rule[in->rules] = rule;
    in->hash[at] = (uint16_t)in->rules;
    return (uint16_t)in->rules++;
}
