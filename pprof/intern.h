/* The two kinds of interning tables that a profile is made of: equal contents exist once and have a
 * number, counted from 0 in the order of their first appearance.
 *
 * Contents are compared as bytes, so structs must have no padding or be zeroed first. */
#ifndef CLP_PPROF_INTERN_H
#define CLP_PPROF_INTERN_H

#include "base/core/core.h"
#include "base/index.h"

/* Items of one size. */
struct clp_rows {
    void *items;
    uint32_t len, cap, ceiling;
    uint32_t item_bytes;
    struct clp_index index;
};

void clp_rows_init(struct clp_rows *t, size_t item_bytes, uint32_t ceiling);
void clp_rows_done(struct clp_rows *t);
/* Its number, or -ENOSPC, -ENOMEM; the table is unchanged then. */
int64_t clp_rows_intern(struct clp_rows *t, const void *item) CLP_MUST_USE;
/* Its number if it is there already, or -ENOENT. */
int64_t clp_rows_find(const struct clp_rows *t, const void *item) CLP_MUST_USE;
/* Item number `at`; valid until the next one is added. */
const void *clp_rows_get(const struct clp_rows *t, uint32_t at);

/* Sequences of items of one size: texts, stacks, label sets. */
struct clp_seq {
    uint32_t start, len; /* in items of the pool */
};

struct clp_seqs {
    struct clp_seq *seqs;
    uint32_t len, cap, ceiling;
    void *pool;
    uint32_t pool_len, pool_cap, pool_ceiling; /* items */
    uint32_t item_bytes;
    struct clp_index index;
};

void clp_seqs_init(struct clp_seqs *t, size_t item_bytes, uint32_t ceiling, uint32_t pool_ceiling);
void clp_seqs_done(struct clp_seqs *t);
int64_t clp_seqs_intern(struct clp_seqs *t, const void *items, uint32_t len) CLP_MUST_USE;
/* Its number if it is there already, or -ENOENT. */
int64_t clp_seqs_find(const struct clp_seqs *t, const void *items, uint32_t len) CLP_MUST_USE;
/* The items of sequence `at`, their count in *ret_len; valid until the next one is added. */
const void *clp_seqs_get(const struct clp_seqs *t, uint32_t at, uint32_t *ret_len);

#endif
