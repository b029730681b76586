/* Holds an unload back while the loop thread asks the runtime about something that could unload.
 *
 * The runtime tells of an unload before it frees anything, and waits for the callback to return. So
 * a callback first marks what unloads as dead in our tables, then waits here while the loop thread
 * is inside a section; the loop thread enters the section first, then looks whether what it wants
 * to ask about is still alive.  One of the two always sees the other.
 *
 * This is no lock across a call into the runtime: the loop thread never waits, and a callback waits
 * at most CLP_GATE_WAIT_MAX_NS.  If the runtime's call inside the section needed a lock that the
 * unloading thread holds, that bound would break the circle.  Sections are bounded by
 * CLP_GATE_SECTION_MAX_NS. */
#ifndef CLP_SAMPLER_INPROC_GATE_H
#define CLP_SAMPLER_INPROC_GATE_H

#include "base/core/core.h"

#define CLP_GATE_SECTION_MAX_NS (100 * CLP_NSEC_PER_MSEC)
#define CLP_GATE_WAIT_MAX_NS (2 * CLP_NSEC_PER_SEC)

enum {
    CLP_GATE_MODULES = 1 << 0, /* modules and the methods in them */
    CLP_GATE_DYNAMIC = 1 << 1, /* dynamic methods */
    CLP_GATE_THREADS = 1 << 2, /* Thread objects */
};

/* Loop thread only; not nested. */
void clp_gate_enter(uint32_t what);
void clp_gate_leave(void);
/* From unload callbacks, any thread but the loop's: returns when no section of this kind is open
 * that was open at the call. */
void clp_gate_wait(uint32_t what);

#endif
