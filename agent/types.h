/* What each profile type is made of: which samples the library takes for it, which values and
 * labels they become. */
#ifndef CLP_AGENT_TYPES_H
#define CLP_AGENT_TYPES_H

#include "config/value.h"
#include "pprof/profile.h"
#include "wire/wire.h"

#define CLP_TYPE_VALUES_MAX 2u
#define CLP_TYPE_NUMBER_WORDS_MAX 5u

struct clp_type_info {
    enum clp_sample_kind kind;
    /* Of its samples, in their order; a NULL type ends them. The last one is preferred. */
    struct clp_value_type values[CLP_TYPE_VALUES_MAX];
    const char *texts[CLP_EVENT_TEXTS];  /* labels of an event's texts; NULL: none */
    bool text_is_class[CLP_EVENT_TEXTS]; /* a type's name, shown as people write it */
    const char *number;                  /* label of an event's number, where it is not 0 */
    bool number_as_text;                 /* ... and where it is */
    /* Words instead of the first of them, NULL ends them. */
    const char *number_words[CLP_TYPE_NUMBER_WORDS_MAX + 1];
};

/* Never NULL for a type. Static storage. */
const struct clp_type_info *clp_type_info(enum clp_profile_type type);
/* The type whose samples are of that kind, or CLP_TYPE_COUNT. */
enum clp_profile_type clp_type_of_kind(unsigned kind);
/* For clp_settings. `types`: bits 1 << enum clp_profile_type. */
uint32_t clp_types_sample_kinds(uint32_t types);
/* Those of `types` that a runtime of this major version tells of; 0: it is not known, so all. */
uint32_t clp_types_told(uint32_t types, unsigned runtime_major);

#endif
