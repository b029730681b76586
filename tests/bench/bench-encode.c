/* What one window costs on its way into the spool: 10,000 distinct stacks of 40 frames. CPU of
 * encoding and gzip, memory beyond the model at its peak, the size of the result. */
#include "tests/bench/bench-window.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define ROUNDS 20

static long peak_kib(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

int main(void)
{
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    struct clp_profile *p = bench_window(&cpu, 1);
    struct clp_encoded e = {.data = NULL};
    long before_kib = peak_kib();
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start = bench_cpu_ms();
        clp_encoded_done(&e);
        if (clp_profile_encode(p, NULL, &e) < 0)
            return 1;
        double took = bench_cpu_ms() - start;
        best = took < best ? took : best;
    }
    long extra_kib = peak_kib() - before_kib;
    double of_plain = (double)extra_kib * 1024 / (double)e.plain_len;
    double of_gzipped = (double)extra_kib * 1024 / (double)e.len;
    printf("%zu samples, %zu bytes plain, %zu gzipped: %.1f ms of CPU, %ld KiB more at the peak "
           "(%.2f of the plain size, %.2f of the gzipped one)\n",
           e.samples, e.plain_len, e.len, best, extra_kib, of_plain, of_gzipped);
    clp_encoded_done(&e);
    clp_profile_free(p);
    return best <= 50 && of_gzipped <= 3 ? 0 : 1;
}
