#include "sampler/eventpipe/discover.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/proctext.h"
#include "base/core/text.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>

#define PROC_TEXT_MAX_BYTES (64u << 10)
#define ENVIRON_MAX_BYTES (4u << 20) /* the kernel's own limit is a quarter of the stack's */
#define THREADS_LOOKED_AT 64         /* the runtime's own threads are among the first */

const struct clp_discover_roots clp_discover_system = {.proc = "/proc", .root = "/"};

static int proc_path(const struct clp_discover_roots *roots, int32_t pid, const char *file,
                     char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "%s/%d/%s", roots->proc, pid, file);
    return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int read_proc(const struct clp_discover_roots *roots, int32_t pid, const char *file,
                     size_t ceiling, char **ret, size_t *ret_len)
{
    char path[512];
    int r = proc_path(roots, pid, file, path, sizeof(path));
    return r < 0 ? r : clp_file_read(path, ceiling, ret, ret_len);
}

static int read_stat(const struct clp_discover_roots *roots, int32_t pid, struct clp_proc_stat *ret)
{
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    size_t len;
    int r = read_proc(roots, pid, "stat", PROC_TEXT_MAX_BYTES, &text, &len);
    return r < 0 ? r : clp_proctext_stat(text, len, ret);
}

static int read_status(const struct clp_discover_roots *roots, int32_t pid,
                       struct clp_proc_status *ret)
{
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    size_t len;
    int r = read_proc(roots, pid, "status", PROC_TEXT_MAX_BYTES, &text, &len);
    return r < 0 ? r : clp_proctext_status(text, len, ret);
}

/* A process that /proc does not show is gone, or is hidden from us (hidepid). */
static int missing_or_hidden(const struct clp_discover_roots *roots, int32_t pid)
{
    if (roots == &clp_discover_system && kill(pid, 0) < 0 && errno == EPERM)
        return -EACCES;
    return -ESRCH;
}

/* ---- temp directory ------------------------------------------------------------------------ */

static bool set_temp_path(struct clp_dotnet *d, const char *path, size_t len)
{
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0 || path[0] != '/' || len >= sizeof(d->temp_path))
        return false;
    memcpy(d->temp_path, path, len);
    d->temp_path[len] = '\0';
    return true;
}

/* What the owner has told other tools that the service is called. */
static void find_service(struct clp_dotnet *d, const char *block, size_t len)
{
    size_t n;
    const char *name = clp_proctext_env(block, len, "DD_SERVICE", &n);
    if (!name || n == 0)
        name = clp_proctext_env(block, len, "OTEL_SERVICE_NAME", &n);
    struct clp_text t = clp_text_in(d->service, sizeof(d->service));
    if (name)
        clp_text_utf8_clean(&t, name, n);
}

/* The runtime reads numbers of its settings as hexadecimal. */
static bool is_set(const char *block, size_t len, const char *name)
{
    size_t n;
    char text[16];
    const char *value = clp_proctext_env(block, len, name, &n);
    if (!value || n == 0 || n >= sizeof(text))
        return false;
    memcpy(text, value, n);
    text[n] = '\0';
    return strtoul(text, NULL, 16) != 0;
}

/* The runtime takes TMPDIR when it is set and not empty. What it was at the start counts, and that
 * is what environ shows. */
static int find_temp_path(const struct clp_discover_roots *roots, struct clp_dotnet *d)
{
    CLP_CLEANUP(clp_cleanup_free) char *block = NULL;
    size_t len, value_len;
    (void)set_temp_path(d, "/tmp", 4);
    int r = read_proc(roots, d->pid, "environ", ENVIRON_MAX_BYTES, &block, &len);
    if (r < 0)
        return r;
    find_service(d, block, len);
    d->suspended = is_set(block, len, "DOTNET_DefaultDiagnosticPortSuspend") ||
                   is_set(block, len, "COMPlus_DefaultDiagnosticPortSuspend");
    const char *value = clp_proctext_env(block, len, "TMPDIR", &value_len);
    if (value && value_len > 0 && !set_temp_path(d, value, value_len))
        return -ENAMETOOLONG; /* then the runtime has no port either */
    return 0;
}

static int open_root(const struct clp_discover_roots *roots, struct clp_dotnet *d)
{
    char path[512];
    int r = proc_path(roots, d->pid, "root", path, sizeof(path));
    if (r < 0)
        return r;
    d->root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    d->own_root = d->root_fd >= 0;
    if (d->own_root)
        return 0;
    r = -errno;
    d->root_fd = open(roots->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return r;
}

/* A socket of that name that its user cannot have made is a plant. */
static bool has_socket(const struct clp_dotnet *d, uint32_t uid_real)
{
    struct stat st;
    if (fstatat(d->temp_fd, d->socket_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    return st.st_uid == d->uid || st.st_uid == uid_real || st.st_uid == 0;
}

static void find_port(const struct clp_discover_roots *roots, struct clp_dotnet *d,
                      uint32_t uid_real)
{
    int env_error = find_temp_path(roots, d);
    int root_error = open_root(roots, d);
    d->temp_fd = d->root_fd < 0
                     ? -EBADF
                     : clp_file_open_in(d->root_fd, d->temp_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(d->socket_name, sizeof(d->socket_name), "dotnet-diagnostic-%d-%llu-socket", d->ns_pid,
             (unsigned long long)d->start_ticks);
    if (d->temp_fd >= 0 && has_socket(d, uid_real)) {
        d->state = CLP_DOTNET_PORT;
        return;
    }
    d->error = root_error ? root_error : env_error ? env_error : CLP_MIN(d->temp_fd, 0);
    bool closed = d->error == -EACCES || d->error == -EPERM;
    d->state = closed ? CLP_DOTNET_HIDDEN : CLP_DOTNET_NO;
    if (d->temp_fd < 0)
        d->temp_fd = -1;
}

static struct clp_dotnet begin_with(const struct clp_proc_stat *stat, int32_t pid)
{
    struct clp_dotnet d = {
        .pid = pid,
        .ns_pid = pid,
        .start_ticks = stat->start_ticks,
        .run_state = stat->state,
        .kernel_thread = stat->kernel_thread,
        .root_fd = -1,
        .temp_fd = -1,
    };
    struct clp_text comm = clp_text_in(d.comm, sizeof(d.comm));
    clp_text_utf8_clean(&comm, stat->comm, strlen(stat->comm));
    return d;
}

static int look_inside(const struct clp_discover_roots *roots, struct clp_dotnet *d,
                       int32_t *ret_owner)
{
    struct clp_proc_status status;
    int r = read_status(roots, d->pid, &status);
    if (r < 0)
        return r;
    if (status.tgid && status.tgid != d->pid) {
        *ret_owner = status.tgid; /* /proc has threads, too, though it does not list them */
        return -ESRCH;
    }
    if (status.ns_pid)
        d->ns_pid = status.ns_pid;
    d->uid = status.uid_effective;
    d->gid = status.gid_effective;
    if (d->run_state != 'Z' && d->run_state != 'X' && !d->kernel_thread)
        find_port(roots, d, status.uid_real);
    return 0;
}

static int open_process(const struct clp_discover_roots *roots, int32_t pid, bool threaded_only,
                        struct clp_dotnet *ret, int32_t *ret_owner)
{
    struct clp_proc_stat stat;
    struct clp_dotnet d;
    int r = read_stat(roots, pid, &stat);
    if (r == 0) {
        d = begin_with(&stat, pid);
        if (!threaded_only || stat.num_threads > 1)
            r = look_inside(roots, &d, ret_owner);
    }
    if (r == -ENOENT || r == -ESRCH)
        return missing_or_hidden(roots, pid);
    if (r < 0)
        return r;
    *ret = d;
    return 0;
}

int clp_dotnet_open(const struct clp_discover_roots *roots, int32_t pid, struct clp_dotnet *ret)
{
    int32_t owner;
    return open_process(roots, pid, false, ret, &owner);
}

int clp_dotnet_open_threaded(const struct clp_discover_roots *roots, int32_t pid,
                             struct clp_dotnet *ret, int32_t *ret_owner)
{
    return open_process(roots, pid, true, ret, ret_owner);
}

void clp_dotnet_done(struct clp_dotnet *d)
{
    clp_cleanup_fd(&d->temp_fd);
    clp_cleanup_fd(&d->root_fd);
    d->temp_fd = d->root_fd = -1;
}

uint64_t clp_dotnet_age_ns(uint64_t start_ticks)
{
    struct timespec now;
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) < 0)
        return UINT64_MAX;
    uint64_t now_ns = (uint64_t)now.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)now.tv_nsec;
    uint64_t born_ns = start_ticks * (CLP_NSEC_PER_SEC / (uint64_t)ticks);
    return now_ns > born_ns ? now_ns - born_ns : 0;
}

bool clp_dotnet_alive(const struct clp_discover_roots *roots, const struct clp_dotnet *d)
{
    struct clp_proc_stat stat;
    int r = read_stat(roots, d->pid, &stat);
    if (r < 0) /* too many files open here says nothing about the process */
        return r != -ENOENT && r != -ESRCH;
    return stat.start_ticks == d->start_ticks && stat.state != 'Z' && stat.state != 'X';
}

/* ---- a closer look ------------------------------------------------------------------------- */

static bool is_runtime_thread(const struct clp_discover_roots *roots, int32_t pid, const char *tid)
{
    CLP_CLEANUP(clp_cleanup_free) char *comm = NULL;
    size_t len;
    char file[64];
    snprintf(file, sizeof(file), "task/%.20s/comm", tid);
    if (read_proc(roots, pid, file, 64, &comm, &len) < 0)
        return false;
    return strncmp(comm, ".NET ", 5) == 0; /* ".NET SynchManag", ".NET EventPipe"... */
}

static bool has_runtime_thread(const struct clp_discover_roots *roots, int32_t pid)
{
    char path[512];
    if (proc_path(roots, pid, "task", path, sizeof(path)) < 0)
        return false;
    CLP_CLEANUP(clp_cleanup_dir) DIR *dir = opendir(path);
    if (!dir)
        return false;
    struct dirent *e;
    for (int n = 0; n < THREADS_LOOKED_AT && (e = readdir(dir)); n++)
        if (e->d_name[0] != '.' && is_runtime_thread(roots, pid, e->d_name))
            return true;
    return false;
}

void clp_dotnet_look_closer(const struct clp_discover_roots *roots, struct clp_dotnet *d)
{
    if (d->state != CLP_DOTNET_NO && d->state != CLP_DOTNET_HIDDEN)
        return;
    if (has_runtime_thread(roots, d->pid))
        d->state = d->state == CLP_DOTNET_HIDDEN ? CLP_DOTNET_DENIED : CLP_DOTNET_NO_PORT;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int32_t pid_of(const char *name)
{
    int64_t pid = 0;
    for (const char *c = name; *c; c++) {
        if (*c < '0' || *c > '9' || pid > INT32_MAX / 10)
            return 0;
        pid = pid * 10 + (*c - '0');
    }
    return pid > INT32_MAX ? 0 : (int32_t)pid;
}

int clp_discover_pids(const struct clp_discover_roots *roots,
                      int (*found)(void *context, int32_t pid), void *context)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *dir = opendir(roots->proc);
    if (!dir)
        return -errno;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(dir);
        if (!e)
            return -errno;
        int32_t pid = pid_of(e->d_name);
        int r = pid > 0 ? found(context, pid) : 0;
        if (r != 0)
            return r;
    }
}

bool clp_discover_hides(const struct clp_discover_roots *roots)
{
    struct clp_proc_stat stat;
    return read_stat(roots, 1, &stat) < 0; /* there is always a process 1 */
}
