#include "tests/unit/clp-cmocka.h"

#include "base/file.h"
#include "tests/unit/upload-fixture.h"
#include "uploader/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static uint64_t base_ns; /* the windows' start, a nanosecond apart */
static const uint64_t two_intakes[] = {0x1111, 0xfedcba9876543210};

static int enter(void **state)
{
    (void)state;
    base_ns = clp_clock_realtime_ns() - CLP_NSEC_PER_SEC;
    strcpy(root, "/tmp/clp-test-spool-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

/* Names of the directory; removes them when told to. */
static int count_files(const char *ending, bool remove)
{
    char path[512];
    int n = 0;
    DIR *d = opendir(root);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        (void)snprintf(path, sizeof(path), "%s/%s", root, e->d_name);
        if (remove && e->d_name[0] != '.')
            (void)unlink(path);
        n += dot && strcmp(dot, ending) == 0;
    }
    if (d)
        (void)closedir(d);
    return n;
}

static int leave(void **state)
{
    (void)state;
    (void)chmod(root, 0700);
    (void)count_files("", true);
    return rmdir(root);
}

static struct clp_spool *open_with(struct clp_spool_config c)
{
    struct clp_spool *s = NULL;
    c.intakes = two_intakes;
    c.intake_count = 2;
    c.bytes_max = c.bytes_max ? c.bytes_max : 1 << 20;
    c.files_max = c.files_max ? c.files_max : 1000;
    c.age_max_ns = c.age_max_ns ? c.age_max_ns : 3600 * CLP_NSEC_PER_SEC;
    assert_int_equal(clp_spool_open(&c, &s), 0);
    return s;
}

static struct clp_spool *open_root(void)
{
    return open_with((struct clp_spool_config){.dir = root});
}

static int put(struct clp_spool *s, const char *runtime, uint64_t seq, bool *memory)
{
    int why;
    bool in_memory;
    struct clp_upload_header h = header_of(seq);
    h.runtime_id = runtime;
    h.start_unix_ns = base_ns + seq;
    int r = clp_spool_put(s, &h, "profile", 8, memory ? memory : &in_memory, &why);
    return r;
}

static uint64_t chunks(const struct clp_spool *s)
{
    return clp_spool_counts(s)->chunks;
}

static void survives_and_keeps_order_and_progress(void **state)
{
    (void)state;
    struct clp_spool *s = open_root();
    for (uint64_t i = 5; i-- > 0;)
        assert_int_equal(put(s, "a", i, NULL), 0);
    struct clp_spool_entry *e = clp_spool_first(s);
    assert_int_equal(e->seq, 0);
    clp_spool_sent(s, e, 0, "cpu");
    clp_spool_sent(s, e->next, 1, NULL);
    assert_int_equal(count_files(".sent", false), 2);
    assert_int_equal(clp_spool_close(s), 0);
    s = open_root();
    assert_int_equal(chunks(s), 5);
    e = clp_spool_first(s);
    for (uint64_t i = 0; i < 5; i++, e = e->next)
        assert_int_equal(e->seq, i);
    e = clp_spool_first(s);
    assert_true(clp_spool_has_part(e, 0, "cpu"));
    assert_false(clp_spool_has_part(e, 0, "wall"));
    assert_false(clp_spool_has_part(e, 1, "cpu"));
    assert_int_equal(e->done, 0);
    assert_int_equal(e->next->done, 2);
    clp_spool_sent(s, e->next, 0, NULL);
    assert_int_equal(chunks(s), 4);
    assert_int_equal(count_files(".chunk", false), 4);
    assert_int_equal(count_files(".sent", false), 1);
    assert_int_equal(clp_spool_close(s), 0);
}

static void contents_come_back(void **state)
{
    (void)state;
    struct clp_spool *s = open_root();
    uint8_t *bytes = NULL;
    size_t len;
    struct clp_chunk c;
    assert_int_equal(put(s, "a", 7, NULL), 0);
    assert_int_equal(clp_spool_load(s, clp_spool_first(s), &bytes, &len), 0);
    assert_int_equal(clp_chunk_read(bytes, len, &c, NULL), 0);
    assert_int_equal(c.header.seq, 7);
    assert_string_equal((const char *)c.profile, "profile");
    clp_chunk_done(&c);
    free(bytes);
    clp_spool_close(s);
}

struct numbers {
    unsigned count, sum;
};

static void add_number(void *context, const char *runtime, uint64_t seq)
{
    struct numbers *n = context;
    assert_string_equal(runtime, "19b194ab_f46d");
    n->count++;
    n->sum += (unsigned)seq;
}

/* While another one has the spool as well; what is no chunk of ours is passed over. */
static void numbers_are_told_by_names(void **state)
{
    (void)state;
    struct numbers n = {0, 0};
    char path[128];
    assert_int_equal(clp_spool_numbers("/nowhere", add_number, &n), -ENOENT);
    struct clp_spool *s = open_root();
    assert_int_equal(put(s, "19b194ab-f46d", 3, NULL), 0);
    assert_int_equal(put(s, "19b194ab-f46d", 4, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/1-2-3.chunk", root);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
    assert_int_equal(clp_spool_numbers(root, add_number, &n), 0);
    assert_int_equal(n.count, 2);
    assert_int_equal(n.sum, 7);
    clp_spool_close(s);
}

static void targets_are_told_apart(void **state)
{
    (void)state;
    struct clp_spool *s = open_root();
    assert_int_equal(put(s, "abc", 0, NULL), 0);
    assert_int_equal(put(s, "abc", 1, NULL), 0);
    assert_int_equal(put(s, "abcd", 2, NULL), 0);
    struct clp_spool_entry *e = clp_spool_first(s);
    assert_true(clp_spool_same_target(e, e->next));
    assert_false(clp_spool_same_target(e, e->next->next));
    clp_spool_close(s);
}

static void bounds_drop_the_oldest_and_count(void **state)
{
    (void)state;
    struct clp_spool *s = open_with((struct clp_spool_config){.dir = root, .files_max = 3});
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(put(s, "a", i, NULL), 0);
    assert_int_equal(chunks(s), 3);
    assert_int_equal(clp_spool_first(s)->seq, 2);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_FULL], 2);
    /* What is being sent stays. */
    clp_spool_first(s)->uses = 1;
    assert_int_equal(put(s, "a", 9, NULL), 0);
    assert_int_equal(clp_spool_first(s)->seq, 2);
    clp_spool_first(s)->uses = 0;
    uint64_t one = clp_spool_first(s)->bytes;
    clp_spool_close(s);
    s = open_with((struct clp_spool_config){.dir = root, .bytes_max = one * 2});
    assert_int_equal(chunks(s), 2);
    clp_spool_age(s, clp_clock_monotonic_ns());
    assert_int_equal(chunks(s), 2);
    clp_spool_age(s, clp_clock_monotonic_ns() + 3601 * CLP_NSEC_PER_SEC);
    assert_int_equal(chunks(s), 0);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_OLD], 2);
    assert_int_equal(count_files(".chunk", false), 0);
    clp_spool_close(s);
}

static void one_larger_than_the_spool_drops_no_others(void **state)
{
    (void)state;
    static uint8_t large[4096];
    bool memory = false;
    int why = 0;
    struct clp_upload_header h = header_of(9);
    struct clp_spool *s =
        open_with((struct clp_spool_config){.dir = root, .bytes_max = 4000, .memory_max = 1 << 20});
    assert_int_equal(put(s, "a", 0, NULL), 0);
    assert_int_equal(put(s, "a", 1, NULL), 0);
    assert_int_equal(clp_spool_put(s, &h, large, sizeof(large), &memory, &why), 0);
    assert_true(memory);
    assert_int_equal(why, -EFBIG);
    assert_int_equal(chunks(s), 3);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_FULL], 0);
    /* Nor does it get lost when another spool takes over what is in memory. */
    struct clp_spool *next =
        open_with((struct clp_spool_config){.bytes_max = 4000, .memory_max = 1 << 20});
    assert_int_equal(clp_spool_take_over(next, s), 2);
    assert_int_equal(chunks(next), 1);
    assert_int_equal(clp_spool_counts(next)->lost[CLP_SPOOL_FULL], 0);
    assert_int_equal(clp_spool_close(s), 0);
    assert_int_equal(clp_spool_close(next), 1);
    /* Nor does one that was stored under a higher bound. */
    s = open_root();
    assert_int_equal(clp_spool_put(s, &h, large, sizeof(large), &memory, &why), 0);
    assert_int_equal(clp_spool_close(s), 0);
    s = open_with((struct clp_spool_config){.dir = root, .bytes_max = 4000});
    assert_int_equal(chunks(s), 2);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_FULL], 1);
    clp_spool_close(s);
}

/* The wall clock was set forth by two hours while the window was open: it carries its old start,
 * and is not old. Found by a process that starts then, it is. */
static void a_stamp_is_no_age(void **state)
{
    (void)state;
    int why;
    bool in_memory;
    struct clp_upload_header h = header_of(0);
    struct clp_spool *s = open_root();
    h.runtime_id = "a";
    h.start_unix_ns = clp_clock_realtime_ns() - 7200 * CLP_NSEC_PER_SEC;
    assert_int_equal(clp_spool_put(s, &h, "profile", 8, &in_memory, &why), 0);
    clp_spool_age(s, clp_clock_monotonic_ns());
    assert_int_equal(chunks(s), 1);
    clp_spool_close(s);
    s = open_root();
    assert_int_equal(chunks(s), 1);
    clp_spool_age(s, clp_clock_monotonic_ns());
    assert_int_equal(chunks(s), 0);
    clp_spool_close(s);
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(clp_file_write(path, text, strlen(text), 0600), 0);
}

static void what_is_not_ours_is_set_aside_or_left(void **state)
{
    (void)state;
    write_text("hello.chunk", "x");
    write_text("00000000000000000001-a-2.chunk.Ab12.tmp", "half");
    write_text("00000000000000000001-a-2.sent", "0000000000001111 *\n");
    write_text("notes.txt", "mine");
    write_text("9-a-2.chunk", "x");
    struct clp_spool *s = open_root();
    assert_int_equal(chunks(s), 0);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_BAD], 2);
    assert_int_equal(count_files(".bad", false), 2);
    assert_int_equal(count_files(".txt", false), 1);
    assert_int_equal(count_files(".tmp", false), 0);
    assert_int_equal(count_files(".sent", false), 0);
    clp_spool_close(s);
    for (int i = 0; i < 40; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "n%d.chunk", i);
        write_text(name, "x");
    }
    s = open_root();
    assert_int_equal(count_files(".bad", false), CLP_SPOOL_BAD_MAX);
    clp_spool_close(s);
}

/* A stranger's file with a name of ours, and of holes alone. */
static void one_larger_than_any_chunk_crowds_out_nobody(void **state)
{
    (void)state;
    char path[256];
    struct clp_spool *s = open_root();
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(put(s, "a", i, NULL), 0);
    clp_spool_close(s);
    write_text("09999999999999999999-b-1.chunk", "x");
    (void)snprintf(path, sizeof(path), "%s/09999999999999999999-b-1.chunk", root);
    assert_int_equal(truncate(path, 1l << 40), 0);
    s = open_root();
    assert_int_equal(chunks(s), 3);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_FULL], 0);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_BAD], 1);
    assert_int_equal(count_files(".bad", false), 1);
    clp_spool_close(s);
}

static void a_half_written_mark_does_not_count(void **state)
{
    (void)state;
    char name[CLP_SPOOL_NAME_BYTES + 8];
    struct clp_spool *s = open_root();
    assert_int_equal(put(s, "a", 1, NULL), 0);
    (void)snprintf(name, sizeof(name), "%s.sent", clp_spool_first(s)->name);
    clp_spool_close(s);
    write_text(name, "0000000000001111 cpu\nfedcba9876543210 *\n0000000000001111 *");
    s = open_root();
    assert_true(clp_spool_has_part(clp_spool_first(s), 0, "cpu"));
    assert_int_equal(clp_spool_first(s)->done, 2);
    clp_spool_close(s);
}

static void one_agent_at_a_time(void **state)
{
    (void)state;
    struct clp_spool *s = open_root(), *other = NULL;
    struct clp_spool_config c = {.dir = root, .intakes = two_intakes, .intake_count = 2};
    assert_int_equal(clp_spool_open(&c, &other), -EBUSY);
    clp_spool_close(s);
    assert_int_equal(clp_spool_open(&c, &other), 0);
    clp_spool_close(other);
}

static void memory_holds_what_the_disk_does_not(void **state)
{
    (void)state;
    bool memory = false;
    struct clp_spool *s = open_with((struct clp_spool_config){.dir = root, .memory_max = 3 * 400});
    char moved[80];
    (void)snprintf(moved, sizeof(moved), "%s.moved", root);
    /* A directory that is gone takes nothing, while a file has its name. */
    assert_int_equal(rename(root, moved), 0);
    char lock[100];
    (void)snprintf(lock, sizeof(lock), "%s/lock", moved);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(moved), 0);
    FILE *f = fopen(root, "w");
    assert_non_null(f);
    (void)fclose(f);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(put(s, "a", i, &memory), 0);
    assert_true(memory);
    assert_true(chunks(s) >= 3 && chunks(s) < 10);
    uint64_t kept = chunks(s);
    assert_int_equal(clp_spool_counts(s)->in_memory, kept);
    assert_int_equal(clp_spool_counts(s)->lost[CLP_SPOOL_NO_ROOM], 10 - kept);
    uint8_t *bytes = NULL;
    size_t len;
    assert_int_equal(clp_spool_load(s, clp_spool_first(s), &bytes, &len), 0);
    assert_int_equal(len, clp_spool_first(s)->bytes);
    free(bytes);
    assert_int_equal(unlink(root), 0);
    assert_int_equal(clp_spool_close(s), 0); /* in a new one */
    assert_int_equal(count_files(".chunk", false), kept);
}

static void a_removed_directory_is_made_again(void **state)
{
    (void)state;
    bool memory = true;
    struct clp_spool *s = open_root(), *other = NULL;
    struct clp_spool_config c = {.dir = root, .intakes = two_intakes, .intake_count = 2};
    uint8_t *bytes = NULL;
    size_t len;
    assert_int_equal(put(s, "a", 0, NULL), 0);
    (void)count_files("", true);
    assert_int_equal(rmdir(root), 0);
    assert_int_equal(put(s, "a", 1, &memory), 0);
    assert_false(memory);
    assert_int_equal(clp_spool_load(s, clp_spool_first(s), &bytes, &len), -ENOENT);
    assert_int_equal(clp_spool_load(s, clp_spool_first(s)->next, &bytes, &len), 0);
    free(bytes);
    assert_int_equal(clp_spool_open(&c, &other), -EBUSY); /* it is ours as the old one was */
    clp_spool_close(s);
}

/* Of two intakes one stays, in another place of the list; what it has is not sent again. */
static void another_takes_over(void **state)
{
    (void)state;
    static const uint64_t others[] = {0xfedcba9876543210, 0x2222};
    char dir[80];
    (void)snprintf(dir, sizeof(dir), "%s-from", root);
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        struct clp_spool_config c = {.dir = in_memory ? NULL : dir, .memory_max = 1 << 20};
        struct clp_spool *from = open_with(c), *s = NULL;
        for (uint64_t i = 0; i < 3; i++)
            assert_int_equal(put(from, "a", i, NULL), 0);
        struct clp_spool_entry *e = clp_spool_first(from);
        clp_spool_sent(from, e, 0, "cpu");
        clp_spool_sent(from, e, 1, "wall");
        clp_spool_sent(from, e->next, 1, NULL);
        c = (struct clp_spool_config){.dir = root,
                                      .bytes_max = 1 << 20,
                                      .files_max = 1000,
                                      .memory_max = 1 << 20,
                                      .age_max_ns = 3600 * CLP_NSEC_PER_SEC,
                                      .intakes = others,
                                      .intake_count = 2};
        assert_int_equal(clp_spool_open(&c, &s), 0);
        assert_int_equal(put(s, "a", 3, NULL), 0);
        assert_int_equal(clp_spool_take_over(s, from), 0);
        assert_int_equal(chunks(from), 0);
        assert_int_equal(clp_spool_close(from), 0);
        assert_int_equal(chunks(s), 4);
        assert_int_equal(clp_spool_counts(s)->in_memory, in_memory ? 3 : 0);
        assert_int_equal(clp_spool_close(s), 0); /* all of it is on the disk now */
        assert_int_equal(clp_spool_open(&c, &s), 0);
        e = clp_spool_first(s);
        for (uint64_t i = 0; i < 4; i++, e = e->next)
            assert_int_equal(e->seq, i);
        e = clp_spool_first(s);
        assert_true(clp_spool_has_part(e, 0, "wall"));
        assert_false(clp_spool_has_part(e, 0, "cpu") || clp_spool_has_part(e, 1, "wall"));
        assert_int_equal(e->done, 0);
        assert_int_equal(e->next->done, 1);
        assert_int_equal(clp_spool_close(s), 0);
        (void)count_files("", true);
    }
    char lock[100];
    (void)snprintf(lock, sizeof(lock), "%s/lock", dir);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left there */
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * CLP_NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void a_thousand_are_taken_up_at_once(void **state)
{
    (void)state;
    struct clp_spool *s = open_root();
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(put(s, i % 2 ? "a" : "b", i, NULL), 0);
    clp_spool_close(s);
    uint64_t before = cpu_ns();
    s = open_root();
    uint64_t took = cpu_ns() - before;
    print_message("1,000 chunks in %.1f ms\n", (double)took / 1e6);
    assert_int_equal(chunks(s), 1000);
    assert_true(took < CLP_NSEC_PER_SEC);
    clp_spool_close(s);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(survives_and_keeps_order_and_progress),
        IN_DIR(contents_come_back),
        IN_DIR(numbers_are_told_by_names),
        IN_DIR(targets_are_told_apart),
        IN_DIR(bounds_drop_the_oldest_and_count),
        IN_DIR(one_larger_than_the_spool_drops_no_others),
        IN_DIR(what_is_not_ours_is_set_aside_or_left),
        IN_DIR(one_larger_than_any_chunk_crowds_out_nobody),
        IN_DIR(a_half_written_mark_does_not_count),
        IN_DIR(a_stamp_is_no_age),
        IN_DIR(one_agent_at_a_time),
        IN_DIR(memory_holds_what_the_disk_does_not),
        IN_DIR(another_takes_over),
        IN_DIR(a_removed_directory_is_made_again),
        IN_DIR(a_thousand_are_taken_up_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
