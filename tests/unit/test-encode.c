#include "tests/unit/profile-fixture.h"

#include "pprof/decode.h"
#include "pprof/encode.h"
#include "pprof/gzip.h"
#include "pprof/profile.pb-c.h"
#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stdio.h>

/* Encoded, unpacked by protobuf-c and checked for what every reader asks for. */
static Pprof__Profile *valid_message(const struct clp_profile *p, struct clp_encode_options o)
{
    struct clp_encoded e;
    o.plain = true;
    assert_int_equal(clp_profile_encode(p, &o, &e), 0);
    assert_int_equal(e.len, e.plain_len);
    Pprof__Profile *m = pprof__profile__unpack(NULL, e.len, e.data);
    assert_non_null(m);
    assert_int_equal(m->n_sample, e.samples);
    clp_encoded_done(&e);
    assert_string_equal(m->string_table[0], "");
    for (size_t i = 0; i < m->n_mapping; i++)
        assert_int_equal(m->mapping[i]->id, i + 1);
    for (size_t i = 0; i < m->n_function; i++)
        assert_int_equal(m->function[i]->id, i + 1);
    for (size_t i = 0; i < m->n_location; i++) {
        assert_int_equal(m->location[i]->id, i + 1);
        for (size_t k = 0; k < m->location[i]->n_line; k++)
            assert_in_range(m->location[i]->line[k]->function_id, 1, m->n_function);
    }
    for (size_t i = 0; i < m->n_sample; i++) {
        assert_int_equal(m->sample[i]->n_value, m->n_sample_type);
        for (size_t k = 0; k < m->sample[i]->n_location_id; k++)
            assert_in_range(m->sample[i]->location_id[k], 1, m->n_location);
    }
    return m;
}

static const char *str(const Pprof__Profile *m, int64_t index)
{
    assert_in_range(index, 0, m->n_string_table - 1);
    return m->string_table[index];
}

static const char *leaf_name(const Pprof__Profile *m, size_t sample)
{
    Pprof__Location *l = m->location[m->sample[sample]->location_id[0] - 1];
    return str(m, m->function[l->line[0]->function_id - 1]->name);
}

static void a_profile_without_samples_is_valid(void **state)
{
    (void)state;
    struct clp_profile *p = wide_profile();
    clp_profile_add(p, stack_of(p, "a"), 0, (double[]){0, 0, 0.2});
    Pprof__Profile *m = valid_message(p, (struct clp_encode_options){0});
    assert_int_equal(m->n_sample, 0);
    assert_int_equal(m->n_location + m->n_function, 0);
    assert_int_equal(m->n_sample_type, 3);
    assert_string_equal(str(m, m->period_type->type), "cpu");
    assert_int_equal(m->period, 10000000);
    assert_string_equal(str(m, m->default_sample_type), "cpu");
    pprof__profile__free_unpacked(m, NULL);
    clp_profile_free(p);
}

static void every_field_arrives(void **state)
{
    (void)state;
    struct clp_profile *p = wide_profile();
    uint32_t main_mapping =
        clp_profile_mapping(p, &(struct clp_profile_mapping){.filename = "/app/main"});
    uint32_t mapping =
        clp_profile_mapping(p, &(struct clp_profile_mapping){.start = 0x1000,
                                                             .limit = 0x9000,
                                                             .file_offset = 0x200,
                                                             .filename = "/lib/libc.so.6",
                                                             .build_id = "abcdef",
                                                             .has_functions = true,
                                                             .has_line_numbers = true});
    struct clp_profile_line lines[] = {
        {clp_profile_function(p, &(struct clp_profile_function){"Inner", "_inner", "inner.c", 10}),
         12},
        {clp_profile_function(p, &(struct clp_profile_function){.name = "Outer"}), 0}};
    uint32_t location =
        clp_profile_location(p, &(struct clp_profile_location){mapping, 0x1234, lines, 2});
    const struct clp_profile_label labels[] = {{.key = "thread_name", .str = "main"},
                                               {.key = "size", .num = -5, .unit = "bytes"}};
    clp_profile_add(p, clp_profile_stack(p, &location, 1), clp_profile_labels(p, labels, 2),
                    (double[]){1, 64, 0});
    clp_profile_set_window(p, 1700000000000000000, 60000000000);
    assert_int_equal(clp_profile_comment(p, "clrpulse %d", 1), 0);
    assert_int_equal(main_mapping, 1);

    Pprof__Profile *m = valid_message(p, (struct clp_encode_options){0});
    assert_int_equal(m->time_nanos, 1700000000000000000);
    assert_int_equal(m->duration_nanos, 60000000000);
    assert_int_equal(m->n_comment, 1);
    assert_string_equal(str(m, m->comment[0]), "clrpulse 1");
    assert_int_equal(m->n_mapping, 2);
    assert_string_equal(str(m, m->mapping[0]->filename), "/app/main");
    assert_int_equal(m->mapping[1]->memory_start, 0x1000);
    assert_int_equal(m->mapping[1]->memory_limit, 0x9000);
    assert_int_equal(m->mapping[1]->file_offset, 0x200);
    assert_string_equal(str(m, m->mapping[1]->build_id), "abcdef");
    assert_true(m->mapping[1]->has_functions && m->mapping[1]->has_line_numbers);
    assert_false(m->mapping[1]->has_filenames || m->mapping[1]->has_inline_frames);
    Pprof__Location *l = m->location[m->sample[0]->location_id[0] - 1];
    assert_int_equal(l->mapping_id, 2);
    assert_int_equal(l->address, 0x1234);
    assert_int_equal(l->n_line, 2);
    assert_int_equal(l->line[0]->line, 12);
    Pprof__Function *f = m->function[l->line[0]->function_id - 1];
    assert_string_equal(str(m, f->name), "Inner");
    assert_string_equal(str(m, f->system_name), "_inner");
    assert_string_equal(str(m, f->filename), "inner.c");
    assert_int_equal(f->start_line, 10);
    f = m->function[l->line[1]->function_id - 1];
    assert_string_equal(str(m, f->system_name), "Outer");
    Pprof__Sample *s = m->sample[0];
    assert_int_equal(s->n_label, 2);
    assert_string_equal(str(m, s->label[0]->key), "size");
    assert_int_equal(s->label[0]->str, 0);
    assert_int_equal(s->label[0]->num, -5);
    assert_string_equal(str(m, s->label[0]->num_unit), "bytes");
    assert_string_equal(str(m, s->label[1]->str), "main");
    assert_int_equal(s->value[0], 1);
    assert_int_equal(s->value[1], 64);
    assert_int_equal(s->value[2], 0);
    pprof__profile__free_unpacked(m, NULL);
    clp_profile_free(p);
}

static void a_part_holds_only_what_it_uses(void **state)
{
    (void)state;
    struct clp_profile *p = wide_profile();
    clp_profile_add(p, stack_of(p, "Alloc;Main"), 0, (double[]){1, 100, 0});
    clp_profile_add(p, stack_of(p, "Burn;Main"), 0, (double[]){0, 0, 5});
    const uint8_t bytes_then_objects[] = {1, 0};
    struct clp_encode_options o = {.values = bytes_then_objects,
                                   .value_count = 2,
                                   .period_type = {"space", "bytes"},
                                   .period = 102400};
    Pprof__Profile *m = valid_message(p, o);
    assert_int_equal(m->n_sample_type, 2);
    assert_string_equal(str(m, m->sample_type[0]->type), "alloc_space");
    assert_string_equal(str(m, m->sample_type[1]->type), "alloc_objects");
    assert_string_equal(str(m, m->default_sample_type), "alloc_objects");
    assert_string_equal(str(m, m->period_type->type), "space");
    assert_string_equal(str(m, m->period_type->unit), "bytes");
    assert_int_equal(m->period, 102400);
    assert_int_equal(m->n_sample, 1);
    assert_int_equal(m->sample[0]->value[0], 100);
    assert_string_equal(leaf_name(m, 0), "Alloc");
    assert_int_equal(m->n_function, 2);
    for (size_t i = 0; i < m->n_string_table; i++)
        assert_string_not_equal(m->string_table[i], "Burn");
    pprof__profile__free_unpacked(m, NULL);
    o.default_sample_type = "alloc_space";
    m = valid_message(p, o);
    assert_string_equal(str(m, m->default_sample_type), "alloc_space");
    pprof__profile__free_unpacked(m, NULL);

    struct clp_encoded e;
    o.default_sample_type = "cpu";
    assert_int_equal(clp_profile_encode(p, &o, &e), -EINVAL);
    o.default_sample_type = NULL;
    o.values = (const uint8_t[]){3};
    o.value_count = 1;
    assert_int_equal(clp_profile_encode(p, &o, &e), -EINVAL);
    clp_profile_free(p);
}

static void what_was_folded_is_told_in_a_comment(void **state)
{
    (void)state;
    struct clp_profile *p = cpu_profile(&(struct clp_profile_limits){.samples = 1});
    add_cpu(p, "a", 1);
    add_cpu(p, "b", 2);
    add_cpu(p, "c", 3);
    Pprof__Profile *m = valid_message(p, (struct clp_encode_options){0});
    assert_int_equal(m->n_sample, 2);
    assert_string_equal(leaf_name(m, 0), "[other]");
    assert_int_equal(m->sample[0]->value[0], 5);
    assert_int_equal(m->n_comment, 2);
    assert_string_equal(str(m, m->comment[0]), "profile_samples_folded=2 count");
    assert_string_equal(str(m, m->comment[1]), "profile_samples_full=2 count");
    pprof__profile__free_unpacked(m, NULL);
    /* Also when the caller has used up all comments. */
    while (clp_profile_comment(p, "own") == 0)
        ;
    m = valid_message(p, (struct clp_encode_options){0});
    assert_int_equal(m->n_comment, CLP_PROFILE_COMMENTS_MAX);
    assert_string_equal(str(m, m->comment[0]), "own");
    assert_string_equal(str(m, m->comment[CLP_PROFILE_COMMENTS_MAX - 1]),
                        "profile_samples_full=2 count");
    pprof__profile__free_unpacked(m, NULL);
    clp_profile_free(p);
}

/* A profile with a bit of everything, made the same way each time. */
static struct clp_profile *varied(void)
{
    struct clp_profile *p = wide_profile();
    for (int i = 0; i < 300; i++) {
        char frames[80], thread[16];
        snprintf(frames, sizeof(frames), "leaf%d;middle%d;root", i % 37, i % 5);
        snprintf(thread, sizeof(thread), "t%d", i % 3);
        const struct clp_profile_label l[] = {{.key = "thread_name", .str = thread},
                                              {.key = "thread_id", .num = i % 3}};
        clp_profile_add(p, stack_of(p, frames), clp_profile_labels(p, l, 2),
                        (double[]){i % 2, 0.37 * i, i});
    }
    clp_profile_set_window(p, 1700000000000000000, 60000000000);
    return p;
}

static void the_same_model_gives_the_same_bytes(void **state)
{
    (void)state;
    struct clp_profile *a = varied(), *b = varied();
    struct clp_encoded x, y;
    assert_int_equal(clp_profile_encode(a, NULL, &x), 0);
    assert_int_equal(clp_profile_encode(b, NULL, &y), 0);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    assert_true(clp_gzip_is(x.data, x.len));
    assert_true(x.len < x.plain_len);
    clp_encoded_done(&x);
    clp_encoded_done(&y);
    clp_profile_free(a);
    clp_profile_free(b);
}

static void parts_add_up_to_the_whole(void **state)
{
    (void)state;
    struct clp_profile *p = varied();
    Pprof__Profile *whole = valid_message(p, (struct clp_encode_options){0});
    for (uint8_t v = 0; v < 3; v++) {
        int64_t a = 0, b = 0;
        Pprof__Profile *part =
            valid_message(p, (struct clp_encode_options){.values = &v, .value_count = 1});
        for (size_t i = 0; i < whole->n_sample; i++)
            a += whole->sample[i]->value[v];
        for (size_t i = 0; i < part->n_sample; i++)
            b += part->sample[i]->value[0];
        assert_int_equal(a, b);
        assert_true((double)a > clp_profile_total(p, v) - 0.51);
        assert_true((double)a < clp_profile_total(p, v) + 0.51);
        pprof__profile__free_unpacked(part, NULL);
    }
    pprof__profile__free_unpacked(whole, NULL);
    clp_profile_free(p);
}

static void no_memory_is_an_error_without_a_leak(void **state)
{
    (void)state;
    struct clp_profile *p = varied();
    int r = -ENOMEM;
    uint64_t allowed;
    for (allowed = 0; r == -ENOMEM && allowed < 1000; allowed++) {
        struct clp_encoded e = {0};
        alloc_fail_after(allowed, 0);
        r = clp_profile_encode(p, NULL, &e);
        uint64_t failed = alloc_fail_stop();
        assert_int_equal(e.data != NULL, r == 0);
        assert_int_equal(r == 0, failed == 0);
        clp_encoded_done(&e);
    }
    assert_int_equal(r, 0);
    assert_true(allowed > 10);
    clp_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_without_samples_is_valid),
        cmocka_unit_test(every_field_arrives),
        cmocka_unit_test(a_part_holds_only_what_it_uses),
        cmocka_unit_test(what_was_folded_is_told_in_a_comment),
        cmocka_unit_test(the_same_model_gives_the_same_bytes),
        cmocka_unit_test(parts_add_up_to_the_whole),
        cmocka_unit_test(no_memory_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
