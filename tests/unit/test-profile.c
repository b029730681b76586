#include "tests/unit/profile-fixture.h"

#include "pprof/model.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* The rounded value of the sample with this stack and no labels. */
static int64_t rounded(const struct clp_profile *p, uint32_t stack)
{
    int64_t *values = calloc(p->samples.len, sizeof(*values));
    int64_t found = -1;
    assert_int_equal(clp_model_round(p, 0, values), 0);
    for (uint32_t i = 0; i < p->samples.len; i++)
        if (clp_model_sample(p, i)->stack == stack && clp_model_sample(p, i)->labels == 0)
            found = values[i];
    free(values);
    return found;
}

static int64_t rounded_total(const struct clp_profile *p, size_t value)
{
    int64_t *values = calloc(p->samples.len, sizeof(*values));
    int64_t total = 0;
    assert_int_equal(clp_model_round(p, value, values), 0);
    for (uint32_t i = 0; i < p->samples.len; i++)
        total += values[i];
    free(values);
    return total;
}

static void equal_things_exist_once(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    assert_int_equal(clp_profile_frame(p, "A"), clp_profile_frame(p, "A"));
    assert_int_not_equal(clp_profile_frame(p, "A"), clp_profile_frame(p, "B"));
    assert_int_equal(stack_of(p, "A;B"), stack_of(p, "A;B"));
    assert_int_not_equal(stack_of(p, "A;B"), stack_of(p, "B;A"));
    struct clp_profile_mapping m = {.start = 0x1000, .limit = 0x2000, .filename = "x"};
    uint32_t first = clp_profile_mapping(p, &m);
    assert_int_equal(first, 1);
    assert_int_equal(clp_profile_mapping(p, &m), first);
    m.has_functions = true;
    assert_int_not_equal(clp_profile_mapping(p, &m), first);
    struct clp_profile_function f = {.name = "A", .system_name = "_A", .filename = "a.cs"};
    uint32_t g = clp_profile_function(p, &f);
    assert_int_equal(clp_profile_function(p, &f), g);
    f.start_line = 3;
    assert_int_not_equal(clp_profile_function(p, &f), g);
    clp_profile_free(p);
}

static void one_stack_with_one_label_set_is_one_sample(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    const struct clp_profile_label ab[] = {{.key = "a", .str = "x"}, {.key = "b", .num = 7}};
    const struct clp_profile_label ba[] = {{.key = "b", .num = 7}, {.key = "a", .str = "x"}};
    uint32_t stack = stack_of(p, "A;B");
    uint32_t one = clp_profile_labels(p, ab, 2);
    assert_int_equal(clp_profile_labels(p, ba, 2), one);
    clp_profile_add(p, stack, one, (double[]){3});
    clp_profile_add(p, stack, clp_profile_labels(p, ba, 2), (double[]){4});
    clp_profile_add(p, stack, CLP_PROFILE_NO_LABELS, (double[]){5});
    clp_profile_add(p, stack, clp_profile_labels(p, ab, 1), (double[]){6});
    assert_int_equal(clp_profile_sample_count(p), 3);
    assert_int_equal(rounded(p, stack), 5);
    assert_true(clp_profile_total(p, 0) == 18);
    clp_profile_free(p);
}

static void labels_have_one_value_and_one_form(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    const struct clp_profile_label twice[] = {{.key = "k", .str = "1"}, {.key = "k", .str = "2"}};
    const struct clp_profile_label number = {.key = "k", .num = 3};
    const struct clp_profile_label no_key = {.key = "", .str = "x"};
    const struct clp_profile_label no_text = {.key = "t", .str = ""};
    const struct clp_profile_label bytes = {.key = "n", .num = 3, .unit = "bytes"};
    const struct clp_profile_label count = {.key = "n", .num = 3, .unit = "count"};
    assert_int_equal(clp_profile_labels(p, twice, 2), clp_profile_labels(p, twice, 1));
    assert_int_equal(clp_profile_counts(p)->labels_refused, 1);
    assert_int_equal(clp_profile_labels(p, &number, 1), CLP_PROFILE_NO_LABELS);
    assert_int_equal(clp_profile_counts(p)->labels_refused, 2);
    assert_int_equal(clp_profile_labels(p, &no_key, 1), CLP_PROFILE_NO_LABELS);
    assert_int_equal(clp_profile_counts(p)->labels_refused, 3);
    assert_int_equal(clp_profile_labels(p, &no_text, 1), CLP_PROFILE_NO_LABELS);
    assert_int_equal(clp_profile_counts(p)->labels_refused, 3);
    assert_int_not_equal(clp_profile_labels(p, &bytes, 1), CLP_PROFILE_NO_LABELS);
    assert_int_equal(clp_profile_labels(p, &count, 1), CLP_PROFILE_NO_LABELS);
    assert_int_equal(clp_profile_counts(p)->labels_refused, 4);
    clp_profile_free(p);
}

static void rounding_keeps_the_total(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    double sum = 0;
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        add_cpu(p, name, 1.4);
        sum += 1.4;
    }
    /* Each on its own would give 1000. */
    assert_int_equal(rounded_total(p, 0), llround(sum));
    assert_int_equal(rounded_total(p, 0), 1400);
    clp_profile_free(p);
}

static void the_largest_remainder_is_rounded_up(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    add_cpu(p, "a", 0.3);
    add_cpu(p, "b", 2.6);
    add_cpu(p, "c", 1.1);
    add_cpu(p, "d", 5);
    assert_int_equal(rounded(p, stack_of(p, "a")), 0);
    assert_int_equal(rounded(p, stack_of(p, "b")), 3);
    assert_int_equal(rounded(p, stack_of(p, "c")), 1);
    assert_int_equal(rounded(p, stack_of(p, "d")), 5);
    clp_profile_free(p);
}

static void whole_numbers_are_exact_up_to_their_bound(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    const double half = 4503599627370496.0; /* 2^52 */
    add_cpu(p, "a", half - 1);
    add_cpu(p, "b", half);
    add_cpu(p, "b", 1);
    assert_int_equal(rounded(p, stack_of(p, "a")), 4503599627370495);
    assert_int_equal(rounded(p, stack_of(p, "b")), 4503599627370497);
    add_cpu(p, "b", 1);
    assert_int_equal(clp_profile_counts(p)->values_refused, 1);
    assert_int_equal(rounded_total(p, 0), 9007199254740992);
    clp_profile_free(p);
}

static void unusable_values_count_as_nothing(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    add_cpu(p, "a", -1);
    add_cpu(p, "a", NAN);
    add_cpu(p, "a", INFINITY);
    add_cpu(p, "a", 2);
    assert_int_equal(clp_profile_counts(p)->values_refused, 3);
    assert_int_equal(rounded_total(p, 0), 2);
    clp_profile_free(p);
}

/* Adds 50 different things to a profile with room for a few of everything: nothing of the total is
 * lost. */
static void assert_folds(const struct clp_profile_limits *limits, size_t field)
{
    struct clp_profile *p = cpu_profile(limits);
    for (int i = 0; i < 50; i++) {
        char frames[64];
        snprintf(frames, sizeof(frames), "leaf%d;middle%d;root", i, i);
        add_cpu(p, frames, i + 1);
    }
    add_cpu(p, "leaf0;middle0;root", 1000); /* what is in is not touched */
    const struct clp_profile_counts *c = clp_profile_counts(p);
    uint64_t full = *(const uint64_t *)((const char *)c + field);
    assert_true(full > 0);
    assert_true(c->samples_folded > 0 && c->samples_folded < 50);
    assert_int_equal(rounded_total(p, 0), 50 * 51 / 2 + 1000);
    assert_int_equal(rounded(p, stack_of(p, "leaf0;middle0;root")), 1001);
    assert_true(rounded(p, CLP_PROFILE_OTHER_STACK) >= 50);
    assert_int_equal(rounded(p, stack_of(p, "leaf49;middle49;root")),
                     rounded(p, CLP_PROFILE_OTHER_STACK));
    clp_profile_free(p);
}

#define COUNT_OF(name) offsetof(struct clp_profile_counts, name)

static void full_tables_fold_into_other(void **state)
{
    (void)state;
    assert_folds(&(struct clp_profile_limits){.strings = 20}, COUNT_OF(strings_full));
    assert_folds(&(struct clp_profile_limits){.functions = 20}, COUNT_OF(functions_full));
    assert_folds(&(struct clp_profile_limits){.locations = 20}, COUNT_OF(locations_full));
    assert_folds(&(struct clp_profile_limits){.stacks = 20}, COUNT_OF(stacks_full));
    assert_folds(&(struct clp_profile_limits){.stack_frames = 30}, COUNT_OF(stacks_full));
}

static void full_sample_table_folds_into_other(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(&(struct clp_profile_limits){.samples = 3});
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        add_cpu(p, name, 1);
    }
    assert_int_equal(clp_profile_sample_count(p), 4);
    assert_int_equal(rounded(p, stack_of(p, "f2")), 1);
    assert_int_equal(rounded(p, stack_of(p, "f3")), -1);
    assert_int_equal(rounded(p, CLP_PROFILE_OTHER_STACK), 7);
    assert_int_equal(clp_profile_counts(p)->samples_folded, 7);
    assert_int_equal(clp_profile_counts(p)->samples_full, 7);
    clp_profile_free(p);
}

static void full_label_tables_keep_the_sample(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(&(struct clp_profile_limits){.label_sets = 2});
    for (int i = 0; i < 5; i++) {
        struct clp_profile_label l = {.key = "thread_id", .num = i};
        clp_profile_add(p, stack_of(p, "f"), clp_profile_labels(p, &l, 1), (double[]){1});
    }
    assert_int_equal(clp_profile_sample_count(p), 3);
    assert_int_equal(rounded(p, stack_of(p, "f")), 3);
    assert_int_equal(clp_profile_counts(p)->label_sets_full, 3);
    assert_int_equal(clp_profile_counts(p)->samples_folded, 0);
    clp_profile_free(p);
}

static void wrong_ids_and_odd_stacks_are_other(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    static uint32_t deep[CLP_PROFILE_FRAMES_MAX + 1];
    uint32_t a = clp_profile_frame(p, "a");
    for (size_t i = 0; i < CLP_ARRAY_LEN(deep); i++)
        deep[i] = a;
    assert_int_equal(clp_profile_stack(p, deep, CLP_ARRAY_LEN(deep)), CLP_PROFILE_OTHER_STACK);
    assert_int_not_equal(clp_profile_stack(p, deep, CLP_PROFILE_FRAMES_MAX),
                         CLP_PROFILE_OTHER_STACK);
    assert_int_equal(clp_profile_stack(p, deep, 0), CLP_PROFILE_OTHER_STACK);
    assert_int_equal(clp_profile_stack(p, (uint32_t[]){a, 999}, 2), CLP_PROFILE_OTHER_STACK);
    clp_profile_add(p, 999, 999, (double[]){1});
    assert_int_equal(rounded(p, CLP_PROFILE_OTHER_STACK), 1);
    /* Code without a name needs a mapping, to be named later. */
    struct clp_profile_location l = {.address = 0x1234};
    assert_int_equal(clp_profile_location(p, &l), CLP_PROFILE_OTHER_LOCATION);
    l.mapping = clp_profile_mapping(p, &(struct clp_profile_mapping){.limit = 0x2000});
    assert_int_not_equal(clp_profile_location(p, &l), CLP_PROFILE_OTHER_LOCATION);
    clp_profile_free(p);
}

static void long_and_broken_texts_are_mended(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    static char big[CLP_PROFILE_STRING_MAX_BYTES + 100];
    memset(big, 'x', sizeof(big) - 1);
    assert_int_not_equal(clp_profile_frame(p, big), CLP_PROFILE_OTHER_LOCATION);
    assert_int_equal(clp_profile_counts(p)->strings_cut, 1);
    assert_int_equal(clp_profile_frame(p, "a\xff"), clp_profile_frame(p, "a\xef\xbf\xbd"));
    clp_profile_free(p);
}

static void wrong_configurations_are_refused(void **state)
{
    (void)state;
    static const struct clp_value_type types[CLP_PROFILE_VALUES_MAX + 1] = {{"a", "b"}};
    struct clp_profile *p = NULL;
    struct clp_profile_config c = {.sample_types = types};
    assert_int_equal(clp_profile_new(&c, &p), -EINVAL);
    c.sample_type_count = CLP_PROFILE_VALUES_MAX + 1;
    assert_int_equal(clp_profile_new(&c, &p), -EINVAL);
    c.sample_type_count = 1;
    c.default_sample_type = "c";
    assert_int_equal(clp_profile_new(&c, &p), -EINVAL);
    assert_null(p);
    c.default_sample_type = "a";
    assert_int_equal(clp_profile_new(&c, &p), 0);
    assert_int_equal(clp_profile_value_count(p), 1);
    assert_int_equal(clp_profile_value_index(p, "a"), 0);
    assert_int_equal(clp_profile_value_index(p, "b"), -ENOENT);
    clp_profile_freep(&p);
    assert_null(p);
}

static void comments_have_a_bound(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(NULL);
    for (unsigned i = 0; i < CLP_PROFILE_COMMENTS_MAX; i++)
        assert_int_equal(clp_profile_comment(p, "number %u", i), 0);
    assert_int_equal(clp_profile_comment(p, "one more"), -ENOSPC);
    assert_string_equal(p->comments[3], "number 3");
    clp_profile_free(p);
}

/* Fills a profile with everything; what it adds to the total is always 60. */
static void fill(struct clp_profile *p)
{
    for (int i = 0; i < 60; i++) {
        char frames[64];
        struct clp_profile_label l = {.key = "thread_name", .str = "some thread"};
        snprintf(frames, sizeof(frames), "leaf%d;middle;root", i);
        clp_profile_add(p, stack_of(p, frames), clp_profile_labels(p, &l, i % 2), (double[]){1});
    }
}

/* Whatever allocation fails, once or for good: the total is whole and every lost entry is counted.
 */
static void no_memory_costs_detail_but_no_value(void **state)
{
    (void)state;
    uint64_t failures = 0;
    for (uint64_t allowed = 0; allowed < 60; allowed++)
        for (int for_good = 0; for_good < 2; for_good++) {
            struct clp_profile *p = cpu_profile(NULL);
            alloc_fail_after(allowed, for_good);
            fill(p);
            uint64_t failed = alloc_fail_stop();
            assert_int_equal(rounded_total(p, 0), 60);
            assert_int_equal(clp_profile_counts(p)->no_memory > 0, failed > 0);
            failures += failed;
            fill(p); /* and it works on */
            assert_int_equal(rounded_total(p, 0), 120);
            clp_profile_free(p);
        }
    assert_true(failures > 100);
}

static void no_memory_at_the_start_is_an_error(void **state)
{
    (void)state;
    static const struct clp_value_type cpu = {"cpu", "nanoseconds"};
    struct clp_profile_config config = {.sample_types = &cpu, .sample_type_count = 1};
    int r = -ENOMEM;
    uint64_t allowed;
    for (allowed = 0; r == -ENOMEM; allowed++) {
        struct clp_profile *p = NULL;
        alloc_fail_after(allowed, 0);
        r = clp_profile_new(&config, &p);
        (void)alloc_fail_stop();
        assert_int_equal(p != NULL, r == 0);
        clp_profile_free(p);
    }
    assert_int_equal(r, 0);
    assert_true(allowed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_things_exist_once),
        cmocka_unit_test(one_stack_with_one_label_set_is_one_sample),
        cmocka_unit_test(labels_have_one_value_and_one_form),
        cmocka_unit_test(rounding_keeps_the_total),
        cmocka_unit_test(the_largest_remainder_is_rounded_up),
        cmocka_unit_test(whole_numbers_are_exact_up_to_their_bound),
        cmocka_unit_test(unusable_values_count_as_nothing),
        cmocka_unit_test(full_tables_fold_into_other),
        cmocka_unit_test(full_sample_table_folds_into_other),
        cmocka_unit_test(full_label_tables_keep_the_sample),
        cmocka_unit_test(wrong_ids_and_odd_stacks_are_other),
        cmocka_unit_test(long_and_broken_texts_are_mended),
        cmocka_unit_test(wrong_configurations_are_refused),
        cmocka_unit_test(comments_have_a_bound),
        cmocka_unit_test(no_memory_costs_detail_but_no_value),
        cmocka_unit_test(no_memory_at_the_start_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
