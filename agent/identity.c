#include "agent/identity.h"

#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/core/text.h"
#include "base/file.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ENVIRON_MAX_BYTES (4u << 20)
#define CGROUP_MAX_BYTES (64u << 10)

/* ---- texts --------------------------------------------------------------------------------- */

static void set_text(char *to, size_t cap, const char *from, size_t len)
{
    struct clp_text t = clp_text_in(to, cap);
    clp_text_utf8_clean(&t, from, len);
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '_';
}

static void set_if_empty(char *to, size_t cap, const char *from, size_t len)
{
    if (!*to && len > 0)
        set_text(to, cap, from, len);
}

static void set_from_variable(const struct clp_identity_source *s, const char *name, char *to,
                              size_t cap)
{
    size_t len;
    const char *value =
        s->environment ? clp_proctext_env(s->environment, s->environment_len, name, &len) : NULL;
    if (value)
        set_if_empty(to, cap, value, len);
}

/* ---- tags ---------------------------------------------------------------------------------- */

/* The key as every intake takes it. */
static void set_key(char to[CLP_TAG_KEY_BYTES], const char *from, size_t len)
{
    set_text(to, CLP_TAG_KEY_BYTES, from, len);
    for (char *c = to; *c; c++)
        if (*c == ':' || *c == ',' || isspace((unsigned char)*c))
            *c = '_';
}

static const struct clp_tag *find_tag(const struct clp_identity *id, const char *key)
{
    for (size_t i = 0; i < id->tag_count; i++)
        if (strcmp(id->tags[i].key, key) == 0)
            return &id->tags[i];
    return NULL;
}

/* A key that means a field of its own, in any of its spellings. */
static bool set_field(struct clp_identity *id, const char *key, const char *value, size_t len)
{
    const struct {
        const char *key;
        char *to;
        size_t cap;
    } fields[] = {
        {"service", id->service, sizeof(id->service)},
        {"service.name", id->service, sizeof(id->service)},
        {"env", id->env, sizeof(id->env)},
        {"deployment.environment.name", id->env, sizeof(id->env)},
        {"deployment.environment", id->env, sizeof(id->env)},
        {"version", id->version, sizeof(id->version)},
        {"service.version", id->version, sizeof(id->version)},
        {"host", id->host, sizeof(id->host)},
        {"host.name", id->host, sizeof(id->host)},
        {"git.repository_url", id->git_repository, sizeof(id->git_repository)},
        {"vcs.repository.url.full", id->git_repository, sizeof(id->git_repository)},
        {"git.commit.sha", id->git_commit, sizeof(id->git_commit)},
        {"vcs.ref.head.revision", id->git_commit, sizeof(id->git_commit)},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].key, key) == 0) {
            set_if_empty(fields[i].to, fields[i].cap, value, len);
            return true;
        }
    return false;
}

static void add_tag(struct clp_identity *id, const char *key, size_t key_len, const char *value,
                    size_t len)
{
    char clean[CLP_TAG_KEY_BYTES];
    set_key(clean, key, key_len);
    if (!*clean || len == 0 || set_field(id, clean, value, len) || find_tag(id, clean))
        return;
    if (id->tag_count == CLP_TAGS_MAX) {
        id->tags_refused++;
        return;
    }
    struct clp_tag *t = &id->tags[id->tag_count++];
    memcpy(t->key, clean, sizeof(clean));
    set_text(t->value, sizeof(t->value), value, len);
}

/* "key:value" items between any of `separators`; `joint` stands between key and value. */
static void add_list(struct clp_identity *id, const char *text, size_t len, const char *separators,
                     char joint)
{
    const char *end = text + len;
    while (text < end) {
        const char *stop = text;
        while (stop < end && !strchr(separators, *stop))
            stop++;
        while (text < stop && isspace((unsigned char)*text))
            text++;
        const char *at = memchr(text, joint, (size_t)(stop - text));
        if (at)
            add_tag(id, text, (size_t)(at - text), at + 1, (size_t)(stop - at - 1));
        text = stop + 1;
    }
}

static int hex_value(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                        : -1;
}

/* OTEL_RESOURCE_ATTRIBUTES writes ',' '=' and ' ' as %XX. Decodes item by item, so that a decoded
 * comma separates nothing. */
static void add_attributes(struct clp_identity *id, const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        char item[CLP_TAG_KEY_BYTES + CLP_TAG_VALUE_BYTES];
        size_t n = 0;
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        for (; text < stop && n < sizeof(item); text++) {
            bool escaped = *text == '%' && stop - text > 2 && hex_value(text[1]) >= 0 &&
                           hex_value(text[2]) >= 0;
            item[n++] = escaped ? (char)(hex_value(text[1]) << 4 | hex_value(text[2])) : *text;
            text += escaped ? 2 : 0;
        }
        add_list(id, item, n, "", '=');
        text = stop + 1;
    }
}

/* ---- container ----------------------------------------------------------------------------- */

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (hex_value(s[i]) < 0)
            return false;
    return true;
}

static bool is_uuid(const char *s, size_t n)
{
    if (n != 36)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : hex_value(s[i]) < 0)
            return false;
    }
    return true;
}

/* ECS on Fargate: 32 hexadecimal digits, '-', a decimal number. */
static bool is_task(const char *s, size_t n)
{
    if (n < 34 || !is_hex(s, 32) || s[32] != '-')
        return false;
    for (size_t i = 33; i < n; i++)
        if (!isdigit((unsigned char)s[i]))
            return false;
    return true;
}

/* One element of a cgroup's path: "docker-<64 hex>.scope", "cri-containerd-<64 hex>", "<uuid>". */
static bool element_id(const char *s, size_t n, char *ret, size_t cap)
{
    static const char scope[] = ".scope";
    size_t ending = sizeof(scope) - 1;
    if (n > ending && memcmp(s + n - ending, scope, ending) == 0)
        n -= ending;
    size_t id = n >= 64 && is_hex(s + n - 64, 64)    ? 64
                : n >= 36 && is_uuid(s + n - 36, 36) ? 36
                : is_task(s, n)                      ? n
                                                     : 0;
    if (id == 0 || id >= cap || (id != n && s[n - id - 1] != '-'))
        return false;
    set_text(ret, cap, s + n - id, id);
    for (char *c = ret; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return true;
}

/* The last element of a line that is an id; the first line that has one. */
static void find_container(const char *cgroup, char *ret, size_t cap)
{
    for (const char *line = cgroup; *line;) {
        size_t len = strcspn(line, "\n");
        for (size_t end = len; end > 0;) {
            size_t start = end;
            while (start > 0 && line[start - 1] != '/' && line[start - 1] != ':')
                start--;
            if (element_id(line + start, end - start, ret, cap))
                return;
            end = start > 0 ? start - 1 : 0;
        }
        line += len + (line[len] == '\n');
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

static void set_runtime_id(const uint8_t *c, char ret[37])
{
    /* A GUID's first three fields are little-endian. */
    snprintf(ret, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", c[3],
             c[2], c[1], c[0], c[5], c[4], c[7], c[6], c[8], c[9], c[10], c[11], c[12], c[13],
             c[14], c[15]);
}

/* The program's own file in a command line: behind the runtime's host when that started it. */
static const char *command_name(const struct clp_dotnet *p, char *buf, size_t cap)
{
    const char *line = p->info.command_line;
    size_t n = strcspn(line, " ");
    const char *slash = memrchr(line, '/', n);
    const char *name = slash ? slash + 1 : line;
    snprintf(buf, cap, "%.*s", (int)(line + n - name), name);
    return *buf ? buf : p->comm;
}

static void set_own_service(const struct clp_dotnet *p, char ret[CLP_SERVICE_BYTES])
{
    char command[128];
    const char *name = *p->info.entry_assembly ? p->info.entry_assembly
                                               : command_name(p, command, sizeof(command));
    set_if_empty(ret, CLP_SERVICE_BYTES, name, strlen(name));
}

void clp_identity_service(const struct clp_dotnet *p, const char *configured,
                          char ret[CLP_SERVICE_BYTES])
{
    const char *name = strcmp(configured, "auto") == 0 ? p->service : configured;
    *ret = '\0';
    set_if_empty(ret, CLP_SERVICE_BYTES, name, strlen(name));
    set_own_service(p, ret);
}

static void take_configuration(const struct clp_config *c, struct clp_identity *id)
{
    if (strcmp(c->service_name, "auto") != 0)
        set_text(id->service, sizeof(id->service), c->service_name, strlen(c->service_name));
    set_text(id->env, sizeof(id->env), c->service_env, strlen(c->service_env));
    set_text(id->version, sizeof(id->version), c->service_version, strlen(c->service_version));
    for (size_t i = 0; i < c->service_tags.count; i++)
        add_list(id, c->service_tags.items[i], strlen(c->service_tags.items[i]), "", ':');
}

static void take_environment(const struct clp_identity_source *s, struct clp_identity *id)
{
    const char *tags, *attributes;
    size_t len;
    if (!s->environment)
        return;
    set_from_variable(s, "DD_SERVICE", id->service, sizeof(id->service));
    set_from_variable(s, "OTEL_SERVICE_NAME", id->service, sizeof(id->service));
    set_from_variable(s, "DD_ENV", id->env, sizeof(id->env));
    set_from_variable(s, "DD_VERSION", id->version, sizeof(id->version));
    set_from_variable(s, "DD_GIT_REPOSITORY_URL", id->git_repository, sizeof(id->git_repository));
    set_from_variable(s, "DD_GIT_COMMIT_SHA", id->git_commit, sizeof(id->git_commit));
    tags = clp_proctext_env(s->environment, s->environment_len, "DD_TAGS", &len);
    if (tags) /* commas, or blanks where there is no comma */
        add_list(id, tags, len, memchr(tags, ',', len) ? "," : " ", ':');
    attributes =
        clp_proctext_env(s->environment, s->environment_len, "OTEL_RESOURCE_ATTRIBUTES", &len);
    if (attributes)
        add_attributes(id, attributes, len);
}

/* https://user:token@host/path: nobody else's to see. */
static void hide_credentials(char *url)
{
    char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    char *at = memchr(host, '@', strcspn(host, "/"));
    if (at && host != url)
        memmove(host, at + 1, strlen(at + 1) + 1);
}

void clp_identity_make(const struct clp_identity_source *s, struct clp_identity *ret)
{
    *ret = (struct clp_identity){.service = ""};
    take_configuration(s->config, ret);
    take_environment(s, ret);
    set_own_service(s->process, ret->service);
    set_if_empty(ret->host, sizeof(ret->host), s->host, strlen(s->host));
    set_runtime_id(s->process->info.cookie, ret->runtime_id);
    if (s->cgroup)
        find_container(s->cgroup, ret->container_id, sizeof(ret->container_id));
    hide_credentials(ret->git_repository);
    ret->ns_pid = s->process->ns_pid;
}

/* By its number a node's agent finds the container of one that has no id in its path. In the host's
 * own namespace it would name the whole machine. */
static uint64_t cgroup_inode(int32_t pid)
{
    static const char *const dirs[] = {"sys/fs/cgroup/memory", "sys/fs/cgroup"}; /* v1, v2 */
    const ino_t host_namespace = 0xeffffffb; /* PROC_CGROUP_INIT_INO of the kernel */
    char path[96];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/cgroup", pid);
    if (stat(path, &st) < 0 || st.st_ino == host_namespace)
        return 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(dirs); i++) {
        (void)snprintf(path, sizeof(path), "/proc/%d/root/%s", pid, dirs[i]);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            return st.st_ino;
    }
    return 0;
}

void clp_identity_read(const struct clp_dotnet *process, const struct clp_config *config,
                       struct clp_identity *ret)
{
    char host[HOST_NAME_MAX + 1] = "";
    struct clp_identity_source s = {.process = process, .config = config, .host = host};
    CLP_CLEANUP(clp_cleanup_free)
    char *environment =
        clp_file_read_proc(process->pid, "environ", ENVIRON_MAX_BYTES, &s.environment_len);
    CLP_CLEANUP(clp_cleanup_free)
    char *cgroup = clp_file_read_proc(process->pid, "cgroup", CGROUP_MAX_BYTES, NULL);
    (void)gethostname(host, sizeof(host) - 1);
    s.environment = environment;
    s.cgroup = cgroup;
    clp_identity_make(&s, ret);
    ret->cgroup_inode = cgroup_inode(process->pid);
}
