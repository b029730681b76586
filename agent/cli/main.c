#include "agent/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>

void clp_print_foreign(FILE *out, const char *text, size_t most)
{
    for (size_t i = 0; i < most && text[i]; i++)
        (void)fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i], out);
}

void clp_vprint_sentence(const char *fmt, va_list args)
{
    char text[8192]; /* a path and more */
    (void)vsnprintf(text, sizeof(text), fmt, args);
    fputs("clrpulse: ", stderr);
    clp_print_foreign(stderr, text, sizeof(text));
    fputc('\n', stderr);
}

void clp_print_sentence(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    clp_vprint_sentence(fmt, args);
    va_end(args);
}

int clp_exit_code(int error)
{
    switch (error) {
    case -ESRCH:
    case -ENOEXEC:
        return CLP_EXIT_NO_PROCESS;
    case -EACCES:
    case -EPERM:
        return CLP_EXIT_PERMISSION;
    case CLP_FAULT_REFUSED:
    case CLP_FAULT_FULL:
        return CLP_EXIT_REFUSED;
    default:
        return CLP_EXIT_FAILED;
    }
}

int clp_exit_fault(const struct clp_fault *f)
{
    clp_print_sentence("%s", f->text);
    return clp_exit_code(f->error);
}

int clp_stop_signals(void)
{
    sigset_t set;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error with a sentence, too */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int clp_signal_fd(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

static int run(const struct clp_cli *cli)
{
    if (cli->help) {
        clp_cli_help(stdout, cli->command);
        return CLP_EXIT_DONE;
    }
    switch (cli->command) {
    case CLP_COMMAND_PS:
        return clp_command_ps(cli);
    case CLP_COMMAND_RECORD:
        return clp_command_record(cli);
    case CLP_COMMAND_SPOOL:
        return clp_command_spool(cli);
    case CLP_COMMAND_AGENT:
        return clp_command_agent(cli);
    case CLP_COMMAND_RUN:
        return clp_command_run(cli);
    case CLP_COMMAND_STATUS:
        return clp_command_status(cli);
    case CLP_COMMAND_CHECK:
        return clp_command_check(cli);
    case CLP_COMMAND_EVENTS:
        return clp_command_events(cli);
    default: /* --version alone */
        printf("clrpulse %s\n", CLP_VERSION);
        return CLP_EXIT_DONE;
    }
}

int main(int argc, char **argv)
{
    struct clp_cli cli;
    struct clp_config_error error;
    if (clp_cli_parse(argc, argv, &cli, &error) < 0) {
        clp_print_sentence("%s", error.text);
        return CLP_EXIT_USE;
    }
    int code = run(&cli);
    if (fflush(stdout) != 0 && code == CLP_EXIT_DONE) {
        fprintf(stderr, "clrpulse: cannot write to standard output\n");
        return CLP_EXIT_FAILED;
    }
    return code;
}
