/* Names of types from metadata tokens and class ids; a cache in front of it.  Internal to naming.
 * Calls the runtime: rules of names.h. */
#ifndef CLP_SAMPLER_INPROC_TYPE_NAMES_H
#define CLP_SAMPLER_INPROC_TYPE_NAMES_H

#include "base/core/text.h"
#include "sampler/inproc/clr.h"
#include "sampler/inproc/signature.h"

#define CLP_TYPE_NAME_UNITS 512u

/* A module that is being read. */
struct clp_metadata_scope {
    struct clr_metadata *md; /* NULL: nothing can be read */
    uint32_t module;         /* number in modules.h */
    uint32_t serial;         /* its serial: key of the cache */
};
struct clp_metadata_scope clp_metadata_open(uint32_t module);

/* "Ns.Outer`1+Inner" of a TypeDef, TypeRef or TypeSpec token. */
void clp_type_name_token(const struct clp_metadata_scope *s, uint32_t token, unsigned depth,
                         struct clp_text *out);
/* "System.Collections.Generic.List`1[System.Int32]" of a loaded class. */
void clp_type_name_class(clr_class_id id, unsigned depth, struct clp_text *out);
/* Callbacks for signatures; `user` is a const struct clp_metadata_scope *. */
struct clp_signature_names clp_type_name_signature(const struct clp_metadata_scope *s);

void clp_type_names_done(void);

#endif
