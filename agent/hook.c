#include "agent/hook.h"

#include "agent/as_user.h"
#include "agent/place.h"
#include "agent/span_hook_file.h"
#include "agent/where.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define FILE_MAX_BYTES (1u << 20)
#define FIRST_RUNTIME 8 /* that takes a hook while it runs */

static CLP_PRINTF(2, 3) void off(struct clp_hook *h, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(h->reason, sizeof(h->reason), fmt, args);
    va_end(args);
    h->state = CLP_HOOK_OFF;
}

void clp_hook_init(struct clp_hook *h, const char *reason)
{
    *h = (struct clp_hook){.dir_fd = -1, .parent_fd = -1, .call = {.fd = -1}};
    if (reason)
        off(h, "%s", reason);
}

/* ---- the file ------------------------------------------------------------------------------- */

int clp_hook_check_bytes(int fd)
{
    uint8_t buf[8192];
    uLong crc = crc32(0, NULL, 0);
    uint64_t at = 0;
    for (ssize_t n; (n = pread(fd, buf, sizeof(buf), (off_t)at)) != 0; at += (uint64_t)n) {
        if (n < 0)
            return -errno;
        if (at > FILE_MAX_BYTES)
            return -EBADMSG;
        crc = crc32(crc, buf, (uInt)n);
    }
    return at == CLP_HOOK_FILE_BYTES && crc == CLP_HOOK_FILE_CRC32 ? 0 : -EBADMSG;
}

int clp_hook_open(const char *library, char *ret_path, size_t cap, int *ret_fd, char *reason,
                  size_t reason_cap)
{
    const char *slash = strrchr(library, '/');
    int n = snprintf(ret_path, cap, "%.*s" CLP_HOOK_NAME, slash ? (int)(slash - library + 1) : 0,
                     library);
    if (CLP_HOOK_FILE_BYTES == 0) {
        snprintf(reason, reason_cap, "this clrpulse was built without " CLP_HOOK_NAME);
        return -ENOENT;
    }
    if (n < 0 || (size_t)n >= cap) {
        snprintf(reason, reason_cap, "the path of " CLP_HOOK_NAME " is too long");
        return -ENAMETOOLONG;
    }
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(ret_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        n = -errno;
        snprintf(reason, reason_cap, "cannot read %.150s: %s", ret_path, strerror(-n));
        return n;
    }
    int r = clp_hook_check_bytes(fd);
    if (r < 0) {
        snprintf(reason, reason_cap, "%.150s is not the file that belongs to this clrpulse",
                 ret_path);
        return r;
    }
    *ret_fd = CLP_TAKE_FD(fd);
    return 0;
}

/* The target's user finds our own file under the same path in the target's own root. As that
 * user. */
static bool is_visible(const struct clp_dotnet *t, const char *path, int our_fd)
{
    struct stat ours, theirs;
    CLP_CLEANUP(clp_cleanup_fd) int fd = clp_file_open_in(t->root_fd, path, O_RDONLY);
    if (fd < 0 || fstat(fd, &theirs) < 0 || fstat(our_fd, &ours) < 0)
        return false;
    return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static int write_copy(int dir_fd, int from)
{
    uint8_t buf[8192];
    CLP_CLEANUP(clp_cleanup_fd)
    int fd =
        openat(dir_fd, CLP_HOOK_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0)
        return -errno;
    off_t at = 0;
    for (ssize_t n; (n = pread(from, buf, sizeof(buf), at)) != 0; at += n) {
        if (n < 0)
            return -errno;
        if (pwrite(fd, buf, (size_t)n, at) != n)
            return -EIO;
    }
    return clp_hook_check_bytes(fd); /* a full disk, a file that changed meanwhile */
}

/* Whose it is: see clp_hook_sweep. */
static int name_prefix(const struct clp_dotnet *t, char *buf, size_t cap)
{
    return snprintf(buf, cap, "clrpulse-spans-%d-%llx-", t->ns_pid,
                    (unsigned long long)t->start_ticks);
}

/* A directory of the target's user beside its diagnostics socket. Its name is not one of those that
 * agents sweep away: a process that was stopped may come to read the file late. As that user. */
static int make_copy(struct clp_hook *h, const struct clp_dotnet *t, int from)
{
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return -EIO;
    int prefix = name_prefix(t, h->dir_name, sizeof(h->dir_name));
    snprintf(h->dir_name + prefix, sizeof(h->dir_name) - (size_t)prefix, "%016llx",
             (unsigned long long)random);
    int n = snprintf(h->path, sizeof(h->path), "%s/%s/" CLP_HOOK_NAME,
                     strcmp(t->temp_path, "/") == 0 ? "" : t->temp_path, h->dir_name);
    if (n < 0 || (size_t)n >= sizeof(h->path))
        return -ENAMETOOLONG;
    h->parent_fd = fcntl(t->temp_fd, F_DUPFD_CLOEXEC, 0);
    if (h->parent_fd < 0)
        return -errno;
    if (!clp_where_may_write(h->parent_fd, t->uid, t->gid))
        return -EACCES;
    if (mkdirat(h->parent_fd, h->dir_name, 0700) < 0)
        return -errno;
    h->dir_fd = openat(h->parent_fd, h->dir_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (h->dir_fd >= 0)
        return write_copy(h->dir_fd, from);
    int r = -errno;
    (void)unlinkat(h->parent_fd, h->dir_name, AT_REMOVEDIR);
    return r;
}

/* The path, walked as the target will walk it, leads to the file that was checked. As its user. */
static bool leads_to_copy(const struct clp_hook *h, const struct clp_dotnet *t)
{
    struct stat made, seen;
    CLP_CLEANUP(clp_cleanup_fd) int fd = clp_file_open_in(t->root_fd, h->path, O_RDONLY);
    return fd >= 0 && fstat(fd, &seen) == 0 &&
           fstatat(h->dir_fd, CLP_HOOK_NAME, &made, AT_SYMLINK_NOFOLLOW) == 0 &&
           made.st_dev == seen.st_dev && made.st_ino == seen.st_ino &&
           clp_hook_check_bytes(fd) == 0;
}

static void remove_copy(struct clp_hook *h)
{
    struct clp_as_user user;
    if (h->dir_fd >= 0 && clp_as_user_begin(&user, h->uid, h->gid) == 0) {
        (void)unlinkat(h->dir_fd, CLP_HOOK_NAME, 0);
        (void)unlinkat(h->parent_fd, h->dir_name, AT_REMOVEDIR);
        clp_as_user_end(&user);
    }
    clp_cleanup_fd(&h->dir_fd);
    clp_cleanup_fd(&h->parent_fd);
    h->dir_fd = h->parent_fd = -1;
}

#define LEFT_OVER_SECONDS 60

static void remove_left_over(int parent_fd, const char *name, uid_t uid, int64_t before_s)
{
    struct stat st;
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != uid || (st.st_mode & 07777) != 0700 ||
        (int64_t)st.st_mtime >= before_s - LEFT_OVER_SECONDS)
        return;
    (void)unlinkat(fd, CLP_HOOK_NAME, 0);
    (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

static void sweep_as_user(const struct clp_dotnet *t, int64_t before_s)
{
    char prefix[80];
    size_t n = (size_t)name_prefix(t, prefix, sizeof(prefix));
    CLP_CLEANUP(clp_cleanup_dir) DIR *list = clp_file_list(t->temp_fd);
    struct dirent *e;
    for (unsigned i = 0; list && i < CLP_PLACE_SWEEP_MOST && (e = readdir(list)); i++)
        if (strncmp(e->d_name, prefix, n) == 0)
            remove_left_over(t->temp_fd, e->d_name, t->uid, before_s);
}

void clp_hook_sweep(const struct clp_dotnet *t, int64_t before_s)
{
    struct clp_as_user user;
    if (t->temp_fd < 0 || clp_as_user_begin(&user, t->uid, t->gid) < 0)
        return;
    sweep_as_user(t, before_s);
    clp_as_user_end(&user);
}

/* The file under h->path is what the target will read: a copy that nobody else knows, so that an
 * upgrade of clrpulse cannot take it away in between. */
static int place(struct clp_hook *h, const struct clp_dotnet *t, const char *path, int fd)
{
    struct clp_as_user user;
    int r = clp_as_user_begin(&user, t->uid, t->gid);
    if (r < 0)
        return r;
    r = make_copy(h, t, fd);
    if (r == 0 && !leads_to_copy(h, t))
        r = -EACCES;
    /* No room for a copy. Ours may be replaced between now and the runtime's look at it. */
    if (r < 0 && is_visible(t, path, fd)) {
        snprintf(h->path, sizeof(h->path), "%s", path);
        r = 0;
    }
    clp_as_user_end(&user);
    return r;
}

/* ---- the command ---------------------------------------------------------------------------- */

void clp_hook_send(struct clp_hook *h, const struct clp_dotnet *t, const char *library)
{
    char path[sizeof(h->path)];
    CLP_CLEANUP(clp_cleanup_fd) int fd = -1;
    h->uid = t->uid;
    h->gid = t->gid;
    if (t->info.major < FIRST_RUNTIME) {
        off(h, "its runtime is older than .NET %d", FIRST_RUNTIME);
        return;
    }
    if (!t->own_root) {
        off(h, "its file system cannot be looked at; run clrpulse as root");
        return;
    }
    if (clp_hook_open(library, path, sizeof(path), &fd, h->reason, sizeof(h->reason)) < 0) {
        h->state = CLP_HOOK_OFF;
        return;
    }
    char other[100];
    int r = clp_hook_find_other(t, other, sizeof(other));
    if (r == -EBADMSG) {
        off(h,
            "another build of " CLP_HOOK_NAME " is in the process (%s), and its runtime takes "
            "none beside it; replace it by the file of this clrpulse",
            other);
        return;
    }
    if (r < 0) {
        off(h,
            "the process has a " CLP_HOOK_NAME " (%s) that cannot be compared with the file of "
            "this clrpulse: %s; its runtime takes none beside another build",
            other, r == -ELOOP ? "it lies behind a symlink" : strerror(-r));
        return;
    }
    r = place(h, t, path, fd);
    if (r == 0)
        r = clp_ipc_encode_startup_hook(&h->request, h->path);
    if (r == 0)
        r = clp_ipc_call_start(&h->call, t->temp_fd, t->socket_name, &h->request,
                               clp_clock_monotonic_ns() + CLP_HOOK_ANSWER_NS);
    if (r < 0) {
        off(h, "its user cannot read " CLP_HOOK_NAME " there: %s", strerror(-r));
        remove_copy(h);
        return;
    }
    h->state = CLP_HOOK_ASKED;
}

static void take_answer(struct clp_hook *h, int r, const struct clp_ipc_reply *reply,
                        uint64_t now_ns)
{
    uint32_t hr = 0;
    if (r == 0)
        r = clp_ipc_parse_hresult(reply, &hr);
    clp_ipc_call_done(&h->call);
    if (r == -EAGAIN) {
        off(h, "its session ended before its runtime answered"); /* the file stays */
        return;
    }
    if (r == -ETIMEDOUT) { /* it may still come to it: the file stays */
        off(h, "its runtime did not answer within %llu s",
            (unsigned long long)(CLP_HOOK_ANSWER_NS / CLP_NSEC_PER_SEC));
        return;
    }
    if (r < 0) {
        off(h, "its runtime broke the call off: %s", strerror(-r));
    } else if (hr != 0) {
        const char *text = clp_hresult_text(hr);
        off(h, "its runtime refused the start-up hook%s%s (0x%08x)", text ? ": " : "",
            text ? text : "", hr);
    } else {
        h->state = CLP_HOOK_ANSWERED;
        h->confirm_until_ns = now_ns + CLP_HOOK_CONFIRM_NS;
        return;
    }
    remove_copy(h);
}

static void step_call(struct clp_hook *h, uint64_t now_ns)
{
    struct clp_ipc_reply reply;
    int r = clp_ipc_call_step(&h->call, now_ns, &reply);
    if (r != -EAGAIN)
        take_answer(h, r, &reply, now_ns);
}

void clp_hook_step(struct clp_hook *h, uint64_t now_ns, bool runs, bool started)
{
    if (h->state == CLP_HOOK_ASKED)
        step_call(h, now_ns);
    /* Another session has brought it, or its process came to it late. What the runtime may still
     * read stays until clp_hook_done. */
    if (runs && h->state == CLP_HOOK_OFF)
        h->state = CLP_HOOK_RUNS;
    if (h->state != CLP_HOOK_ANSWERED)
        return;
    h->kept = !started;
    if (h->kept)
        h->confirm_until_ns = now_ns + CLP_HOOK_CONFIRM_NS;
    if (runs) {
        h->state = CLP_HOOK_RUNS;
        remove_copy(h); /* loaded: the runtime keeps it mapped */
    } else if (now_ns >= h->confirm_until_ns) {
        off(h, "its runtime took the start-up hook and did not run it; the application was "
               "probably published trimmed, with start-up hooks switched off "
               "(StartupHookSupport)");
        h->unconfirmed = true; /* a process that was stopped as it started may come to it yet */
    }
}

void clp_hook_done(struct clp_hook *h, bool wait, bool exited)
{
    struct clp_ipc_reply reply;
    uint64_t now_ns = clp_clock_monotonic_ns();
    if (h->state == CLP_HOOK_ASKED) {
        int r =
            wait ? clp_ipc_call_run(&h->call, &reply) : clp_ipc_call_step(&h->call, now_ns, &reply);
        take_answer(h, r, &reply, now_ns);
    }
    if (exited || h->unconfirmed || (h->state == CLP_HOOK_ANSWERED && !h->kept))
        remove_copy(h);
    clp_cleanup_fd(&h->dir_fd);
    clp_cleanup_fd(&h->parent_fd);
    h->dir_fd = h->parent_fd = -1;
}
