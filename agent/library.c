#include "agent/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int own_directory(char *buf, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", buf, cap - 1);
    if (n <= 0)
        return -ENOENT;
    buf[n] = '\0';
    *strrchr(buf, '/') = '\0';
    return 0;
}

int clp_library_find(char **ret, struct clp_fault *fault)
{
    static const char *const places[] = {"libclrpulse.so", "../lib/clrpulse/libclrpulse.so"};
    char dir[3000] = "", path[4096];
    const char *given = getenv("CLRPULSE_LIBRARY");
    if (given && *given) {
        *ret = realpath(given, NULL);
        return *ret ? 0
                    : clp_fault_set(fault, -errno, "CLRPULSE_LIBRARY names %s: %s", given,
                                    strerror(errno));
    }
    if (own_directory(dir, sizeof(dir)) < 0)
        return clp_fault_set(fault, -ENOENT,
                             "cannot tell where clrpulse lies; set "
                             "CLRPULSE_LIBRARY to the path of libclrpulse.so");
    for (size_t i = 0; i < CLP_ARRAY_LEN(places); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, places[i]);
        *ret = realpath(path, NULL);
        if (*ret)
            return 0;
    }
    return clp_fault_set(fault, -ENOENT,
                         "libclrpulse.so lies neither in %.200s nor in "
                         "%.200s/../lib/clrpulse; set CLRPULSE_LIBRARY to its path",
                         dir, dir);
}
