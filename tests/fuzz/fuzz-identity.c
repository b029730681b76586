/* What the agent reads of a target's environment, control groups and mappings: all of it is the
 * target's own text. The first bytes are the environment, the rest behind "\n\n" are the others. */
#include "agent/check.h"
#include "agent/identity.h"

#include <stdlib.h>
#include <string.h>

static void expect_clean(const char *text, size_t cap)
{
    if (strnlen(text, cap) == cap)
        abort();
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            abort();
}

static void expect_sound(const struct clp_identity *id)
{
    expect_clean(id->service, sizeof(id->service));
    expect_clean(id->env, sizeof(id->env));
    expect_clean(id->version, sizeof(id->version));
    expect_clean(id->container_id, sizeof(id->container_id));
    expect_clean(id->git_repository, sizeof(id->git_repository));
    if (id->tag_count > CLP_TAGS_MAX)
        abort();
    for (size_t i = 0; i < id->tag_count; i++) {
        expect_clean(id->tags[i].key, sizeof(id->tags[i].key));
        expect_clean(id->tags[i].value, sizeof(id->tags[i].value));
        if (!*id->tags[i].key || strpbrk(id->tags[i].key, ":, "))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct clp_config config;
    static struct clp_identity id;
    struct clp_dotnet process = {.pid = 1, .comm = "app"};
    struct clp_check_process check = {.seccomp = 0};
    if (!config.service_name && clp_config_init(&config) < 0)
        return 0;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    const char *split = memmem(text, size, "\n\n", 2);
    const char *rest = split ? split + 2 : text + size;
    struct clp_identity_source s = {
        .process = &process,
        .config = &config,
        .host = "host",
        .environment = text,
        .environment_len = split ? (size_t)(split - text) : size,
        .cgroup = rest,
    };
    clp_identity_make(&s, &id);
    expect_sound(&id);
    clp_check_environment(text, s.environment_len, &check);
    clp_check_maps(rest, strlen(rest), &check);
    if (strnlen(check.suspending_port, sizeof(check.suspending_port)) ==
        sizeof(check.suspending_port))
        abort();
    free(text);
    return 0;
}
