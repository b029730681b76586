/* clrpulse agent: reads the settings, runs the daemon. */
#include "agent/cli/cli.h"

#include "agent/daemon.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "uploader/uploader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int read_all(struct clp_config *c, const char *path, const struct clp_cli_texts *assignments,
                    const char **ret_path, struct clp_config_error *error)
{
    int r = clp_config_read_file(c, path ? path : CLP_CONFIG_DEFAULT_PATH, error);
    bool missing = r == -ENOENT && !path; /* the file that was named must exist */
    if (ret_path)
        *ret_path = missing ? "" : path ? path : CLP_CONFIG_DEFAULT_PATH;
    if (missing)
        r = 0;
    if (r == 0)
        r = clp_config_read_environment(c, environ, error);
    for (size_t i = 0; assignments && r == 0 && i < assignments->count; i++)
        r = clp_config_assign(c, assignments->items[i], error);
    return r == 0 ? clp_config_check(c, error) : r;
}

int clp_read_settings(struct clp_config *ret, const char *path,
                      const struct clp_cli_texts *assignments, const char **ret_path,
                      struct clp_config_error *error)
{
    error->text[0] = '\0';
    int r = clp_config_init(ret);
    if (r == 0)
        r = read_all(ret, path, assignments, ret_path, error);
    if (r < 0 && !*error->text)
        snprintf(error->text, sizeof(error->text), "%s", strerror(-r));
    return r;
}

static int reread(void *context, struct clp_config *ret, struct clp_config_error *error)
{
    const struct clp_cli *cli = context;
    int r = clp_read_settings(ret, cli->config, &cli->set, NULL, error);
    if (r < 0)
        clp_config_done(ret);
    return r;
}

static void warn(void *context, const char *sentence)
{
    (void)context;
    clp_log_warning("%s", sentence);
}

static int run(struct clp_config *c, const char *path, const struct clp_cli *cli)
{
    struct clp_fault fault = {0};
    CLP_CLEANUP(clp_cleanup_fd) int stop_fd = clp_stop_signals();
    CLP_CLEANUP(clp_cleanup_fd) int reload_fd = clp_signal_fd(SIGHUP);
    struct clp_daemon_options o = {
        .config = c,
        .config_path = path,
        .stop_fd = stop_fd,
        .reload_fd = reload_fd,
        .reread = reread,
        .context = (void *)(uintptr_t)cli,
        .detach_on_exit = cli->detach_on_exit,
    };
    clp_log_setup(c->log_level, c->log_format == CLP_CONFIG_LOG_JSON, STDERR_FILENO);
    clp_config_doubt_environment(environ, warn, NULL);
    if (stop_fd < 0 || reload_fd < 0 || clp_uploader_setup() < 0) {
        (void)clp_fault_set(&fault, -ENOMEM, "cannot set up signals and transfers");
        return clp_exit_fault(&fault);
    }
    int r = clp_daemon_run(&o, &fault);
    clp_uploader_teardown();
    return r < 0 ? clp_exit_fault(&fault) : CLP_EXIT_DONE;
}

int clp_command_agent(const struct clp_cli *cli)
{
    struct clp_config config;
    struct clp_config_error error;
    const char *path = "";
    int code = CLP_EXIT_USE;
    if (clp_read_settings(&config, cli->config, &cli->set, &path, &error) < 0)
        clp_print_sentence("%s", error.text);
    else
        code = run(&config, path, cli);
    clp_config_done(&config);
    return code;
}
