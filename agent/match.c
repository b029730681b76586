#include "agent/match.h"

#include "base/core/core.h"

#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static bool matches(const char *pattern, const char *name)
{
    return *name && fnmatch(pattern, name, 0) == 0;
}

static bool matches_user(const char *pattern, uint32_t uid)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", uid);
    if (matches(pattern, number))
        return true;
    const struct passwd *p = getpwuid(uid);
    return p && matches(pattern, p->pw_name);
}

static bool matches_command(const char *pattern, const struct clp_dotnet *p)
{
    return matches(pattern, p->comm) || matches(pattern, p->info.command_line) ||
           matches(pattern, p->info.entry_assembly);
}

static const char *behind(const char *pattern, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(pattern, prefix, len) == 0 ? pattern + len : NULL;
}

static bool matches_one(const char *pattern, const struct clp_dotnet *p, const char *service)
{
    const char *rest;
    if ((rest = behind(pattern, "user:")))
        return matches_user(rest, p->uid);
    if ((rest = behind(pattern, "service:")))
        return matches(rest, service);
    if ((rest = behind(pattern, "command:")))
        return matches_command(rest, p);
    return strcmp(pattern, "*") == 0 || matches(pattern, service) || matches_command(pattern, p);
}

const char *clp_match_any(const struct clp_list *patterns, const struct clp_dotnet *p,
                          const char *service)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (matches_one(patterns->items[i], p, service))
            return patterns->items[i];
    return NULL;
}
