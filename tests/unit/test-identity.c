/* Who a profile is from: settings, the target's environment, control groups, foreign text. */
#include "tests/unit/clp-cmocka.h"

#include "agent/identity.h"
#include "agent/match.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct clp_config config;
static struct clp_config_error error;
static struct clp_dotnet process;
static struct clp_identity id;
static const char *cgroup;

static int set_up(void **state)
{
    (void)state;
    process = (struct clp_dotnet){.pid = 7, .uid = 0, .comm = "dotnet"};
    strcpy(process.info.command_line, "/usr/bin/dotnet shop.dll");
    for (size_t i = 0; i < CLP_GUID_BYTES; i++)
        process.info.cookie[i] = (uint8_t)(i + 1);
    cgroup = NULL;
    return clp_config_init(&config);
}

static int tear_down(void **state)
{
    (void)state;
    clp_config_done(&config);
    return 0;
}

static void set(const char *assignment)
{
    assert_int_equal(clp_config_assign(&config, assignment, &error), 0);
}

static void make_block(const char *block, size_t len)
{
    struct clp_identity_source s = {.process = &process,
                                    .config = &config,
                                    .host = "node-1",
                                    .environment = block,
                                    .environment_len = len,
                                    .cgroup = cgroup};
    clp_identity_make(&s, &id);
}

#define MAKE(block) make_block(block, sizeof(block))

static const char *tag(const char *key)
{
    for (size_t i = 0; i < id.tag_count; i++)
        if (strcmp(id.tags[i].key, key) == 0)
            return id.tags[i].value;
    return "(none)";
}

static void what_the_process_shows(void **state)
{
    (void)state;
    make_block(NULL, 0);
    assert_string_equal(id.service, "dotnet"); /* its command */
    assert_string_equal(id.host, "node-1");
    assert_string_equal(id.runtime_id, "04030201-0605-0807-090a-0b0c0d0e0f10");
    assert_string_equal(id.env, "");
    assert_int_equal(id.tag_count, 0);
    strcpy(process.info.entry_assembly, "Shop");
    make_block(NULL, 0);
    assert_string_equal(id.service, "Shop");
}

static void datadog_variables(void **state)
{
    (void)state;
    MAKE("DD_SERVICE=pay\0DD_ENV=prod\0DD_VERSION=1.2\0DD_TAGS=team:a,zone:x:y , empty:,:v\0"
         "DD_GIT_COMMIT_SHA=abc\0DD_GIT_REPOSITORY_URL=https://me:secret@host/r.git");
    assert_string_equal(id.service, "pay");
    assert_string_equal(id.env, "prod");
    assert_string_equal(id.version, "1.2");
    assert_string_equal(tag("team"), "a");
    assert_string_equal(tag("zone"), "x:y ");
    assert_int_equal(id.tag_count, 2);
    assert_string_equal(id.git_commit, "abc");
    assert_string_equal(id.git_repository, "https://host/r.git");
}

static void tags_by_blanks(void **state)
{
    (void)state;
    MAKE("DD_TAGS=team:a zone:b env:dev");
    assert_string_equal(tag("team"), "a");
    assert_string_equal(tag("zone"), "b");
    assert_string_equal(id.env, "dev");
    assert_string_equal(tag("env"), "(none)");
}

static void opentelemetry_variables(void **state)
{
    (void)state;
    MAKE("OTEL_SERVICE_NAME=cart\0OTEL_RESOURCE_ATTRIBUTES=service.version=3,"
         "deployment.environment.name=stage,team=a%2Cb%3D%20c,service.name=other,bad%zz=1,"
         "vcs.ref.head.revision=f00");
    assert_string_equal(id.service, "cart");
    assert_string_equal(id.version, "3");
    assert_string_equal(id.env, "stage");
    assert_string_equal(tag("team"), "a,b= c");
    assert_string_equal(tag("bad%zz"), "1");
    assert_string_equal(id.git_commit, "f00");
    assert_string_equal(tag("service.name"), "(none)");
}

static void settings_win(void **state)
{
    (void)state;
    set("service.name=conf");
    set("service.env=e1");
    set("service.tags=team:conf,extra:1");
    MAKE("DD_SERVICE=pay\0DD_ENV=prod\0DD_VERSION=2\0DD_TAGS=team:a,more:2");
    assert_string_equal(id.service, "conf");
    assert_string_equal(id.env, "e1");
    assert_string_equal(id.version, "2");
    assert_string_equal(tag("team"), "conf");
    assert_string_equal(tag("extra"), "1");
    assert_string_equal(tag("more"), "2");
}

static void containers(void **state)
{
    (void)state;
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const struct {
        const char *cgroup, *id;
    } table[] = {
        {"0::/\n", ""},
        {"0::/user.slice/session-3.scope\n", ""},
        {"0::/system.slice/docker-" HEX64 ".scope\n", HEX64},
        {"12:cpu:/docker/" HEX64 "\n11:mem:/docker/other\n", HEX64},
        {"1:name=systemd:/kubepods/besteffort/pod3d274242-8ee0-11e9-a8a6-1e68d864ef1a/" HEX64 "\n",
         HEX64},
        {"0::/kubepods.slice/cri-containerd-" HEX64 ".scope/init\n", HEX64},
        {"1:x:/ecs/34dc0b5e626f2c5c4c5170e34b10e765-1234567890\n",
         "34dc0b5e626f2c5c4c5170e34b10e765-1234567890"},
        {"1:x:/a/34DC0B5E-626f-2c5c-4c51-70e34b10e765\n", "34dc0b5e-626f-2c5c-4c51-70e34b10e765"},
        {"0::/x" HEX64 "\n", ""},       /* part of a longer word */
        {"0::/f" HEX64 ".scope\n", ""}, /* 65 digits */
        {"", ""},
        {"\n\n//::\n", ""},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        cgroup = table[i].cgroup;
        make_block(NULL, 0);
        assert_string_equal(id.container_id, table[i].id);
    }
}

static void foreign_text_stays_inside(void **state)
{
    (void)state;
    char block[100000];
    memset(block, 'a', sizeof(block));
    memcpy(block, "DD_TAGS=", 8);
    for (size_t i = 8; i + 4 < sizeof(block); i += 7)
        memcpy(block + i, ",k:\x01", 4);
    for (int i = 0; i < 5000; i++) { /* different keys */
        char key[8];
        snprintf(key, sizeof(key), ",%05d:", i);
        memcpy(block + 8 + i * 8, key, 7);
    }
    block[sizeof(block) - 1] = '\0';
    make_block(block, sizeof(block));
    assert_int_equal(id.tag_count, CLP_TAGS_MAX);
    assert_true(id.tags_refused > 1000);
    MAKE("DD_SERVICE=a\nb\x1b[2J\xff");
    assert_string_equal(id.service, "a_b_[2J\xef\xbf\xbd");
}

static void patterns(void **state)
{
    (void)state;
    char own_user[32];
    process.uid = getuid();
    strcpy(process.comm, "worker");
    strcpy(process.info.entry_assembly, "Shop.Api");
    snprintf(own_user, sizeof(own_user), "user:%u", getuid());
    const struct {
        const char *pattern;
        bool matches;
    } table[] = {
        {"*", true},
        {"Shop*", true},
        {"shop.service", true},
        {"work?r", true},
        {"*dotnet shop.dll", true},
        {"other", false},
        {"service:shop.*", true},
        {"service:worker", false},
        {"command:worker", true},
        {"command:*shop.dll", true},
        {"command:shop.service", false},
        {own_user, true},
        {"user:no-such-user", false},
        {"user:999999", false},
        {"", false},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++) {
        struct clp_list l = {0};
        assert_int_equal(clp_list_add(&l, table[i].pattern, strlen(table[i].pattern)), 0);
        const char *found = clp_match_any(&l, &process, "shop.service");
        if ((found != NULL) != table[i].matches)
            fail_msg("%s", table[i].pattern);
        clp_list_done(&l);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_the_process_shows),    T(datadog_variables), T(tags_by_blanks),
        T(opentelemetry_variables),   T(settings_win),      T(containers),
        T(foreign_text_stays_inside), T(patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
