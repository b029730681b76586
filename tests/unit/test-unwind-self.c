/* The native walk on real stacks of this process, taken by a timer signal at random instructions of
 * optimised code without frame pointers and of libc, and compared with libgcc's unwinder. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "sampler/unwind/rule.h"
#include "sampler/unwind/walk.h"
#include "tests/unit/clp-cmocka.h"

#define IMAGES_MAX 64
#define FRAMES_MAX 256
#define SAMPLES_MAX 4000
#define STACK_BYTES (48u << 10)

struct image {
    char path[256];
    uint64_t bias, low, high;
    const struct clp_native_table *table;
};

struct sample {
    ucontext_t uc;
    uint8_t *stack;
    uint64_t len, top;
    uint64_t theirs[FRAMES_MAX]; /* libgcc: the interrupted address, then return addresses */
    unsigned count;
    bool below; /* the signal frame has been passed */
};

static struct clp_arena arena;
static struct image images[IMAGES_MAX];
static size_t nimages;
static struct sample *samples;
static _Atomic unsigned taken;
static uint64_t stack_top;
static struct clp_walk_state state;

/* ---- the code of this process ---- */

static int64_t read_self(void *user, uint64_t address, void *buf, size_t len)
{
    struct iovec local = {buf, len}, remote = {(void *)(uintptr_t)address, len};
    (void)user;
    ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    return n < 0 ? -errno : n;
}

static void find_self(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    for (size_t i = 0; i < nimages; i++) {
        if (ip < images[i].low || ip >= images[i].high)
            continue;
        *ret = (struct clp_code){.kind = CLP_CODE_NATIVE,
                                 .id = (uint32_t)i + 1,
                                 .start = images[i].bias,
                                 .native = images[i].table};
    }
}

static const struct clp_code_source source = {.find = find_self, .read = read_self};

static int add_image(struct dl_phdr_info *info, size_t size, void *data)
{
    struct image *im = &images[nimages];
    (void)size;
    (void)data;
    *im = (struct image){.bias = info->dlpi_addr};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        im->low = info->dlpi_addr + p->p_vaddr;
        im->high = im->low + p->p_memsz;
    }
    snprintf(im->path, sizeof(im->path), "%s",
             info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe");
    if (im->high && nimages + 1 < IMAGES_MAX)
        nimages++;
    return 0;
}

static void load_images(void)
{
    dl_iterate_phdr(add_image, NULL);
    for (size_t i = 0; i < nimages; i++) {
        int fd = open(images[i].path, O_RDONLY | O_CLOEXEC);
        int r = fd >= 0 ? clp_native_table_build(fd, &arena, &images[i].table)
                        : clp_native_table_build_mapped(&source, images[i].bias, &arena,
                                                        &images[i].table);
        if (fd >= 0)
            close(fd);
        if (r < 0)
            fail_msg("%s: %s", images[i].path, strerror(-r));
    }
}

/* ---- taking samples ---- */

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *c, void *arg)
{
    struct sample *s = arg;
    uint64_t ip = _Unwind_GetIP(c);
    /* What lies between is this handler and the trampoline. */
    if (!s->below && ip != (uint64_t)s->uc.uc_mcontext.gregs[REG_RIP])
        return _URC_NO_REASON;
    s->below = true;
    if (s->count < FRAMES_MAX && ip != 0) /* it reports the end as a frame */
        s->theirs[s->count++] = ip;
    return _URC_NO_REASON;
}

/* A thread's whole stack, the red zones of the address sanitizer included: not by memcpy, which it
 * watches. */
static void copy_stack(void *to, uint64_t from, size_t len)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
}

static void on_timer(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    int saved = errno;
    unsigned n = atomic_load(&taken);
    if (n < SAMPLES_MAX) {
        struct sample *s = &samples[n];
        s->uc = *(ucontext_t *)context;
        uint64_t rsp = (uint64_t)s->uc.uc_mcontext.gregs[REG_RSP];
        s->len = CLP_MIN(stack_top - rsp, (uint64_t)STACK_BYTES);
        s->top = stack_top;
        copy_stack(s->stack, rsp, s->len);
        _Unwind_Backtrace(take_frame, s);
        atomic_store(&taken, n + 1);
    }
    errno = saved;
}

/* ---- work with many kinds of frames ---- */

#define OPAQUE __attribute__((noinline))
static volatile uint64_t sink;

OPAQUE static uint64_t leaf(uint64_t x)
{
    for (int i = 0; i < 50; i++)
        x = (x ^ (x >> 7)) * 0x9e3779b97f4a7c15ull;
    return x;
}

OPAQUE static uint64_t many_registers(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = leaf(a), y = leaf(b), z = leaf(c), v = leaf(a + b), w = leaf(b + c);
    return leaf(x + y) + leaf(y + z) + v * w + x + z;
}

OPAQUE static uint64_t on_stack(size_t n)
{
    uint64_t *p = __builtin_alloca(n * sizeof(*p));
    for (size_t i = 0; i < n; i++)
        p[i] = leaf(i);
    return p[n / 2] + many_registers(p[0], p[n - 1], n);
}

/* A frame that is aligned beyond what the ABI gives: the CFA is found through memory. */
OPAQUE static uint64_t aligned(uint64_t x)
{
    uint64_t block[8] __attribute__((aligned(64)));
    for (int i = 0; i < 8; i++)
        block[i] = leaf(x + (uint64_t)i);
    return block[x & 7] + many_registers(block[0], block[1], block[2]);
}

OPAQUE static int compare(const void *a, const void *b)
{
    uint64_t x = leaf(*(const uint32_t *)a), y = leaf(*(const uint32_t *)b);
    return x < y ? -1 : x > y;
}

OPAQUE static uint64_t recursive(unsigned depth, uint64_t x)
{
    return depth == 0 ? leaf(x) : recursive(depth - 1, x + 1) * 3 + depth;
}

OPAQUE static uint64_t library_work(uint64_t x)
{
    char text[256];
    uint32_t numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (uint32_t)leaf(x + (uint64_t)i);
    qsort(numbers, 64, sizeof(numbers[0]), compare);
    snprintf(text, sizeof(text), "%lu %f %s %p", x, (double)x / 3, "words", (void *)numbers);
    void *p = malloc(x % 4000 + 1);
    memset(p, (int)x, x % 4000 + 1);
    uint64_t sum = strlen(text) + strtoull(text, NULL, 10) + ((uint8_t *)p)[0];
    free(p);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return sum + (uint64_t)now.tv_nsec + (uint64_t)getppid();
}

OPAQUE static void work(void)
{
    uint64_t x = sink;
    while (atomic_load(&taken) < SAMPLES_MAX) {
        x += many_registers(x, 2, 3) + on_stack(x % 100 + 1) + aligned(x) + recursive(40, x);
        x += library_work(x);
    }
    sink = x;
}

static void *thread_main(void *arg)
{
    pthread_attr_t attr;
    void *base;
    size_t bytes;
    (void)arg;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &base, &bytes);
    pthread_attr_destroy(&attr);
    stack_top = (uint64_t)base + bytes;
    timer_t timer;
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    ev._sigev_un._tid = gettid();
    struct itimerspec every = {{0, 211000}, {0, 211000}};
    if (timer_create(CLOCK_MONOTONIC, &ev, &timer) < 0 || timer_settime(timer, 0, &every, NULL) < 0)
        abort();
    work();
    timer_delete(timer);
    return NULL;
}

/* ---- comparing ---- */

static struct clp_regs regs_of(const ucontext_t *uc)
{
    const greg_t *g = uc->uc_mcontext.gregs;
    struct clp_regs r = {0};
    static const struct {
        int reg, greg;
    } map[] = {{CLP_REG_RAX, REG_RAX}, {CLP_REG_RDX, REG_RDX}, {CLP_REG_RCX, REG_RCX},
               {CLP_REG_RBX, REG_RBX}, {CLP_REG_RSI, REG_RSI}, {CLP_REG_RDI, REG_RDI},
               {CLP_REG_RBP, REG_RBP}, {CLP_REG_RSP, REG_RSP}, {CLP_REG_R8, REG_R8},
               {CLP_REG_R9, REG_R9},   {CLP_REG_R10, REG_R10}, {CLP_REG_R11, REG_R11},
               {CLP_REG_R12, REG_R12}, {CLP_REG_R13, REG_R13}, {CLP_REG_R14, REG_R14},
               {CLP_REG_R15, REG_R15}, {CLP_REG_RIP, REG_RIP}};
    for (size_t i = 0; i < CLP_ARRAY_LEN(map); i++)
        r.r[map[i].reg] = (uint64_t)g[map[i].greg];
    return r;
}

static void compare_sample(const struct sample *s, unsigned number)
{
    struct clp_walk_frame frames[FRAMES_MAX];
    struct clp_walk_result r;
    struct clp_walk_input in = {.regs = regs_of(&s->uc), .stack_top = s->top};
    uint64_t rsp = in.regs.r[CLP_REG_RSP];
    in.stack = (struct clp_stack_view){s->stack, rsp, rsp + s->len};
    clp_walk(&source, &state, &in, frames, FRAMES_MAX, &r);
    assert_true(s->below);
    bool same = r.flags == 0 && r.count == s->count;
    for (unsigned i = 0; same && i < r.count; i++)
        same = frames[i].address + (i > 0) == s->theirs[i];
    if (same)
        return;
    for (unsigned i = 0; i < CLP_MAX(r.count, s->count); i++)
        print_message("%3u %#lx %#lx\n", i, i < r.count ? frames[i].address + (i > 0) : 0,
                      i < s->count ? s->theirs[i] : 0);
    fail_msg("sample %u: flags %#x, %u frames, libgcc %u", number, r.flags, r.count, s->count);
}

static void same_as_libgcc(void **unused)
{
    (void)unused;
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    pthread_t thread;
    samples = calloc(SAMPLES_MAX, sizeof(*samples));
    uint8_t *stacks = calloc(SAMPLES_MAX, STACK_BYTES);
    assert_non_null(samples);
    assert_non_null(stacks);
    for (unsigned i = 0; i < SAMPLES_MAX; i++)
        samples[i].stack = stacks + (size_t)i * STACK_BYTES;
    load_images();
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, thread_main, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    unsigned long frames = 0;
    for (unsigned i = 0; i < SAMPLES_MAX; i++) {
        compare_sample(&samples[i], i);
        frames += samples[i].count;
    }
    printf("%d stacks, %lu frames equal to libgcc's\n", SAMPLES_MAX, frames);
    free(stacks);
    free(samples);
}

/* Where the file is gone, the image in memory must give the same table. */
static void mapped_image_gives_the_same(void **unused)
{
    unsigned compared = 0;
    (void)unused;
    load_images();
    for (size_t i = 0; i < nimages; i++) {
        const struct clp_native_table *a = images[i].table, *b;
        assert_int_equal(clp_native_table_build_mapped(&source, images[i].bias, &arena, &b), 0);
        assert_int_equal(a->rows, b->rows);
        assert_int_equal(a->rules, b->rules);
        assert_memory_equal(a->row, b->row, a->rows * sizeof(*a->row));
        assert_memory_equal(a->rule, b->rule, a->rules * sizeof(*a->rule));
        assert_memory_equal(a->page_first, b->page_first, (a->pages + 1) * sizeof(*a->page_first));
        compared++;
    }
    assert_true(compared >= 3); /* this program, libc, the loader, the vdso */
    nimages = 0;
}

static void vdso_from_memory(void **unused)
{
    (void)unused;
    const uint8_t *vdso = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
    const struct clp_native_table *a, *b;
    if (!vdso)
        skip();
    /* Its sections are in memory too, so both ways of finding .eh_frame are open. */
    const ElfW(Ehdr) *eh = (const ElfW(Ehdr) *)vdso;
    size_t len = eh->e_shoff + (size_t)eh->e_shnum * eh->e_shentsize;
    assert_int_equal(clp_native_table_build_mem(vdso, len, &arena, &a), 0);
    assert_int_equal(clp_native_table_build_mapped(&source, (uint64_t)vdso, &arena, &b), 0);
    assert_true(a->rows > 10);
    assert_int_equal(a->rows, b->rows);
    assert_memory_equal(a->row, b->row, a->rows * sizeof(*a->row));
}

static int set_up(void **unused)
{
    (void)unused;
    clp_arena_init(&arena, 64u << 20);
    return 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    clp_arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_image_gives_the_same),
        cmocka_unit_test(vdso_from_memory),
        cmocka_unit_test(same_as_libgcc),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
