#include "tests/unit/clp-cmocka.h"

#include "config/config.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct clp_config config;
static struct clp_config_error error;

static int set_up(void **state)
{
    (void)state;
    error.text[0] = '\0';
    return clp_config_init(&config);
}

static int tear_down(void **state)
{
    (void)state;
    clp_config_done(&config);
    return 0;
}

static int read_text(const char *text)
{
    return clp_config_read_text(&config, "c.yaml", text, strlen(text), &error);
}

static void defaults(void **state)
{
    (void)state;
    assert_string_equal(config.service_name, "auto");
    assert_int_equal(config.profile_period, 60 * CLP_NSEC_PER_SEC);
    assert_int_equal(config.profile_cpu_interval, 10 * CLP_NSEC_PER_MSEC);
    assert_int_equal(config.profile_types, 1u << CLP_TYPE_CPU | 1u << CLP_TYPE_WALL);
    assert_int_equal(config.profile_wall_budget, 5000);
    assert_int_equal(config.targets_include.count, 1);
    assert_int_equal(config.targets_exclude.count, 0);
    assert_int_equal(config.upload_count, 0);
    assert_int_equal(clp_config_check(&config, &error), 0);
}

static void a_whole_file(void **state)
{
    (void)state;
    assert_int_equal(
        read_text(
            "# comment\n"
            "service: { name: shop, env: production, version: \"1.2\", tags: { team: pay } }\n"
            "targets:\n  include: [\"shop*\", 'x']\n  exclude: []\n"
            "profile: { period: 90s, types: [cpu], cpu_interval: 20ms }\n"
            "upload:\n"
            "  - { kind: directory, path: /var/p }\n"
            "  - kind: http\n    url: http://localhost:1\n"
            "    headers: { X-Key: abc }\n"
            "log: { level: debug, format: json }\n"),
        0);
    assert_string_equal(config.service_name, "shop");
    assert_int_equal(config.service_tags.count, 1);
    assert_string_equal(config.service_tags.items[0], "team:pay");
    assert_int_equal(config.targets_include.count, 2);
    assert_string_equal(config.targets_include.items[1], "x");
    assert_int_equal(config.profile_period, 90 * CLP_NSEC_PER_SEC);
    assert_int_equal(config.upload_count, 2);
    assert_string_equal(config.uploads[0].path, "/var/p");
    assert_string_equal(config.uploads[1].headers.items[0], "X-Key: abc");
    assert_int_equal(config.log_level, CLP_LOG_DEBUG);
    assert_int_equal(config.log_format, CLP_CONFIG_LOG_JSON);
}

static void headers_as_a_list(void **state)
{
    (void)state;
    assert_int_equal(
        read_text("upload: [ { kind: http, url: 'http://x', headers: ['A: b', 'C: d:e'] } ]\n"), 0);
    assert_int_equal(config.uploads[0].headers.count, 2);
    assert_string_equal(config.uploads[0].headers.items[1], "C: d:e");
    assert_int_equal(read_text("upload: [ { kind: http, url: x, headers: [Ab] } ]\n"), -EINVAL);
    assert_non_null(strstr(error.text, "a header is one text"));
}

static const char *name_at(const void *context, size_t i)
{
    return ((const char *const *)context)[i];
}

/* A name that is far off is no help. */
static void only_near_names_are_proposed(void **state)
{
    static const char *const names[] = {"gc", "cpu", "wall", "locks", "exceptions"};
    static const struct {
        const char *word, *near;
    } cases[] = {
        {"gx", "gc"},
        {"cup", "cpu"},
        {"lcoks", "locks"},
        {"excetpoins", "exceptions"},
        {"w", NULL},
        {"", NULL},
        {"wax", NULL},
        {"roots", NULL},
        {"conditions", NULL},
        {"a-word-that-is-far-longer-than-any-name-that-there-is-and-goes-on-and-on-to-its-end",
         NULL},
        {"a-word-that-is-far-longer-than-any-name-that-there-is-and-goes-on-and-on-to-its-end"
         "-and-then-tells-all-of-it-once-more-for-those-who-have-come-late-and-for-all-others-as-"
         "well",
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        const char *near = clp_value_nearest(cases[i].word, CLP_ARRAY_LEN(names), name_at, names);
        if (cases[i].near ? !near || strcmp(near, cases[i].near) != 0 : near != NULL)
            fail_msg("%s: %s", cases[i].word, near ? near : "none");
    }
}

static void errors_name_file_line_and_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"profile:\n  perod: 60s\n", "c.yaml:2: profile.perod is no setting; did you mean "
                                     "profile.period?"},
        {"\nprofle: {}\n", "c.yaml:2: profle is no section; did you mean profile?"},
        {"uploads: []\n", "c.yaml:1: uploads is no section; did you mean upload?"},
        {"log:\n  xyzzy: 1\n", "c.yaml:2: log.xyzzy is no setting"},
        {"profile:\n\n  period: 60\n", "c.yaml:3: profile.period is a duration with its unit"},
        {"profile: { period: 10ms }\n", "c.yaml:1: profile.period must be between 1s and 3600s"},
        {"profile: { period: [60s] }\n", "c.yaml:1: profile.period takes one value"},
        {"profile: { types: [cpi] }\n", "did you mean cpu?"},
        {"profile: { types: [] }\n", "no type to record"},
        {"targets: { include: app }\n", "takes a list"},
        {"service: { tags: [a] }\n", "service.tags takes keys and values"},
        {"service: { name: a, name: b }\n", "'name' is set twice"},
        {"service: x\n", "service takes keys and values"},
        {"service: { name: \"a\\0b\" }\n", "service.name takes one value"},
        {"log: { level: loud }\n", "'loud' is no log level"},
        {"upload:\n  - { kind: htp, url: x }\n",
         "c.yaml:2: 'htp' is no kind of upload; did you mean "
         "http"},
        {"upload:\n  - { url: x }\n", "an upload needs a kind"},
        {"upload:\n  - { kind: http, path: x }\n", "an upload of kind http takes no path"},
        {"upload:\n  - { kind: pyroscope }\n", "an upload of kind pyroscope needs a url"},
        {"upload:\n  - { kind: directory, path: x, url: y }\n",
         "an upload of kind directory takes no url"},
        {"upload:\n  - { kind: otlp, url: x, tenant: y }\n",
         "an upload of kind otlp takes no tenant"},
        {"upload:\n  - { kind: http, url: x, timeout: 10 }\n",
         "timeout is a duration of at most 1h with its unit, such as 10s"},
        {"upload:\n  - { kind: http, url: x, max_size: 2 }\n",
         "max_size is a size with its unit, such as 2MiB"},
        {"upload:\n  - { kind: http, url: x, user: a, token: b }\n",
         "an upload takes a user or a token, not both"},
        {"upload:\n  - { kind: http, url: x, tokn: b }\n", "did you mean token?"},
        {"upload:\n  - { kind: pyroscop, url: x }\n", "did you mean pyroscope"},
        {"spool: { max_size: 5 }\n",
         "spool.max_size is a size with its unit, such as 256MiB, not '5'"},
        {"spool: { max_size: 5B }\n", "spool.max_size must be between"},
        {"upload:\n  - { kind: directory, pth: x }\n", "upload takes no pth; did you mean path?"},
        {"a: [\n", "c.yaml:2: not YAML"},
        {"- a\n", "the configuration takes keys and values"},
        {"&a [*a]\n", "the configuration takes keys and values"},
        {"profile: { types: &x [*x] }\n", "a list takes texts"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        assert_int_equal(read_text(cases[i].text), -EINVAL);
        if (!strstr(error.text, cases[i].want))
            fail_msg("'%s' gave '%s'", cases[i].text, error.text);
    }
}

/* The sentences whole, as people read them. */
static void repeat(char *buf, size_t cap, const char *first, const char *part, int times,
                   const char *last)
{
    size_t n = (size_t)snprintf(buf, cap, "%s", first);
    while (times-- > 0)
        n += (size_t)snprintf(buf + n, cap - n, "%s", part);
    n += (size_t)snprintf(buf + n, cap - n, "%s", last);
    assert_true(n < cap);
}

static void every_other_sentence(void **state)
{
    (void)state;
    static char long_name[4400], long_header[2400], many_patterns[1100], many_uploads[500];
    static const struct {
        const char *text, *want;
    } cases[] = {
        {long_name, "c.yaml:1: service.name is longer than 4000 bytes"},
        {"service: { tags: { '': x } }\n", "c.yaml:1: ':x' is no tag; write key: value"},
        {"service: { tags: { 'a,b': x } }\n", "c.yaml:1: a tag takes text without a comma"},
        {"service: { tags: { a: [x] } }\n", "c.yaml:1: a tag takes text without a comma"},
        {"profile: { types: [] }\n",
         "c.yaml:1: no type to record is named; this version records: cpu, wall, "
         "exceptions, allocations, locks, waits, liveheap, gc"},
        {"profile: { types: [zzzzzzzz] }\n",
         "c.yaml:1: 'zzzzzzzz' cannot be recorded; this version records: cpu, wall, "
         "exceptions, allocations, locks, waits, liveheap, gc"},
        {"targets: { startup_hook: yes }\n",
         "c.yaml:1: targets.startup_hook is true or false, not 'yes'"},
        {"targets: { engine: steam }\n",
         "c.yaml:1: 'steam' is no engine; they are auto, library and eventpipe"},
        {many_patterns, "c.yaml:1: targets.exclude holds more than 256 texts"},
        {many_uploads, "c.yaml:1: more than 8 uploads"},
        {"profile: { span_labels: some }\n",
         "c.yaml:1: 'some' is no choice of span labels; they are full, root and off"},
        {"log: { format: xml }\n", "c.yaml:1: 'xml' is no log format; they are text and json"},
        {"profile: { wall_budget: much }\n",
         "c.yaml:1: profile.wall_budget is a percentage, such as 0.5%, not 'much'"},
        {"profile: { wall_budget: 99% }\n",
         "c.yaml:1: profile.wall_budget must be between 0.01% and 10%, not 99%"},
        {"profile: { period: [a] }\n", "c.yaml:1: profile.period takes one value"},
        {"[a]: x\n", "c.yaml:1: a key of the configuration must be text"},
        {"targets:\n  include: ['a,b']\n", "c.yaml:2: a list takes texts without a comma"},
        {"upload:\n- { kind: http, url: x, headers: { A: [b] } }\n",
         "c.yaml:2: a header takes one text"},
        {"upload:\n- { kind: http, url: x, headers: { A: \"b\\nc\" } }\n",
         "c.yaml:2: the header is too long or holds a line end"},
        {long_header, "c.yaml:2: the header is too long or holds a line end"},
        {"upload:\n- { kind: http, url: x, headers: [none] }\n",
         "c.yaml:2: a header is one text, \"Name: value\""},
        {"upload:\n- { kind: http, url: [x] }\n", "c.yaml:2: url takes one text"},
        {"upload:\n- { kind: [http], url: x }\n", "c.yaml:2: kind takes one text"},
        {"upload:\n- { zzzzzzzzzz: 1 }\n",
         "c.yaml:2: upload takes no zzzzzzzzzz; `clrpulse agent --help` lists what it takes"},
        {"upload:\n- { url: x }\n",
         "c.yaml:2: an upload needs a kind: directory, http, pyroscope, datadog, otlp or parca"},
        {"upload:\n- { kind: zzzzzzzzzz, url: x }\n",
         "c.yaml:2: 'zzzzzzzzzz' is no kind of upload; there are directory, http, pyroscope, "
         "datadog, otlp and parca"},
        {"upload:\n- { kind: directory }\n",
         "c.yaml:2: an upload of kind directory takes a path and nothing else"},
        {"upload: { kind: directory }\n",
         "c.yaml:1: upload takes a list: - { kind: directory, path: /some/where }"},
        {"zzzzzzzzzz: 1\n", "c.yaml:1: zzzzzzzzzz is no section"},
    };
    int n = snprintf(long_name, sizeof(long_name), "service: { name: %04200d }\n", 0);
    assert_true(n > 4200 && (size_t)n < sizeof(long_name));
    repeat(many_patterns, sizeof(many_patterns), "targets: { exclude: [", "a, ", 257, "] }\n");
    repeat(many_uploads, sizeof(many_uploads), "upload: [", "{ kind: directory, path: /x }, ", 9,
           "]\n");
    n = snprintf(long_header, sizeof(long_header),
                 "upload:\n- { kind: http, url: x, headers: { A: %02200d } }\n", 0);
    assert_true(n > 2200 && (size_t)n < sizeof(long_header));
    for (size_t i = 0; i < CLP_ARRAY_LEN(cases); i++) {
        assert_int_equal(read_text(cases[i].text), -EINVAL);
        assert_string_equal(error.text, cases[i].want);
    }
    assert_int_equal(clp_config_read_file(&config, "/no/such/file", &error), -ENOENT);
    assert_string_equal(error.text, "cannot read the configuration /no/such/file: No such file or "
                                    "directory");
}

static void uploads_have_their_keys(void **state)
{
    (void)state;
    enum { MAX_SIZE = 3 << 20 };
    assert_int_equal(read_text("spool: { max_size: 64MiB, max_age: 2h }\n"
                               "upload:\n"
                               "  - { kind: pyroscope, url: u, tenant: t, user: a, "
                               "password: 'env:B', timeout: 3s, max_size: 3MiB }\n"
                               "  - { kind: datadog, api_key: 'file:/k', site: datadoghq.eu }\n"
                               "  - { kind: otlp, url: u, otlp_version: 1 }\n"),
                     0);
    assert_int_equal(config.upload_count, 3);
    assert_string_equal(config.uploads[0].tenant, "t");
    assert_string_equal(config.uploads[0].password, "env:B");
    assert_int_equal(config.uploads[0].timeout, 3 * CLP_NSEC_PER_SEC);
    assert_int_equal(config.uploads[0].max_size, MAX_SIZE);
    assert_null(config.uploads[0].token);
    assert_string_equal(config.uploads[1].api_key, "file:/k");
    assert_string_equal(config.uploads[2].otlp_version, "1");
    assert_int_equal(config.spool_max_size, 64 << 20);
    assert_int_equal(config.spool_max_age, 7200 * CLP_NSEC_PER_SEC);
}

static void nothing_is_a_configuration(void **state)
{
    (void)state;
    assert_int_equal(read_text(""), 0);
    assert_int_equal(read_text("# only a comment\n"), 0);
    assert_int_equal(read_text("service:\nupload:\n"), 0);
}

static void environment_wins(void **state)
{
    (void)state;
    char *environment[] = {
        (char *)"CLRPULSE_PROFILE_CPU_INTERVAL=5ms",
        (char *)"CLRPULSE_SERVICE_TAGS=a:b, c:d",
        (char *)"CLRPULSE_TARGETS_INCLUDE=x*,y",
        (char *)"CLRPULSE_UPLOAD=[{kind: directory, path: /p}]",
        (char *)"CLRPULSE_SERVICE_HOST=10.0.0.1", /* made by Kubernetes */
        NULL,
    };
    assert_int_equal(read_text("profile: { cpu_interval: 20ms }\n"
                               "upload:\n  - { kind: http, url: \"http://x\" }\n"),
                     0);
    assert_int_equal(clp_config_read_environment(&config, environment, &error), 0);
    assert_int_equal(config.profile_cpu_interval, 5 * CLP_NSEC_PER_MSEC);
    assert_int_equal(config.service_tags.count, 2);
    assert_string_equal(config.service_tags.items[1], "c:d");
    assert_string_equal(config.targets_include.items[0], "x*");
    assert_int_equal(config.upload_count, 1);
    assert_string_equal(config.uploads[0].kind, "directory");
}

static void environment_errors_name_the_variable(void **state)
{
    (void)state;
    char *environment[] = {(char *)"CLRPULSE_PROFILE_PERIOD=soon", NULL};
    assert_int_equal(clp_config_read_environment(&config, environment, &error), -EINVAL);
    assert_non_null(strstr(error.text, "CLRPULSE_PROFILE_PERIOD in the environment: "));
    environment[0] = (char *)"CLRPULSE_UPLOAD=[{kind: tape}]";
    assert_int_equal(clp_config_read_environment(&config, environment, &error), -EINVAL);
    assert_non_null(strstr(error.text, "CLRPULSE_UPLOAD:1: 'tape' is no kind"));
}

static char doubts[1024];

static void note_doubt(void *context, const char *sentence)
{
    (void)context;
    size_t n = strlen(doubts);
    snprintf(doubts + n, sizeof(doubts) - n, "%s\n", sentence);
}

static void mistyped_variables_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *sentence;
    } table[] = {
        {"CLRPULSE_PROFILE_PEROD=60s",
         "CLRPULSE_PROFILE_PEROD in the environment is no setting and does nothing; did you mean "
         "CLRPULSE_PROFILE_PERIOD?\n"},
        {"CLRPULSE_UPLAOD=", "CLRPULSE_UPLAOD in the environment is no setting and does nothing; "
                             "did you mean CLRPULSE_UPLOAD?\n"},
        {"CLRPULSE_XYZZYXYZZYXYZZY=1",
         "CLRPULSE_XYZZYXYZZYXYZZY in the environment is no setting and does nothing; `clrpulse "
         "agent --help` lists the settings\n"},
        {"CLRPULSE_PROFILE_PERIOD=60s", ""},
        {"CLRPULSE_LIBRARY=/x.so", ""},
        {"CLRPULSE_SERVICE_HOST=10.0.0.1", ""},
        {"CLRPULSE_SERVICE_PORT_HTTP=80", ""},
        {"CLRPULSE_PORT_4040_TCP_ADDR=10.0.0.1", ""},
        {"CLRPULSE_=", "CLRPULSE_ in the environment is no setting and does nothing; `clrpulse "
                       "agent --help` lists the settings\n"},
        {"CLRPULSE=1", ""},
        {"PATH=/bin", ""},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        char *environment[] = {(char *)(uintptr_t)table[i].variable, NULL};
        doubts[0] = '\0';
        clp_config_doubt_environment(environment, note_doubt, NULL);
        assert_string_equal(doubts, table[i].sentence);
    }
}

/* What libyaml would take minutes for is refused at once, and by its line. */
static void deep_nesting(void **state)
{
    (void)state;
    static char text[200001];
    assert_int_equal(read_text("upload:\n  [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]\n"), -EINVAL);
    assert_string_equal(error.text, "c.yaml:2: nested too deeply for a configuration");
    memset(text, '[', sizeof(text) - 1);
    memcpy(text, "upload:\n", 8);
    assert_int_equal(read_text(text), -EINVAL);
    for (size_t i = 8; i < sizeof(text) - 1; i += 2)
        memcpy(text + i, "[\n", 2);
    assert_int_equal(read_text(text), -EINVAL);
    for (size_t i = 8; i < sizeof(text) - 1; i += 2)
        memcpy(text + i, "- ", 2);
    assert_int_equal(read_text(text), -EINVAL);
}

static void one_document(void **state)
{
    (void)state;
    assert_int_equal(read_text("---\nprofile: { period: 5s }\n...\n"), 0);
    assert_int_equal(config.profile_period, 5 * CLP_NSEC_PER_SEC);
    assert_int_equal(read_text("profile: { period: 7s }\n---\nlog: { level: debug }\n"), -EINVAL);
    assert_string_equal(error.text, "c.yaml:2: a second document begins; a configuration is one "
                                    "document, without --- between its parts");
    assert_int_equal(config.profile_period, 5 * CLP_NSEC_PER_SEC); /* nothing of it was taken */
}

static void nothing_to_include(void **state)
{
    (void)state;
    static const char *const texts[] = {"targets: { include: [] }\n",
                                        "targets: { include: [''] }\n",
                                        "targets: { include: ['', ' '] }\n"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++) {
        assert_int_equal(read_text(texts[i]), 0);
        assert_int_equal(clp_config_check(&config, &error), -EINVAL);
        assert_non_null(strstr(error.text, "targets.include is empty"));
    }
    assert_int_equal(read_text("targets:\n  include:\n"), -EINVAL);
    assert_string_equal(error.text, "c.yaml:2: targets.include takes a list, such as [a, b]");
}

/* What stands in front of a colon may as well belong to a command line. */
static void patterns_of_any_kind(void **state)
{
    (void)state;
    assert_int_equal(
        read_text("targets: { include: ['user:x', 'service:*', 'command:a b:c', '*:80', "
                  "'http://x', 'x:y', ':', 'Command:x', '[', '\\'] }\n"),
        0);
    assert_int_equal(clp_config_check(&config, &error), 0);
}

static void files_that_are_none(void **state)
{
    (void)state;
    char path[] = "/tmp/clp-test-config-XXXXXX", want[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, CLP_CONFIG_FILE_MAX_BYTES + 1), 0);
    assert_int_equal(clp_config_read_file(&config, path, &error), -EFBIG);
    snprintf(want, sizeof(want), "the configuration %s is larger than 1024 KiB", path);
    assert_string_equal(error.text, want);
    assert_int_equal(close(fd) + unlink(path), 0);
    assert_int_equal(clp_config_read_file(&config, path, &error), -ENOENT);
    snprintf(want, sizeof(want), "cannot read the configuration %s: No such file or directory",
             path);
    assert_string_equal(error.text, want);
    assert_int_equal(clp_config_read_file(&config, "/tmp", &error), -EINVAL);
    assert_string_equal(error.text, "cannot read the configuration /tmp: it is no regular file");
}

/* Whatever an editor leaves: a mark at the beginning, line ends of another system. */
static void strange_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error; /* NULL: fine */
    } table[] = {
        {"\xef\xbb\xbfprofile: { period: 7s }\n", NULL},
        {"profile: { period: 7s }\r\nlog: { level: info }\r\n", NULL},
        {"profile: { period: 7s }\r\nprofle: {}\r\n",
         "c.yaml:2: profle is no section; did you mean profile?"},
        {"profile:\n\tperiod: 7s\n",
         "c.yaml:2: not YAML: found character that cannot start any token"},
        {"profile: { period: 7s }\nprofile: {}\n", "c.yaml:2: 'profile' is set twice"},
        {"profile: { period: 7s, period: 8s }\n", "c.yaml:1: 'period' is set twice"},
        {"service: &s { name: x, tags: *s }\n", "c.yaml:1: a tag takes text without a comma"},
        {"a: &a [*a]\n", "c.yaml:1: a is no section"},
        {"profile: { period: \x01 }\n", "c.yaml:1: not YAML: control characters are not allowed"},
        {"- a\n", "c.yaml:1: the configuration takes keys and values"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        assert_int_equal(read_text(table[i].text), table[i].error ? -EINVAL : 0);
        if (table[i].error)
            assert_string_equal(error.text, table[i].error);
    }
    assert_int_equal(config.profile_period, 7 * CLP_NSEC_PER_SEC);
}

static void unreachable_combinations(void **state)
{
    (void)state;
    assert_int_equal(read_text("profile: { period: 1s, cpu_interval: 500ms }\n"), 0);
    assert_int_equal(clp_config_check(&config, &error), -EINVAL);
    assert_non_null(strstr(error.text, "cpu_interval"));
}

static void durations(void **state)
{
    (void)state;
    uint64_t ns = 0;
    assert_int_equal(clp_value_duration("1.5s", 0, &ns), 0);
    assert_int_equal(ns, 1500 * CLP_NSEC_PER_MSEC);
    assert_int_equal(clp_value_duration("2m", 0, &ns), 0);
    assert_int_equal(ns, 120 * CLP_NSEC_PER_SEC);
    assert_int_equal(clp_value_duration("20", CLP_NSEC_PER_SEC, &ns), 0);
    assert_int_equal(ns, 20 * CLP_NSEC_PER_SEC);
    const char *bad[] = {"", "s", "-1s", "1 s", "1e3s", "inf", "0x10s", "1.2.3s", "1S", "20"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(bad); i++)
        assert_int_equal(clp_value_duration(bad[i], 0, &ns), -EINVAL);
    assert_int_equal(clp_value_duration("999999999999999h", 0, &ns), -ERANGE);
    assert_int_equal(ns, 20 * CLP_NSEC_PER_SEC);
}

static void memory_may_fail_anywhere(void **state)
{
    (void)state;
    static const char text[] = "service: { name: shop, tags: { a: b } }\n"
                               "targets: { include: [x, y] }\n"
                               "upload: [ { kind: http, url: 'http://x', headers: { A: b } } ]\n";
    uint64_t failed = 1, times = 0;
    for (uint64_t allowed = 0; failed; allowed++) {
        struct clp_config c;
        alloc_fail_after(allowed, 0);
        int r = clp_config_init(&c);
        if (r == 0)
            r = clp_config_read_text(&c, "c.yaml", text, sizeof(text) - 1, &error);
        failed = alloc_fail_stop();
        times += failed;
        /* libyaml turns some failures into parse errors of its own. */
        assert_true(failed ? r < 0 : r == 0);
        clp_config_done(&c);
    }
    assert_true(times > 20);
}

static void assignments(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"profile.perod=1s", "--set: profile.perod is no setting; did you mean profile.period?"},
        {"zzz=1", "--set: zzz is no setting; `clrpulse agent --help` lists them"},
        {"profile.period", "--set: 'profile.period' has no value; write section.key=value"},
        {"log.level=loud",
         "--set log.level: 'loud' is no log level; they are error, warning, info and debug"},
    };
    assert_int_equal(clp_config_assign(&config, "profile.period=5s", &error), 0);
    assert_int_equal(config.profile_period, 5 * CLP_NSEC_PER_SEC);
    assert_int_equal(clp_config_assign(&config, "service.tags=a:1,b:2", &error), 0);
    assert_int_equal(config.service_tags.count, 2);
    assert_int_equal(clp_config_assign(&config, "upload=[{kind: directory, path: /x}]", &error), 0);
    assert_string_equal(config.uploads[0].path, "/x");
    for (size_t i = 0; i < CLP_ARRAY_LEN(wrong); i++) {
        assert_int_equal(clp_config_assign(&config, wrong[i].text, &error), -EINVAL);
        assert_string_equal(error.text, wrong[i].error);
    }
}

/* Settings that are right one by one and cannot work together. */
static void combinations(void **state)
{
    (void)state;
    static const struct {
        const char *assignment, *part;
    } table[] = {
        {"profile.cpu_interval=1s", "ten intervals"},
        {"state.dir=x", "state.dir must be an absolute path, not 'x'"},
        {"spool.dir=x", "spool.dir must be an absolute path, not 'x'"},
        {"targets.diagnostic_port=x", "targets.diagnostic_port must be an absolute path"},
        {"targets.include=", "targets.include is empty"},
        {"health.listen=x", "health.listen is a port or a numeric address and a port"},
        {"targets.include=comand:*shop*",
         "targets.include: there is no comand:, did you mean command:*shop*?"},
        {"targets.exclude=a,user:",
         "targets.exclude: user: matches nothing without a name behind it"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        clp_config_done(&config);
        assert_int_equal(clp_config_init(&config), 0);
        assert_int_equal(clp_config_assign(&config, "profile.period=5s", &error), 0);
        assert_int_equal(clp_config_check(&config, &error), 0);
        assert_int_equal(clp_config_assign(&config, table[i].assignment, &error), 0);
        assert_int_equal(clp_config_check(&config, &error), -EINVAL);
        assert_non_null(strstr(error.text, table[i].part));
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(assignments),
        T(combinations),
        T(defaults),
        T(a_whole_file),
        T(headers_as_a_list),
        T(only_near_names_are_proposed),
        T(errors_name_file_line_and_nearest),
        T(nothing_is_a_configuration),
        T(every_other_sentence),
        T(uploads_have_their_keys),
        T(environment_wins),
        T(environment_errors_name_the_variable),
        T(mistyped_variables_are_told),
        T(deep_nesting),
        T(one_document),
        T(nothing_to_include),
        T(patterns_of_any_kind),
        T(files_that_are_none),
        T(strange_bytes),
        T(unreachable_combinations),
        T(durations),
        T(memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
