/* What a libstdc++ and a libgcc_s that were built for glibc miss under musl. With it, and with
 * Debian's own archives, tools/publish-musl makes the two libraries that a musl .NET runtime needs
 * and that Debian has no package of. For tests. */
#define _GNU_SOURCE
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* ---- glibc 2.35: the unwind tables of an address ---- */

struct dl_find_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct question {
    uintptr_t pc;
    struct dl_find_object *ret;
    int found;
};

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    struct question *q = user;
    uintptr_t low = UINTPTR_MAX, high = 0, tables = 0;
    int inside = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_GNU_EH_FRAME)
            tables = start;
        if (p->p_type != PT_LOAD)
            continue;
        low = start < low ? start : low;
        high = end > high ? end : high;
        inside |= q->pc >= start && q->pc < end;
    }
    if (!inside)
        return 0;
    *q->ret = (struct dl_find_object){
        .map_start = (void *)low, .map_end = (void *)high, .eh_frame = (void *)tables};
    q->found = tables != 0;
    return 1;
}

int _dl_find_object(void *pc, struct dl_find_object *ret)
{
    struct question q = {.pc = (uintptr_t)pc, .ret = ret};
    (void)dl_iterate_phdr(look, &q);
    return q.found ? 0 : -1;
}

/* ---- destructors of thread_local objects ---- */

struct destructor {
    void (*run)(void *object);
    void *object;
    struct destructor *next;
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void run_all(void *first)
{
    for (struct destructor *d = first, *next; d; d = next) {
        next = d->next;
        d->run(d->object);
        free(d);
    }
}

static void make_key(void)
{
    (void)pthread_key_create(&key, run_all);
}

int __cxa_thread_atexit_impl(void (*run)(void *), void *object, void *dso)
{
    struct destructor *d = malloc(sizeof(*d));
    (void)dso;
    if (!d)
        return -1;
    pthread_once(&once, make_key);
    *d = (struct destructor){run, object, pthread_getspecific(key)};
    return pthread_setspecific(key, d);
}

/* ---- small ones ---- */

char __libc_single_threaded;

/* libgcc's question for the processor; its callers in libgcc_s are not used by .NET. */
struct {
    unsigned vendor, type, subtype, features[1];
} __cpu_model;
unsigned __cpu_features2[4];
int __cpu_indicator_init(void)
{
    return 0;
}

size_t __strftime_l(char *out, size_t size, const char *format, const struct tm *tm, locale_t l)
{
    return strftime_l(out, size, format, tm, l);
}

uint32_t arc4random(void)
{
    uint32_t value = 0;
    (void)!getrandom(&value, sizeof(value), 0);
    return value;
}
