/* Managed modules: identity, path, lifetime, and where precompiled (ReadyToRun) code lies.
 *
 * Fed by callbacks and by enumeration, read by naming and by the loop thread.  Runtime calls are
 * made outside of the leaf lock; functions that end in _locked expect it held. */
#ifndef CLP_SAMPLER_INPROC_MODULES_H
#define CLP_SAMPLER_INPROC_MODULES_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/strings.h"
#include "wire/wire.h"

#define CLP_MODULES_MAX 4096u

struct clp_module {
    uint32_t next;   /* in its hash bucket; first word: the free list's link */
    uint32_t serial; /* never reused, unlike ids and numbers */
    clr_module_id id;
    clr_assembly_id assembly;
    uint64_t base, end; /* of a mapped PE image with native code; 0 for others */
    struct clp_string *path;
    struct clr_metadata *metadata; /* NULL = not asked yet, or dead */
    struct clr_guid mvid;
    uint32_t flags;    /* CLR_MODULE_* */
    uint32_t uses;     /* methods and names that refer to it */
    uint32_t image_id; /* 0 until something in a sample refers to it */
    bool mvid_known;
    bool watched; /* seen from its load on: no code of it is unknown */
    bool dead;
};

int clp_modules_init(void) CLP_MUST_USE;
/* The runtime's metadata objects are given back only when `release_metadata`. */
void clp_modules_done(bool release_metadata);

/* Asks the runtime about a module and adds it; harmless when it is known. Its number, or 0. */
uint32_t clp_modules_learn(clr_module_id id);
/* The same at the module's load: all of its code will be told. */
void clp_modules_loaded(clr_module_id id);
/* The assembly was not known yet at the load. */
void clp_modules_attached(clr_module_id id, clr_assembly_id assembly);
uint32_t clp_modules_number_locked(clr_module_id id); /* 0 = not known */
struct clp_module *clp_modules_at_locked(uint32_t number);
bool clp_modules_collectible_locked(uint32_t number);
/* Of the module that was learnt last. */
uint32_t clp_modules_last_serial_locked(void);

/* What refers to a module keeps its entry. */
void clp_modules_use_locked(uint32_t number);
void clp_modules_unuse_locked(uint32_t number);

/* The module unloads: its id may be reused from now on. Numbers of all modules of an assembly, or
 * of one module, are handed to `each` (lock held) before they are marked dead. true when one of
 * them was not watched. */
bool clp_modules_kill_locked(clr_assembly_id assembly, clr_module_id module,
                             void (*each)(uint32_t number, uint64_t now_ns), uint64_t now_ns);

/* The same for all modules that may unload, whose unload may have gone untold: of their metadata
 * nothing is certain, so it is not even given back. */
void clp_modules_abandon_locked(void (*each)(uint32_t number, uint64_t now_ns), uint64_t now_ns);

/* Gives back the metadata of modules that were killed. After the gate: nobody reads them any more.
 * Not under the lock. */
void clp_modules_release_dead(void);

/* The metadata of a module, NULL when the runtime gives none; it lives as long as the module. Not
 * under the lock. */
struct clr_metadata *clp_modules_metadata(uint32_t number);

/* The wire's image id of a module, given out on first use. Loop thread. */
uint32_t clp_modules_image_id_locked(uint32_t number);
uint32_t clp_modules_of_image_locked(uint32_t image_id); /* its number; 0 = gone */
/* Contents of the IMAGE record; size, -ENOENT or -ENOSPC. Loop thread; asks for the MVID. */
int clp_modules_image_record(uint32_t image_id, void *buf, size_t cap);

size_t clp_modules_bytes_locked(void);
uint64_t clp_modules_refused_locked(void);

#endif
