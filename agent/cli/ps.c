/* clrpulse ps: the .NET processes and how each can be profiled. */
#include "agent/cli/cli.h"

#include "agent/check.h"
#include "agent/engine.h"
#include "agent/identity.h"
#include "agent/status.h"
#include "base/cleanup.h"
#include "base/strbuf.h"
#include "base/vec.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OUTPUT_MAX_BYTES (16u << 20)
#define PROCESSES_MAX 65536u

struct list {
    struct clp_dotnet *items;
    uint32_t count, cap;
    bool out_of_memory;
};

/* Keeps what is .NET as far as can be told; the ports are asked afterwards, all at once. */
static int add_process(void *context, int32_t pid)
{
    struct list *l = context;
    struct clp_dotnet d;
    if (clp_dotnet_open(&clp_discover_system, pid, &d) < 0)
        return 0;
    clp_dotnet_look_closer(&clp_discover_system, &d);
    bool keep = d.state != CLP_DOTNET_NO && d.state != CLP_DOTNET_HIDDEN;
    if (keep && CLP_VEC_GROW(l->items, l->cap, l->count + 1, PROCESSES_MAX) < 0) {
        l->out_of_memory = true;
        keep = false;
    }
    if (keep)
        l->items[l->count++] = d;
    else
        clp_dotnet_done(&d);
    return 0;
}

static uint64_t uptime_seconds(const struct clp_dotnet *d)
{
    struct timespec now;
    long ticks = sysconf(_SC_CLK_TCK);
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t start = d->start_ticks / (uint64_t)(ticks > 0 ? ticks : 100);
    return (uint64_t)now.tv_sec > start ? (uint64_t)now.tv_sec - start : 0;
}

static void user_text(uint32_t uid, char *buf, size_t cap)
{
    const struct passwd *p = getpwuid(uid);
    if (p)
        snprintf(buf, cap, "%s", p->pw_name);
    else
        snprintf(buf, cap, "%u", uid);
}

/* One word for the table, the sentence for JSON. */
static const char *how(const struct clp_dotnet *d, char *why, size_t why_cap)
{
    clp_dotnet_explain(d, why, why_cap);
    switch (d->state) {
    case CLP_DOTNET_READY:
        if (clp_dotnet_unsupported(d, why, why_cap))
            return "unsupported";
        if (clp_check_waits(d, why, why_cap))
            return "waiting";
        return clp_engine_needs_events(d, why, why_cap) ? "eventpipe" : "library";
    case CLP_DOTNET_DENIED:
        return "denied";
    case CLP_DOTNET_SILENT:
        return d->run_state == 'T' || d->run_state == 't' ? "stopped" : "silent";
    case CLP_DOTNET_STALE:
    case CLP_DOTNET_NO_PORT:
        return "no-port";
    default:
        return "broken";
    }
}

static const char *command(const struct clp_dotnet *d)
{
    return *d->info.command_line ? d->info.command_line : d->comm;
}

static void print_table(const struct list *l)
{
    printf("%8s %-12s %-12s %8s %-11s %s\n", "PID", "USER", "RUNTIME", "UPTIME", "PROFILE",
           "COMMAND");
    for (uint32_t i = 0; i < l->count; i++) {
        const struct clp_dotnet *d = &l->items[i];
        char user[64], uptime[32], why[CLP_FAULT_BYTES];
        user_text(d->uid, user, sizeof(user));
        clp_status_duration(uptime_seconds(d), uptime, sizeof(uptime));
        printf("%8d %-12s %-12s %8s %-11s ", d->pid, user,
               *d->info.runtime_version ? d->info.runtime_version : "?", uptime,
               how(d, why, sizeof(why)));
        clp_print_foreign(stdout, command(d), SIZE_MAX);
        putchar('\n');
    }
}

static void json_text(struct clp_strbuf *b, const char *key, const char *value)
{
    clp_strbuf_printf(b, ",\"%s\":", key);
    clp_strbuf_json(b, value, strlen(value));
}

static void json_process(struct clp_strbuf *b, const struct clp_dotnet *d)
{
    char user[64], service[CLP_SERVICE_BYTES], why[CLP_FAULT_BYTES];
    user_text(d->uid, user, sizeof(user));
    clp_identity_service(d, "auto", service);
    clp_strbuf_printf(b, "{\"pid\":%d,\"ns_pid\":%d,\"uid\":%u", d->pid, d->ns_pid, d->uid);
    json_text(b, "user", user);
    json_text(b, "runtime", d->info.runtime_version);
    clp_strbuf_printf(b, ",\"uptime_seconds\":%llu", (unsigned long long)uptime_seconds(d));
    json_text(b, "profile", how(d, why, sizeof(why)));
    json_text(b, "why_not", why);
    json_text(b, "service", service);
    json_text(b, "command", command(d));
    clp_strbuf_char(b, '}');
}

static int print_json(const struct list *l)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf b;
    clp_strbuf_init(&b, OUTPUT_MAX_BYTES);
    clp_strbuf_char(&b, '[');
    for (uint32_t i = 0; i < l->count; i++) {
        clp_strbuf_str(&b, i ? ",\n " : "");
        json_process(&b, &l->items[i]);
    }
    clp_strbuf_str(&b, "]\n");
    int r = clp_strbuf_error(&b);
    if (r == 0)
        fputs(clp_strbuf_text(&b), stdout);
    return r;
}

static int print_list(const struct clp_cli *cli, const struct list *l)
{
    struct clp_fault f;
    if (!cli->json)
        print_table(l);
    else if (print_json(l) < 0) {
        (void)clp_fault_set(&f, -ENOMEM, "too many processes to list");
        return clp_exit_fault(&f);
    }
    if (clp_discover_hides(&clp_discover_system))
        fprintf(stderr, "clrpulse: /proc shows this user only its own processes (hidepid); run as "
                        "root to see all\n");
    return CLP_EXIT_DONE;
}

int clp_command_ps(const struct clp_cli *cli)
{
    struct list l = {0};
    struct clp_fault f;
    int r = clp_discover_pids(&clp_discover_system, add_process, &l);
    int code;
    if (r < 0 || l.out_of_memory) {
        (void)clp_fault_set(&f, r, "cannot read /proc: %s", strerror(r < 0 ? -r : ENOMEM));
        code = clp_exit_fault(&f);
    } else {
        clp_dotnet_ask(l.items, l.count, CLP_DISCOVER_ASK_NS);
        code = print_list(cli, &l);
    }
    for (uint32_t i = 0; i < l.count; i++)
        clp_dotnet_done(&l.items[i]);
    free(l.items);
    return code;
}
