/* The aarch64 walk, built by a cross compiler and run under qemu-user: each rule for managed frames
 * on its own, and live stacks of this program, taken by a timer signal at random instructions and
 * compared with libgcc's unwinder. Plain C: cmocka is not there for the other processor. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "sampler/unwind/frame-aarch64.h"
#include "sampler/unwind/walk.h"

#define EXPECT(holds)                                                                              \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- managed frames ---- */

static const uint32_t small[] = {
    0xa9bd7bfd, /* stp fp,lr,[sp,#-48]! */
    0xa90153f3, /* stp x19,x20,[sp,#16] */
    0x910003fd, /* mov fp,sp */
    0xaa0003f3, /* mov x19,x0 */
    0x94000010, /* bl */
    0xa94153f3, /* ldp x19,x20,[sp,#16] */
    0xa8c37bfd, /* ldp fp,lr,[sp],#48 */
    0xd65f03c0, /* ret */
};
static const uint32_t large[] = {
    0xd10803ff, /* sub sp,sp,#512 */
    0xa9027bfd, /* stp fp,lr,[sp,#32] */
    0x910083fd, /* add fp,sp,#32 */
    0x94000010, /* bl */
    0xa9427bfd, /* ldp fp,lr,[sp,#32] */
    0x910803ff, /* add sp,sp,#512 */
    0xd65f03c0, /* ret */
};

/* CFA register and offset, distance of fp and lr below the CFA (0: not saved). */
struct want {
    unsigned at;
    bool epilogue;
    uint8_t reg;
    int32_t off;
    uint8_t fp, lr, x19;
};

static void check(const uint32_t *code, size_t n, const struct want *w)
{
    struct clp_rule r;
    const uint8_t *bytes = (const uint8_t *)code;
    bool got = w->epilogue ? clp_aarch64_epilogue_rule(bytes + 4 * w->at, 4 * (n - w->at), &r)
                           : clp_aarch64_prologue_rule(bytes, 4 * w->at, &r);
    EXPECT(got);
    if (r.cfa_reg != w->reg || r.cfa_off != w->off || r.saved[CLP_SAVE_FP] != w->fp ||
        r.saved[CLP_SAVE_LR] != w->lr || r.saved[CLP_SAVE_X19] != w->x19)
        fprintf(stderr, "at %u: cfa %u%+d, fp %u, lr %u, x19 %u\n", w->at, r.cfa_reg, r.cfa_off,
                r.saved[CLP_SAVE_FP], r.saved[CLP_SAVE_LR], r.saved[CLP_SAVE_X19]);
    EXPECT(r.cfa_reg == w->reg && r.cfa_off == w->off);
    EXPECT(r.saved[CLP_SAVE_FP] == w->fp && r.saved[CLP_SAVE_LR] == w->lr);
    EXPECT(r.saved[CLP_SAVE_X19] == w->x19);
}

static void managed_rules(void)
{
    static const struct want of_small[] = {
        {0, false, CLP_REG_SP, 0, 0, 0, 0},  {1, false, CLP_REG_SP, 48, 6, 5, 0},
        {2, false, CLP_REG_SP, 48, 6, 5, 4}, {3, false, CLP_REG_FP, 48, 6, 5, 4},
        {5, false, CLP_REG_FP, 48, 6, 5, 4}, {5, true, CLP_REG_SP, 48, 6, 5, 4},
        {6, true, CLP_REG_SP, 48, 6, 5, 0},  {7, true, CLP_REG_SP, 0, 0, 0, 0},
    };
    static const struct want of_large[] = {
        {1, false, CLP_REG_SP, 512, 0, 0, 0},   {2, false, CLP_REG_SP, 512, 60, 59, 0},
        {3, false, CLP_REG_FP, 480, 60, 59, 0}, {4, true, CLP_REG_SP, 512, 60, 59, 0},
        {5, true, CLP_REG_SP, 512, 0, 0, 0},    {6, true, CLP_REG_SP, 0, 0, 0, 0},
    };
    struct clp_rule r;
    for (size_t i = 0; i < CLP_ARRAY_LEN(of_small); i++)
        check(small, CLP_ARRAY_LEN(small), &of_small[i]);
    for (size_t i = 0; i < CLP_ARRAY_LEN(of_large); i++)
        check(large, CLP_ARRAY_LEN(large), &of_large[i]);
    EXPECT(!clp_aarch64_epilogue_rule((const uint8_t *)(small + 3), 20, &r)); /* mov, bl */
    static const uint32_t dynamic[] = {0xcb2963ff};                           /* sub sp,sp,x9 */
    EXPECT(!clp_aarch64_prologue_rule((const uint8_t *)dynamic, 4, &r));
    EXPECT(clp_aarch64_is_call(0x94000010) && clp_aarch64_is_call(0xd63f0100));
    EXPECT(!clp_aarch64_is_call(0x14000010) && !clp_aarch64_is_call(0xd65f03c0));
}

/* ---- live stacks ---- */

#define FRAMES_MAX 256
#define SAMPLES_MAX 300
#define STACK_BYTES (32u << 10)

struct sample {
    struct clp_regs regs;
    uint8_t stack[STACK_BYTES];
    uint64_t len;
    uint64_t theirs[FRAMES_MAX];
    unsigned count;
    bool below;
};

static struct clp_arena arena;
static const struct clp_native_table *table;
static uint64_t bias, low, high, stack_top;
static struct sample *samples;
static _Atomic unsigned taken;

static int64_t read_self(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    if (address < low || address >= high)
        return -EFAULT;
    len = CLP_MIN(len, (size_t)(high - address));
    memcpy(buf, (const void *)(uintptr_t)address, len);
    return (int64_t)len;
}

static void find_self(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (ip >= low && ip < high)
        *ret = (struct clp_code){.kind = CLP_CODE_NATIVE, .id = 1, .start = bias, .native = table};
}

static int take_image(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    bias = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
            continue;
        low = bias + p->p_vaddr;
        high = low + p->p_memsz;
    }
    return 1; /* the program itself comes first, and is linked statically */
}

static _Unwind_Reason_Code take_frame(struct _Unwind_Context *c, void *arg)
{
    struct sample *s = arg;
    uint64_t ip = _Unwind_GetIP(c);
    if (!s->below && ip != s->regs.r[CLP_REG_PC])
        return _URC_NO_REASON;
    s->below = true;
    if (s->count < FRAMES_MAX && ip != 0)
        s->theirs[s->count++] = ip;
    return _URC_NO_REASON;
}

static void on_timer(int sig, siginfo_t *info, void *context)
{
    const mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    unsigned n = atomic_load(&taken);
    (void)sig;
    (void)info;
    if (n >= SAMPLES_MAX)
        return;
    struct sample *s = &samples[n];
    for (unsigned i = 0; i < 31; i++)
        s->regs.r[i] = m->regs[i];
    s->regs.r[CLP_REG_SP] = m->sp;
    s->regs.r[CLP_REG_PC] = m->pc;
    s->len = CLP_MIN(stack_top - m->sp, (uint64_t)STACK_BYTES);
    memcpy(s->stack, (const void *)(uintptr_t)m->sp, s->len);
    _Unwind_Backtrace(take_frame, s);
    atomic_store(&taken, n + 1);
}

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

OPAQUE static uint64_t recursive(unsigned depth, uint64_t x)
{
    return depth == 0 ? many_registers(x, x, x) : recursive(depth - 1, x + 1) * 3 + depth;
}

OPAQUE static int compare(const void *a, const void *b)
{
    uint64_t x = leaf(*(const uint32_t *)a), y = leaf(*(const uint32_t *)b);
    return x < y ? -1 : x > y;
}

OPAQUE static uint64_t library_work(uint64_t x)
{
    char text[128];
    uint32_t numbers[32];
    for (int i = 0; i < 32; i++)
        numbers[i] = (uint32_t)leaf(x + (uint64_t)i);
    qsort(numbers, 32, sizeof(numbers[0]), compare);
    snprintf(text, sizeof(text), "%lu %s %u", x, "words", numbers[3]);
    return strlen(text) + strtoull(text, NULL, 10);
}

static void take_samples(void)
{
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    uint64_t x = 1;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (atomic_load(&taken) < SAMPLES_MAX)
        x += many_registers(x, 2, 3) + on_stack(x % 100 + 1) + recursive(30, x) + library_work(x);
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    sink = x;
}

static bool same(const struct sample *s, struct clp_walk_frame *frames, struct clp_walk_result *r)
{
    static const struct clp_code_source source = {.find = find_self, .read = read_self};
    static struct clp_walk_state state;
    uint64_t sp = s->regs.r[CLP_REG_SP];
    struct clp_walk_input in = {.regs = s->regs, .stack_top = stack_top};
    in.stack = (struct clp_stack_view){s->stack, sp, sp + s->len};
    clp_walk(&source, &state, &in, frames, FRAMES_MAX, r);
    bool equal = r->flags == 0 && r->count == s->count;
    for (unsigned i = 0; equal && i < r->count; i++)
        equal = frames[i].address + (i > 0 ? 4 : 0) == s->theirs[i];
    return equal;
}

static void live_stacks(void)
{
    static struct clp_walk_frame frames[FRAMES_MAX];
    struct clp_walk_result r;
    unsigned long total = 0;
    unsigned stubs = 0;
    dl_iterate_phdr(take_image, NULL);
    int fd = open("/proc/self/exe", O_RDONLY);
    clp_arena_init(&arena, 8u << 20);
    EXPECT(fd >= 0 && clp_native_table_build(fd, &arena, &table) == 0);
    samples = calloc(SAMPLES_MAX, sizeof(*samples));
    EXPECT(samples);
    take_samples();
    for (unsigned n = 0; n < SAMPLES_MAX; n++) {
        const struct sample *s = &samples[n];
        EXPECT(s->below);
        if (s->count == 1) { /* in a stub of the linker: libgcc knows no caller without a row */
            stubs++;
            continue;
        }
        total += s->count;
        if (same(s, frames, &r))
            continue;
        for (unsigned i = 0; i < CLP_MAX(r.count, s->count); i++)
            fprintf(stderr, "%3u %#lx %#lx\n", i,
                    i < r.count ? frames[i].address + (i > 0 ? 4 : 0) : 0,
                    i < s->count ? s->theirs[i] : 0);
        fprintf(stderr, "sample %u: flags %#x, %u frames, libgcc %u\n", n, r.flags, r.count,
                s->count);
        exit(1);
    }
    EXPECT(stubs <= SAMPLES_MAX / 20);
    printf("%u stacks, %lu frames equal to libgcc's\n", SAMPLES_MAX - stubs, total);
}

int main(void)
{
    char *environment = getenv("PATH"); /* lies above main's frame, at the end of the stack */
    managed_rules();
    stack_top =
        ((uint64_t)(uintptr_t)(environment ? environment : (char *)&environment) | 4095) + 1;
    live_stacks();
    return 0;
}
