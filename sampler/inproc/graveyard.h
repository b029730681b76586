/* Code bodies that have died lately: samples taken while they lived may still wait to be unwound.
 *
 * A body is kept until samples ten seconds younger than its death were looked up; without samples,
 * for a minute. Guarded by the leaf lock of the code tables. */
#ifndef CLP_SAMPLER_INPROC_GRAVEYARD_H
#define CLP_SAMPLER_INPROC_GRAVEYARD_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_GRAVEYARD_MAX 16384u

struct clp_body;

/* `body` gives the entry of a number. */
int clp_graveyard_init(struct clp_body *(*body)(uint32_t number)) CLP_MUST_USE;
void clp_graveyard_done(void);

/* 0 or -ENOMEM (counted: samples of that body lose their name). */
int clp_graveyard_add(uint32_t number) CLP_MUST_USE;
/* The body to forget next, 0 = none: one that nobody will ask for, or the oldest when full. */
uint32_t clp_graveyard_oldest(uint64_t now_ns);
/* Takes out what clp_graveyard_oldest answered. */
void clp_graveyard_remove(uint32_t number);
/* A sample of this time was looked up. */
void clp_graveyard_saw_sample(uint64_t time_ns);
/* The body that covered `ip` at `time_ns`, or 0. */
uint32_t clp_graveyard_find(uint64_t ip, uint64_t time_ns);
/* Whether any body in here covered `ip`, or may have. */
bool clp_graveyard_covers(uint64_t ip);

uint64_t clp_graveyard_refused(void);
size_t clp_graveyard_bytes(void);

#endif
