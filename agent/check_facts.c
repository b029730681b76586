#include "agent/check.h"

#include "agent/engine.h"
#include "agent/hook.h"
#include "agent/identity.h"
#include "agent/library.h"
#include "agent/match.h"
#include "agent/place.h"
#include "agent/status_socket.h"
#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#define MAPS_MAX_BYTES (64u << 20)
#define ENVIRON_MAX_BYTES (4u << 20)
#define CONFIG_MAX_BYTES (256u << 10)
#define FIRST_PID_NAMESPACE 0xeffffffcu /* PROC_PID_INIT_INO of the kernel's proc_ns.h */
#define ASK_NS (2 * CLP_NSEC_PER_SEC)

static uint64_t namespace_of(int32_t pid, const char *kind)
{
    char path[64];
    struct stat st;
    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kind);
    else
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* ---- the machine --------------------------------------------------------------------------- */

static void look_kernel(struct clp_check_machine *m)
{
    struct utsname u;
    CLP_CLEANUP(clp_cleanup_free) char *scope = NULL;
    if (uname(&u) == 0) {
        snprintf(m->kernel, sizeof(m->kernel), "%s", u.release);
        if (sscanf(u.release, "%u.%u", &m->kernel_major, &m->kernel_minor) != 2)
            m->kernel_major = m->kernel_minor = 0;
    }
    m->yama_scope = -1;
    if (clp_file_read("/proc/sys/kernel/yama/ptrace_scope", 16, &scope, NULL) == 0)
        m->yama_scope = atoi(scope);
}

static void look_rights(struct clp_check_machine *m)
{
    struct rlimit files;
    CLP_CLEANUP(clp_cleanup_free) char *status = clp_file_read_proc(0, "status", 65536, NULL);
    const char *caps = status ? strstr(status, "\nCapEff:") : NULL;
    m->uid = geteuid();
    m->capabilities = caps ? strtoull(caps + 8, NULL, 16) : UINT64_MAX;
    m->hides = clp_discover_hides(&clp_discover_system);
    uint64_t pids = namespace_of(0, "pid");
    m->own_pid_namespace = pids && pids != FIRST_PID_NAMESPACE;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        m->files = files.rlim_cur;
        m->files_most = files.rlim_max;
    }
}

/* Whether the file that brings spans is the one that belongs to us. A setting that switches it off
 * is told as such. */
static void look_hook(const struct clp_config *c, const char *library, struct clp_fault *ret)
{
    char path[4096], reason[256];
    CLP_CLEANUP(clp_cleanup_fd) int fd = -1;
    if (!c->targets_startup_hook || c->profile_span_labels == CLP_CONFIG_SPANS_OFF)
        (void)clp_fault_set(ret, -ECANCELED, "%s",
                            c->targets_startup_hook ? "profile.span_labels is off"
                                                    : "targets.startup_hook is false");
    else if (library && clp_hook_open(library, path, sizeof(path), &fd, reason, sizeof(reason)) < 0)
        (void)clp_fault_set(ret, -ENOENT, "%s", reason);
}

/* Whether it is there and writable, or could be made: nothing is made by a check. */
static void look_directory(const char *key, const char *path, struct clp_fault *ret)
{
    char at[4096];
    struct stat st;
    snprintf(at, sizeof(at), "%s", path);
    while (stat(at, &st) < 0 && errno == ENOENT && strlen(at) > 1) {
        char *slash = strrchr(at, '/');
        slash[slash == at ? 1 : 0] = '\0';
    }
    int error = stat(at, &st) < 0             ? errno
                : !S_ISDIR(st.st_mode)        ? ENOTDIR
                : access(at, W_OK | X_OK) < 0 ? errno
                                              : 0;
    if (error)
        (void)clp_fault_set(ret, -error,
                            "%s cannot be used: %.300s: %s; make it writable for uid %u, or set "
                            "another one",
                            key, at, strerror(error), geteuid());
}

void clp_check_look_machine(const struct clp_config *c, struct clp_check_machine *ret)
{
    CLP_CLEANUP(clp_cleanup_free) char *library = NULL;
    *ret = (struct clp_check_machine){.uid = 0};
    look_kernel(ret);
    look_rights(ret);
    (void)!clp_library_find(&library, &ret->library);
    look_hook(c, library, &ret->hook);
    look_directory("state.dir", c->state_dir, &ret->state);
    look_directory("spool.dir", c->spool_dir, &ret->spool);
}

/* ---- a process ----------------------------------------------------------------------------- */

/* The runtime reads its numbers as hexadecimal. -1: not set. */
static long number(const char *block, size_t len, const char *name)
{
    size_t n;
    char text[32];
    const char *value = clp_proctext_env(block, len, name, &n);
    if (!value || n == 0 || n >= sizeof(text))
        return -1;
    memcpy(text, value, n);
    text[n] = '\0';
    return strtol(text, NULL, 16);
}

/* Under both of the prefixes that runtimes know. */
static long runtime_number(const char *block, size_t len, const char *name)
{
    char full[80];
    snprintf(full, sizeof(full), "DOTNET_%s", name);
    long n = number(block, len, full);
    snprintf(full, sizeof(full), "COMPlus_%s", name);
    return n >= 0 ? n : number(block, len, full);
}

/* "PATH[,connect][,suspend|,nosuspend]" parts between ';'. The standard is to wait. */
static void find_suspending_port(const char *ports, size_t len, struct clp_check_process *ret)
{
    const char *end = ports + len;
    while (ports < end) {
        const char *semicolon = memchr(ports, ';', (size_t)(end - ports));
        size_t n = (size_t)((semicolon ? semicolon : end) - ports);
        const char *comma = memchr(ports, ',', n);
        size_t path_len = comma ? (size_t)(comma - ports) : n;
        bool waits =
            n > 0 && !memmem(ports, n, ",nosuspend", 10) && !memmem(ports, n, ",listen", 7);
        if (waits && !*ret->suspending_port)
            snprintf(ret->suspending_port, sizeof(ret->suspending_port), "%.*s",
                     (int)CLP_MIN(path_len, sizeof(ret->suspending_port) - 1), ports);
        ports += n + 1;
    }
}

void clp_check_environment(const char *block, size_t len, struct clp_check_process *ret)
{
    size_t n;
    ret->diagnostics_off = runtime_number(block, len, "EnableDiagnostics") == 0;
    ret->ipc_off = runtime_number(block, len, "EnableDiagnostics_IPC") == 0;
    ret->profiler_off = runtime_number(block, len, "EnableDiagnostics_Profiler") == 0;
    ret->default_suspend = runtime_number(block, len, "DefaultDiagnosticPortSuspend") > 0;
    ret->disabled = number(block, len, "CLRPULSE_DISABLE") > 0;
    ret->main_profiler = number(block, len, "CORECLR_ENABLE_PROFILING") > 0;
    const char *ports = clp_proctext_env(block, len, "DOTNET_DiagnosticPorts", &n);
    if (ports)
        find_suspending_port(ports, n, ret);
}

static bool ends_with(const char *s, size_t len, const char *ending)
{
    size_t n = strlen(ending);
    return len >= n && memcmp(s + len - n, ending, n) == 0;
}

static const char *base_name(const struct clp_map_entry *e, size_t *ret_len)
{
    const char *slash = memrchr(e->path, '/', e->path_len);
    const char *name = slash ? slash + 1 : e->path;
    *ret_len = (size_t)(e->path + e->path_len - name);
    return name;
}

void clp_check_maps(const char *maps, size_t len, struct clp_check_process *ret)
{
    for (const char *at = maps, *end = maps + len; at < end;) {
        struct clp_map_entry e;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at), name_len;
        if (clp_proctext_map_line(at, n, &e) == 0 && e.path_len > 0) {
            const char *name = base_name(&e, &name_len);
            if (ends_with(name, name_len, "libclrpulse.so"))
                ret->library_loaded = true;
        }
        at += n + 1;
    }
}

/* What a build with StartupHookSupport=false writes, as trimmed ones do. */
bool clp_check_no_hooks(const char *config)
{
    static const char key[] = "\"System.StartupHookProvider.IsSupported\"";
    const char *at = strstr(config, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " \t\r\n:");
    return strncmp(at, "false", 5) == 0;
}

/* Beside the entry assembly, as the process has it mapped; nothing is known of a single file. */
static void look_hooks(const char *maps, size_t len, struct clp_check_process *ret)
{
    char dll[300], path[4096];
    int n = snprintf(dll, sizeof(dll), "/%s.dll", ret->dotnet.info.entry_assembly);
    for (const char *at = maps, *end = maps + len; at < end;) {
        struct clp_map_entry e;
        CLP_CLEANUP(clp_cleanup_free) char *config = NULL;
        CLP_CLEANUP(clp_cleanup_fd) int fd = -1;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((newline ? newline : end) - at);
        bool found = clp_proctext_map_line(at, line, &e) == 0 && ends_with(e.path, e.path_len, dll);
        at += line + 1;
        if (!found)
            continue;
        snprintf(path, sizeof(path), "%.*s/%.*s.runtimeconfig.json", (int)(e.path_len - (size_t)n),
                 e.path, n - 5, dll + 1);
        fd = clp_file_open_in(ret->dotnet.root_fd, path, O_RDONLY);
        if (fd >= 0 && clp_file_read_fd(fd, CONFIG_MAX_BYTES, &config, NULL) == 0)
            ret->no_hooks = clp_check_no_hooks(config);
        return;
    }
}

static void look_status(int32_t pid, struct clp_check_process *ret)
{
    size_t len;
    struct clp_proc_status s;
    CLP_CLEANUP(clp_cleanup_free) char *status = clp_file_read_proc(pid, "status", 65536, &len);
    if (!status || clp_proctext_status(status, len, &s) < 0)
        return;
    ret->seccomp = s.seccomp;
    ret->signals_used = s.sigq_used;
    ret->signals_limit = s.sigq_limit;
}

static bool differs(int32_t pid, const char *kind)
{
    uint64_t theirs = namespace_of(pid, kind), ours = namespace_of(0, kind);
    return theirs && ours && theirs != ours;
}

static void look_temp(struct clp_check_process *ret)
{
    struct statvfs fs;
    if (ret->dotnet.temp_fd >= 0 && fstatvfs(ret->dotnet.temp_fd, &fs) == 0)
        ret->temp_noexec = (fs.f_flag & ST_NOEXEC) != 0;
}

static void look_place(struct clp_check_process *ret)
{
    struct clp_fault fault;
    char path[CLP_PLACE_PATH_BYTES] = "";
    CLP_CLEANUP(clp_cleanup_free) char *library = NULL;
    ret->place = -ENOENT;
    if (ret->dotnet.state == CLP_DOTNET_READY && clp_library_find(&library, &fault) == 0)
        ret->place = clp_place_look(&ret->dotnet, library, path);
    snprintf(ret->place_path, sizeof(ret->place_path), "%.500s", path);
}

/* An agent that runs has tried already. */
static void look_agent(const struct clp_config *c, struct clp_check_process *ret)
{
    char question[32];
    CLP_CLEANUP(clp_cleanup_free) char *said = NULL;
    snprintf(question, sizeof(question), "pid %d", ret->dotnet.pid);
    if (clp_status_ask(c->state_dir, question, &said) == 0)
        snprintf(ret->agent, sizeof(ret->agent), "%.*s", (int)strcspn(said, "\n"), said);
}

static void look_settings(const struct clp_config *c, struct clp_check_process *ret)
{
    char service[CLP_SERVICE_BYTES];
    clp_identity_service(&ret->dotnet, c->service_name, service);
    const char *pattern = clp_match_any(&c->targets_exclude, &ret->dotnet, service);
    if (pattern)
        snprintf(ret->unwanted, sizeof(ret->unwanted), "left alone: targets.exclude has '%.100s'",
                 pattern);
    else if (!clp_match_any(&c->targets_include, &ret->dotnet, service))
        snprintf(ret->unwanted, sizeof(ret->unwanted),
                 "left alone: nothing in targets.include matches");
}

void clp_check_look_process(const struct clp_config *c, const struct clp_dotnet *d,
                            struct clp_check_process *ret)
{
    size_t environ_len = 0, maps_len = 0;
    *ret = (struct clp_check_process){.dotnet = *d};
    int32_t pid = d->pid;
    clp_dotnet_look_closer(&clp_discover_system, &ret->dotnet);
    if (d->run_state == 'T' || d->run_state == 't') {
        if (ret->dotnet.state == CLP_DOTNET_PORT)
            ret->dotnet.state = CLP_DOTNET_SILENT;
    } else {
        clp_dotnet_ask(&ret->dotnet, 1, ASK_NS);
    }
    CLP_CLEANUP(clp_cleanup_free)
    char *environment = clp_file_read_proc(pid, "environ", ENVIRON_MAX_BYTES, &environ_len);
    CLP_CLEANUP(clp_cleanup_free)
    char *maps = clp_file_read_proc(pid, "maps", MAPS_MAX_BYTES, &maps_len);
    if (environment)
        clp_check_environment(environment, environ_len, ret);
    if (maps)
        clp_check_maps(maps, maps_len, ret);
    if (maps && ret->dotnet.root_fd >= 0 && *ret->dotnet.info.entry_assembly)
        look_hooks(maps, maps_len, ret);
    look_status(pid, ret);
    look_temp(ret);
    look_place(ret);
    look_agent(c, ret);
    ret->other_mounts = differs(pid, "mnt");
    ret->other_users = differs(pid, "user");
    ret->other_pids = differs(pid, "pid");
    ret->native_aot = clp_engine_is_native_aot(pid);
    if (ret->dotnet.state == CLP_DOTNET_READY)
        look_settings(c, ret);
}

bool clp_check_waits(const struct clp_dotnet *d, char *buf, size_t cap)
{
    struct clp_check_process p = {0};
    size_t len;
    if (d->state != CLP_DOTNET_READY || *d->info.entry_assembly)
        return false;
    CLP_CLEANUP(clp_cleanup_free)
    char *environment = clp_file_read_proc(d->pid, "environ", ENVIRON_MAX_BYTES, &len);
    if (environment)
        clp_check_environment(environment, len, &p);
    if (!p.default_suspend && !*p.suspending_port)
        return false;
    snprintf(buf, cap,
             "process %d (%s) waits at its start until a tool lets it go (%s%s), and runs nothing "
             "until then; `clrpulse agent` lets it go%s%s",
             d->pid, d->comm,
             *p.suspending_port ? "DOTNET_DiagnosticPorts=" : "DOTNET_DefaultDiagnosticPortSuspend",
             p.suspending_port, *p.suspending_port ? " when targets.diagnostic_port is " : "",
             p.suspending_port);
    return true;
}
