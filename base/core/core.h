/* The smallest common ground: attributes and helpers that every layer may use, also inside a
 * target.
 *
 * base/core allocates nothing from the heap, takes no lock, keeps no TLS and calls nothing of libc
 * beyond memcpy/memset/memcmp/strlen, so all of it may run inside a profiled process.  Whether a
 * function may also run in a signal handler is said at each declaration. */
#ifndef CLP_BASE_CORE_CORE_H
#define CLP_BASE_CORE_CORE_H

#include <stddef.h>
#include <stdint.h>

#define CLP_MUST_USE __attribute__((warn_unused_result))
#define CLP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CLP_UNUSED __attribute__((unused))
#define CLP_CLEANUP(fn) __attribute__((cleanup(fn)))
#define CLP_EXPORT __attribute__((visibility("default")))

#define CLP_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CLP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CLP_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CLP_ALIGN_UP(n, a) (((n) + (a)-1) & ~((uint64_t)(a)-1))

#define CLP_NSEC_PER_SEC 1000000000ull
#define CLP_NSEC_PER_MSEC 1000000ull
#define CLP_NSEC_PER_USEC 1000ull

#endif
