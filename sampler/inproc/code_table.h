/* The table of code: methods, their bodies with birth and death, their names.  Memory and lookup
 * only: nothing here calls the runtime.  Every function that ends in _locked expects the leaf lock
 * of code_lock.h held by the caller; numbers are those of struct clp_slots, 0 = none. */
#ifndef CLP_SAMPLER_INPROC_CODE_TABLE_H
#define CLP_SAMPLER_INPROC_CODE_TABLE_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/method_texts.h"
#include "sampler/inproc/strings.h"
#include "sampler/unwind/code.h"

#define CLP_ALIVE_NS UINT64_MAX /* death of what lives */

enum {
    CLP_METHOD_STATE_NAMED = 1 << 0,  /* naming was done, whatever came of it */
    CLP_METHOD_STATE_MORTAL = 1 << 1, /* may unload: named and decoded when it was compiled */
    CLP_METHOD_STATE_DEAD = 1 << 2,
    CLP_METHOD_STATE_UNSURE = 1 << 3, /* what it dies with is not told; see below */
};

struct clp_method {
    uint32_t hash_next; /* first word: the free list's link */
    uint32_t first_body;
    clr_function_id function; /* 0 = not known to the runtime by an id (yet) */
    uint32_t next_of_owner;   /* UNSURE: its entry in the list of those */
    uint32_t name;            /* in the table of names; 0 = none */
    uint32_t wire_id;         /* 0 until it is first seen in a sample */
    uint16_t owner;           /* module with which it dies; 0 = lives for ever, or dies alone */
    uint16_t state;
};

enum {
    CLP_BODY_STATE_R2R = 1 << 0,
    CLP_BODY_STATE_DECODED = 1 << 1, /* the frame fields are valid */
    CLP_BODY_STATE_DEAD = 1 << 2,
    CLP_BODY_STATE_UNSURE = 1 << 3, /* of an unsure method */
};

struct clp_body {
    uint32_t next; /* of the same method; first word: the free list's link */
    uint32_t method;
    uint64_t start;
    uint64_t birth_ns, death_ns; /* CLOCK_MONOTONIC; birth 0 = older than the library */
    uint32_t code_bytes;
    uint32_t wire_id; /* 0 until it is first seen in a sample */
    uint32_t frame_bytes, lea_disp;
    uint8_t prologue_bytes, push_count, base, bits; /* bits: osr, funclet, exact */
    uint8_t state;
};

struct clp_method_name {
    struct clp_string *type, *name, *type_args, *method_args, *signature;
    uint32_t token;
    uint16_t module; /* number in modules.h */
    uint16_t flags;  /* CLP_METHOD_* of the wire */
};

int clp_code_table_init(void) CLP_MUST_USE;
void clp_code_table_done(void);
struct clp_strings *clp_code_table_strings_locked(void);

/* ---- methods ---- */

uint32_t clp_code_table_method_find_locked(clr_function_id function);
/* A method that is not in the table; function 0 is never found by id. 0 at the ceiling. */
uint32_t clp_code_table_method_add_locked(clr_function_id function, uint32_t owner, uint16_t state);
struct clp_method *clp_code_table_method_locked(uint32_t number);
/* Keeps a copy of the texts; what does not fit under the ceiling stays empty. */
void clp_code_table_method_name_locked(uint32_t method, const struct clp_method_texts *texts);
const struct clp_method_name *clp_code_table_name_locked(const struct clp_method *m);
/* The method and all its bodies end now; its function id may be reused. */
void clp_code_table_method_kill_locked(uint32_t method, uint64_t now_ns);
/* The same for all methods that die with a module. */
void clp_code_table_owner_kill_locked(uint32_t module, uint64_t now_ns);
/* The same for all that may unload. */
void clp_code_table_mortal_kill_locked(uint64_t now_ns);

/* ---- methods of which the runtime does not tell with what they die ----
 *
 * Code that is shared by instantiations of a class may belong to any module that may unload and was
 * loaded before the code was first known. When such a module unloads, the method is suspect: its
 * name is right for samples before that time; for later ones somebody has to make sure. */

/* A new method is unsure; `serial` is that of the youngest module. -ENOMEM at the ceiling. */
int clp_code_table_set_unsure_locked(uint32_t method, uint32_t serial) CLP_MUST_USE;
/* It lives for ever after all. Harmless for others. */
void clp_code_table_set_sure_locked(uint32_t method);
/* A module that may unload does: all unsure methods that were first known after its load. */
void clp_code_table_suspect_locked(uint32_t serial, uint64_t now_ns);
/* Since when the method is suspect; 0 = it is not. */
uint64_t clp_code_table_suspect_ns_locked(uint32_t method);
/* It was seen alive since. */
void clp_code_table_trust_locked(uint32_t method);

/* ---- bodies ---- */

/* A body that begins at birth_ns. Older live bodies that it overlaps end there: their memory was
 * reused. 0 when the same or a younger body lies there already, or at the ceiling (counted). */
uint32_t clp_code_table_body_add_locked(uint32_t method, uint64_t start, uint32_t code_bytes,
                                        uint64_t birth_ns, uint8_t state);
struct clp_body *clp_code_table_body_locked(uint32_t number);
void clp_code_table_body_set_frame_locked(uint32_t body, const struct clp_managed_frame *frame);
void clp_code_table_body_get_frame(const struct clp_body *b, struct clp_managed_frame *ret);
bool clp_code_table_body_known_locked(uint32_t method, uint64_t start);
/* What lives at `ip` was seen at `time_ns`: it is at least that old. */
void clp_code_table_seen_locked(uint64_t ip, uint64_t time_ns);
/* The body that covered `ip` at `time_ns`; 0 = none. */
uint32_t clp_code_table_find_locked(uint64_t ip, uint64_t time_ns);
/* Whether any body that is kept covers `ip`, at whatever time. */
bool clp_code_table_covered_locked(uint64_t ip);
/* Changes whenever an address near `ip` may be covered that was not: what is absent stays so until
 * then. Without the lock. */
uint32_t clp_code_table_version(uint64_t ip);
/* Something covers [start, end) now. */
void clp_code_table_changed_locked(uint64_t start, uint64_t end);

/* ---- the wire's numbers, given out on first use; 0 at the ceiling ---- */

uint32_t clp_code_table_body_wire_id_locked(uint32_t body);
uint32_t clp_code_table_method_wire_id_locked(uint32_t method);
uint32_t clp_code_table_body_of_wire_locked(uint32_t wire_id);   /* 0 = gone */
uint32_t clp_code_table_method_of_wire_locked(uint32_t wire_id); /* 0 = gone */
uint32_t clp_code_table_body_wire_count_locked(void);
uint32_t clp_code_table_method_wire_count_locked(void);

uint32_t clp_code_table_body_count_locked(void); /* in the table now */
uint64_t clp_code_table_refused_locked(void);
size_t clp_code_table_bytes_locked(void);

#endif
