/* Payloads: walked by an event's fields, checked against its length. The runtime appends fields
 * from version to version, so a payload may end before the fields do, or go on behind them. */
#ifndef CLP_SAMPLER_NETTRACE_PAYLOAD_H
#define CLP_SAMPLER_NETTRACE_PAYLOAD_H

#include "base/strbuf.h"
#include "sampler/nettrace/nettrace.h"

/* A value of a payload. */
struct clp_nettrace_value {
    const struct clp_nettrace_field *field;
    uint32_t depth;    /* of OBJECT and arrays around it */
    uint64_t number;   /* all whole numbers, sign-extended; bits of F32 and F64 */
    const uint8_t *at; /* GUID, DATE, TEXT16 (without its NUL), TEXT8; elements of byte arrays */
    uint32_t len;      /* bytes at `at` */
};

/* The same events for objects and arrays come twice: begin before their children, end after. */
enum clp_nettrace_step { CLP_STEP_VALUE, CLP_STEP_BEGIN, CLP_STEP_END };
typedef void (*clp_nettrace_visit)(void *context, enum clp_nettrace_step step,
                                   const struct clp_nettrace_value *value);

/* Visits every value in order; how many bytes of the payload were understood. Arrays show at most
 * CLP_PAYLOAD_ELEMENTS_MAX elements of all. */
#define CLP_PAYLOAD_ELEMENTS_MAX 16384u
size_t clp_nettrace_walk(const struct clp_nettrace_event *e, uint32_t pointer_bytes,
                         clp_nettrace_visit visit, void *context);

/* "Name=value Name=\"text\" ..." for people, or a JSON object. Bytes that no field describes are
 * added in hex (at most 64 of them). */
void clp_nettrace_print_payload(const struct clp_nettrace_event *e, uint32_t pointer_bytes,
                                bool json, struct clp_strbuf *out);

#endif
