#include "agent/limits.h"

#include "base/cleanup.h"
#include "base/core/proctext.h"
#include "base/file.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP_FILE_BYTES 4096u
#define WHOLE_TABLES 4u
#define LEAST_ROOM_BYTES (8ull << 20)
#define LEAST_BUDGET_PPM 100u

/* ---- one group ----------------------------------------------------------------------------- */

static char *read_in(const char *dir, const char *name)
{
    char path[PATH_MAX], *text = NULL;
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path) ||
        clp_file_read(path, GROUP_FILE_BYTES, &text, NULL) < 0)
        return NULL;
    return text;
}

static void tighten_cpu(struct clp_limits *l, double quota, double period)
{
    if (quota <= 0 || period <= 0 || quota / period > 1e6)
        return;
    uint32_t millicores = (uint32_t)(quota * 1000 / period + 0.5);
    l->millicores = CLP_MIN(l->millicores, CLP_MAX(millicores, 1u));
}

/* Version 1 writes "none" as a number near 2^63. */
static void tighten_memory(struct clp_limits *l, const char *text)
{
    char *end;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (end != text && bytes > 0 && bytes < 1ull << 60)
        l->memory_bytes = CLP_MIN(l->memory_bytes, (uint64_t)bytes);
}

/* "max 100000" or "20000 100000"; "max" or a number. */
static void look_v2(const char *dir, struct clp_limits *l)
{
    double quota, period;
    CLP_CLEANUP(clp_cleanup_free) char *cpu = read_in(dir, "cpu.max");
    CLP_CLEANUP(clp_cleanup_free) char *memory = read_in(dir, "memory.max");
    if (cpu && sscanf(cpu, "%lf %lf", &quota, &period) == 2)
        tighten_cpu(l, quota, period);
    if (memory)
        tighten_memory(l, memory);
}

static void look_v1(const char *dir, struct clp_limits *l)
{
    CLP_CLEANUP(clp_cleanup_free) char *quota = read_in(dir, "cpu.cfs_quota_us");
    CLP_CLEANUP(clp_cleanup_free) char *period = read_in(dir, "cpu.cfs_period_us");
    CLP_CLEANUP(clp_cleanup_free) char *memory = read_in(dir, "memory.limit_in_bytes");
    if (quota && period)
        tighten_cpu(l, strtod(quota, NULL), strtod(period, NULL));
    if (memory)
        tighten_memory(l, memory);
}

static bool is_shown(const char *mount, const char *group)
{
    char dir[PATH_MAX];
    int n = snprintf(dir, sizeof(dir), "%s%s", mount, group);
    return !strstr(group, "..") && n > 0 && (size_t)n < sizeof(dir) && access(dir, F_OK) == 0;
}

/* From the group up to the root of what is mounted. */
static void look_up(const char *mount, const char *group,
                    void (*look)(const char *dir, struct clp_limits *l), struct clp_limits *l)
{
    char dir[PATH_MAX];
    size_t root = strlen(mount);
    snprintf(dir, sizeof(dir), "%s%s", mount, is_shown(mount, group) ? group : "");
    while (strlen(dir) > root) {
        look(dir, l);
        char *slash = strrchr(dir, '/');
        *slash = '\0';
    }
    look(mount, l);
}

/* In a container the mount often shows our own group as its root, whatever it is called outside:
 * for ourselves that is the answer, for others it would be a wrong one. */
static bool can_tell(const char *mount, const char *group, const char *own)
{
    if (!own || strcmp(group, own) == 0)
        return true;
    return is_shown(mount, own) && is_shown(mount, group);
}

/* ---- all of them --------------------------------------------------------------------------- */

/* Our own group in the hierarchy "4:memory:", as /proc/self/cgroup has it, copied; NULL: not there.
 */
static const char *own_group(const char *text, const char *prefix, size_t len, char buf[PATH_MAX])
{
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, prefix, len) != 0)
            continue;
        snprintf(buf, PATH_MAX, "%.*s", (int)strcspn(at + len, "\n"), at + len);
        return buf;
    }
    return NULL;
}

/* "4:memory:/a/b", or "0::/a/b" for version 2: cgroups(7). `own`: /proc/self/cgroup, NULL for our
 * own lines. */
static void take_line(const char *groups, const char *own, char *line, struct clp_limits *l)
{
    char mount[PATH_MAX], buf[PATH_MAX];
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    if (!group || group[1] != '/')
        return;
    size_t len = (size_t)(group - list - 1);
    const char *ours = own ? own_group(own, line, (size_t)(group + 1 - line), buf) : NULL;
    if (len == 0) {
        if (can_tell(groups, group + 1, ours))
            look_up(groups, group + 1, look_v2, l);
        snprintf(mount, sizeof(mount), "%s/unified", groups); /* beside version 1 */
        if (can_tell(mount, group + 1, ours))
            look_up(mount, group + 1, look_v2, l);
    } else if (clp_proctext_list_has(list + 1, len, "cpu") ||
               clp_proctext_list_has(list + 1, len, "memory")) {
        snprintf(mount, sizeof(mount), "%s/%.*s", groups, (int)len, list + 1);
        if (can_tell(mount, group + 1, ours))
            look_up(mount, group + 1, look_v1, l);
    }
}

void clp_limits_read(const char *proc, const char *groups, int32_t pid, struct clp_limits *ret)
{
    char path[PATH_MAX], *rest;
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    CLP_CLEANUP(clp_cleanup_free) char *own = NULL;
    *ret = (struct clp_limits){CLP_LIMITS_NO_CPU, CLP_LIMITS_NO_MEMORY};
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    if (pid && clp_file_read(path, 65536, &own, NULL) < 0)
        own = NULL;
    if (pid)
        snprintf(path, sizeof(path), "%s/%d/cgroup", proc, pid);
    if (clp_file_read(path, 65536, &text, NULL) < 0)
        return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        take_line(groups, own, line, ret);
}

/* ---- what follows -------------------------------------------------------------------------- */

uint32_t clp_limits_budget_ppm(const struct clp_limits *l, uint32_t ppm)
{
    if (l->millicores >= 1000)
        return ppm;
    return CLP_MAX((uint32_t)((uint64_t)ppm * l->millicores / 1000), LEAST_BUDGET_PPM);
}

uint64_t clp_limits_cost_ns(const struct clp_limits *l, uint64_t ns)
{
    return l->millicores >= 1000 ? ns : ns * 1000 / CLP_MAX(l->millicores, 1u);
}

unsigned clp_limits_share(const struct clp_limits *l, size_t targets)
{
    uint64_t room = CLP_MIN(l->memory_bytes / 2, WHOLE_TABLES * CLP_LIMITS_TABLES_BYTES);
    room = CLP_MAX(room, LEAST_ROOM_BYTES);
    return (unsigned)CLP_MAX((targets * CLP_LIMITS_TABLES_BYTES + room - 1) / room, 1u);
}
