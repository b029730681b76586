#include "sampler/inproc/clock.h"

#include "sampler/inproc/rawcall.h"

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

#define CLOCK_PERTHREAD 4 /* bits of a dynamic clock id, see the kernel's posix-timers.h */
#define CLOCK_SCHED 2
#define TICK_FALLBACK_NS (4 * CLP_NSEC_PER_MSEC)

struct vdso {
    uint64_t bias;
    const Elf64_Sym *symbols;
    const char *strings;
    uint32_t symbol_count;
};

/* Both hash styles occur; the GNU one gives the count only through its chains. */
static uint32_t gnu_hash_count(const uint32_t *h)
{
    uint32_t buckets = h[0], first = h[1], last = 0;
    const uint32_t *bucket = h + 4 + 2 * (size_t)h[2], *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = CLP_MAX(last, bucket[i]);
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static void read_dynamic(struct vdso *v, const Elf64_Dyn *d)
{
    for (; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)(uintptr_t)(v->bias + d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB)
            v->symbols = at;
        else if (d->d_tag == DT_STRTAB)
            v->strings = at;
        else if (d->d_tag == DT_HASH)
            v->symbol_count = ((const uint32_t *)at)[1];
        else if (d->d_tag == DT_GNU_HASH && !v->symbol_count)
            v->symbol_count = gnu_hash_count(at);
    }
}

static bool read_vdso(uint64_t base, struct vdso *v)
{
    const Elf64_Ehdr *e = (const Elf64_Ehdr *)(uintptr_t)base;
    const Elf64_Phdr *p = (const Elf64_Phdr *)(uintptr_t)(base + e->e_phoff);
    const Elf64_Phdr *dynamic = NULL;
    *v = (struct vdso){.bias = base};
    for (int i = 0; i < e->e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_offset == 0)
            v->bias = base - p[i].p_vaddr;
        else if (p[i].p_type == PT_DYNAMIC)
            dynamic = &p[i];
    }
    if (dynamic)
        read_dynamic(v, (const Elf64_Dyn *)(uintptr_t)(base + dynamic->p_offset));
    return v->symbols && v->strings;
}

int (*clp_clock_vdso(void))(clockid_t, struct timespec *)
{
    struct vdso v;
    uint64_t base = getauxval(AT_SYSINFO_EHDR);
    if (!base || !read_vdso(base, &v))
        return NULL;
    for (uint32_t i = 0; i < v.symbol_count; i++) {
        const Elf64_Sym *s = &v.symbols[i];
        if (s->st_shndx != SHN_UNDEF && !strcmp(v.strings + s->st_name, "__vdso_clock_gettime"))
            return (int (*)(clockid_t, struct timespec *))(uintptr_t)(v.bias + s->st_value);
    }
    return NULL;
}

static int read_clock(clockid_t clock, uint64_t *ret)
{
    struct timespec ts = {0, 0};
    long r = clp_raw3(SYS_clock_gettime, clock, (long)&ts, 0);
    if (r < 0)
        return (int)r;
    *ret = (uint64_t)ts.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
    return 0;
}

static uint64_t read_own(clockid_t clock)
{
    uint64_t ns = 0; /* these clocks always exist */
    (void)read_clock(clock, &ns);
    return ns;
}

uint64_t clp_clock_monotonic_ns(void)
{
    /* Two threads may look it up at the same time; both find the same. */
    static _Atomic(int (*)(clockid_t, struct timespec *)) vdso;
    struct timespec ts;
    int (*fn)(clockid_t, struct timespec *) = atomic_load_explicit(&vdso, memory_order_relaxed);
    if (!fn && (fn = clp_clock_vdso()))
        atomic_store_explicit(&vdso, fn, memory_order_relaxed);
    if (!fn || fn(CLOCK_MONOTONIC, &ts) != 0)
        return read_own(CLOCK_MONOTONIC);
    return (uint64_t)ts.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

uint64_t clp_clock_process_ns(void)
{
    return read_own(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t clp_clock_self_ns(void)
{
    return read_own(CLOCK_THREAD_CPUTIME_ID);
}

clockid_t clp_clock_thread_id(int32_t tid)
{
    return (clockid_t)((~(uint32_t)tid << 3) | CLOCK_PERTHREAD | CLOCK_SCHED);
}

int clp_clock_thread_ns(int32_t tid, uint64_t *ret)
{
    return read_clock(clp_clock_thread_id(tid), ret);
}

uint64_t clp_clock_tick_ns(void)
{
    struct timespec ts = {0, 0};
    if (clp_raw3(SYS_clock_getres, CLOCK_MONOTONIC_COARSE, (long)&ts, 0) < 0 || ts.tv_sec ||
        !ts.tv_nsec)
        return TICK_FALLBACK_NS;
    return (uint64_t)ts.tv_nsec;
}
