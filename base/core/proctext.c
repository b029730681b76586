#include "base/core/proctext.h"

#include <errno.h>
#include <string.h>

/* Where a parse stands.  After the first error `bad` stays set and every further step is harmless,
 * so a line is read in one go and tested once. */
struct cursor {
    const char *at;
    const char *end;
    bool bad;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && is_blank(*c->at))
        c->at++;
}

static char next_char(struct cursor *c)
{
    if (c->bad || c->at == c->end) {
        c->bad = true;
        return '\0';
    }
    return *c->at++;
}

static void expect(struct cursor *c, char want)
{
    if (next_char(c) != want)
        c->bad = true;
}

static int digit_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'a' && ch <= 'f')
        return ch - 'a' + 10;
    return -1;
}

/* At least one digit; a value beyond 64 bits is an error, not a wrapped number. */
static uint64_t number(struct cursor *c, unsigned base)
{
    uint64_t n = 0;
    const char *from = c->at;
    while (!c->bad && c->at < c->end) {
        int d = digit_value(*c->at);
        if (d < 0 || (unsigned)d >= base)
            break;
        if (__builtin_mul_overflow(n, (uint64_t)base, &n) ||
            __builtin_add_overflow(n, (uint64_t)d, &n))
            c->bad = true;
        c->at++;
    }
    if (c->at == from)
        c->bad = true;
    return c->bad ? 0 : n;
}

static uint64_t number_up_to(struct cursor *c, unsigned base, uint64_t max)
{
    uint64_t n = number(c, base);
    if (n > max) {
        c->bad = true;
        return 0;
    }
    return n;
}

static bool flag(struct cursor *c, char set)
{
    char ch = next_char(c);
    if (ch != set && ch != '-')
        c->bad = true;
    return ch == set;
}

static void map_permissions(struct cursor *c, struct clp_map_entry *e)
{
    e->readable = flag(c, 'r');
    e->writable = flag(c, 'w');
    e->executable = flag(c, 'x');
    char sharing = next_char(c);
    if (sharing != 'p' && sharing != 's')
        c->bad = true;
    e->shared = sharing == 's';
}

int clp_proctext_map_line(const char *line, size_t len, struct clp_map_entry *ret)
{
    struct cursor c = {.at = line, .end = line + len};
    struct clp_map_entry e = {0};
    e.start = number(&c, 16);
    expect(&c, '-');
    e.end = number(&c, 16);
    expect(&c, ' ');
    map_permissions(&c, &e);
    expect(&c, ' ');
    e.file_offset = number(&c, 16);
    expect(&c, ' ');
    e.dev_major = (uint32_t)number_up_to(&c, 16, UINT32_MAX);
    expect(&c, ':');
    e.dev_minor = (uint32_t)number_up_to(&c, 16, UINT32_MAX);
    expect(&c, ' ');
    e.inode = number(&c, 10);
    if (c.bad || e.start >= e.end || (c.at < c.end && !is_blank(*c.at)))
        return -EINVAL;
    skip_blanks(&c);
    e.path = c.at;
    e.path_len = (size_t)(c.end - c.at);
    *ret = e;
    return 0;
}

/* ---- stat ---------------------------------------------------------------------------------- */

/* Fields that follow the command, numbered as in proc_pid_stat(5). */
enum {
    STAT_PPID = 4,
    STAT_FLAGS = 9,
    STAT_UTIME = 14,
    STAT_STIME = 15,
    STAT_NUM_THREADS = 20,
    STAT_STARTTIME = 22,
};

#define KERNEL_THREAD 0x200000u /* PF_KTHREAD */

static bool is_kept(int field)
{
    return field == STAT_PPID || field == STAT_FLAGS || field == STAT_UTIME ||
           field == STAT_STIME || field == STAT_NUM_THREADS || field == STAT_STARTTIME;
}

/* Several of the fields between are signed (tpgid, priority, nice); those that we keep never are.
 */
static uint64_t stat_field(struct cursor *c, int field)
{
    expect(c, ' ');
    if (!c->bad && c->at < c->end && *c->at == '-') {
        c->at++;
        c->bad = is_kept(field);
    }
    return number(c, 10);
}

static void stat_numbers(struct cursor *c, struct clp_proc_stat *s)
{
    uint64_t field[STAT_STARTTIME + 1] = {0};
    for (int i = STAT_PPID; i <= STAT_STARTTIME && !c->bad; i++)
        field[i] = stat_field(c, i);
    bool cut = c->at == c->end || (*c->at != ' ' && *c->at != '\n');
    if (cut || field[STAT_PPID] > INT32_MAX)
        c->bad = true;
    s->ppid = (int32_t)field[STAT_PPID];
    s->kernel_thread = field[STAT_FLAGS] & KERNEL_THREAD;
    s->utime_ticks = field[STAT_UTIME];
    s->stime_ticks = field[STAT_STIME];
    s->num_threads = field[STAT_NUM_THREADS];
    s->start_ticks = field[STAT_STARTTIME];
}

static const char *last_paren(const char *text, size_t len)
{
    for (size_t i = len; i > 0; i--)
        if (text[i - 1] == ')')
            return text + i - 1;
    return NULL;
}

int clp_proctext_stat(const char *text, size_t len, struct clp_proc_stat *ret)
{
    struct clp_proc_stat s = {0};
    struct cursor c = {.at = text, .end = text + len};
    s.pid = (int32_t)number_up_to(&c, 10, INT32_MAX);
    expect(&c, ' ');
    expect(&c, '(');
    const char *close = last_paren(text, len);
    if (c.bad || !close || close < c.at)
        return -EINVAL;
    size_t comm_len = CLP_MIN((size_t)(close - c.at), sizeof(s.comm) - 1);
    memcpy(s.comm, c.at, comm_len);
    c.at = close + 1;
    expect(&c, ' ');
    s.state = next_char(&c);
    stat_numbers(&c, &s);
    if (c.bad)
        return -EINVAL;
    *ret = s;
    return 0;
}

/* ---- status -------------------------------------------------------------------------------- */

static bool starts_with(const struct cursor *c, const char *key)
{
    size_t n = strlen(key);
    return (size_t)(c->end - c->at) >= n && memcmp(c->at, key, n) == 0;
}

static bool take_key(struct cursor *c, const char *key)
{
    if (!starts_with(c, key))
        return false;
    c->at += strlen(key);
    skip_blanks(c);
    return true;
}

static int32_t last_of_list(struct cursor *c)
{
    int32_t last = 0;
    while (!c->bad && c->at < c->end) {
        last = (int32_t)number_up_to(c, 10, INT32_MAX);
        skip_blanks(c);
    }
    return last;
}

enum { SAW_UID = 1 };

/* Reads one line whose key we know; others are left alone. */
static unsigned status_line(struct cursor *c, struct clp_proc_status *s)
{
    if (take_key(c, "Uid:")) {
        s->uid_real = (uint32_t)number_up_to(c, 10, UINT32_MAX);
        skip_blanks(c);
        s->uid_effective = (uint32_t)number_up_to(c, 10, UINT32_MAX);
        return SAW_UID;
    }
    if (take_key(c, "Gid:")) {
        (void)number_up_to(c, 10, UINT32_MAX);
        skip_blanks(c);
        s->gid_effective = (uint32_t)number_up_to(c, 10, UINT32_MAX);
        return 0;
    }
    if (take_key(c, "Tgid:")) {
        s->tgid = (int32_t)number_up_to(c, 10, INT32_MAX);
    } else if (take_key(c, "NSpid:")) {
        s->ns_pid = last_of_list(c);
    } else if (take_key(c, "SigQ:")) {
        s->sigq_used = number(c, 10);
        expect(c, '/');
        s->sigq_limit = number(c, 10);
    } else if (take_key(c, "SigBlk:")) {
        s->sig_blocked = number(c, 16);
    } else if (take_key(c, "SigCgt:")) {
        s->sig_caught = number(c, 16);
    } else if (take_key(c, "Seccomp:")) {
        s->seccomp = (uint32_t)number_up_to(c, 10, UINT32_MAX);
    }
    return 0;
}

int clp_proctext_status(const char *text, size_t len, struct clp_proc_status *ret)
{
    struct clp_proc_status s = {0};
    unsigned seen = 0;
    const char *end = text + len;
    for (const char *at = text; at < end;) {
        /* A last line without its newline was cut by the reader's buffer: its number may be wrong.
         */
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        struct cursor line = {.at = at, .end = newline};
        seen |= status_line(&line, &s);
        if (line.bad)
            return -EINVAL;
        at = newline + 1;
    }
    if (!(seen & SAW_UID))
        return -EINVAL;
    *ret = s;
    return 0;
}

/* ---- environ, syscall ---------------------------------------------------------------------- */

size_t clp_proctext_map_path_len(const struct clp_map_entry *e)
{
    static const char gone[] = " (deleted)";
    size_t n = sizeof(gone) - 1;
    bool is_gone = e->path_len > n && memcmp(e->path + e->path_len - n, gone, n) == 0;
    return e->path_len - (is_gone ? n : 0);
}

const char *clp_proctext_env(const char *environ_block, size_t len, const char *name,
                             size_t *ret_len)
{
    const char *end = environ_block + len;
    size_t name_len = strlen(name);
    for (const char *at = environ_block; at < end;) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        if (!nul) /* cut by the reader's buffer */
            break;
        size_t n = (size_t)(nul - at);
        if (n > name_len && at[name_len] == '=' && memcmp(at, name, name_len) == 0) {
            *ret_len = n - name_len - 1;
            return at + name_len + 1;
        }
        at = nul + 1;
    }
    return NULL;
}

bool clp_proctext_list_has(const char *list, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *at = list, *end = list + len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t item_len = (size_t)((comma ? comma : end) - at);
        if (item_len == name_len && memcmp(at, name, name_len) == 0)
            return true;
        at += item_len + 1;
    }
    return false;
}

static uint64_t hex_word(struct cursor *c)
{
    expect(c, ' ');
    expect(c, '0');
    expect(c, 'x');
    return number(c, 16);
}

int clp_proctext_syscall(const char *text, size_t len, int64_t *ret_nr, uint64_t *ret_sp,
                         uint64_t *ret_pc)
{
    struct cursor c = {.at = text, .end = text + len};
    if (take_key(&c, "running"))
        return -EAGAIN;
    int64_t nr = -1;
    if (starts_with(&c, "-1")) {
        c.at += 2;
    } else {
        nr = (int64_t)number_up_to(&c, 10, INT32_MAX);
        for (int arg = 0; arg < 6; arg++)
            (void)hex_word(&c);
    }
    uint64_t sp = hex_word(&c);
    uint64_t pc = hex_word(&c);
    if (c.bad || (c.at < c.end && *c.at != '\n'))
        return -EINVAL;
    *ret_nr = nr;
    *ret_sp = sp;
    *ret_pc = pc;
    return 0;
}
