/* What one window costs on its way into the spool: 10,000 distinct stacks of 40 frames. CPU of
 * encoding and gzip, memory beyond the model at its peak, the size of the result. */
#include "pprof/encode.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define STACKS 10000
#define FRAMES 40
#define ROUNDS 20

static double cpu_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static long peak_kib(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static struct clp_profile *make(void)
{
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    const struct clp_profile_config c = {.sample_types = &cpu, .sample_type_count = 1};
    struct clp_profile *p = NULL;
    uint32_t names[2000], frames[FRAMES];
    if (clp_profile_new(&c, &p) < 0)
        exit(1);
    for (int i = 0; i < 2000; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "Company.Product.Component%d.Method%d", i % 97, i);
        names[i] = clp_profile_frame(p, name);
    }
    for (uint32_t i = 0; i < STACKS; i++) {
        for (uint32_t k = 0; k < FRAMES; k++)
            frames[k] = names[k < 20 ? (i * 31 + k * k * 7 + i / 7 * k) % 2000 : k];
        clp_profile_add(p, clp_profile_stack(p, frames, FRAMES), CLP_PROFILE_NO_LABELS,
                        &(double){1e7 + i});
    }
    return p;
}

int main(void)
{
    struct clp_profile *p = make();
    struct clp_encoded e = {.data = NULL};
    long before_kib = peak_kib();
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start = cpu_ms();
        clp_encoded_done(&e);
        if (clp_profile_encode(p, NULL, &e) < 0)
            return 1;
        double took = cpu_ms() - start;
        best = took < best ? took : best;
    }
    long extra_kib = peak_kib() - before_kib;
    printf("%zu samples, %zu bytes plain, %zu gzipped: %.1f ms of CPU, %ld KiB more at the peak "
           "(%.2f of the plain size)\n",
           e.samples, e.plain_len, e.len, best, extra_kib,
           (double)extra_kib * 1024 / (double)e.plain_len);
    clp_encoded_done(&e);
    clp_profile_free(p);
    return best <= 50 && (double)extra_kib * 1024 <= 3 * (double)e.plain_len ? 0 : 1;
}
