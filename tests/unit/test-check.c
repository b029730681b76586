/* Every rule of `clrpulse check`: the facts that make it speak, and what it says. */
#include "tests/unit/clp-cmocka.h"

#include "agent/check.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

static struct {
    enum clp_check_rule rule;
    enum clp_check_level level;
    char text[CLP_FAULT_BYTES];
} told[16];
static size_t told_count;

static void take(void *context, enum clp_check_rule rule, enum clp_check_level level,
                 const char *text)
{
    (void)context;
    assert_true(told_count < CLP_ARRAY_LEN(told));
    told[told_count].rule = rule;
    told[told_count].level = level;
    snprintf(told[told_count++].text, CLP_FAULT_BYTES, "%s", text);
}

/* ---- the machine --------------------------------------------------------------------------- */

static struct clp_check_machine good_machine(void)
{
    return (struct clp_check_machine){.kernel_major = 6,
                                      .kernel_minor = 1,
                                      .kernel = "6.1.0",
                                      .yama_scope = -1,
                                      .capabilities = UINT64_MAX,
                                      .files = 65536,
                                      .files_most = 65536};
}

#define MACHINE_RULE(id_, level_, part, ...)                                                       \
    {                                                                                              \
        CLP_CHECK_MACHINE_##id_, CLP_CHECK_##level_, part,                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct {
    enum clp_check_rule rule;
    enum clp_check_level level;
    const char *part;
    struct clp_check_machine m;
} machine_rules[] = {
#define BASE .yama_scope = -1, .capabilities = UINT64_MAX, .files = 65536, .files_most = 65536
    MACHINE_RULE(KERNEL_OLD, WARNING, "kernel 5.4.0-x expires CPU timers", BASE, .kernel_major = 5,
                 .kernel_minor = 4, .kernel = "5.4.0-x"),
    MACHINE_RULE(NO_PIDFD, NOTE, "kernel 4.19 has no pidfd", BASE, .kernel_major = 4,
                 .kernel_minor = 19, .kernel = "4.19"),
    MACHINE_RULE(YAMA, NOTE, "ptrace_scope is 2", .yama_scope = 2, .capabilities = UINT64_MAX,
                 .files = 65536),
    MACHINE_RULE(HIDEPID, WARNING, "hidepid", BASE, .hides = true),
    MACHINE_RULE(NOT_ROOT, NOTE, "uid 1000: only processes of this user", BASE, .uid = 1000),
    MACHINE_RULE(NO_PTRACE, ERROR, "lacks CAP_SYS_PTRACE", .yama_scope = -1, .files = 65536,
                 .capabilities = UINT64_MAX & ~(1ull << CAP_SYS_PTRACE)),
    MACHINE_RULE(NO_SETUID, ERROR, "lacks CAP_SETUID or CAP_SETGID", .yama_scope = -1,
                 .files = 65536, .capabilities = UINT64_MAX & ~(1ull << CAP_SETGID)),
    MACHINE_RULE(PID_NAMESPACE, NOTE, "pid namespace of its own", BASE, .own_pid_namespace = true),
    MACHINE_RULE(FILES, WARNING, "only 256 files", .yama_scope = -1, .capabilities = UINT64_MAX,
                 .files = 256, .files_most = 4096),
    MACHINE_RULE(LIBRARY, ERROR, "libclrpulse.so lies nowhere", BASE,
                 .library = {-ENOENT, "libclrpulse.so lies nowhere"}),
    MACHINE_RULE(HOOK, WARNING, "no labels of requests", BASE, .hook = {-ENOENT, "it is missing"}),
    MACHINE_RULE(HOOK_OFF, NOTE, "startup_hook is false", BASE,
                 .hook = {-ECANCELED, "targets.startup_hook is false"}),
    MACHINE_RULE(STATE, ERROR, "state.dir cannot", BASE, .state = {-EACCES, "state.dir cannot"}),
    MACHINE_RULE(SPOOL, ERROR, "spool.dir cannot", BASE, .spool = {-EACCES, "spool.dir cannot"}),
};

static void assert_told(enum clp_check_rule rule, enum clp_check_level level, const char *part)
{
    for (size_t i = 0; i < told_count; i++) {
        if (told[i].rule != rule)
            continue;
        assert_int_equal(told[i].level, level);
        if (!strstr(told[i].text, part))
            fail_msg("'%s' is not in '%s'", part, told[i].text);
        return;
    }
    fail_msg("rule %d (%s) was not told", rule, part);
}

static void a_good_machine_is_silent(void **state)
{
    (void)state;
    struct clp_check_machine m = good_machine();
    told_count = 0;
    clp_check_machine(&m, take, NULL);
    assert_int_equal(told_count, 0);
}

static void every_machine_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(machine_rules); i++) {
        told_count = 0;
        clp_check_machine(&machine_rules[i].m, take, NULL);
        assert_told(machine_rules[i].rule, machine_rules[i].level, machine_rules[i].part);
    }
    assert_int_equal(CLP_ARRAY_LEN(machine_rules), CLP_CHECK_PROCESS_DIAGNOSTICS_OFF);
}

/* ---- a process ----------------------------------------------------------------------------- */

#define READY                                                                                      \
    .pid = 7, .comm = "shop", .state = CLP_DOTNET_READY, .ns_pid = 7, .uid = 33,                   \
    .temp_path = "/tmp", .info = {.major = 10, .arch = "x64", .runtime_version = "10.0.1"}

#define PROCESS_RULE(id_, level_, part, ...)                                                       \
    {                                                                                              \
        CLP_CHECK_PROCESS_##id_, CLP_CHECK_##level_, part,                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct {
    enum clp_check_rule rule;
    enum clp_check_level level;
    const char *part;
    struct clp_check_process p;
} process_rules[] = {
    PROCESS_RULE(DIAGNOSTICS_OFF, ERROR, "process 7 was started with DOTNET_EnableDiagnostics=0",
                 .dotnet = {READY}, .diagnostics_off = true),
    PROCESS_RULE(IPC_OFF, ERROR, "EnableDiagnostics_IPC=0", .dotnet = {READY}, .ipc_off = true),
    PROCESS_RULE(PROFILER_OFF, WARNING, "EnableDiagnostics_Profiler=0", .dotnet = {READY},
                 .profiler_off = true),
    PROCESS_RULE(DISABLED, ERROR, "CLRPULSE_DISABLE=1", .dotnet = {READY}, .disabled = true),
    PROCESS_RULE(
        STATE, ERROR, "kill -CONT 7",
        .dotnet = {.pid = 7, .comm = "shop", .state = CLP_DOTNET_SILENT, .run_state = 'T'}),
    PROCESS_RULE(VERSION, ERROR, ".NET 8 is the oldest",
                 .dotnet = {.pid = 7,
                            .state = CLP_DOTNET_READY,
                            .info = {.major = 6, .arch = "x64", .runtime_version = "6.0.1"}}),
    PROCESS_RULE(ARCHITECTURE, ERROR, "runs as arm64",
                 .dotnet = {.pid = 7,
                            .state = CLP_DOTNET_READY,
                            .info = {.major = 8, .arch = "arm64", .runtime_version = "8.0.1"}}),
    PROCESS_RULE(NATIVE_AOT, NOTE, "(NativeAOT): the engine", .native_aot = true,
                 .dotnet = {.state = CLP_DOTNET_READY, .info = {.major = 10, .arch = "x64"}}),
    PROCESS_RULE(NATIVE_AOT_OLD, WARNING,
                 "collections, waits and bytes of objects, but no wall time", .native_aot = true,
                 .dotnet = {.state = CLP_DOTNET_READY, .info = {.major = 9, .arch = "x64"}}),
    PROCESS_RULE(NOEXEC, NOTE, "/tmp of process 7 is mounted noexec", .dotnet = {READY},
                 .temp_noexec = true, .place_path = "/data"),
    PROCESS_RULE(NOWHERE, WARNING, "cannot be put where process 7 may execute it",
                 .dotnet = {READY}, .temp_noexec = true, .place = -EACCES),
    PROCESS_RULE(AGENT, NOTE, "agent says of process 7: refused: why", .dotnet = {READY},
                 .agent = "refused: why"),
    PROCESS_RULE(SIGNALS, WARNING, "uid 33 has 80 of its 100 pending signals", .dotnet = {READY},
                 .signals_used = 80, .signals_limit = 100),
    PROCESS_RULE(SECCOMP, NOTE, "seccomp filter", .dotnet = {READY}, .seccomp = 2),
    PROCESS_RULE(SECCOMP_STRICT, ERROR, "strict seccomp", .dotnet = {READY}, .seccomp = 1),
    PROCESS_RULE(MOUNTS, NOTE, "mounts of its own", .dotnet = {READY}, .other_mounts = true),
    PROCESS_RULE(USERS, WARNING, "another user namespace", .dotnet = {READY}, .other_users = true,
                 .place = -EPERM),
    PROCESS_RULE(PIDS, NOTE, "it is 7 in its own", .dotnet = {READY}, .other_pids = true),
    PROCESS_RULE(SUSPENDING_PORT, WARNING, "answers on /x.sock; add \",nosuspend\"",
                 .dotnet = {READY}, .suspending_port = "/x.sock"),
    PROCESS_RULE(DEFAULT_SUSPEND, WARNING, "DOTNET_DefaultDiagnosticPortSuspend", .dotnet = {READY},
                 .default_suspend = true),
    PROCESS_RULE(MAIN_PROFILER, NOTE, "side by side", .dotnet = {READY}, .main_profiler = true),
    PROCESS_RULE(HOOKS, NOTE, "StartupHookSupport off", .dotnet = {READY}, .no_hooks = true),
    PROCESS_RULE(LOADED, NOTE, "in process 7 already", .dotnet = {READY}, .library_loaded = true),
    PROCESS_RULE(UNWANTED, NOTE, "process 7 is left alone: x", .dotnet = {READY},
                 .unwanted = "left alone: x"),
};

static void every_process_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(process_rules); i++) {
        told_count = 0;
        clp_check_process(&process_rules[i].p, take, NULL);
        assert_told(process_rules[i].rule, process_rules[i].level, process_rules[i].part);
        assert_int_equal(told_count, 1);
    }
    assert_int_equal(CLP_ARRAY_LEN(process_rules) + CLP_ARRAY_LEN(machine_rules), CLP_CHECK_RULES);
}

/* Each state that a process can be in has its sentence. */
static void every_state(void **state)
{
    (void)state;
    static const struct {
        enum clp_dotnet_state state;
        const char *part;
    } states[] = {
        {CLP_DOTNET_NO, "is not a .NET process"},
        {CLP_DOTNET_DENIED, "belongs to uid 54321"},
        {CLP_DOTNET_NO_PORT, "without a diagnostics port"},
        {CLP_DOTNET_STALE, "nobody listens"},
        {CLP_DOTNET_SILENT, "does not answer"},
        {CLP_DOTNET_BROKEN, "answers as something else"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(states); i++) {
        struct clp_check_process p = {
            .dotnet = {.pid = 7, .uid = 54321, .state = states[i].state, .temp_path = "/tmp"}};
        told_count = 0;
        clp_check_process(&p, take, NULL);
        assert_told(CLP_CHECK_PROCESS_STATE, CLP_CHECK_ERROR, states[i].part);
    }
}

static void a_good_process_is_silent(void **state)
{
    (void)state;
    struct clp_check_process p = {.dotnet = {READY}, .signals_limit = 100};
    told_count = 0;
    clp_check_process(&p, take, NULL);
    assert_int_equal(told_count, 0);
}

/* ---- facts --------------------------------------------------------------------------------- */

#define ENVIRON(block, p) clp_check_environment(block, sizeof(block), p)

static void environment(void **state)
{
    (void)state;
    struct clp_check_process p = {.seccomp = 0};
    ENVIRON("DOTNET_EnableDiagnostics=0\0COMPlus_EnableDiagnostics_IPC=0\0CLRPULSE_DISABLE=1", &p);
    assert_true(p.diagnostics_off && p.ipc_off && p.disabled);
    assert_false(p.profiler_off || p.default_suspend || p.main_profiler);
    p = (struct clp_check_process){.seccomp = 0};
    ENVIRON("DOTNET_EnableDiagnostics=1\0DOTNET_EnableDiagnostics_Profiler=0\0"
            "CORECLR_ENABLE_PROFILING=1\0DOTNET_DefaultDiagnosticPortSuspend=1\0"
            "DOTNET_DiagnosticPorts=/a,nosuspend;/b,connect;/c",
            &p);
    assert_true(p.profiler_off && p.main_profiler && p.default_suspend);
    assert_false(p.diagnostics_off || p.ipc_off || p.disabled);
    assert_string_equal(p.suspending_port, "/b");
    p = (struct clp_check_process){.seccomp = 0};
    ENVIRON("DOTNET_DiagnosticPorts=/a,nosuspend;;", &p);
    assert_string_equal(p.suspending_port, "");
}

static void start_up_hooks(void **state)
{
    (void)state;
    assert_true(clp_check_no_hooks("{\"System.StartupHookProvider.IsSupported\": false,"));
    assert_true(clp_check_no_hooks("\"System.StartupHookProvider.IsSupported\" :\n\tfalse"));
    assert_false(clp_check_no_hooks("\"System.StartupHookProvider.IsSupported\": true}"));
    assert_false(clp_check_no_hooks("\"System.StartupHookProvider.IsSupported\""));
    assert_false(clp_check_no_hooks("{}"));
}

static void maps(void **state)
{
    (void)state;
    static const char without[] = "7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /lib/"
                                  "ld-musl-x86_64.so.1\n";
    static const char with[] =
        "7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /lib/x86_64-linux-gnu/libc.so.6\n"
        "nonsense\n7f0000002000-7f0000003000 r-xp 00000000 08:01 1 /opt/libclrpulse.so";
    struct clp_check_process p = {.seccomp = 0};
    clp_check_maps(without, sizeof(without) - 1, &p);
    assert_false(p.library_loaded);
    clp_check_maps(with, sizeof(with) - 1, &p);
    assert_true(p.library_loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_machine_is_silent),
        cmocka_unit_test(every_machine_rule),
        cmocka_unit_test(a_good_process_is_silent),
        cmocka_unit_test(every_process_rule),
        cmocka_unit_test(every_state),
        cmocka_unit_test(start_up_hooks),
        cmocka_unit_test(environment),
        cmocka_unit_test(maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
