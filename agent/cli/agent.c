/* clrpulse agent: reads the settings, runs the daemon. */
#include "agent/cli/cli.h"

#include "agent/daemon.h"
#include "agent/settings.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "uploader/uploader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int run(const struct clp_config *c, const struct clp_cli *cli)
{
    struct clp_fault fault = {0};
    CLP_CLEANUP(clp_cleanup_fd) int stop_fd = clp_stop_signals();
    struct clp_daemon_options o = {
        .config = c, .stop_fd = stop_fd, .detach_on_exit = cli->detach_on_exit};
    clp_log_setup(c->log_level, c->log_format == CLP_CONFIG_LOG_JSON, STDERR_FILENO);
    if (stop_fd < 0 || clp_uploader_setup() < 0) {
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
    struct clp_config_error error = {""};
    int r = clp_settings_read(&config, cli->config, &error);
    int code = CLP_EXIT_USE;
    if (r < 0)
        fprintf(stderr, "clrpulse: %s\n", *error.text ? error.text : strerror(-r));
    else
        code = run(&config, cli);
    clp_config_done(&config);
    return code;
}
