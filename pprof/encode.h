/* From the model to pprof bytes: gzip around the protobuf message of pprof/profile.proto.
 *
 * The result is valid whatever the model holds: string_table[0] is "", ids count from 1 without
 * gaps, all text is UTF-8, samples whose values all round to 0 are left out (a profile without
 * samples is valid), and only what the kept samples use is written. The same model gives the same
 * bytes. */
#ifndef CLP_PPROF_ENCODE_H
#define CLP_PPROF_ENCODE_H

#include "pprof/profile.h"

#define CLP_ENCODE_MAX_BYTES (64u << 20) /* of the result; beyond it -EFBIG */

/* Which part of the model to write; all zero: everything as the model has it. */
struct clp_encode_options {
    /* Sample types to keep, by their index in the model, in this order: how one model becomes one
     * profile per kind. */
    const uint8_t *values;
    size_t value_count;
    const char *default_sample_type;   /* NULL: the model's if it is kept, else the last one kept */
    struct clp_value_type period_type; /* both NULL: the model's */
    int64_t period;                    /* used with period_type; 0: the model's */
    bool plain;                        /* without gzip */
};

struct clp_encoded {
    uint8_t *data; /* malloc */
    size_t len;
    size_t plain_len; /* before compression: what intakes limit */
    size_t samples;   /* written */
};

/* `o` may be NULL. 0, -EINVAL (an index out of range, a default that is not kept), -EFBIG, -ENOMEM;
 * *ret untouched then. */
int clp_profile_encode(const struct clp_profile *p, const struct clp_encode_options *o,
                       struct clp_encoded *ret) CLP_MUST_USE;
void clp_encoded_done(struct clp_encoded *e);

#endif
