/* Methods in words, from the runtime and its metadata.
 *
 * Calls the runtime: never under the leaf lock, and only for methods that cannot go away meanwhile:
 * inside a callback about the method itself, for methods that never unload, or inside a gate
 * section (gate.h).  Names of types are cached, so that a method of a known type costs two or three
 * calls. */
#ifndef CLP_SAMPLER_INPROC_NAMES_H
#define CLP_SAMPLER_INPROC_NAMES_H

#include "base/core/core.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/method_texts.h"

#define CLP_TYPE_ARGS_MAX 16u

/* What the runtime says about a function id. */
struct clp_function_facts {
    clr_class_id
        class_id; /* 0: code shared by instantiations of its class, which one is not told */
    clr_module_id module;
    uint32_t token;
    uint32_t arg_count;
    clr_class_id args[CLP_TYPE_ARGS_MAX];
};
int clp_names_facts(clr_function_id function, struct clp_function_facts *ret) CLP_MUST_USE;

/* The module with which a method dies, 0 if it never does: the youngest of all modules that may
 * unload in its class and its arguments. *ret_sure is false when its class is not told: then it may
 * die with a module that is not known. */
uint32_t clp_names_owner(const struct clp_function_facts *facts, bool *ret_sure);

/* Fills all texts; what cannot be found stays empty. */
void clp_names_method(const struct clp_function_facts *facts, struct clp_method_texts *ret);
/* The same for a dynamic method or an IL stub: name, module, and the signature if wanted. -ENOENT
 * when it is none. */
int clp_names_dynamic(clr_function_id function, bool with_signature,
                      struct clp_method_texts *ret) CLP_MUST_USE;

void clp_names_init_texts(struct clp_method_texts *t);
/* Forgets the cache, whose texts belong to the table of strings. */
void clp_names_done(void);

#endif
