/* The command line, from the table in options.def. */
#ifndef CLP_CONFIG_CLI_H
#define CLP_CONFIG_CLI_H

#include "base/core/core.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdio.h>

enum clp_command {
    CLP_COMMAND_NONE, /* --help or --version alone */
#define CLP_COMMAND(id, name, usage, text) CLP_COMMAND_##id,
#include "config/options.def"
    CLP_COMMAND_COUNT
};

#define CLP_CLI_WORDS_MAX 2u

/* C type of each KIND of CLP_OPTION; texts point into argv. */
#define CLP_CLI_C_SWITCH bool
#define CLP_CLI_C_PID int32_t
#define CLP_CLI_C_SECONDS uint64_t
#define CLP_CLI_C_TEXT const char *
#define CLP_CLI_C_TYPES uint32_t
#define CLP_CLI_C_ASSIGNMENTS struct clp_cli_texts

#define CLP_CLI_TEXTS_MAX 64u
struct clp_cli_texts {
    const char *items[CLP_CLI_TEXTS_MAX];
    size_t count;
};

/* Fields of all commands; what was not given is zero. */
struct clp_cli {
    enum clp_command command;
    bool help, version;
    char *const *arguments; /* of `run`: the command, NULL-terminated; NULL: none was given */
    /* What follows without dashes: only `spool` and `events` take any. */
    const char *words[CLP_CLI_WORDS_MAX];
    size_t word_count;
#define CLP_OPTION(command, field, kind, letter, name, argument, text) CLP_CLI_C_##kind field;
#include "config/options.def"
};

/* Reads argv. 0, or -EINVAL with a sentence. */
int clp_cli_parse(int argc, char *const *argv, struct clp_cli *ret,
                  struct clp_config_error *ret_error) CLP_MUST_USE;
/* The help of one command, or of all for CLP_COMMAND_NONE. */
void clp_cli_help(FILE *out, enum clp_command command);

#endif
