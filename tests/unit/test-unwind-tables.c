/* Every row of every function of real libraries, against readelf's own interpretation. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sampler/unwind/cfi.h"
#include "sampler/unwind/native.h"
#include "sampler/unwind/rule.h"
#include "tests/unit/clp-cmocka.h"

#define COLUMNS_MAX 40
#define CIES_MAX 1024

static const char *const names[CLP_REG_COUNT] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi",
                                                 "rbp", "rsp", "r8",  "r9",  "r10", "r11",
                                                 "r12", "r13", "r14", "r15", "ra"};

static struct clp_arena arena;

static const struct clp_native_table *table_of(const char *path)
{
    const struct clp_native_table *t = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    int r = clp_native_table_build(fd, &arena, &t);
    close(fd);
    if (r < 0)
        fail_msg("%s: %s", path, strerror(-r));
    return t;
}

/* ---- our rule in readelf's words ---- */

static void print_place(const struct clp_rule_extra *e, char *out, size_t cap)
{
    if (e->kind == CLP_PLACE_OFFSET)
        snprintf(out, cap, "c%+d", e->value);
    else if (e->kind == CLP_PLACE_VAL_OFFSET)
        snprintf(out, cap, "v%+d", e->value);
    else if (e->kind == CLP_PLACE_REGISTER)
        snprintf(out, cap, "r%d (%s)", e->other, names[e->other]);
    else
        snprintf(out, cap, e->kind == CLP_PLACE_EXPR ? "exp" : "vexp");
}

static void print_register(const struct clp_native_table *t, const struct clp_rule *r, int reg,
                           char *out, size_t cap)
{
    snprintf(out, cap, "u");
    for (int i = 0; i < CLP_SAVE_COUNT; i++) {
        if (clp_save_register[i] == reg && r->saved[i] > 0 && r->saved[i] <= CLP_SLOT_MAX)
            snprintf(out, cap, "c%+d", -8 * r->saved[i]);
    }
    for (int i = 0; i < r->extra_count; i++) {
        if (t->extra[r->extra_first + i].reg == reg)
            print_place(&t->extra[r->extra_first + i], out, cap);
    }
}

static void print_cfa(const struct clp_rule *r, char *out, size_t cap)
{
    if (r->cfa_reg == CLP_CFA_EXPR)
        snprintf(out, cap, "exp");
    else if (r->cfa_reg < CLP_REG_COUNT)
        snprintf(out, cap, "%s%+d", names[r->cfa_reg], r->cfa_off);
    else
        snprintf(out, cap, r->cfa_reg == CLP_CFA_NONE ? "none" : "bad");
}

/* ---- readelf's rows ---- */

struct cie_row {
    char id[9];
    char cfa[32], ra[32];
};

struct reading {
    const char *path;
    const struct clp_native_table *t;
    int column_reg[COLUMNS_MAX]; /* register of each column, -1 for one that we do not keep */
    int columns;
    bool in_fde;
    uint64_t start, end; /* of the FDE */
    char row[COLUMNS_MAX][32];
    int row_columns;
    uint64_t row_at;
    bool have_row;
    unsigned rows, functions;
    struct cie_row
        cie[CIES_MAX]; /* the rows of CIEs: readelf prints none for an FDE that adds nothing */
    int cies;
    char cie_id[9];
};

static int register_named(const char *name)
{
    for (int i = 0; i < CLP_REG_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void compare(const struct reading *in, uint64_t at)
{
    char ours[64];
    const struct clp_rule *r = clp_native_rule(in->t, at);
    print_cfa(r, ours, sizeof(ours));
    if (strcmp(ours, in->row[0]) != 0)
        fail_msg("%s %lx: CFA %s, readelf %s", in->path, at, ours, in->row[0]);
    for (int c = 1; c < in->row_columns; c++) {
        if (in->column_reg[c] < 0)
            continue;
        const char *theirs = strcmp(in->row[c], "s") == 0 ? "u" : in->row[c];
        print_register(in->t, r, in->column_reg[c], ours, sizeof(ours));
        if (strcmp(ours, theirs) != 0)
            fail_msg("%s %lx: %s %s, readelf %s", in->path, at, names[in->column_reg[c]], ours,
                     theirs);
    }
}

/* A row holds from its address to the byte before the next one. */
static void finish_row(struct reading *in, uint64_t next)
{
    if (in->have_row && in->row_at < next) {
        compare(in, in->row_at);
        compare(in, next - 1);
        in->rows++;
    }
    in->have_row = false;
}

static void check_function(const struct reading *in)
{
    uint64_t start, end;
    assert_int_equal(clp_native_function(in->t, in->start, &start, &end), 0);
    assert_int_equal(start, in->start);
    assert_int_equal(end, in->end);
    assert_int_equal(clp_native_function(in->t, in->end - 1, &start, &end), 0);
    assert_int_equal(start, in->start);
}

static int split(char *line, char *token[COLUMNS_MAX])
{
    int n = 0;
    for (char *save, *t = strtok_r(line, " \n", &save); t; t = strtok_r(NULL, " \n", &save)) {
        if (t[0] == '(' && n > 0) { /* "r9 (r9)" is one column */
            t[-1] = ' ';            /* undo the cut */
            continue;
        }
        if (n == COLUMNS_MAX)
            break;
        token[n++] = t;
    }
    return n;
}

static void take_header(struct reading *in, char *line)
{
    char *token[COLUMNS_MAX];
    in->columns = split(line, token) - 1;
    for (int i = 1; i < in->columns; i++)
        in->column_reg[i] = register_named(token[i + 1]);
}

static void take_row(struct reading *in, char *line)
{
    char *token[COLUMNS_MAX];
    int n = split(line, token);
    uint64_t at = strtoull(token[0], NULL, 16);
    finish_row(in, at);
    in->row_at = at;
    in->have_row = true;
    in->row_columns = n - 1;
    assert_int_equal(in->row_columns, in->columns);
    for (int i = 1; i < n; i++)
        snprintf(in->row[i - 1], sizeof(in->row[0]), "%s", token[i]);
}

static void take_cie_row(struct reading *in, char *line)
{
    char *token[COLUMNS_MAX];
    int n = split(line, token);
    assert_in_range(in->cies, 0, CIES_MAX - 1);
    struct cie_row *c = &in->cie[in->cies++];
    snprintf(c->id, sizeof(c->id), "%s", in->cie_id);
    snprintf(c->cfa, sizeof(c->cfa), "%s", token[1]);
    snprintf(c->ra, sizeof(c->ra), "%s", token[n - 1]);
}

static void use_cie_row(struct reading *in)
{
    int i = 0;
    while (i < in->cies && strcmp(in->cie[i].id, in->cie_id) != 0)
        i++;
    assert_in_range(i, 0, in->cies - 1);
    snprintf(in->row[0], sizeof(in->row[0]), "%s", in->cie[i].cfa);
    snprintf(in->row[1], sizeof(in->row[1]), "%s", in->cie[i].ra);
    in->row_columns = 2;
    in->column_reg[1] = CLP_REG_RIP;
    in->row_at = in->start;
    in->have_row = true;
}

static void finish_function(struct reading *in)
{
    if (!in->in_fde)
        return;
    if (!in->have_row)
        use_cie_row(in);
    finish_row(in, in->end);
    check_function(in);
    in->functions++;
    in->in_fde = false;
}

static void take_line(struct reading *in, char *line)
{
    char *pc = strstr(line, " pc=");
    bool row = strspn(line, "0123456789abcdef") == 16 && line[16] == ' ';
    if (strncmp(line, "   LOC", 6) == 0)
        take_header(in, line);
    else if (pc && strstr(line, " FDE ")) {
        finish_function(in);
        in->in_fde = true;
        assert_int_equal(sscanf(pc, " pc=%lx..%lx", &in->start, &in->end), 2);
        snprintf(in->cie_id, sizeof(in->cie_id), "%s", strstr(line, "cie=") + 4);
    } else if (strstr(line, " CIE ")) {
        finish_function(in);
        snprintf(in->cie_id, sizeof(in->cie_id), "%s", line);
    } else if (row && in->in_fde)
        take_row(in, line);
    else if (row)
        take_cie_row(in, line);
}

static void compare_library(const char *path)
{
    static struct reading in; /* large */
    in = (struct reading){.path = path, .t = table_of(path)};
    char command[4200];
    snprintf(command, sizeof(command), "readelf --debug-dump=frames-interp '%s' 2>/dev/null", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, f) > 0)
        take_line(&in, line);
    free(line);
    finish_function(&in);
    assert_int_not_equal(pclose(f),
                         -1); /* it exits with 1 where separate debug files are missing */
    assert_true(in.functions > 0);
    printf("%s: %u functions, %u rows equal; table %zu bytes, %u rules\n", path, in.functions,
           in.rows, clp_native_table_bytes(in.t), in.t->rules);
}

static unsigned compare_all(const char *pattern)
{
    glob_t g;
    unsigned n = 0;
    if (glob(pattern, 0, NULL, &g) != 0)
        return 0;
    for (; n < g.gl_pathc; n++)
        compare_library(g.gl_pathv[n]);
    globfree(&g);
    return n;
}

/* One of the patterns must be there: nothing is skipped in silence. */
static void require(const char *const *patterns)
{
    unsigned n = 0;
    for (const char *const *p = patterns; *p; p++)
        n += compare_all(*p);
    if (n == 0)
        fail_msg("nothing found for %s", patterns[0]);
}

static void system_libraries(void **state)
{
    (void)state;
    require((const char *[]){"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", NULL});
    require((const char *[]){"/lib64/ld-linux-x86-64.so.2", NULL});
    require((const char *[]){"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", NULL});
    require((const char *[]){"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                             "/usr/lib64/libstdc++.so.6", NULL});
    require((const char *[]){"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                             "/usr/lib64/libcrypto.so.3", NULL});
}

static unsigned compare_runtime_under(const char *root)
{
    static const char *const libraries[] = {"libcoreclr.so", "libclrjit.so", "libclrgc.so",
                                            "libSystem.Native.so"};
    unsigned n = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(libraries); i++) {
        char pattern[4200];
        snprintf(pattern, sizeof(pattern), "%s/shared/Microsoft.NETCore.App/*/%s", root,
                 libraries[i]);
        n += compare_all(pattern);
    }
    return n;
}

static void runtime_libraries(void **state)
{
    (void)state;
    const char *set = getenv("DOTNET_ROOT");
    unsigned n = set ? compare_runtime_under(set) : 0;
    if (n == 0)
        n = compare_runtime_under("/usr/share/dotnet") + compare_runtime_under("/usr/lib/dotnet") +
            compare_runtime_under("/usr/lib64/dotnet");
    if (n == 0)
        fail_msg("no .NET runtime found; set DOTNET_ROOT");
}

static void not_a_function(void **state)
{
    (void)state;
    uint64_t start, end;
    const struct clp_native_table *t = table_of("/lib64/ld-linux-x86-64.so.2");
    assert_int_equal(clp_native_function(t, 0, &start, &end), -ENOENT);
    assert_int_equal(clp_native_function(t, UINT64_MAX, &start, &end), -ENOENT);
    assert_int_equal(clp_native_rule(t, UINT64_MAX)->cfa_reg, CLP_CFA_NONE);
}

static int set_up(void **state)
{
    (void)state;
    clp_arena_init(&arena, 64u << 20);
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
        cmocka_unit_test(system_libraries),
        cmocka_unit_test(runtime_libraries),
        cmocka_unit_test(not_a_function),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
