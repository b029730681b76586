#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int armed;
static int stay;
static uint64_t left;
static uint64_t failures;

void alloc_fail_after(uint64_t allowed, int for_good)
{
    left = allowed;
    stay = for_good;
    failures = 0;
    armed = 1;
}

uint64_t alloc_fail_stop(void)
{
    armed = 0;
    return failures;
}

static int must_fail(void)
{
    if (!armed)
        return 0;
    if (left > 0) {
        left--;
        return 0;
    }
    if (failures > 0 && !stay)
        return 0;
    failures++;
    errno = ENOMEM;
    return 1;
}

/* The linker sends malloc here and gives us the real one under __real_. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

void *__wrap_malloc(size_t n)
{
    return must_fail() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return must_fail() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return must_fail() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
    return must_fail() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return must_fail() ? NULL : __real_strndup(s, n);
}
