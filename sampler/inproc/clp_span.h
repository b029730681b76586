/* The span of a thread: what a request's trace calls the work that the thread does now.
 *
 * This header stands alone: programs that have no System.Diagnostics.Activity may include it and
 * call libclrpulse.so as it lies in their process (docs/examples/span.c shows how it is found); the
 * managed assembly Clrpulse.Spans does the same. Samples of a thread carry the span that is set
 * while they are taken.
 *
 * Each thread has one cell. Only the thread itself writes it; the profiler's signal handler reads
 * it on that thread, the profiler's own thread reads it from outside. A write fills the copy that
 * is not in force and then raises `version`, so a reader never sees half a span and nobody waits.
 * Cells lie in memory that stays mapped for the life of the process, also after a detach: a pointer
 * to one never dangles. When its thread ends a cell is given to another one.
 *
 * None of these calls fails loudly, throws or prints. All may be called from any thread. */
#ifndef CLP_SPAN_H
#define CLP_SPAN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLP_SPAN_ABI 1u
#define CLP_SPAN_ENDPOINT_NONE 0u
#define CLP_SPAN_ENDPOINT_OTHER 1u /* more names than are kept: shown as [other] */
#define CLP_SPAN_NAME_MAX_BYTES 200u

/* Ids are the numbers that their lower-case hexadecimal texts write; span_id 0 = no span. */
struct clp_span {
    uint64_t trace_high, trace_low; /* the first and the last 16 digits of the trace id */
    uint64_t span_id;
    uint64_t local_root_span_id; /* the outermost span of this process in this trace */
    uint32_t endpoint;           /* of clp_span_endpoint, as far as it is known by now */
    uint32_t reserved;           /* 0 */
};

/* copy[version & 1] is in force. */
struct clp_span_cell {
    uint64_t version;
    struct clp_span copy[2];
    uint64_t own[5]; /* the library's */
};

/* The calling thread's cell, made at the first call; NULL in a forked child, at the ceiling of
 * threads, or when `abi` is not CLP_SPAN_ABI. Not signal-safe (maps memory, takes a lock). */
struct clp_span_cell *clp_span_cell(uint32_t abi);

/* A word that is odd while somebody records samples, and changes each time that begins or ends.
 * While it is even a writer need not write. Never NULL, valid for ever. Signal-safe. */
const uint32_t *clp_span_generation(void);

/* Sets the calling thread's span. 0; -ENOMEM when the thread has no cell and can have none; -EINVAL
 * when the span id or the trace id is 0. Signal-safe from the thread's second call on, if no other
 * write of the same thread is interrupted by it. */
int clp_span_set(const struct clp_span *span);
/* The thread is in no span any more. As signal-safe as clp_span_set. */
void clp_span_clear(void);

/* The number of an endpoint's name (UTF-8, cut at CLP_SPAN_NAME_MAX_BYTES). Numbers of names that
 * are used stay; a name that was unused for a minute may lose its number to another, so ask again
 * from time to time. NONE for an empty name; OTHER beyond 1,024 names. Not signal-safe. */
uint32_t clp_span_endpoint(const char *name, size_t bytes);

/* Whether a sample was taken lately under this local root: if not, its end needs no report.
 * Signal-safe. */
int clp_span_root_sampled(uint64_t local_root_span_id);
/* The local root ended and its endpoint is known for good: samples that were taken before get it as
 * well. Not signal-safe. */
void clp_span_root_ended(uint64_t local_root_span_id, const char *name, size_t bytes);

/* A request to this endpoint ended, sampled or not: the profile tells how many there were.
 * Signal-safe. */
void clp_span_request_ended(uint32_t endpoint);

/* The start-up hook runs and follows Activity.Current. Signal-safe. */
void clp_span_hook_runs(void);

#ifdef __cplusplus
}
#endif

#endif
