/* clrpulse status: asks the running agent. */
#include "agent/cli/cli.h"

#include "agent/numbers.h"
#include "agent/status_socket.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int explain_fault(int r, const char *dir, struct clp_fault *f)
{
    switch (r) {
    case -ENOENT:
    case -ECONNREFUSED:
        return clp_fault_set(f, -ENOENT,
                             "no agent runs with the state directory %.300s; start one with "
                             "`clrpulse agent`, or name its configuration with -c",
                             dir);
    case -EACCES:
    case -EPERM:
        return clp_fault_set(
            f, r,
            "this user may not ask the agent in %.300s; run it as the agent's user "
            "or as root",
            dir);
    case -ETIMEDOUT:
        return clp_fault_set(
            f, r, "the agent in %.300s does not answer: it is stopped, or very busy", dir);
    default:
        return clp_fault_set(f, r, "cannot ask the agent in %.300s: %s", dir, strerror(-r));
    }
}

int clp_ask_agent(const char *config_path, const char *question, char **ret, struct clp_fault *f)
{
    struct clp_config config;
    struct clp_config_error error;
    int r = clp_read_settings(&config, config_path, NULL, NULL, &error);
    if (r < 0) {
        (void)clp_fault_set(f, -EINVAL, "%s", error.text);
    } else {
        r = clp_status_ask(config.state_dir, question, ret);
        if (r < 0)
            r = explain_fault(r, config.state_dir, f);
    }
    clp_config_done(&config);
    return r;
}

static int explain(void)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf text;
    clp_strbuf_init(&text, 1 << 20);
    clp_numbers_explain(&text);
    fputs(clp_strbuf_text(&text), stdout);
    return clp_strbuf_error(&text) < 0 ? CLP_EXIT_FAILED : CLP_EXIT_DONE;
}

int clp_command_status(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    if (cli->status_explain)
        return explain();
    int r = clp_ask_agent(cli->status_config, cli->status_json ? "json" : "text", &text, &f);
    if (r < 0)
        return f.error == -EINVAL ? (clp_exit_fault(&f), CLP_EXIT_USE) : clp_exit_fault(&f);
    fputs(text, stdout);
    return CLP_EXIT_DONE;
}
