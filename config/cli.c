#include "config/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum cli_kind { CLI_SWITCH, CLI_PID, CLI_SECONDS, CLI_TEXT, CLI_TYPES, CLI_ASSIGNMENTS };

static const struct {
    const char *name, *usage, *text;
} commands[] = {
    [CLP_COMMAND_NONE] = {"", "", ""},
#define CLP_COMMAND(id, name, usage, text) [CLP_COMMAND_##id] = {name, usage, text},
#include "config/options.def"
};

static const struct option {
    enum clp_command command;
    enum cli_kind kind;
    char letter;
    const char *name, *argument, *text;
    size_t offset;
} options[] = {
#define CLP_OPTION(command, field, kind, letter, name, argument, text)                             \
    {CLP_COMMAND_##command,          CLI_##kind, letter, name, argument, text,                     \
     offsetof(struct clp_cli, field)},
#include "config/options.def"
};

static CLP_PRINTF(2, 3) int refuse(struct clp_config_error *e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);
    return -EINVAL;
}

/* ---- values -------------------------------------------------------------------------------- */

static int set_pid(int32_t *to, const char *value, struct clp_config_error *e)
{
    int64_t pid = 0;
    size_t len = strlen(value);
    if (len == 0 || len > 10 || strspn(value, "0123456789") != len)
        return refuse(e, "'%.40s' is no process id; `clrpulse ps` lists them", value);
    for (; *value; value++)
        pid = pid * 10 + (*value - '0');
    if (pid == 0 || pid > INT32_MAX)
        return refuse(e, "there is no process id %lld", (long long)pid);
    *to = (int32_t)pid;
    return 0;
}

static int set_seconds(uint64_t *to, const char *value, struct clp_config_error *e)
{
    uint64_t ns;
    if (clp_value_duration(value, CLP_NSEC_PER_SEC, &ns) < 0 || ns < 100 * CLP_NSEC_PER_MSEC ||
        ns > 24 * 3600 * CLP_NSEC_PER_SEC)
        return refuse(e, "'%.40s' is no duration; give seconds from 0.1 to 86400", value);
    *to = ns;
    return 0;
}

static int add_assignment(struct clp_cli_texts *to, const char *value, struct clp_config_error *e)
{
    if (!strchr(value, '='))
        return refuse(e, "'%.40s' is no setting; write section.key=value", value);
    if (to->count == CLP_CLI_TEXTS_MAX)
        return refuse(e, "more than %u settings on the command line", CLP_CLI_TEXTS_MAX);
    to->items[to->count++] = value;
    return 0;
}

static int set_value(struct clp_cli *cli, const struct option *o, const char *value,
                     struct clp_config_error *e)
{
    void *to = (char *)cli + o->offset;
    switch (o->kind) {
    case CLI_SWITCH:
        *(bool *)to = true;
        return 0;
    case CLI_PID:
        return set_pid(to, value, e);
    case CLI_SECONDS:
        return set_seconds(to, value, e);
    case CLI_TYPES:
        return clp_value_types(value, to, e->text, sizeof(e->text));
    case CLI_ASSIGNMENTS:
        return add_assignment(to, value, e);
    case CLI_TEXT:
        if (!*value)
            return refuse(e, "--%s needs a value", o->name);
        *(const char **)to = value;
        return 0;
    }
    return -EINVAL;
}

/* ---- words --------------------------------------------------------------------------------- */

static const char *command_at(const void *context, size_t i)
{
    (void)context;
    return commands[i + 1].name;
}

static int find_command(const char *word, enum clp_command *ret, struct clp_config_error *e)
{
    for (int i = CLP_COMMAND_NONE + 1; i < CLP_COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, word) == 0) {
            *ret = (enum clp_command)i;
            return 0;
        }
    const char *near = clp_value_nearest(word, CLP_COMMAND_COUNT - 1, command_at, NULL);
    if (near)
        return refuse(e, "there is no command '%.40s'; did you mean %s?", word, near);
    return refuse(e, "there is no command '%.40s'; `clrpulse --help` lists them", word);
}

/* One word of the line: an option's name, its value when it is in the same word, or neither. */
struct word {
    const char *name; /* without dashes */
    size_t name_len;
    bool is_long;
    const char *value; /* behind '=', or the rest of -pVALUE; NULL when not there */
};

static struct word split_word(const char *w)
{
    struct word r = {.is_long = w[1] == '-', .name = w + (w[1] == '-' ? 2 : 1)};
    if (r.is_long) {
        r.name_len = strcspn(r.name, "=");
        r.value = r.name[r.name_len] ? r.name + r.name_len + 1 : NULL;
    } else {
        r.name_len = 1;
        r.value = r.name[1] ? r.name + 1 : NULL;
    }
    return r;
}

static bool is_named(const struct word *w, const char *name, char letter)
{
    if (w->is_long)
        return strlen(name) == w->name_len && memcmp(name, w->name, w->name_len) == 0;
    return letter && *w->name == letter;
}

static const char *option_at(const void *context, size_t i)
{
    const enum clp_command *command = context;
    return options[i].command == *command ? options[i].name : NULL;
}

static int unknown_option(enum clp_command command, const char *text, const struct word *w,
                          struct clp_config_error *e)
{
    char name[64];
    const char *near = NULL;
    snprintf(name, sizeof(name), "%.*s", (int)CLP_MIN(w->name_len, sizeof(name) - 1), w->name);
    if (w->is_long)
        near = clp_value_nearest(name, CLP_ARRAY_LEN(options), option_at, &command);
    if (near)
        return refuse(e, "%s takes no option %.40s; did you mean --%s?", commands[command].name,
                      text, near);
    return refuse(e, "%s takes no option %.40s; see `clrpulse %s --help`", commands[command].name,
                  text, commands[command].name);
}

static int take_option(struct clp_cli *cli, const struct option *o, const struct word *w,
                       char *const **next, struct clp_config_error *e)
{
    const char *value = w->value;
    if (!o->argument) {
        if (value)
            return refuse(e, "--%s takes no value", o->name);
    } else if (!value) {
        value = **next;
        if (!value)
            return refuse(e, "--%s needs its %s", o->name, o->argument);
        (*next)++;
    }
    return set_value(cli, o, value, e);
}

static bool takes_words(enum clp_command command)
{
    return command == CLP_COMMAND_SPOOL || command == CLP_COMMAND_EVENTS;
}

static int take_word(struct clp_cli *cli, char *const **next, struct clp_config_error *e)
{
    const char *text = *(*next)++;
    if (text[0] != '-' && takes_words(cli->command) && cli->word_count < CLP_CLI_WORDS_MAX) {
        cli->words[cli->word_count++] = text;
        return 0;
    }
    if (cli->command == CLP_COMMAND_RUN && (text[0] != '-' || strcmp(text, "--") == 0)) {
        cli->arguments = text[0] == '-' ? *next : *next - 1;
        while (**next)
            (*next)++;
        return 0;
    }
    if (text[0] != '-' || !text[1] || strcmp(text, "--") == 0)
        return refuse(e, "%s takes no argument '%.40s'; see `clrpulse %s --help`",
                      commands[cli->command].name, text, commands[cli->command].name);
    struct word w = split_word(text);
    if (is_named(&w, "help", 'h')) {
        cli->help = true;
        return 0;
    }
    for (size_t i = 0; i < CLP_ARRAY_LEN(options); i++)
        if (options[i].command == cli->command && is_named(&w, options[i].name, options[i].letter))
            return take_option(cli, &options[i], &w, next, e);
    return unknown_option(cli->command, text, &w, e);
}

int clp_cli_parse(int argc, char *const *argv, struct clp_cli *ret, struct clp_config_error *e)
{
    struct clp_cli cli = {0};
    char *const *next = argv + 1;
    int r;
    if (argc < 2)
        return refuse(e, "no command is given; `clrpulse --help` lists them");
    if (strcmp(*next, "--help") == 0 || strcmp(*next, "-h") == 0 || strcmp(*next, "help") == 0) {
        *ret = (struct clp_cli){.help = true};
        return 0;
    }
    if (strcmp(*next, "--version") == 0 || strcmp(*next, "-V") == 0) {
        *ret = (struct clp_cli){.version = true};
        return 0;
    }
    r = find_command(*next++, &cli.command, e);
    while (r == 0 && *next)
        r = take_word(&cli, &next, e);
    if (r < 0)
        return r;
    *ret = cli;
    return 0;
}

/* ---- help ---------------------------------------------------------------------------------- */

static void help_line(FILE *out, const char *left, const char *text)
{
    if (strlen(left) > 24)
        fprintf(out, "  %s\n  %-24s  %s\n", left, "", text);
    else
        fprintf(out, "  %-24s  %s\n", left, text);
}

static void help_command(FILE *out, enum clp_command command)
{
    fprintf(out, "clrpulse %s %s\n  %s\n\n", commands[command].name, commands[command].usage,
            commands[command].text);
    for (size_t i = 0; i < CLP_ARRAY_LEN(options); i++) {
        const struct option *o = &options[i];
        char left[64], letter[8] = "";
        if (o->command != command)
            continue;
        if (o->letter)
            snprintf(letter, sizeof(letter), "-%c, ", o->letter);
        snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        help_line(out, left, o->text);
    }
    help_line(out, "-h, --help", "this text");
}

static void help_settings(FILE *out)
{
    fprintf(out, "\nSettings (section.key in the configuration, CLRPULSE_SECTION_KEY in the "
                 "environment):\n");
    for (size_t i = 0; i < clp_config_key_count(); i++) {
        const struct clp_config_key *k = clp_config_key_at(i);
        char left[64];
        snprintf(left, sizeof(left), "%s.%s [%s]", k->section, k->key, k->initial);
        help_line(out, left, k->text);
    }
    help_line(
        out, "upload",
        "list of { kind: directory, path: DIR } and { kind: http, pyroscope, datadog, otlp or "
        "parca, url: URL, ... } with");
    help_line(out, "  headers", "more request headers, { Name: value }; values as secrets");
    for (size_t i = 0; i < clp_config_upload_key_count(); i++) {
        const struct clp_config_upload_key *k = clp_config_upload_key_at(i);
        char left[40], text[256];
        snprintf(left, sizeof(left), "  %s", k->name);
        snprintf(text, sizeof(text), "%s%s", k->text,
                 k->kind == CLP_CONFIG_UPLOAD_SECRET ? "; file:PATH or env:NAME for its source"
                                                     : "");
        help_line(out, left, text);
    }
}

void clp_cli_help(FILE *out, enum clp_command command)
{
    if (command != CLP_COMMAND_NONE) {
        help_command(out, command);
        if (command == CLP_COMMAND_AGENT)
            help_settings(out);
        return;
    }
    fprintf(out, "clrpulse COMMAND [options]: a continuous profiler for .NET\n\n");
    for (int i = CLP_COMMAND_NONE + 1; i < CLP_COMMAND_COUNT; i++)
        help_line(out, commands[i].name, commands[i].text);
    fprintf(out, "\n`clrpulse COMMAND --help` tells a command's options; --version the version.\n"
                 "Exit codes: 0 done, 1 failed, 2 wrong use, 3 no such process or not .NET, "
                 "4 no permission,\n5 refused by the runtime.\n");
}
