#include "agent/check.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"note", "warning", "error"};

const char *clp_check_level_name(enum clp_check_level level)
{
    return level_names[level];
}

/* ---- conditions of checks.def -------------------------------------------------------------- */

static bool older(const struct clp_check_machine *m, unsigned major, unsigned minor)
{
    return m->kernel_major < major || (m->kernel_major == major && m->kernel_minor < minor);
}

static bool has(const struct clp_check_machine *m, unsigned capability)
{
    return m->capabilities >> capability & 1;
}

static enum clp_dotnet_state state(const struct clp_check_process *p)
{
    return p->dotnet.state;
}

static const char *explain(const struct clp_check_process *p, char *buf)
{
    clp_dotnet_explain(&p->dotnet, buf, CLP_FAULT_BYTES);
    return buf;
}

static const char *unsupported(const struct clp_check_process *p, char *buf)
{
    (void)clp_dotnet_unsupported(&p->dotnet, buf, 256);
    return buf;
}

/* ---- judging ------------------------------------------------------------------------------- */

struct teller {
    clp_check_tell *tell;
    void *context;
};

static CLP_PRINTF(4, 5) void say(const struct teller *t, enum clp_check_rule rule,
                                 enum clp_check_level level, const char *fmt, ...)
{
    char text[CLP_FAULT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    t->tell(t->context, rule, level, text);
}

void clp_check_machine(const struct clp_check_machine *m, clp_check_tell *tell, void *context)
{
    const struct teller t = {tell, context};
#define CLP_MACHINE_CHECK(id, level, applies, ...)                                                 \
    if (applies)                                                                                   \
        say(&t, CLP_CHECK_MACHINE_##id, CLP_CHECK_##level, __VA_ARGS__);
#define CLP_PROCESS_CHECK(id, level, applies, ...)
#include "agent/checks.def"
#undef CLP_MACHINE_CHECK
#undef CLP_PROCESS_CHECK
}

void clp_check_process(const struct clp_check_process *p, clp_check_tell *tell, void *context)
{
    const struct teller t = {tell, context};
#define PID p->dotnet.pid
#define CLP_MACHINE_CHECK(id, level, applies, ...)
#define CLP_PROCESS_CHECK(id, level, applies, ...)                                                 \
    if (applies)                                                                                   \
        say(&t, CLP_CHECK_PROCESS_##id, CLP_CHECK_##level, __VA_ARGS__);
#include "agent/checks.def"
#undef CLP_MACHINE_CHECK
#undef CLP_PROCESS_CHECK
#undef PID
}
