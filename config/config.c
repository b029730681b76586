#include "config/config.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "config/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const struct clp_config_key keys[] = {
#define CLP_KEY(section_, key_, kind_, initial_, low_, high_, text_)                               \
    {.section = #section_,                                                                         \
     .key = #key_,                                                                                 \
     .initial = initial_,                                                                          \
     .text = text_,                                                                                \
     .kind = CLP_CONFIG_##kind_,                                                                   \
     .offset = offsetof(struct clp_config, section_##_##key_),                                     \
     .low = (low_),                                                                                \
     .high = (high_)},
#include "config/options.def"
};

size_t clp_config_key_count(void)
{
    return CLP_ARRAY_LEN(keys);
}

const struct clp_config_key *clp_config_key_at(size_t i)
{
    return &keys[i];
}

static const struct clp_config_upload_key upload_keys[] = {
#define CLP_UPLOAD_KEY(field, kind_, kinds_, text_)                                                \
    {.name = #field,                                                                               \
     .kinds = kinds_,                                                                              \
     .text = text_,                                                                                \
     .kind = CLP_CONFIG_UPLOAD_##kind_,                                                            \
     .offset = offsetof(struct clp_config_upload, field)},
#include "config/uploads.def"
};

size_t clp_config_upload_key_count(void)
{
    return CLP_ARRAY_LEN(upload_keys);
}

const struct clp_config_upload_key *clp_config_upload_key_at(size_t i)
{
    return &upload_keys[i];
}

static CLP_PRINTF(2, 3) int refuse(struct clp_config_error *e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof(e->text), fmt, args);
    va_end(args);
    return -EINVAL;
}

/* ---- one setter a kind --------------------------------------------------------------------- */

#define TEXT_MAX_BYTES 4000u

static int set_text(char **to, const struct clp_config_key *k, const char *value,
                    struct clp_config_error *e)
{
    if (strlen(value) > TEXT_MAX_BYTES)
        return refuse(e, "%s.%s is longer than %u bytes", k->section, k->key, TEXT_MAX_BYTES);
    char *copy = strdup(value);
    if (!copy)
        return -ENOMEM;
    free(*to);
    *to = copy;
    return 0;
}

static int set_duration(uint64_t *to, const struct clp_config_key *k, const char *value,
                        struct clp_config_error *e)
{
    uint64_t ns;
    char low[32], high[32];
    if (clp_value_duration(value, 0, &ns) < 0)
        return refuse(e, "%s.%s is a duration with its unit, such as %s, not '%.40s'", k->section,
                      k->key, k->initial, value);
    clp_value_duration_text(k->low, low, sizeof(low));
    clp_value_duration_text(k->high, high, sizeof(high));
    if (ns < k->low || ns > k->high)
        return refuse(e, "%s.%s must be between %s and %s, not %.40s", k->section, k->key, low,
                      high, value);
    *to = ns;
    return 0;
}

static int set_percent(uint32_t *to, const struct clp_config_key *k, const char *value,
                       struct clp_config_error *e)
{
    uint32_t ppm;
    if (clp_value_percent(value, &ppm) < 0)
        return refuse(e, "%s.%s is a percentage, such as %s, not '%.40s'", k->section, k->key,
                      k->initial, value);
    if (ppm < k->low || ppm > k->high)
        return refuse(e, "%s.%s must be between %g%% and %g%%, not %.40s", k->section, k->key,
                      (double)k->low / 10000, (double)k->high / 10000, value);
    *to = ppm;
    return 0;
}

static int set_size(uint64_t *to, const struct clp_config_key *k, const char *value,
                    struct clp_config_error *e)
{
    uint64_t bytes;
    if (clp_value_size(value, &bytes) < 0)
        return refuse(e, "%s.%s is a size with its unit, such as %s, not '%.40s'", k->section,
                      k->key, k->initial, value);
    if (bytes < k->low || bytes > k->high)
        return refuse(e, "%s.%s must be between %llu and %llu bytes, not %.40s", k->section, k->key,
                      (unsigned long long)k->low, (unsigned long long)k->high, value);
    *to = bytes;
    return 0;
}

static int set_list(struct clp_list *to, const struct clp_config_key *k, const char *value,
                    struct clp_config_error *e)
{
    struct clp_list l = {0};
    int r = clp_list_add_split(&l, value);
    if (r == -ENOSPC)
        r = refuse(e, "%s.%s holds more than %u texts", k->section, k->key, CLP_LIST_MAX);
    if (r < 0) {
        clp_list_done(&l);
        return r;
    }
    clp_list_done(to);
    *to = l;
    return 0;
}

static int set_tags(struct clp_list *to, const struct clp_config_key *k, const char *value,
                    struct clp_config_error *e)
{
    struct clp_list l = {0};
    int r = set_list(&l, k, value, e);
    for (size_t i = 0; r == 0 && i < l.count; i++) {
        const char *colon = strchr(l.items[i], ':');
        if (!colon || colon == l.items[i])
            r = refuse(e, "'%.60s' is no tag; write key: value", l.items[i]);
    }
    if (r < 0) {
        clp_list_done(&l);
        return r;
    }
    clp_list_done(to);
    *to = l;
    return 0;
}

static int set_switch(bool *to, const struct clp_config_key *k, const char *value,
                      struct clp_config_error *e)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return refuse(e, "%s.%s is true or false, not '%.40s'", k->section, k->key, value);
    *to = value[0] == 't';
    return 0;
}

static int set_engine(enum clp_config_engine *to, const char *value, struct clp_config_error *e)
{
    static const char *const names[] = {"auto", "library", "eventpipe"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++) {
        if (strcmp(value, names[i]) != 0)
            continue;
        *to = (enum clp_config_engine)i;
        return 0;
    }
    return refuse(e, "'%.40s' is no engine; they are auto, library and eventpipe", value);
}

static int set_spans(enum clp_config_spans *to, const char *value, struct clp_config_error *e)
{
    static const char *const names[] = {"full", "root", "off"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++) {
        if (strcmp(value, names[i]) != 0)
            continue;
        *to = (enum clp_config_spans)i;
        return 0;
    }
    return refuse(e, "'%.40s' is no choice of span labels; they are full, root and off", value);
}

static int set_level(enum clp_log_level *to, const char *value, struct clp_config_error *e)
{
    if (clp_log_parse_level(value, to) < 0)
        return refuse(e, "'%.40s' is no log level; they are error, warning, info and debug", value);
    return 0;
}

static int set_format(enum clp_config_log_format *to, const char *value, struct clp_config_error *e)
{
    if (strcmp(value, "text") != 0 && strcmp(value, "json") != 0)
        return refuse(e, "'%.40s' is no log format; they are text and json", value);
    *to = value[0] == 'j' ? CLP_CONFIG_LOG_JSON : CLP_CONFIG_LOG_TEXT;
    return 0;
}

int clp_config_set(struct clp_config *c, const struct clp_config_key *k, const char *value,
                   struct clp_config_error *e)
{
    void *to = (char *)c + k->offset;
    switch (k->kind) {
    case CLP_CONFIG_TEXT:
        return set_text(to, k, value, e);
    case CLP_CONFIG_DURATION:
        return set_duration(to, k, value, e);
    case CLP_CONFIG_PERCENT:
        return set_percent(to, k, value, e);
    case CLP_CONFIG_SIZE:
        return set_size(to, k, value, e);
    case CLP_CONFIG_LIST:
        return set_list(to, k, value, e);
    case CLP_CONFIG_TAGS:
        return set_tags(to, k, value, e);
    case CLP_CONFIG_TYPES:
        return clp_value_types(value, to, e->text, sizeof(e->text));
    case CLP_CONFIG_SWITCH:
        return set_switch(to, k, value, e);
    case CLP_CONFIG_SPANS:
        return set_spans(to, value, e);
    case CLP_CONFIG_ENGINE:
        return set_engine(to, value, e);
    case CLP_CONFIG_LEVEL:
        return set_level(to, value, e);
    case CLP_CONFIG_FORMAT:
        return set_format(to, value, e);
    }
    return -EINVAL;
}

/* ---- life ---------------------------------------------------------------------------------- */

int clp_config_init(struct clp_config *c)
{
    struct clp_config_error error;
    *c = (struct clp_config){0};
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++) {
        int r = clp_config_set(c, &keys[i], keys[i].initial, &error);
        if (r < 0)
            return r;
    }
    return 0;
}

void clp_config_done(struct clp_config *c)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++) {
        void *at = (char *)c + keys[i].offset;
        if (keys[i].kind == CLP_CONFIG_TEXT)
            free(*(char **)at);
        else if (keys[i].kind == CLP_CONFIG_LIST || keys[i].kind == CLP_CONFIG_TAGS)
            clp_list_done(at);
    }
    clp_config_uploads_done(c);
    *c = (struct clp_config){0};
}

int clp_config_read_file(struct clp_config *c, const char *path, struct clp_config_error *e)
{
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    size_t len;
    int r = clp_file_read(path, CLP_CONFIG_FILE_MAX_BYTES, &text, &len);
    if (r < 0) {
        if (r == -EFBIG)
            (void)refuse(e, "the configuration %.300s is larger than %u KiB", path,
                         CLP_CONFIG_FILE_MAX_BYTES >> 10);
        else
            (void)refuse(e, "cannot read the configuration %.300s: %s", path,
                         r == -EINVAL ? "it is no regular file" : strerror(-r));
        return r;
    }
    return clp_config_read_text(c, path, text, len, e);
}

/* ---- environment --------------------------------------------------------------------------- */

static const char *variable(char *const *environment, const char *name)
{
    size_t len = strlen(name);
    for (; *environment; environment++)
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return *environment + len + 1;
    return NULL;
}

static void variable_name(const struct clp_config_key *k, char *buf, size_t cap)
{
    snprintf(buf, cap, "CLRPULSE_%s_%s", k->section, k->key);
    for (char *p = buf; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static void name_variable(struct clp_config_error *e, const char *name)
{
    struct clp_config_error said = *e;
    (void)refuse(e, "%s in the environment: %.400s", name, said.text);
}

int clp_config_read_environment(struct clp_config *c, char *const *environment,
                                struct clp_config_error *e)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++) {
        char name[80];
        variable_name(&keys[i], name, sizeof(name));
        const char *value = variable(environment, name);
        int r = value ? clp_config_set(c, &keys[i], value, e) : 0;
        if (r == -EINVAL)
            name_variable(e, name);
        if (r < 0)
            return r;
    }
    const char *upload = variable(environment, "CLRPULSE_UPLOAD");
    return upload ? clp_config_read_uploads(c, "CLRPULSE_UPLOAD", upload, strlen(upload), e) : 0;
}

#define VARIABLE_BYTES 80
#define PREFIX "CLRPULSE_"

/* Those that are no settings: see the manual, ENVIRONMENT. */
static const char *const other_variables[] = {"CLRPULSE_UPLOAD", "CLRPULSE_LIBRARY",
                                              "CLRPULSE_ATTACH", "CLRPULSE_DISABLE"};

struct variables {
    char name[CLP_ARRAY_LEN(keys) + CLP_ARRAY_LEN(other_variables)][VARIABLE_BYTES];
};

static void list_variables(struct variables *v)
{
    size_t n = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++)
        variable_name(&keys[i], v->name[n++], VARIABLE_BYTES);
    for (size_t i = 0; i < CLP_ARRAY_LEN(other_variables); i++)
        snprintf(v->name[n++], VARIABLE_BYTES, "%s", other_variables[i]);
}

/* Without the prefix, which all share: else everything is near. */
static const char *variable_at(const void *context, size_t i)
{
    return ((const struct variables *)context)->name[i] + strlen(PREFIX);
}

/* The variables of a service's address that Kubernetes puts into every container. */
static bool is_service_link(const char *rest)
{
    static const char *const starts[] = {"SERVICE_PORT_", "PORT_"};
    static const char *const wholes[] = {"SERVICE_HOST", "SERVICE_PORT", "PORT"};
    for (size_t i = 0; i < CLP_ARRAY_LEN(starts); i++)
        if (strncmp(rest, starts[i], strlen(starts[i])) == 0)
            return true;
    for (size_t i = 0; i < CLP_ARRAY_LEN(wholes); i++)
        if (strcmp(rest, wholes[i]) == 0)
            return true;
    return false;
}

static bool is_known_variable(const struct variables *v, const char *rest)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(v->name); i++)
        if (strcmp(variable_at(v, i), rest) == 0)
            return true;
    return false;
}

void clp_config_doubt_environment(char *const *environment,
                                  void (*say)(void *context, const char *sentence), void *context)
{
    struct variables known;
    struct clp_config_error e;
    list_variables(&known);
    for (; *environment; environment++) {
        char rest[VARIABLE_BYTES];
        size_t len = strcspn(*environment, "=");
        if (strncmp(*environment, PREFIX, strlen(PREFIX)) != 0)
            continue;
        len -= strlen(PREFIX);
        snprintf(rest, sizeof(rest), "%.*s", (int)CLP_MIN(len, sizeof(rest) - 1),
                 *environment + strlen(PREFIX));
        if (is_known_variable(&known, rest) || is_service_link(rest))
            continue;
        const char *near = clp_value_nearest(rest, CLP_ARRAY_LEN(known.name), variable_at, &known);
        (void)refuse(&e, PREFIX "%s in the environment is no setting and does nothing; %s%s%s",
                     rest, near ? "did you mean " PREFIX : "", near ? near : "",
                     near ? "?" : "`clrpulse agent --help` lists the settings");
        say(context, e.text);
    }
}

/* ---- command line -------------------------------------------------------------------------- */

#define FULL_NAME_BYTES 80

static const char *full_name(const struct clp_config_key *k, char buf[FULL_NAME_BYTES])
{
    snprintf(buf, FULL_NAME_BYTES, "%s.%s", k->section, k->key);
    return buf;
}

/* For clp_value_nearest, which holds a name no longer than until the next one, but for the best. */
struct full_names {
    char buf[CLP_ARRAY_LEN(keys)][FULL_NAME_BYTES];
};

static const char *full_name_at(const void *context, size_t i)
{
    return ((const struct full_names *)context)->buf[i];
}

static int refuse_key(const char *name, struct clp_config_error *e)
{
    struct full_names all;
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++)
        (void)full_name(&keys[i], all.buf[i]);
    const char *near = clp_value_nearest(name, CLP_ARRAY_LEN(keys), full_name_at, &all);
    if (near)
        return refuse(e, "--set: %.60s is no setting; did you mean %s?", name, near);
    return refuse(e, "--set: %.60s is no setting; `clrpulse agent --help` lists them", name);
}

int clp_config_assign(struct clp_config *c, const char *assignment, struct clp_config_error *e)
{
    char name[FULL_NAME_BYTES], known[FULL_NAME_BYTES];
    const char *value = strchr(assignment, '=');
    if (!value)
        return refuse(e, "--set: '%.60s' has no value; write section.key=value", assignment);
    snprintf(name, sizeof(name), "%.*s", (int)CLP_MIN(value - assignment, 79), assignment);
    if (strcmp(name, "upload") == 0)
        return clp_config_read_uploads(c, "--set upload", value + 1, strlen(value + 1), e);
    for (size_t i = 0; i < CLP_ARRAY_LEN(keys); i++) {
        if (strcmp(full_name(&keys[i], known), name) != 0)
            continue;
        struct clp_config_error why = {""};
        int r = clp_config_set(c, &keys[i], value + 1, &why);
        return r == -EINVAL ? refuse(e, "--set %s: %.400s", name, why.text) : r;
    }
    return refuse_key(name, e);
}

static const char *prefix_at(const void *context, size_t i)
{
    (void)context;
    return (const char *const[]){"user", "service", "command"}[i];
}

/* A word in front of a colon that is nearly one of ours; any other may belong to a command line. */
static int check_patterns(const char *name, const struct clp_list *l, struct clp_config_error *e)
{
    for (size_t i = 0; i < l->count; i++) {
        const char *pattern = l->items[i];
        char word[16];
        size_t len = strspn(pattern, "abcdefghijklmnopqrstuvwxyz");
        if (pattern[len] != ':' || len == 0 || len >= sizeof(word))
            continue;
        memcpy(word, pattern, len);
        word[len] = '\0';
        const char *near = clp_value_nearest(word, 3, prefix_at, NULL);
        if (near && strcmp(near, word) != 0)
            return refuse(e, "targets.%s: there is no %s:, did you mean %s:%.60s?", name, word,
                          near, pattern + len + 1);
        if (near && !pattern[len + 1])
            return refuse(e, "targets.%s: %s: matches nothing without a name behind it", name,
                          word);
    }
    return 0;
}

int clp_config_check(const struct clp_config *c, struct clp_config_error *e)
{
    if (c->profile_cpu_interval * 10 > c->profile_period)
        return refuse(e, "profile.cpu_interval is too long for profile.period: a period must hold "
                         "at least ten intervals");
    if (c->state_dir[0] != '/')
        return refuse(e, "state.dir must be an absolute path, not '%.100s'", c->state_dir);
    if (c->spool_dir[0] != '/')
        return refuse(e, "spool.dir must be an absolute path, not '%.100s'", c->spool_dir);
    if (*c->targets_diagnostic_port && c->targets_diagnostic_port[0] != '/')
        return refuse(e, "targets.diagnostic_port must be an absolute path, not '%.100s'",
                      c->targets_diagnostic_port);
    if (*c->health_listen && clp_value_listen(c->health_listen, &(struct sockaddr_storage){0}) < 0)
        return refuse(e,
                      "health.listen is a port or a numeric address and a port, such as 9464 or "
                      "0.0.0.0:9464, not '%.60s'",
                      c->health_listen);
    if (c->targets_include.count == 0)
        return refuse(e,
                      "targets.include is empty, so nothing would be profiled; write [\"*\"] for "
                      "every .NET process");
    int r = check_patterns("include", &c->targets_include, e);
    return r < 0 ? r : check_patterns("exclude", &c->targets_exclude, e);
}
