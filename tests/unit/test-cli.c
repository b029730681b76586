#include "tests/unit/clp-cmocka.h"

#include "config/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct clp_cli cli;
static struct clp_config_error error;

/* The words of one line. */
static int parse(const char *line)
{
    static char copy[256];
    char *argv[16] = {(char *)"clrpulse"};
    int argc = 1;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    cli = (struct clp_cli){0};
    error.text[0] = '\0';
    return clp_cli_parse(argc, argv, &cli, &error);
}

static void record_options(void **state)
{
    (void)state;
    assert_int_equal(parse("record -p 12 -d 1.5 -o out.pb.gz --types cpu --split"), 0);
    assert_int_equal(cli.command, CLP_COMMAND_RECORD);
    assert_int_equal(cli.pid, 12);
    assert_int_equal(cli.duration_ns, 1500 * CLP_NSEC_PER_MSEC);
    assert_string_equal(cli.output, "out.pb.gz");
    assert_int_equal(cli.types, 1u << CLP_TYPE_CPU);
    assert_true(cli.split);
    assert_false(cli.no_startup_hook);
    assert_int_equal(parse("record -p12 --duration=2m --output=x --no-startup-hook"), 0);
    assert_true(cli.no_startup_hook);
    assert_int_equal(cli.pid, 12);
    assert_int_equal(cli.duration_ns, 120 * CLP_NSEC_PER_SEC);
}

static void other_commands(void **state)
{
    (void)state;
    assert_int_equal(parse("ps --json"), 0);
    assert_true(cli.command == CLP_COMMAND_PS && cli.json);
    assert_int_equal(parse("agent -c /x.yaml --detach-on-exit"), 0);
    assert_true(cli.command == CLP_COMMAND_AGENT && cli.detach_on_exit);
    assert_string_equal(cli.config, "/x.yaml");
    assert_int_equal(parse("--version"), 0);
    assert_true(cli.version);
    assert_int_equal(parse("agent --help"), 0);
    assert_true(cli.help && cli.command == CLP_COMMAND_AGENT);
}

static void wrong_use_in_words(void **state)
{
    (void)state;
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"", "no command"},
        {"recrod -p 1", "did you mean record?"},
        {"frobnicate", "clrpulse --help"},
        {"record --duratoin 3", "did you mean --duration?"},
        {"record -x", "record takes no option -x"},
        {"ps -p 1", "ps takes no option -p"},
        {"record -p", "--pid needs its PID"},
        {"agent --config=", "--config needs a value"},
        {"record -p abc", "'abc' is no process id"},
        {"record -p 0", "no process id 0"},
        {"record -p 99999999999", "is no process id"},
        {"record -d 0", "is no duration"},
        {"record -d nan", "is no duration"},
        {"record --types walls", "'walls' cannot be recorded; did you mean wall? this version "
                                 "records: cpu, wall, exceptions, allocations, locks, waits, "
                                 "liveheap, gc"},
        {"record --types cpu,zzzzzzzz", "'zzzzzzzz' cannot be recorded; this version records: cpu"},
        {"record --types cpu,,wall", "no type to record is named; this version records: cpu"},
        {"record --types=", "no type to record is named; this version records: cpu"},
        {"record --split=1", "--split takes no value"},
        {"ps extra", "takes no argument 'extra'"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(cases[i].line), -EINVAL);
        if (!strstr(error.text, cases[i].want))
            fail_msg("'%s' gave '%s'", cases[i].line, error.text);
    }
}

static void settings_on_the_line(void **state)
{
    (void)state;
    char *argv[2 * CLP_CLI_TEXTS_MAX + 4] = {(char *)"clrpulse", (char *)"agent"};
    int argc = 2;
    for (unsigned i = 0; i < CLP_CLI_TEXTS_MAX; i++) {
        argv[argc++] = (char *)"--set";
        argv[argc++] = (char *)"profile.period=5s";
    }
    cli = (struct clp_cli){0};
    assert_int_equal(clp_cli_parse(argc, argv, &cli, &error), 0);
    argv[argc++] = (char *)"--set=service.env=x";
    cli = (struct clp_cli){0};
    assert_int_equal(clp_cli_parse(argc, argv, &cli, &error), -EINVAL);
    assert_string_equal(error.text, "more than 64 settings on the command line");
}

static void help_names_every_option_and_setting(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    clp_cli_help(f, CLP_COMMAND_NONE);
    clp_cli_help(f, CLP_COMMAND_RECORD);
    clp_cli_help(f, CLP_COMMAND_AGENT);
    assert_int_equal(fclose(f), 0);
    const char *want[] = {"ps ", "-p, --pid PID", "--split", "--detach-on-exit", "upload"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(want); i++)
        assert_non_null(strstr(text, want[i]));
    for (size_t i = 0; i < clp_config_key_count(); i++) {
        char key[64];
        snprintf(key, sizeof(key), "%s.%s", clp_config_key_at(i)->section,
                 clp_config_key_at(i)->key);
        assert_non_null(strstr(text, key));
    }
    free(text);
}

/* Behind the command's own options everything is the command's. */
static void a_command_to_run(void **state)
{
    (void)state;
    assert_int_equal(parse("run -o x -- dotnet app.dll -d 3 --help"), 0);
    assert_string_equal(cli.run_output, "x");
    assert_int_equal(cli.run_duration_ns, 0);
    assert_string_equal(cli.arguments[0], "dotnet");
    assert_string_equal(cli.arguments[4], "--help");
    assert_null(cli.arguments[5]);
    assert_false(cli.help);
    assert_int_equal(parse("run --split --no-startup-hook ls -l"), 0);
    assert_true(cli.run_split && cli.run_no_startup_hook);
    assert_string_equal(cli.arguments[0], "ls");
    assert_string_equal(cli.arguments[1], "-l");
    assert_int_equal(parse("run --"), 0);
    assert_null(cli.arguments[0]);
    assert_int_equal(parse("run"), 0);
    assert_null(cli.arguments);
    assert_int_equal(parse("run --help"), 0);
    assert_true(cli.help);
}

static void settings_on_the_command_line(void **state)
{
    (void)state;
    assert_int_equal(parse("agent --set a.b=1 --set=c.d=x=y"), 0);
    assert_int_equal(cli.set.count, 2);
    assert_string_equal(cli.set.items[0], "a.b=1");
    assert_string_equal(cli.set.items[1], "c.d=x=y");
    assert_int_equal(parse("agent --set nothing"), -EINVAL);
    assert_string_equal(error.text, "'nothing' is no setting; write section.key=value");
    assert_int_equal(parse("agent --set"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_options),
        cmocka_unit_test(other_commands),
        cmocka_unit_test(a_command_to_run),
        cmocka_unit_test(settings_on_the_command_line),
        cmocka_unit_test(wrong_use_in_words),
        cmocka_unit_test(settings_on_the_line),
        cmocka_unit_test(help_names_every_option_and_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
