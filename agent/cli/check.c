/* clrpulse check: says in words what keeps a machine, a configuration or a process from working. */
#include "agent/cli/cli.h"

#include "agent/check.h"
#include "agent/outbox.h"
#include "base/cleanup.h"
#include "uploader/uploader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct findings {
    const struct clp_config *config;
    unsigned errors, processes;
    int process_error; /* that the process which was asked for cannot be profiled with, or 0 */
};

static void tell(void *context, enum clp_check_rule rule, enum clp_check_level level,
                 const char *text)
{
    struct findings *f = context;
    (void)rule;
    f->errors += level == CLP_CHECK_ERROR;
    printf("%-8s ", clp_check_level_name(level));
    clp_print_foreign(stdout, text, SIZE_MAX); /* names in it are a target's own */
    putchar('\n');
}

static void check_one(struct findings *f, const struct clp_dotnet *d)
{
    struct clp_check_process p;
    struct clp_fault why;
    unsigned before = f->errors;
    clp_check_look_process(f->config, d, &p);
    f->processes++;
    clp_check_process(&p, tell, f);
    if (f->errors > before)
        f->process_error = clp_find_error(&p.dotnet, &why);
    if (f->errors == before)
        printf("%-8s process %d (%s) can be profiled, .NET %s\n", "ok", p.dotnet.pid, p.dotnet.comm,
               p.dotnet.info.runtime_version);
    clp_dotnet_done(&p.dotnet);
}

/* What `record` of the process would end with, where that is known. */
static int exit_code(const struct findings *f, const struct clp_cli *cli)
{
    if (cli->check_pid && f->process_error)
        return clp_exit_code(f->process_error);
    return f->errors ? CLP_EXIT_FAILED : CLP_EXIT_DONE;
}

static int check_if_dotnet(void *context, int32_t pid)
{
    struct findings *f = context;
    struct clp_dotnet d;
    if (clp_dotnet_open(&clp_discover_system, pid, &d) < 0)
        return 0;
    struct clp_dotnet closer = d;
    clp_dotnet_look_closer(&clp_discover_system, &closer);
    if (closer.state == CLP_DOTNET_NO || closer.state == CLP_DOTNET_HIDDEN)
        clp_dotnet_done(&d);
    else
        check_one(f, &d);
    return 0;
}

static int check_pid(struct findings *f, int32_t pid, struct clp_fault *fault)
{
    struct clp_dotnet d;
    int r = clp_dotnet_open(&clp_discover_system, pid, &d);
    if (r == 0) {
        check_one(f, &d);
        return 0;
    }
    if (r == -EACCES)
        return clp_fault_set(fault, r,
                             "process %d is hidden from this user (/proc is mounted with hidepid); "
                             "run clrpulse as root",
                             pid);
    return clp_fault_set(
        fault, r, "there is no process %d; `clrpulse ps` lists those that can be profiled", pid);
}

/* Without uploads in the configuration profiles go to the agent's own directory, which is no
 * business of who runs this. */
static int check_uploads(struct findings *f)
{
    if (f->config->upload_count == 0)
        return 0;
    if (clp_uploader_setup() < 0)
        return -ENOMEM;
    int failed = clp_outbox_check(f->config, stdout);
    clp_uploader_teardown();
    f->errors += (unsigned)CLP_MAX(failed, 0);
    return CLP_MIN(failed, 0);
}

static void doubt(void *context, const char *sentence)
{
    (void)context;
    printf("%-8s %s\n", "warning", sentence);
}

static int check_all(struct findings *f, const struct clp_cli *cli, struct clp_fault *fault)
{
    struct clp_check_machine m;
    clp_config_doubt_environment(environ, doubt, NULL);
    clp_check_look_machine(f->config, &m);
    clp_check_machine(&m, tell, f);
    if (cli->check_pid)
        return check_pid(f, cli->check_pid, fault);
    if (check_uploads(f) < 0)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    int r = clp_discover_pids(&clp_discover_system, check_if_dotnet, f);
    if (r < 0)
        return clp_fault_set(fault, r, "cannot read /proc: %s", strerror(-r));
    if (f->processes == 0)
        printf("%-8s no .NET process runs here, as far as this user can see\n", "note");
    return 0;
}

static int audit(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    if (clp_ask_agent(cli->check_config, "audit", &text, &f) < 0)
        return f.error == -EINVAL ? (clp_exit_fault(&f), CLP_EXIT_USE) : clp_exit_fault(&f);
    fputs(text, stdout);
    return CLP_EXIT_DONE;
}

int clp_command_check(const struct clp_cli *cli)
{
    struct clp_config config;
    struct clp_config_error error;
    struct clp_fault fault = {0};
    struct findings f = {.config = &config};
    int code = CLP_EXIT_USE;
    if (cli->audit && cli->check_pid) {
        clp_print_sentence("--audit is about all processes of the agent: leave out -p");
        return CLP_EXIT_USE;
    }
    if (cli->audit)
        return audit(cli);
    if (clp_read_settings(&config, cli->check_config, NULL, NULL, &error) < 0)
        printf("%-8s %s\n", "error", error.text);
    else if (check_all(&f, cli, &fault) < 0)
        code = clp_exit_fault(&fault);
    else
        code = exit_code(&f, cli);
    clp_config_done(&config);
    return code;
}
