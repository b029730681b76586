#include "sampler/symbols/demangle.h"

#include <ctype.h>
#include <errno.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

/* Real names end far below. The work done is in proportion to what is put out, so this bounds the
 * time as well. */
#define UNFOLDED_MAX (64u << 10)
#define BINDER_DIGITS_MAX 2

struct sink {
    struct clp_text *out;
    size_t total;
    jmp_buf give_up;
};

/* Jumping out is the only way to stop the demangler. Its C++ side works on its own stack only;
 * its Rust side may lose one small block, so the caller counts how often this happens. */
static void collect(const char *piece, size_t len, void *opaque)
{
    struct sink *s = opaque;
    s->total += len;
    if (s->total > UNFOLDED_MAX)
        longjmp(s->give_up, 1);
    clp_text_addn(s->out, piece, len);
}

static bool is_rust(const char *m)
{
    return strncmp(m, "_R", 2) == 0 || (strncmp(m, "_ZN", 3) == 0 && strstr(m, "17h"));
}

/* A binder ("G", a number in base 62, "_") introduces lifetimes, of which real names have a few.
 * The demangler counts through them one by one, also in parts that it does not put out: eleven
 * digits keep it busy for years.  An identifier that happens to look like one costs the name its
 * form. */
static bool has_wide_binder(const char *m)
{
    for (const char *g = strchr(m, 'G'); g; g = strchr(g + 1, 'G')) {
        size_t digits = 0;
        while (isalnum((unsigned char)g[1 + digits]))
            digits++;
        if (digits > BINDER_DIGITS_MAX && g[1 + digits] == '_')
            return true;
    }
    return false;
}

static bool is_mangled(const char *m)
{
    return strncmp(m, "_Z", 2) == 0 || strncmp(m, "_R", 2) == 0;
}

static void restore(struct clp_text *out, const struct clp_text *before)
{
    *out = *before;
    out->buf[out->len] = '\0';
}

int clp_demangle(struct clp_text *out, const char *mangled)
{
    struct sink s = {.out = out};
    const struct clp_text before = *out;
    volatile int done = 0;
    if (!is_mangled(mangled))
        return 0;
    if (setjmp(s.give_up) == 0) {
        if (is_rust(mangled) && !(strncmp(mangled, "_R", 2) == 0 && has_wide_binder(mangled)))
            done = rust_demangle_callback(mangled, DMGL_RUST, collect, &s);
        if (!done)
            restore(out, &before);
        if (!done)
            done = cplus_demangle_v3_callback(mangled, DMGL_ANSI, collect, &s);
    } else {
        done = -E2BIG;
    }
    if (done != 1)
        restore(out, &before);
    return done;
}
