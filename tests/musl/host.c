/* host LIBRARY: asks a library for its profiler as the runtime does: dlopen, DllGetClassObject, a
 * class factory, an instance, its interfaces. Built by musl-gcc and by gcc; prints "ok LIBC". */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S_OK 0
#define E_NOINTERFACE ((int32_t)0x80004002)
#define CLASS_E_CLASSNOTAVAILABLE ((int32_t)0x80040111)

struct guid {
    uint32_t a;
    uint16_t b, c;
    uint8_t d[8];
};

struct factory {
    const struct {
        int32_t (*query)(void *self, const struct guid *id, void **ret);
        uint32_t (*add_ref)(void *self);
        uint32_t (*release)(void *self);
        int32_t (*create)(void *self, void *outer, const struct guid *id, void **ret);
    } * calls;
};

static const struct guid factory_id = {1, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
static const struct guid unknown_id = {0, 0, 0, {0xc0, 0, 0, 0, 0, 0, 0, 0x46}};
/* ICorProfilerCallback, ICorProfilerCallback3 (corprof.idl) */
static const struct guid callback = {
    0x176fbed1, 0xa55c, 0x4796, {0x98, 0xca, 0xa9, 0xda, 0x0e, 0xf8, 0x83, 0xe7}};
static const struct guid callback3 = {
    0x4fd2ed52, 0x7731, 0x4b8d, {0x94, 0x69, 0x03, 0xd2, 0xcc, 0x30, 0x86, 0xc5}};

static void expect(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "host: %s\n", what);
    exit(1);
}

static struct guid parse(const char *text)
{
    struct guid g;
    unsigned d[8], a, b, c;
    expect(sscanf(text, "%8x-%4x-%4x-%2x%2x-%2x%2x%2x%2x%2x%2x", &a, &b, &c, &d[0], &d[1], &d[2],
                  &d[3], &d[4], &d[5], &d[6], &d[7]) == 11,
           "the class id is not one");
    g.a = a;
    g.b = (uint16_t)b;
    g.c = (uint16_t)c;
    for (int i = 0; i < 8; i++)
        g.d[i] = (uint8_t)d[i];
    return g;
}

static void *symbol(void *library, const char *name)
{
    void *p = dlsym(library, name);
    expect(p != NULL, name);
    return p;
}

static void use_profiler(struct factory *f)
{
    void *instance = NULL, *other = NULL;
    struct guid nobody = {42, 0, 0, {0}};
    expect(f->calls->create(f, NULL, &callback3, &instance) == S_OK && instance, "no instance");
    struct factory *i = instance; /* the first three calls of every interface are the same */
    expect(i->calls->query(i, &callback, &other) == S_OK && other, "no ICorProfilerCallback");
    expect(i->calls->query(i, &unknown_id, &other) == S_OK, "no IUnknown");
    expect(i->calls->query(i, &nobody, &other) == E_NOINTERFACE, "an interface of nobody's");
}

/* The spans' calls reach thread-local keys and memory of the library's own. */
static void use_spans(void *library)
{
    uint32_t (*generation)(void);
    void *(*cell)(uint32_t abi);
    *(void **)&generation = symbol(library, "clp_span_generation");
    *(void **)&cell = symbol(library, "clp_span_cell");
    (void)generation();
    expect(cell(0xffffffff) == NULL, "a cell for an interface that does not exist");
    void *own = cell(1);
    expect(own != NULL && cell(1) == own, "no cell for this thread");
}

int main(int argc, char **argv)
{
    int32_t (*get_class)(const struct guid *, const struct guid *, void **);
    struct factory *f = NULL;
    expect(argc == 3, "usage: host LIBRARY CLASS-ID");
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "host: %s\n", dlerror());
        return 1;
    }
    struct guid class_id = parse(argv[2]), wrong = class_id;
    wrong.a++;
    *(void **)&get_class = symbol(library, "DllGetClassObject");
    expect(get_class(&wrong, &factory_id, (void **)&f) == CLASS_E_CLASSNOTAVAILABLE,
           "another class is answered");
    expect(get_class(&class_id, &factory_id, (void **)&f) == S_OK && f, "no class factory");
    use_profiler(f);
    use_spans(library);
    expect(dlclose(library) == 0, "dlclose");
    expect(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL, "the library was unloaded");
    printf("ok SIGRTMIN=%d\n", SIGRTMIN);
    return 0;
}
