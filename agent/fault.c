#include "agent/fault.h"

#include <stdarg.h>
#include <stdio.h>

int clp_fault_set(struct clp_fault *f, int error, const char *fmt, ...)
{
    va_list args;
    f->error = error;
    va_start(args, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, args);
    va_end(args);
    return error;
}
