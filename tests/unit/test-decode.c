#include "tests/unit/profile-fixture.h"

#include "pprof/decode.h"
#include "pprof/encode.h"
#include "pprof/profile.pb-c.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stdio.h>

/* The smallest message that has everything; each test breaks one thing of it. */
struct fixture {
    Pprof__ValueType type;
    Pprof__Function function;
    Pprof__Line line;
    Pprof__Location location;
    Pprof__Mapping mapping;
    Pprof__Label label;
    Pprof__Sample sample;
    Pprof__ValueType *types[2];
    Pprof__Function *functions[2];
    Pprof__Line *lines[1];
    Pprof__Location *locations[2];
    Pprof__Mapping *mappings[2];
    Pprof__Label *labels[1];
    Pprof__Sample *samples[2];
    char *strings[7];
    uint64_t location_ids[1];
    int64_t values[2];
    int64_t comments[1];
    Pprof__Profile m;
};

static char *text(const char *s)
{
    return (char *)(uintptr_t)s;
}

static void make_records(struct fixture *f)
{
    pprof__value_type__init(&f->type);
    pprof__function__init(&f->function);
    pprof__line__init(&f->line);
    pprof__location__init(&f->location);
    pprof__mapping__init(&f->mapping);
    pprof__label__init(&f->label);
    pprof__sample__init(&f->sample);
    f->type.type = 1;
    f->type.unit = 2;
    f->function.id = 70;
    f->function.name = 3;
    f->line.function_id = 70;
    f->line.line = 5;
    f->lines[0] = &f->line;
    f->location.id = 80;
    f->location.mapping_id = 90;
    f->location.n_line = 1;
    f->location.line = f->lines;
    f->mapping.id = 90;
    f->label.key = 4;
    f->label.str = 5;
    f->labels[0] = &f->label;
    f->location_ids[0] = 80;
    f->values[0] = 42;
    f->sample.n_location_id = 1;
    f->sample.location_id = f->location_ids;
    f->sample.n_value = 1;
    f->sample.value = f->values;
    f->sample.n_label = 1;
    f->sample.label = f->labels;
}

static void make(struct fixture *f)
{
    const char *strings[] = {"", "cpu", "nanoseconds", "Main", "key", "value", "comment"};
    memset(f, 0, sizeof(*f));
    make_records(f);
    for (size_t i = 0; i < 7; i++)
        f->strings[i] = text(strings[i]);
    f->types[0] = f->types[1] = &f->type;
    f->functions[0] = f->functions[1] = &f->function;
    f->locations[0] = f->locations[1] = &f->location;
    f->mappings[0] = f->mappings[1] = &f->mapping;
    f->samples[0] = f->samples[1] = &f->sample;
    f->comments[0] = 6;
    pprof__profile__init(&f->m);
    f->m.n_sample_type = f->m.n_function = f->m.n_location = f->m.n_mapping = f->m.n_sample = 1;
    f->m.sample_type = f->types;
    f->m.function = f->functions;
    f->m.location = f->locations;
    f->m.mapping = f->mappings;
    f->m.sample = f->samples;
    f->m.n_string_table = 7;
    f->m.string_table = f->strings;
    f->m.n_comment = 1;
    f->m.comment = f->comments;
}

static int decode_message(const Pprof__Profile *m, struct clp_profile **ret, const char **why)
{
    size_t len = pprof__profile__get_packed_size(m);
    uint8_t *data = malloc(len);
    assert_non_null(data);
    (void)pprof__profile__pack(m, data);
    int r = clp_profile_decode(data, len, NULL, ret, why);
    free(data);
    return r;
}

static void assert_refused(const struct fixture *f, const char *word)
{
    struct clp_profile *p = NULL;
    const char *why = NULL;
    assert_int_equal(decode_message(&f->m, &p, &why), -EBADMSG);
    assert_null(p);
    assert_non_null(strstr(why, word));
}

static void foreign_ids_are_taken(void **state)
{
    (void)state;
    struct fixture f;
    struct clp_profile *p = NULL;
    make(&f);
    assert_int_equal(decode_message(&f.m, &p, NULL), 0);
    assert_int_equal(clp_profile_sample_count(p), 1);
    assert_true(clp_profile_total(p, 0) == 42);
    assert_int_equal(clp_profile_value_index(p, "cpu"), 0);
    assert_int_equal(clp_profile_counts(p)->samples_folded, 0);
    clp_profile_free(p);
}

#define BROKEN(word, change)                                                                       \
    do {                                                                                           \
        struct fixture f;                                                                          \
        make(&f);                                                                                  \
        change;                                                                                    \
        assert_refused(&f, word);                                                                  \
    } while (0)

static void broken_tables_are_refused(void **state)
{
    (void)state;
    BROKEN("empty text", f.m.n_string_table = 0);
    BROKEN("empty text", f.strings[0] = text("x"));
    BROKEN("sample types", f.m.n_sample_type = 0);
    BROKEN("type's name", f.type.type = 7);
    BROKEN("type's name", f.type.unit = -1);
    BROKEN("type's name", f.m.default_sample_type = INT64_MAX);
    BROKEN("comment", f.comments[0] = 7);
    BROKEN("mapping's text", f.mapping.filename = INT64_MIN);
    BROKEN("mapping's id", f.mapping.id = 0);
    BROKEN("mapping's id", f.m.n_mapping = 2);
    BROKEN("function's text", f.function.name = 7);
    BROKEN("function's id", f.function.id = 0);
    BROKEN("function's id", f.m.n_function = 2);
    BROKEN("mapping that is not", f.location.mapping_id = 91);
    BROKEN("function that is not", f.line.function_id = 0);
    BROKEN("location's id", f.m.n_location = 2);
}

static void broken_samples_are_refused(void **state)
{
    (void)state;
    BROKEN("location that is not", f.location_ids[0] = 81);
    BROKEN("number of values", f.sample.n_value = 2);
    BROKEN("number of values", f.sample.n_value = 0);
    BROKEN("negative", f.values[0] = -1);
    BROKEN("2^53", f.values[0] = INT64_MAX);
    BROKEN("label's text", f.label.key = 7);
    BROKEN("label's text", f.label.str = 7);
    BROKEN("label's text", f.label.num_unit = -7);
}

static void noise_is_refused(void **state)
{
    (void)state;
    struct clp_profile *p = NULL;
    const char *why = NULL;
    assert_int_equal(clp_profile_decode("\xff\xff\xff", 3, NULL, &p, &why), -EBADMSG);
    assert_non_null(strstr(why, "protobuf"));
    assert_int_equal(clp_profile_decode("", 0, NULL, &p, &why), -EBADMSG);
    assert_int_equal(clp_profile_decode("\x1f\x8b\x08noise", 8, NULL, &p, &why), -EBADMSG);
    assert_non_null(strstr(why, "damaged"));
    assert_null(p);
}

/* A message that is small on the wire and huge in memory. */
static void greedy_messages_are_bounded(void **state)
{
    (void)state;
    const size_t len = 12u << 20; /* 6 million empty samples */
    uint8_t *data = malloc(len);
    struct clp_profile *p = NULL;
    assert_non_null(data);
    for (size_t i = 0; i < len; i += 2) {
        data[i] = 2 << 3 | 2; /* field 2, a message */
        data[i + 1] = 0;
    }
    assert_int_equal(clp_profile_decode(data, len, NULL, &p, NULL), -EFBIG);
    assert_null(p);
    free(data);
}

static struct clp_encoded encoded(const struct clp_profile *p)
{
    struct clp_encoded e;
    assert_int_equal(clp_profile_encode(p, NULL, &e), 0);
    return e;
}

static void fill(struct clp_profile *p)
{
    for (int i = 0; i < 100; i++) {
        char frames[80], thread[16];
        snprintf(frames, sizeof(frames), "leaf%d;thread_name;root", i % 37);
        snprintf(thread, sizeof(thread), "t%d", i % 3);
        const struct clp_profile_label l[] = {{.key = "thread_name", .str = thread},
                                              {.key = "zone", .num = i % 3, .unit = "count"}};
        clp_profile_add(p, stack_of(p, frames), clp_profile_labels(p, l, (size_t)i % 3),
                        (double[]){i % 2, 0.37 * i, i});
    }
    clp_profile_add(p, CLP_PROFILE_OTHER_STACK, 0, (double[]){1, 2, 3});
}

static void our_own_bytes_come_back_the_same(void **state)
{
    (void)state;
    struct clp_profile *a = wide_profile(), *b = NULL, *c = NULL;
    fill(a);
    struct clp_encoded first = encoded(a);
    assert_int_equal(clp_profile_decode(first.data, first.len, NULL, &b, NULL), 0);
    assert_int_equal(clp_profile_counts(b)->samples_folded, 0);
    struct clp_encoded second = encoded(b);
    assert_int_equal(second.len, first.len);
    assert_memory_equal(second.data, first.data, first.len);
    assert_int_equal(clp_profile_decode(second.data, second.len, NULL, &c, NULL), 0);
    assert_int_equal(clp_profile_sample_count(c), clp_profile_sample_count(b));
    clp_encoded_done(&first);
    clp_encoded_done(&second);
    clp_profile_free(a);
    clp_profile_free(b);
    clp_profile_free(c);
}

static void limits_fold_what_is_too_much(void **state)
{
    (void)state;
    struct clp_profile *a = wide_profile(), *b = NULL;
    fill(a);
    struct clp_encoded e = encoded(a);
    const struct clp_profile_limits limits = {.functions = 10};
    assert_int_equal(clp_profile_decode(e.data, e.len, &limits, &b, NULL), 0);
    assert_true(clp_profile_counts(b)->functions_full > 0);
    assert_true(clp_profile_counts(b)->samples_folded > 0);
    assert_true(clp_profile_total(b, 2) == clp_profile_total(a, 2));
    clp_encoded_done(&e);
    clp_profile_free(a);
    clp_profile_free(b);
}

static void no_memory_is_an_error_or_a_fold(void **state)
{
    (void)state;
    struct clp_profile *a = wide_profile();
    fill(a);
    struct clp_encoded e = encoded(a);
    uint64_t errors = 0, failed = 1;
    for (uint64_t allowed = 0; failed > 0 && allowed < 20000; allowed += allowed / 20 + 1) {
        struct clp_profile *b = NULL;
        alloc_fail_after(allowed, 0);
        int r = clp_profile_decode(e.data, e.len, NULL, &b, NULL);
        failed = alloc_fail_stop();
        assert_true(r == 0 || r == -ENOMEM);
        assert_int_equal(b != NULL, r == 0);
        if (b)
            assert_true(clp_profile_total(b, 2) == clp_profile_total(a, 2));
        errors += r < 0;
        clp_profile_free(b);
    }
    assert_true(errors > 20);
    assert_int_equal(failed, 0);
    clp_encoded_done(&e);
    clp_profile_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_ids_are_taken),
        cmocka_unit_test(broken_tables_are_refused),
        cmocka_unit_test(broken_samples_are_refused),
        cmocka_unit_test(noise_is_refused),
        cmocka_unit_test(greedy_messages_are_bounded),
        cmocka_unit_test(our_own_bytes_come_back_the_same),
        cmocka_unit_test(limits_fold_what_is_too_much),
        cmocka_unit_test(no_memory_is_an_error_or_a_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
