#include "agent/eventpipe_spec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const levels[] = {
    "LogAlways", "Critical", "Error", "Warning", "Informational", "Verbose",
};

/* The end of what begins at `s`: the next `stop` outside double quotes. */
static char *end_of(char *s, char stop)
{
    bool quoted = false;
    for (; *s && (quoted || *s != stop); s++)
        if (*s == '"')
            quoted = !quoted;
    return s;
}

/* Cuts at the next `stop`; what comes behind it, or NULL. */
static char *cut(char *s, char stop)
{
    char *end = end_of(s, stop);
    if (!*end)
        return NULL;
    *end = '\0';
    return end + 1;
}

static int parse_keywords(const char *s, uint64_t *ret, struct clp_fault *f)
{
    const char *digits = strncasecmp(s, "0x", 2) == 0 ? s + 2 : s;
    size_t n = strlen(digits);
    if (!*s) {
        *ret = UINT64_MAX;
        return 0;
    }
    if (n == 0 || n > 16 || strspn(digits, "0123456789abcdefABCDEF") != n)
        return clp_fault_set(
            f, -EINVAL, "'%.40s' are no keywords; write them in hexadecimal, such as 0x8000", s);
    *ret = strtoull(digits, NULL, 16);
    return 0;
}

static int parse_level(const char *s, uint32_t *ret, struct clp_fault *f)
{
    if (!*s)
        return 0;
    for (uint32_t i = 0; i < CLP_ARRAY_LEN(levels); i++)
        if (strcasecmp(levels[i], s) == 0 || (s[0] == (char)('0' + i) && !s[1])) {
            *ret = i;
            return 0;
        }
    return clp_fault_set(f, -EINVAL,
                         "'%.40s' is no level; write 0 to 5 or LogAlways, Critical, Error, "
                         "Warning, Informational, Verbose",
                         s);
}

static int parse_provider(char *s, struct clp_ipc_provider *p, struct clp_fault *f)
{
    char *keywords = cut(s, ':');
    char *level = keywords ? cut(keywords, ':') : NULL;
    char *arguments = level ? cut(level, ':') : NULL;
    *p = (struct clp_ipc_provider){
        .name = s, .keywords = UINT64_MAX, .level = CLP_IPC_LEVEL_MAX, .arguments = arguments};
    if (!*s)
        return clp_fault_set(f, -EINVAL, "a provider without a name in the list of providers");
    int r = keywords ? parse_keywords(keywords, &p->keywords, f) : 0;
    if (r == 0 && level)
        r = parse_level(level, &p->level, f);
    return r;
}

int clp_spec_parse(const char *list, struct clp_spec *ret, struct clp_fault *fault)
{
    size_t len = strlen(list);
    ret->count = 0;
    if (len >= sizeof(ret->text))
        return clp_fault_set(fault, -EINVAL, "the list of providers is longer than %u characters",
                             CLP_SPEC_BYTES - 1);
    memcpy(ret->text, list, len + 1);
    for (char *at = ret->text, *next; at; at = next) {
        next = cut(at, ',');
        if (ret->count == CLP_IPC_PROVIDERS_MAX)
            return clp_fault_set(fault, -EINVAL, "more than %u providers", CLP_IPC_PROVIDERS_MAX);
        int r = parse_provider(at, &ret->providers[ret->count++], fault);
        if (r < 0)
            return r;
    }
    return 0;
}
