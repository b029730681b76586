/* What the parts of the code table (code_table.c, code_bodies.c, code_unsure.c) know of one
 * another. The lock is held in all of them but init and done. */
#ifndef CLP_SAMPLER_INPROC_CODE_PARTS_H
#define CLP_SAMPLER_INPROC_CODE_PARTS_H

#include "sampler/inproc/code_table.h"

int clp_code_bodies_init(void) CLP_MUST_USE;
void clp_code_bodies_done(void);
/* All live bodies of a method end. */
void clp_code_bodies_kill_locked(struct clp_method *m, uint64_t now_ns);
uint64_t clp_code_bodies_refused_locked(void);
size_t clp_code_bodies_bytes_locked(void);

void clp_code_unsure_init(void);
void clp_code_unsure_done(void);
uint64_t clp_code_unsure_refused_locked(void);
size_t clp_code_unsure_bytes_locked(void);

/* Forgets a dead method that has no body left. */
void clp_code_table_method_unused_locked(uint32_t number);

#endif
