/* One profile in another shape: some of its sample types under other names, labels spelt anew or
 * left out, within a receiver's limits.
 *
 * What is over a limit is folded: the samples that weigh least go to the stack `[other]` without
 * labels, so every total stays what it was. Pure; thread-safe as long as nobody changes `p`. */
#ifndef CLP_PPROF_RESHAPE_H
#define CLP_PPROF_RESHAPE_H

#include "pprof/encode.h"
#include "pprof/profile.h"

/* A sample type to keep, and its new name; NULL: as it is. */
struct clp_reshape_value {
    const char *from;
    const char *type, *unit;
};

enum clp_label_form {
    CLP_LABEL_AS_IS,
    CLP_LABEL_AS_TEXT,   /* a number becomes decimal text */
    CLP_LABEL_FROM_HEX,  /* text of hexadecimal digits becomes a number; other text is left out */
    CLP_LABEL_HEX_OF_16, /* kept if it is 16 or 32 hexadecimal digits */
};

struct clp_label_rule {
    const char *from, *to; /* `to` NULL: the same */
    enum clp_label_form form;
    uint32_t distinct_max; /* text values beyond the first so many become "[other]"; 0: no bound */
};

struct clp_reshape {
    const struct clp_reshape_value *values; /* those that the profile lacks are left out */
    size_t value_count;
    struct clp_value_type period_type; /* both NULL: the profile's */
    int64_t period;                    /* used with period_type; 0: the profile's */
    const struct clp_label_rule *labels;
    size_t label_count;
    bool all_labels;      /* keep those without a rule as they are */
    uint32_t depth_max;   /* frames; beyond it the root's side is cut; 0: no bound */
    uint32_t samples_max; /* 0: no bound */
    size_t plain_max;     /* bytes before compression; 0: no bound */
    bool plain;           /* no gzip */
    bool model;           /* the result as a model; its bytes are made, but not kept */
};

#define CLP_RESHAPE_NOTE_BYTES 200u

struct clp_reshaped {
    struct clp_encoded encoded; /* without `data` if the model was asked for */
    struct clp_profile *model;
    size_t folded;                     /* samples that went to [other] to meet a limit */
    char note[CLP_RESHAPE_NOTE_BYTES]; /* with folded: what made the profile big; else empty */
};

/* 0; -ENODATA: the profile has none of these sample types, or no sample with one of them; -EFBIG:
 * too large even when everything is folded; -ENOMEM. *ret untouched then. */
int clp_profile_reshape(const struct clp_profile *p, const struct clp_reshape *how,
                        struct clp_reshaped *ret) CLP_MUST_USE;
void clp_reshaped_done(struct clp_reshaped *r);

#endif
