/* Code bodies of a target as its events tell them: what lay at an address at a moment.
 *
 * Bodies come from three sources: loads while we listen (their birth is known), lists that the
 * runtime makes when a session stops (alive at that moment, and since before we listened), unloads
 * (death). Code of dynamic methods is freed and the addresses used again, so a look-up takes a
 * moment, and what was not alive then has no name: never another's.
 *
 * The sources are streams of their own and lag behind one another: a list's "alive at 40" may be
 * read after "unloaded at 50", and after the load at 60 of what has the place now. So nothing
 * depends on the order of the calls, only on the moments that they state.
 *
 * Ids are stable until clp_bodies_forget_dead. One owner; not thread-safe. */
#ifndef CLP_AGENT_EVENTPIPE_BODIES_H
#define CLP_AGENT_EVENTPIPE_BODIES_H

#include "base/core/core.h"

#include <stdbool.h>

#define CLP_BODIES_MAX (1u << 19)
#define CLP_BODIES_TEXT_MAX_BYTES (64u << 20)
#define CLP_BODY_NONE UINT32_MAX
/* Something dynamic was here, and had been freed by then. */
#define CLP_BODY_GONE (UINT32_MAX - 1)

struct clp_body {
    uint64_t start;
    uint64_t birth, death;     /* ticks; 0 = before we listened, UINT64_MAX = alive */
    uint64_t first, confirmed; /* moments between which it is known to have been alive */
    uint32_t size;
    uint32_t flags;                 /* of the runtime's event */
    uint32_t type, name, signature; /* texts */
    uint32_t next;                  /* index + 1 of another with the same start */
    bool born, unloaded;            /* birth, death were told; else they are what others leave */
    /* For the user: what it made of this body, and in which window. */
    uint32_t location, window;
};

struct clp_body_told {
    uint64_t start;
    uint32_t size, flags;
    uint64_t ticks;
    const char *type, *name, *signature; /* UTF-8 */
};

struct clp_bodies;

int clp_bodies_new(struct clp_bodies **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_bodies *clp_bodies_free(struct clp_bodies *b);

/* Beyond the ceilings, or without memory, a body is refused and counted. */
void clp_bodies_load(struct clp_bodies *b, const struct clp_body_told *t);
/* By the runtime's list: alive at `ticks`, loaded before. */
void clp_bodies_list(struct clp_bodies *b, const struct clp_body_told *t);
void clp_bodies_unload(struct clp_bodies *b, const struct clp_body_told *t);
/* Loads or unloads were lost: dynamic code is what it was said to be only at the moments at which
 * something said so, until something says so again. */
void clp_bodies_doubt(struct clp_bodies *b);
/* The body at `address` at that moment, CLP_BODY_NONE or CLP_BODY_GONE. */
uint32_t clp_bodies_find(struct clp_bodies *b, uint64_t address, uint64_t ticks);
struct clp_body *clp_bodies_at(struct clp_bodies *b, uint32_t id);
const char *clp_bodies_text(const struct clp_bodies *b, uint32_t text);
/* Forgets what died before `ticks`, when that is worth it: no moment before is asked for any more.
 * Ids change. */
void clp_bodies_forget_dead(struct clp_bodies *b, uint64_t ticks);
/* Changes whenever an answer of clp_bodies_find may have changed. */
uint64_t clp_bodies_version(const struct clp_bodies *b);
uint64_t clp_bodies_refused(const struct clp_bodies *b);
uint32_t clp_bodies_count(const struct clp_bodies *b);

#endif
