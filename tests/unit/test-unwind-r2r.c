/* Precompiled images: every function of whole frameworks, told twice. Method starts (from the debug
 * info's numbers) are held against the exception clauses, frames (from UNWIND_INFO) against the
 * code itself. Composite and component images are made here, byte by byte. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sampler/unwind/pe.h"
#include "sampler/unwind/r2r.h"
#include "tests/unit/clp-cmocka.h"

#define SECTION_EXCEPTION_INFO 104
#define CLAUSE_BYTES 24
#define CLAUSE_FILTER 1
#define CLAUSE_DUPLICATE 8 /* .NET 8, 9: a piece of the method that calls a finally, no handler */

static struct clp_arena arena;

struct image {
    const char *path;
    uint8_t *bytes;
    size_t len;
    struct clp_source source;
    struct clp_pe pe;
    uint32_t header;
    const struct clp_r2r_table *t;
    unsigned functions, methods, funclets, clauses;
};

static uint32_t u32_at(const struct image *im, uint32_t rva)
{
    uint32_t v = 0;
    assert_int_equal(clp_pe_read(&im->pe, rva, &v, sizeof(v)), 0);
    return v;
}

static bool open_image(const char *path, struct image *im)
{
    struct stat st;
    *im = (struct image){.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    int r = clp_r2r_table_build(fd, &arena, &im->t, NULL, 0);
    im->len = (size_t)st.st_size;
    im->bytes = mmap(NULL, im->len, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    assert_ptr_not_equal(im->bytes, MAP_FAILED);
    if (r != 0 && r != -ENODATA)
        fail_msg("%s: %s", path, strerror(-r));
    if (r != 0)
        return false;
    im->source = clp_source_of(im->bytes, im->len);
    assert_int_equal(clp_pe_open(&im->source, &im->pe), 0);
    assert_int_equal(clp_pe_r2r_header(&im->pe, &im->header), 0);
    return true;
}

static void section(const struct image *im, int type, uint32_t *rva, uint32_t *bytes)
{
    if (clp_pe_r2r_section(&im->pe, im->header, (enum clp_r2r_section)type, rva, bytes) < 0)
        *rva = *bytes = 0;
}

/* ---- frames against code ---- */

static void compare_frame(const struct image *im, const struct clp_r2r_function *f)
{
    uint8_t code[256];
    struct clp_managed_frame by_code;
    uint32_t len = CLP_MIN(f->end_rva - f->start_rva, (uint32_t)sizeof(code));
    assert_int_equal(clp_pe_read(&im->pe, f->start_rva, code, len), 0);
    clp_prologue_decode(code, len, &by_code);
    if (!by_code.exact || !f->frame.exact || by_code.base != f->frame.base ||
        by_code.frame_bytes != f->frame.frame_bytes || by_code.saved != f->frame.saved ||
        by_code.push_count != f->frame.push_count || by_code.lea_disp != f->frame.lea_disp ||
        by_code.prologue_bytes > f->frame.prologue_bytes)
        fail_msg("%s %#x: code says base %u exact %d frame %u saved %#x pushes %u lea %u, record "
                 "base %u exact %d frame %u saved %#x pushes %u lea %u",
                 im->path, f->start_rva, by_code.base, by_code.exact, by_code.frame_bytes,
                 by_code.saved, by_code.push_count, by_code.lea_disp, f->frame.base, f->frame.exact,
                 f->frame.frame_bytes, f->frame.saved, f->frame.push_count, f->frame.lea_disp);
}

static void compare_functions(struct image *im)
{
    uint32_t rva, bytes;
    section(im, CLP_R2R_RUNTIME_FUNCTIONS, &rva, &bytes);
    for (uint32_t at = 0; at + 12 <= bytes; at += 12) {
        struct clp_r2r_function f, last;
        uint32_t start = u32_at(im, rva + at);
        uint32_t end = u32_at(im, rva + at + 4);
        assert_int_equal(clp_r2r_find(im->t, start, &f), 0);
        assert_int_equal(clp_r2r_find(im->t, end - 1, &last), 0);
        assert_int_equal(f.start_rva, start);
        assert_int_equal(last.start_rva, start);
        assert_true(f.end_rva >= end);
        assert_true(f.method_rva <= start);
        im->functions++;
        if (f.frame.funclet)
            im->funclets++;
        else
            compare_frame(im, &f);
    }
}

/* ---- method starts against exception clauses ---- */

static void handler_is_funclet(const struct image *im, uint32_t method, uint32_t handler)
{
    struct clp_r2r_function f;
    assert_int_equal(clp_r2r_find(im->t, handler, &f), 0);
    if (f.start_rva != handler || !f.frame.funclet || f.method_rva != method)
        fail_msg("%s: handler %#x of %#x: start %#x, method %#x, funclet %d", im->path, handler,
                 method, f.start_rva, f.method_rva, f.frame.funclet);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The lookup table: {method, clauses} pairs, closed by a pair that only ends the last list. */
static void compare_clauses(struct image *im)
{
    uint32_t rva, bytes;
    uint32_t *handlers = NULL;
    section(im, SECTION_EXCEPTION_INFO, &rva, &bytes);
    size_t n = 0, cap = 0;
    for (uint32_t at = 0; at + 16 <= bytes; at += 8) {
        uint32_t method = u32_at(im, rva + at), list = u32_at(im, rva + at + 4);
        uint32_t end = u32_at(im, rva + at + 12);
        struct clp_r2r_function f;
        assert_int_equal(clp_r2r_find(im->t, method, &f), 0);
        assert_int_equal(f.method_rva, method);
        for (; list + CLAUSE_BYTES <= end; list += CLAUSE_BYTES, im->clauses++) {
            if (u32_at(im, list) & CLAUSE_DUPLICATE)
                continue;
            if (n + 2 > cap) {
                cap = cap ? cap * 2 : 1024;
                handlers = realloc(handlers, cap * sizeof(*handlers));
                assert_non_null(handlers);
            }
            handlers[n++] = method + u32_at(im, list + 12);
            handler_is_funclet(im, method, handlers[n - 1]);
            if (u32_at(im, list) & CLAUSE_FILTER) {
                handlers[n++] = method + u32_at(im, list + 20);
                handler_is_funclet(im, method, handlers[n - 1]);
            }
        }
    }
    if (n)
        qsort(handlers, n, sizeof(*handlers), by_value);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || handlers[i] != handlers[i - 1])
            im->methods++;
    free(handlers);
    /* Every funclet is some clause's handler: none is taken for one by mistake. */
    assert_int_equal(im->methods, im->funclets);
}

static unsigned long compare_image(const char *path)
{
    struct image im;
    if (open_image(path, &im)) {
        compare_functions(&im);
        compare_clauses(&im);
        printf("%s: %u functions, %u funclets, %u clauses; table %zu bytes\n", path, im.functions,
               im.funclets, im.clauses, clp_r2r_table_bytes(im.t));
    }
    munmap(im.bytes, im.len);
    return im.functions;
}

static unsigned long compare_all(const char *pattern)
{
    glob_t g;
    unsigned long functions = 0;
    if (glob(pattern, 0, NULL, &g) != 0)
        return 0;
    for (size_t i = 0; i < g.gl_pathc; i++)
        functions += compare_image(g.gl_pathv[i]);
    globfree(&g);
    return functions;
}

static void whole_frameworks(void **state)
{
    static const char *const roots[] = {"/usr/share/dotnet", "/usr/lib/dotnet",
                                        "/usr/lib64/dotnet"};
    char pattern[4200];
    const char *set = getenv("DOTNET_ROOT"), *cache = getenv("CLP_CACHE"), *home = getenv("HOME");
    unsigned long functions = 0;
    (void)state;
    for (size_t i = 0; i <= CLP_ARRAY_LEN(roots); i++) {
        const char *root = i < CLP_ARRAY_LEN(roots) ? roots[i] : set;
        snprintf(pattern, sizeof(pattern), "%s/shared/Microsoft.NETCore.App/*/System.*.dll",
                 root ? root : "/nonexistent");
        functions += compare_all(pattern);
    }
    if (functions == 0)
        fail_msg("no .NET runtime found; set DOTNET_ROOT");
    /* Other versions, where the test programs have been published. */
    snprintf(pattern, sizeof(pattern), "%s%s/targets/net[89].0/System.*.dll", cache ? cache : home,
             cache ? "" : "/.cache/clrpulse");
    functions += compare_all(pattern);
    printf("%lu functions in all\n", functions);
}

/* ---- images made here ---- */

enum { MADE_BYTES = 4096, TEXT_RVA = 0x1000, TEXT_AT = 0x400 };

static void put16(uint8_t *p, uint32_t at, uint16_t v)
{
    memcpy(p + at, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t at, uint32_t v)
{
    memcpy(p + at, &v, sizeof(v));
}

/* Headers of a PE32+ file with one section, whose content lies at TEXT_AT. */
static void make_headers(uint8_t *p)
{
    memset(p, 0, MADE_BYTES);
    p[0] = 'M';
    p[1] = 'Z';
    put32(p, 0x3c, 0x80);
    put32(p, 0x80, 0x00004550);
    put16(p, 0x84, 0x8664 ^ 0x7b79);
    put16(p, 0x86, 1);   /* sections */
    put16(p, 0x94, 240); /* optional header */
    put16(p, 0x98, 0x20b);
    put32(p, 0x98 + 56, 0x3000);
    put32(p, 0x98 + 108, 16);
    uint32_t s = 0x98 + 240;
    put32(p, s + 8, MADE_BYTES - TEXT_AT);
    put32(p, s + 12, TEXT_RVA);
    put32(p, s + 16, MADE_BYTES - TEXT_AT);
    put32(p, s + 20, TEXT_AT);
}

static uint32_t at_rva(uint32_t rva)
{
    return rva - TEXT_RVA + TEXT_AT;
}

static void put_section(uint8_t *p, uint32_t number, uint32_t type, uint32_t rva, uint32_t bytes)
{
    uint32_t at = at_rva(0x1200) + 16 + number * 12;
    put32(p, at, type);
    put32(p, at + 4, rva);
    put32(p, at + 8, bytes);
}

/* Export directory with the one name that a composite image has. */
static void make_export(uint8_t *p)
{
    put32(p, 0x98 + 112, 0x1000);
    put32(p, 0x98 + 116, 40);
    put32(p, at_rva(0x1000) + 24, 1);
    put32(p, at_rva(0x1000) + 28, 0x1040); /* addresses */
    put32(p, at_rva(0x1000) + 32, 0x1050); /* names */
    put32(p, at_rva(0x1000) + 36, 0x1060); /* ordinals */
    put32(p, at_rva(0x1040), 0x1200);
    put32(p, at_rva(0x1050), 0x1070);
    memcpy(p + at_rva(0x1070), "RTR_HEADER", 11);
}

static void make_header(uint8_t *p, uint32_t sections)
{
    put32(p, at_rva(0x1200), 0x00525452);
    put16(p, at_rva(0x1200) + 4, 16);
    put32(p, at_rva(0x1200) + 12, sections);
}

/* Three functions, a gap, and a cold part of the second method:
 *   0 method: push rbp     1 its funclet: push rax     2 method: nothing     3 cold part of 2 */
static void make_composite(uint8_t *p)
{
    static const uint32_t functions[][3] = {{0x1500, 0x1540, 0x1400},
                                            {0x1540, 0x1550, 0x1410},
                                            {0x1550, 0x1560, 0x1420},
                                            {0x1700, 0x1710, 0x1420}};
    static const uint8_t with_rbp[] = {0x01, 5, 2, 0, 5, 0x12, 1, 0x50};
    static const uint8_t with_rax[] = {0x01, 1, 1, 0, 1, 0x02};
    static const uint8_t nothing[] = {0x01, 0, 0, 0};
    /* NativeArray: 3 elements, one-byte index; elements 0 and 2 of block 0. */
    static const uint8_t methods[] = {(3 << 2 | 0) << 1,
                                      1, /* block at base + 1 */
                                      1 << 1,
                                      1 << 1, /* 8: low half; 4: low half */
                                      (4 << 2 | 3) << 1,
                                      (0 << 2 | 0) << 1, /* 2: both; 0 */
                                      0,
                                      0,
                                      (2 << 2 | 0) << 1,
                                      0};
    make_headers(p);
    make_export(p);
    make_header(p, 3);
    put_section(p, 0, CLP_R2R_RUNTIME_FUNCTIONS, 0x1300, sizeof(functions));
    put_section(p, 1, CLP_R2R_DEBUG_INFO, 0x1380, sizeof(methods));
    put_section(p, 2, CLP_R2R_HOT_COLD_MAP, 0x13c0, 8);
    memcpy(p + at_rva(0x1300), functions, sizeof(functions));
    memcpy(p + at_rva(0x1380), methods, sizeof(methods));
    put32(p, at_rva(0x13c0), 3);
    put32(p, at_rva(0x13c4), 2);
    memcpy(p + at_rva(0x1400), with_rbp, sizeof(with_rbp));
    memcpy(p + at_rva(0x1410), with_rax, sizeof(with_rax));
    memcpy(p + at_rva(0x1420), nothing, sizeof(nothing));
}

static void composite_image(void **state)
{
    static uint8_t p[MADE_BYTES];
    const struct clp_r2r_table *t;
    struct clp_r2r_function f;
    (void)state;
    make_composite(p);
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, NULL, 0), 0);
    assert_int_equal(clp_r2r_image_bytes(t), 0x3000);
    assert_int_equal(clp_r2r_find(t, 0x14ff, &f), -ENOENT);
    assert_int_equal(clp_r2r_find(t, 0x1500, &f), 0);
    assert_int_equal(f.method_rva, 0x1500);
    assert_int_equal(f.frame.base, CLP_BASE_RBP);
    assert_int_equal(f.frame.frame_bytes, 24);
    assert_int_equal(f.frame.lea_disp, 16);
    assert_true(f.frame.exact && !f.frame.funclet);
    assert_int_equal(clp_r2r_find(t, 0x154f, &f), 0);
    assert_int_equal(f.start_rva, 0x1540);
    assert_int_equal(f.method_rva, 0x1500);
    assert_true(f.frame.funclet);
    assert_int_equal(clp_r2r_find(t, 0x1550, &f), 0);
    assert_int_equal(f.method_rva, 0x1550);
    assert_int_equal(f.frame.base, CLP_BASE_RSP);
    assert_int_equal(clp_r2r_find(t, 0x1600, &f), -ENOENT); /* between the functions */
    assert_int_equal(clp_r2r_find(t, 0x1705, &f), 0);
    assert_int_equal(f.start_rva, 0x1700);
    assert_int_equal(f.method_rva, 0x1550);
    assert_int_equal(clp_r2r_find(t, 0x1710, &f), -ENOENT);
}

/* A single-file program holds its assemblies one behind the other. */
static void image_inside_a_file(void **state)
{
    static uint8_t p[MADE_BYTES];
    enum { AT = 5000 };
    char path[] = "/tmp/clp-r2r-XXXXXX";
    const struct clp_r2r_table *t = NULL;
    struct clp_r2r_function f;
    (void)state;
    make_composite(p);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(pwrite(fd, p, sizeof(p), AT), sizeof(p));
    assert_int_equal(clp_r2r_table_build_part(fd, 0, &arena, &t), -EBADMSG);
    assert_int_equal(clp_r2r_table_build_part(fd, AT + sizeof(p) + 1, &arena, &t), -EBADMSG);
    assert_null(t);
    assert_int_equal(clp_r2r_table_build_part(fd, AT, &arena, &t), 0);
    assert_int_equal(clp_r2r_image_bytes(t), 0x3000);
    assert_int_equal(clp_r2r_find(t, 0x154f, &f), 0);
    assert_int_equal(f.start_rva, 0x1540);
    assert_int_equal(f.method_rva, 0x1500);
    close(fd);
}

static void component_image(void **state)
{
    static uint8_t p[MADE_BYTES];
    const struct clp_r2r_table *t = NULL;
    char owner[64] = "";
    (void)state;
    make_headers(p);
    /* CLI header with its managed native header */
    put32(p, 0x98 + 112 + 14 * 8, 0x1000);
    put32(p, 0x98 + 116 + 14 * 8, 72);
    put32(p, at_rva(0x1000) + 64, 0x1200);
    make_header(p, 1);
    put_section(p, 0, CLP_R2R_OWNER_COMPOSITE, 0x1300, 17);
    memcpy(p + at_rva(0x1300), "framework-r2r.dll", 17);
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, owner, sizeof(owner)),
                     -ENODATA);
    assert_string_equal(owner, "framework-r2r.dll");
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, owner, 5), -ENODATA);
    assert_string_equal(owner, "fram");
    assert_null(t);
}

static void refused(void **state)
{
    static uint8_t p[MADE_BYTES];
    const struct clp_r2r_table *t = NULL;
    (void)state;
    assert_int_equal(clp_r2r_table_build_mem("", 0, &arena, &t, NULL, 0), -EBADMSG);
    make_composite(p);
    put16(p, 0x84, 0x8664); /* code for Windows */
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, NULL, 0), -ENODATA);
    make_composite(p);
    put32(p, at_rva(0x1300) + 12, 0x1400); /* not ascending */
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, NULL, 0), -EBADMSG);
    make_composite(p);
    put32(p, at_rva(0x1200), 0); /* no ReadyToRun header */
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &arena, &t, NULL, 0), -ENODATA);
    make_composite(p);
    struct clp_arena small;
    clp_arena_init(&small, 16);
    assert_int_equal(clp_r2r_table_build_mem(p, sizeof(p), &small, &t, NULL, 0), -ENOMEM);
    assert_null(t);
}

static int set_up(void **state)
{
    (void)state;
    clp_arena_init(&arena, 256u << 20);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    clp_arena_done(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(composite_image),     cmocka_unit_test(component_image),
        cmocka_unit_test(image_inside_a_file), cmocka_unit_test(refused),
        cmocka_unit_test(whole_frameworks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
