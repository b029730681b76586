/* Names of the counters and of the frames that are words, from counters.def and specials.def. */
#ifndef CLP_WIRE_TABLES_H
#define CLP_WIRE_TABLES_H

#include "wire/wire.h"

enum clp_counter_kind {
    CLP_COUNTER_SUM,   /* since the reader joined: it only grows */
    CLP_COUNTER_STATE, /* of now */
};

struct clp_counter_info {
    const char *name; /* key in JSON, metrics and the profile's comment */
    const char *unit; /* "nanoseconds", "count", "bytes" */
    const char *text; /* a line for people */
    enum clp_counter_kind kind;
};

/* Never NULL; static storage. An index out of range yields an entry named "". */
const struct clp_counter_info *clp_counter_info(unsigned counter);

/* "[truncated]"; "" for CLP_SPECIAL_NONE and anything out of range. Static storage. */
const char *clp_special_text(uint32_t special);

#endif
