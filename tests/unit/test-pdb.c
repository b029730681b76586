#include "tests/unit/clp-cmocka.h"

#include "sampler/symbols/pdb.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA CLP_TEST_DATA "/pdb"
#define MAIN "/src/shop/Lines.cs"

/* As System.Reflection.Metadata reads them. */
static const struct {
    uint32_t token, line;
    const char *document;
} places[] = {
    {0x06000001, 10, MAIN}, /* Shop.get_Count */
    {0x06000002, 10, MAIN}, /* Shop.set_Count */
    {0x06000003, 14, MAIN}, /* Shop.Plain */
    {0x06000004, 0, NULL},  /* Shop.RunAsync: only starts its state machine */
    {0x06000006, 30, MAIN}, /* Shop.Lambda */
    {0x06000007, 0, NULL},  /* Shop.AllHidden */
    {0x06000008, 1234, "/src/shop/generated/Grammar.y"}, /* Shop.HiddenFirst */
    {0x06000009, 6, "/src/shop/More.cs"},                /* Shop..ctor, lines in two documents */
    {0x0600000a, 0, NULL},                               /* Nothing.HasNoBody */
    {0x0600000d, 31, MAIN},                              /* the lambda itself */
    {0x0600000e, 19, MAIN},                              /* RunAsync's MoveNext */
    {0x06000012, 25, MAIN},                              /* Walk's MoveNext */
    {0x06000017, 0, NULL},
    {0x06000018, 0, NULL}, /* no such method */
    {0x06ffffff, 0, NULL},
    {0x06000000, 0, NULL},
    {0x02000001, 0, NULL}, /* a type */
};

static const uint8_t mvid[16] = {0x17, 0xa6, 0x94, 0x4e, 0x61, 0x1d, 0x0c, 0x43,
                                 0xa1, 0x52, 0x2e, 0xa7, 0xe6, 0x2b, 0xb7, 0xbf};

/* The root is the folder itself: a checkout may lie behind a symlink, which is not followed. */
static int data_root(void)
{
    int fd = open(DATA, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void check_places(const struct clp_pdb *p)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(places); i++) {
        struct clp_pdb_place place = {.line = 77, .document = "untouched"};
        int r = clp_pdb_method_start(p, places[i].token, &place);
        assert_int_equal(r, places[i].line ? 0 : -ENODATA);
        assert_int_equal(place.line, places[i].line ? places[i].line : 77);
        assert_string_equal(place.document, places[i].line ? places[i].document : "untouched");
    }
}

static void lines_of_a_separate_file(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    int fd = data_root();
    assert_int_equal(clp_pdb_open(fd, "/lines.dll", mvid, &p), 0);
    close(fd);
    check_places(p);
    assert_null(clp_pdb_free(p));
}

static void lines_of_an_embedded_one(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    int fd = data_root();
    assert_int_equal(clp_pdb_open(fd, "/embedded.dll", NULL, &p), 0);
    close(fd);
    check_places(p);
    clp_pdb_free(p);
}

/* ---- wrong and hostile files ---------------------------------------------------------------- */

static char dir[] = "/tmp/clp-pdb-XXXXXX";
static int dir_fd;

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    close(dir_fd);
    return system(command);
}

static void copy(const char *from, const char *to, long flip_at)
{
    char path[256];
    static uint8_t bytes[65536];
    snprintf(path, sizeof(path), "%s/%s", DATA, from);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    if (flip_at >= 0)
        bytes[flip_at] ^= 1;
    snprintf(path, sizeof(path), "%s/%s", dir, to);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void only_what_belongs_together(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    uint8_t other[16];
    memcpy(other, mvid, sizeof(other));
    other[3] ^= 1;
    copy("lines.dll", "lines.dll", -1);
    assert_int_equal(clp_pdb_open(dir_fd, "/lines.dll", mvid, &p), -ENODATA); /* no PDB there */
    copy("lines.pdb", "lines.pdb", -1);
    assert_int_equal(clp_pdb_open(dir_fd, "/lines.dll", other, &p), -ESTALE);
    assert_int_equal(clp_pdb_open(dir_fd, "/lines.dll", mvid, &p), 0);
    p = clp_pdb_free(p);

    /* A PDB that another compilation made. Its id is the first thing in #Pdb, right after the
     * headers, which end with the name "#Pdb" and so on: flip a bit of it. */
    FILE *f = fopen(DATA "/lines.pdb", "rb");
    assert_non_null(f);
    uint8_t head[64];
    assert_int_equal(fread(head, 1, sizeof(head), f), sizeof(head));
    fclose(f);
    uint32_t id_at;
    memcpy(&id_at, head + 32, sizeof(id_at)); /* offset of the first stream, which is #Pdb */
    assert_memory_equal(head + 40, "#Pdb", 5);
    copy("lines.pdb", "lines.pdb", (long)id_at);
    assert_int_equal(clp_pdb_open(dir_fd, "/lines.dll", mvid, &p), -ESTALE);
    assert_null(p);
}

/* Assemblies are renamed, and then their PDB may be, too. */
static void pdb_under_the_modules_name(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    copy("lines.dll", "renamed.dll", -1);
    copy("lines.pdb", "renamed.pdb", -1);
    assert_int_equal(unlinkat(dir_fd, "lines.pdb", 0) < 0 && errno != ENOENT, 0);
    assert_int_equal(clp_pdb_open(dir_fd, "renamed.dll", mvid, &p), 0);
    check_places(p);
    clp_pdb_free(p);
}

static void hostile_files(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    char path[128];
    snprintf(path, sizeof(path), "%s/link.dll", dir);
    assert_int_equal(symlink(DATA "/lines.dll", path), 0);
    assert_int_equal(clp_pdb_open(dir_fd, "link.dll", NULL, &p), -ELOOP);
    assert_int_equal(clp_pdb_open(dir_fd, "none.dll", NULL, &p), -ENOENT);
    assert_int_equal(clp_pdb_open(dir_fd, "/", NULL, &p), -EINVAL);
    copy("Lines.cs", "text.dll", -1);
    assert_int_equal(clp_pdb_open(dir_fd, "text.dll", NULL, &p), -EBADMSG);
    /* A PDB given as a symlink out of the root is not followed. */
    copy("lines.dll", "lines.dll", -1);
    snprintf(path, sizeof(path), "%s/lines.pdb", dir);
    (void)unlink(path);
    assert_int_equal(symlink(DATA "/lines.pdb", path), 0);
    assert_int_equal(clp_pdb_open(dir_fd, "lines.dll", NULL, &p), -ELOOP);
    assert_null(p);
}

/* Each byte of a PDB, wrong: an error or a place, no crash (the sanitizers look on). */
static void every_byte_may_be_wrong(void **state)
{
    (void)state;
    static uint8_t bytes[65536];
    FILE *f = fopen(DATA "/lines.pdb", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    assert_in_range(n, 1000, sizeof(bytes) - 1);
    size_t refused = 0;
    for (size_t i = 0; i < n; i++) {
        struct clp_pdb *p = NULL;
        bytes[i] ^= 0xff;
        if (clp_pdb_open_mem(bytes, n, &p) < 0)
            refused++;
        for (uint32_t token = 0x06000001; p && token < 0x06000018; token++) {
            struct clp_pdb_place place;
            if (clp_pdb_method_start(p, token, &place) == 0)
                assert_true(strlen(place.document) < sizeof(place.document));
        }
        clp_pdb_free(p);
        bytes[i] ^= 0xff;
    }
    assert_in_range(refused, 20, n - 1);
}

static void no_memory(void **state)
{
    (void)state;
    struct clp_pdb *p = NULL;
    int fd = data_root();
    alloc_fail_after(0, 1);
    int r = clp_pdb_open(fd, "/lines.dll", NULL, &p);
    (void)alloc_fail_stop();
    assert_int_equal(r, -ENOMEM);
    assert_null(p);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_separate_file),
        cmocka_unit_test(lines_of_an_embedded_one),
        cmocka_unit_test(only_what_belongs_together),
        cmocka_unit_test(pdb_under_the_modules_name),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(every_byte_may_be_wrong),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
