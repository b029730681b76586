/* Metadata signatures (ECMA-335 II.23.2) as text: the parameter types of a method.
 *
 * Foreign bytes: every read is checked, nesting and length are bounded (fuzzed:
 * tests/fuzz/fuzz-signature.c).  Pure: what a token stands for is asked through a callback. */
#ifndef CLP_SAMPLER_INPROC_SIGNATURE_H
#define CLP_SAMPLER_INPROC_SIGNATURE_H

#include "base/core/bytes.h"
#include "base/core/core.h"
#include "base/core/text.h"

#define CLP_SIGNATURE_DEPTH_MAX 16

struct clp_signature_names {
    void *user;
    /* Writes the name of a TypeDef, TypeRef or TypeSpec token. `depth` is to be handed on to
     * clp_signature_type when a TypeSpec is parsed in turn. */
    void (*token)(void *user, uint32_t token, unsigned depth, struct clp_text *out);
    /* Writes the name of a type that the runtime refers to by address (signatures of dynamic
     * methods and IL stubs, ELEMENT_TYPE_INTERNAL). */
    void (*address)(void *user, uint64_t type, unsigned depth, struct clp_text *out);
};

/* The parameter types of a method signature: "System.Int32,System.String[],!0". 0, or -EBADMSG for
 * a malformed one: then `out` holds what could be read. Names as in struct clp_rec_method. */
int clp_signature_params(const uint8_t *sig, size_t len, const struct clp_signature_names *names,
                         struct clp_text *out) CLP_MUST_USE;

/* One type at the cursor, written to `out`, or skipped when `out` is NULL. Sets b->bad when
 * malformed. */
void clp_signature_type(struct clp_bytes *b, const struct clp_signature_names *names,
                        unsigned depth, struct clp_text *out);

#endif
