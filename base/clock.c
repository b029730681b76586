#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t); /* cannot fail: both clocks exist on every kernel we run on */
    return (uint64_t)t.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

uint64_t clp_clock_monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clp_clock_realtime_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

static struct tm utc_of(uint64_t realtime_ns)
{
    time_t seconds = (time_t)(realtime_ns / CLP_NSEC_PER_SEC);
    struct tm tm = {0};
    (void)gmtime_r(&seconds, &tm);
    return tm;
}

const char *clp_clock_utc(uint64_t realtime_ns, char buf[CLP_CLOCK_UTC_BYTES])
{
    struct tm tm = utc_of(realtime_ns);
    size_t n = strftime(buf, CLP_CLOCK_UTC_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    unsigned ms = (unsigned)(realtime_ns % CLP_NSEC_PER_SEC / CLP_NSEC_PER_MSEC);
    (void)snprintf(buf + n, CLP_CLOCK_UTC_BYTES - n, ".%03uZ", ms);
    return buf;
}

const char *clp_clock_utc_compact(uint64_t realtime_ns, char buf[CLP_CLOCK_UTC_BYTES])
{
    struct tm tm = utc_of(realtime_ns);
    (void)strftime(buf, CLP_CLOCK_UTC_BYTES, "%Y%m%dT%H%M%SZ", &tm);
    return buf;
}
