#include "sampler/inproc/wall_shot.h"

#include "base/core/arena.h"
#include "base/core/text.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/rawcall.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

/* Two files each; a quarter of what the process may open at most. */
#define FILES_MAX 256u
#define CALL_NUMBER_MAX 4095

enum file { FILE_SYSCALL, FILE_SCHEDSTAT, FILE_COUNT };

struct files {
    uint32_t thread_id;
    int fd[FILE_COUNT]; /* -1: not open */
};

static struct {
    uint8_t *copy;
    struct files *kept;
    uint32_t kept_count; /* 0: opened for each reading */
} S;

/* ---- files --------------------------------------------------------------------------------- */

static uint32_t files_allowed(void)
{
    struct rlimit64 lim = {0, 0};
    if (clp_raw4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&lim) < 0)
        return 0;
    return (uint32_t)CLP_MIN(lim.rlim_cur / (4 * FILE_COUNT), (uint64_t)FILES_MAX);
}

int clp_wall_shot_init(bool keep_files)
{
    if (S.copy)
        return 0;
    S.copy = clp_pages_alloc(CLP_WALL_COPY_MAX);
    if (!S.copy)
        return -ENOMEM;
    S.kept = keep_files ? clp_pages_alloc(FILES_MAX * sizeof(struct files)) : NULL;
    S.kept_count = S.kept ? files_allowed() : 0;
    return 0;
}

static void close_files(struct files *f)
{
    for (unsigned i = 0; f->thread_id && i < FILE_COUNT; i++)
        if (f->fd[i] >= 0)
            (void)clp_raw3(SYS_close, f->fd[i], 0, 0);
    *f = (struct files){.fd = {-1, -1}};
}

void clp_wall_shot_close(void)
{
    for (uint32_t i = 0; i < S.kept_count; i++)
        close_files(&S.kept[i]);
    clp_pages_free(S.kept, FILES_MAX * sizeof(struct files));
    clp_pages_free(S.copy, CLP_WALL_COPY_MAX);
    memset(&S, 0, sizeof(S));
}

void clp_wall_shot_forget(uint32_t thread_id)
{
    struct files *f = S.kept_count ? &S.kept[thread_id % S.kept_count] : NULL;
    if (f && f->thread_id == thread_id)
        close_files(f);
}

static int open_file(int32_t tid, enum file which)
{
    char path[64];
    struct clp_text t = clp_text_in(path, sizeof(path));
    clp_text_add(&t, "/proc/self/task/");
    clp_text_dec(&t, (uint64_t)tid);
    clp_text_add(&t, which == FILE_SYSCALL ? "/syscall" : "/schedstat");
    return (int)clp_raw4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
}

static long read_once(int32_t tid, enum file which, char *buf, size_t cap)
{
    int fd = open_file(tid, which);
    if (fd < 0)
        return fd;
    long n = clp_raw4(SYS_pread64, fd, (long)buf, (long)cap, 0);
    (void)clp_raw3(SYS_close, fd, 0, 0);
    return n;
}

static long read_kept(int32_t tid, struct files *f, enum file which, char *buf, size_t cap)
{
    if (f->fd[which] < 0)
        f->fd[which] = open_file(tid, which);
    if (f->fd[which] < 0)
        return f->fd[which];
    return clp_raw4(SYS_pread64, f->fd[which], (long)buf, (long)cap, 0);
}

/* A file that is kept is that of its thread for good: after its end it answers -ESRCH, whoever has
 * the number. */
static long read_file(int32_t tid, uint32_t thread_id, enum file which, char *buf, size_t cap)
{
    struct files *f = S.kept_count ? &S.kept[thread_id % S.kept_count] : NULL;
    if (!f)
        return read_once(tid, which, buf, cap);
    if (f->thread_id != thread_id) {
        close_files(f);
        f->thread_id = thread_id;
    }
    return read_kept(tid, f, which, buf, cap);
}

/* ---- texts --------------------------------------------------------------------------------- */

static bool take_number(const char **at, const char *end, uint64_t *ret)
{
    uint64_t n = 0, base = 10;
    const char *p = *at;
    while (p < end && *p == ' ')
        p++;
    if (end - p > 2 && p[0] == '0' && p[1] == 'x') {
        base = 16;
        p += 2;
    }
    const char *first = p;
    for (; p < end; p++) {
        unsigned digit = *p >= '0' && *p <= '9'   ? (unsigned)(*p - '0')
                         : *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a') + 10
                                                  : 16;
        if (digit >= base || n > (UINT64_MAX - digit) / base)
            break;
        n = n * base + digit;
    }
    *at = p;
    *ret = n;
    return p > first;
}

int clp_wall_shot_parse(const char *text, size_t len, int32_t *ret_call, uint64_t *ret_sp,
                        uint64_t *ret_pc)
{
    const char *at = text, *end = text + len;
    uint64_t n[9];
    size_t count = 0;
    if (len >= 7 && memcmp(text, "running", 7) == 0)
        return -EBUSY;
    bool none = len >= 2 && memcmp(text, "-1", 2) == 0;
    if (none)
        at += 2;
    while (count < CLP_ARRAY_LEN(n) && take_number(&at, end, &n[count]))
        count++;
    if (at < end && *at == '\n')
        at++;
    if (at != end || count != (none ? 2 : CLP_ARRAY_LEN(n)) || (!none && n[0] > CALL_NUMBER_MAX))
        return -EBADMSG;
    *ret_call = none ? -1 : (int32_t)n[0];
    *ret_sp = n[count - 2];
    *ret_pc = n[count - 1];
    return 0;
}

int clp_wall_shot_delay(int32_t tid, uint32_t thread_id, uint64_t *ret_ns)
{
    char text[96];
    uint64_t ran, delay;
    long n = read_file(tid, thread_id, FILE_SCHEDSTAT, text, sizeof(text));
    const char *at = text;
    if (n < 0)
        return (int)n;
    if (!take_number(&at, text + n, &ran) || !take_number(&at, text + n, &delay))
        return -EBADMSG;
    if (ran == 0) /* a thread that is looked at has run: the kernel was built without it */
        return -ENODATA;
    *ret_ns = delay;
    return 0;
}

/* ---- the shot ------------------------------------------------------------------------------ */

static bool holds_stub(size_t len, uint64_t stub)
{
    uint64_t word;
    for (size_t at = 0; at + sizeof(word) <= len; at += sizeof(word)) {
        memcpy(&word, S.copy + at, sizeof(word));
        if (word == stub)
            return true;
    }
    return false;
}

/* Copies from SP up: to the stack's end where that is known, else to the end of what is mapped. */
static int copy_stack(uint64_t sp, const struct clp_thread_slot *slot, uint32_t copy_bytes,
                      struct clp_walk_input *in)
{
    uint64_t low = atomic_load(&slot->stack_low), high = atomic_load(&slot->stack_high);
    bool inside = low && sp >= low && sp < high;
    size_t want = CLP_MIN(copy_bytes, CLP_WALL_COPY_MAX);
    if (inside)
        want = (size_t)CLP_MIN(want, high - sp);
    int64_t n = clp_images_read(sp, S.copy, want);
    if (n < (int64_t)sizeof(uint64_t))
        return n < 0 ? (int)n : -EFAULT;
    in->stack = (struct clp_stack_view){S.copy, sp, sp + (uint64_t)n};
    in->stack_top = inside               ? high
                    : n == (int64_t)want ? UINT64_MAX /* there is more */
                                         : sp + (uint64_t)n;
    return 0;
}

static int look(int32_t tid, uint32_t thread_id, const struct clp_thread_slot *slot,
                uint32_t copy_bytes, uint64_t stub, uint64_t pair, struct clp_wall_shot *s)
{
    char text[256];
    uint64_t sp, pc, words[2];
    long n = read_file(tid, thread_id, FILE_SYSCALL, text, sizeof(text));
    int r = n < 0 ? (int)n : clp_wall_shot_parse(text, (size_t)n, &s->call, &sp, &pc);
    if (r < 0)
        return r;
    s->in = (struct clp_walk_input){.time_ns = s->time_ns};
    s->in.regs.unknown = ((1u << CLP_REG_COUNT) - 1) & ~(1u << CLP_REG_RIP | 1u << CLP_REG_RSP);
    s->in.regs.r[CLP_REG_RIP] = pc;
    s->in.regs.r[CLP_REG_RSP] = sp;
    r = copy_stack(sp, slot, copy_bytes, &s->in);
    if (r < 0)
        return r;
    if (stub && pair && holds_stub(s->in.stack.high - sp, stub) &&
        clp_images_read(pair, words, sizeof(words)) == sizeof(words)) {
        s->in.hijacked_return = words[0];
        s->in.hijacked_slot = words[1];
    }
    return 0;
}

int clp_wall_shot_take(int32_t tid, uint32_t thread_id, const struct clp_thread_slot *slot,
                       uint32_t copy_bytes, uint64_t hijack_stub, uint64_t hijack_pair,
                       struct clp_wall_shot *ret)
{
    struct clp_wall_shot s = {.time_ns = clp_clock_monotonic_ns()};
    uint64_t after;
    if (clp_clock_thread_ns(tid, &s.clock_ns) < 0)
        return -ESRCH;
    int r = look(tid, thread_id, slot, copy_bytes, hijack_stub, hijack_pair, &s);
    if (r == -EBUSY)
        return r;
    if (clp_clock_thread_ns(tid, &after) < 0)
        return -ESRCH;
    if (after != s.clock_ns)
        return -EAGAIN; /* whatever was read: the thread ran */
    if (r < 0)
        return r;
    *ret = s;
    return 0;
}
