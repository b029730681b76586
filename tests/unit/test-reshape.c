#include "tests/unit/clp-cmocka.h"

#include "pprof/decode.h"
#include "pprof/model.h"
#include "pprof/reshape.h"
#include "tests/unit/upload-fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct clp_reshape_value cpu = {"cpu", NULL, NULL};

static struct clp_profile *decode(const struct clp_encoded *e)
{
    struct clp_profile *p = NULL;
    const char *why = "";
    int r = clp_profile_decode(e->data, e->len, NULL, &p, &why);
    assert_int_equal(r, 0);
    return p;
}

static struct clp_profile *full(void)
{
    struct clp_encoded e = full_profile();
    struct clp_profile *p = decode(&e);
    clp_encoded_done(&e);
    return p;
}

static struct clp_profile *reshaped(const struct clp_profile *p, const struct clp_reshape *how)
{
    struct clp_reshaped r;
    assert_int_equal(clp_profile_reshape(p, how, &r), 0);
    assert_int_equal(r.folded, 0);
    assert_string_equal(r.note, "");
    struct clp_profile *out = decode(&r.encoded);
    clp_reshaped_done(&r);
    return out;
}

/* The text of a label of the sample with this leaf; a number as text; NULL: no such label. */
static const char *label_of(const struct clp_profile *p, const char *leaf, const char *key)
{
    static char number[32];
    for (uint32_t i = 0; i < p->samples.len; i++) {
        uint32_t frames, lines, count;
        const struct clp_model_sample *s = clp_model_sample(p, i);
        const uint32_t *stack = clp_model_stack(p, s->stack, &frames);
        const struct clp_profile_line *line =
            clp_model_lines(p, clp_model_location(p, stack[0]), &lines);
        if (strcmp(clp_model_text(p, clp_model_function(p, line->function)->name), leaf) != 0)
            continue;
        const struct clp_model_label *l = clp_model_labels(p, s->labels, &count);
        for (uint32_t k = 0; k < count; k++)
            if (strcmp(clp_model_text(p, l[k].key), key) == 0) {
                (void)snprintf(number, sizeof(number), "%lld", (long long)l[k].num);
                return l[k].str ? clp_model_text(p, l[k].str) : number;
            }
    }
    return NULL;
}

static void takes_and_renames_types(void **state)
{
    (void)state;
    static const struct clp_reshape_value values[] = {
        {"alloc_objects", "objects", NULL}, {"alloc_space", NULL, NULL}, {"wall", NULL, NULL}};
    struct clp_profile *p = full();
    struct clp_profile *q =
        reshaped(p, &(struct clp_reshape){
                        .values = values, .value_count = 3, .period_type = {"space", "bytes"}});
    assert_int_equal(clp_profile_value_count(q), 2);
    assert_int_equal(clp_profile_value_index(q, "objects"), 0);
    assert_true(clp_profile_total(q, 0) == 7 && clp_profile_total(q, 1) == 700);
    assert_int_equal(clp_profile_sample_count(q), 1);
    assert_string_equal(clp_model_text(q, q->period_type.type), "space");
    assert_int_equal(q->start_unix_ns, p->start_unix_ns);
    assert_string_equal(q->comments[0], "process_cpu=4000 nanoseconds");
    clp_profile_free(q);
    clp_profile_free(p);
}

static void nothing_is_said_so(void **state)
{
    (void)state;
    static const struct clp_reshape_value wall = {"wall", NULL, NULL};
    struct clp_reshaped r;
    struct clp_profile *p = full();
    assert_int_equal(
        clp_profile_reshape(p, &(struct clp_reshape){.values = &wall, .value_count = 1}, &r),
        -ENODATA);
    assert_int_equal(
        clp_profile_reshape(
            p, &(struct clp_reshape){.values = &cpu, .value_count = 1, .plain_max = 20}, &r),
        -EFBIG);
    clp_profile_free(p);
}

static void spells_labels(void **state)
{
    (void)state;
    static const struct clp_label_rule rules[] = {
        {"thread_id", "thread id", CLP_LABEL_AS_TEXT, 0},
        {"span_id", "span id", CLP_LABEL_FROM_HEX, 0},
        {"trace_id", NULL, CLP_LABEL_HEX_OF_16, 0},
        {"endpoint", NULL, CLP_LABEL_FROM_HEX, 0},
    };
    struct clp_profile *p = full();
    struct clp_profile *q = reshaped(
        p,
        &(struct clp_reshape){.values = &cpu, .value_count = 1, .labels = rules, .label_count = 4});
    const char *leaf = "Shop.Cart.Add";
    assert_string_equal(label_of(q, leaf, "thread id"), "17");
    assert_string_equal(label_of(q, leaf, "span id"), "67667974448284343");
    assert_string_equal(label_of(q, leaf, "trace_id"), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_null(label_of(q, leaf, "endpoint"));    /* no hexadecimal number */
    assert_null(label_of(q, leaf, "thread_name")); /* no rule */
    clp_profile_free(q);
    q = reshaped(p, &(struct clp_reshape){.values = &cpu, .value_count = 1, .all_labels = true});
    assert_string_equal(label_of(q, leaf, "thread_name"), "w\xc3\xb6rker");
    assert_string_equal(label_of(q, leaf, "endpoint"), "GET /cart");
    clp_profile_free(q);
    clp_profile_free(p);
}

static void label_values_are_bounded(void **state)
{
    (void)state;
    static const struct clp_value_type type = {"cpu", "nanoseconds"};
    static const struct clp_label_rule rule = {"endpoint", NULL, CLP_LABEL_AS_IS, 2};
    struct clp_profile *p = window_profile(&type, 1);
    uint32_t leaf = frames_of(p, "F");
    for (int i = 0; i < 5; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "GET /%d", i);
        struct clp_profile_label l = {.key = "endpoint", .str = name};
        clp_profile_add(p, leaf, clp_profile_labels(p, &l, 1), (double[]){100 - i});
    }
    struct clp_profile *q = reshaped(
        p,
        &(struct clp_reshape){.values = &cpu, .value_count = 1, .labels = &rule, .label_count = 1});
    /* The two heaviest keep theirs, the other three become one. */
    assert_int_equal(clp_profile_sample_count(q), 3);
    assert_true(clp_profile_total(q, 0) == 490);
    clp_profile_free(q);
    clp_profile_free(p);
}

static void deep_stacks_lose_their_root(void **state)
{
    (void)state;
    static const struct clp_value_type type = {"cpu", "nanoseconds"};
    struct clp_profile *p = window_profile(&type, 1);
    uint32_t frames[50], count, lines;
    for (int i = 0; i < 50; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "F%d", i);
        frames[i] = clp_profile_frame(p, name);
    }
    clp_profile_add(p, clp_profile_stack(p, frames, 50), 0, (double[]){7});
    struct clp_profile *q =
        reshaped(p, &(struct clp_reshape){.values = &cpu, .value_count = 1, .depth_max = 10});
    const uint32_t *stack = clp_model_stack(q, clp_model_sample(q, 1)->stack, &count);
    assert_int_equal(count, 10);
    const char *names[] = {"F0", "[truncated]"};
    for (int i = 0; i < 2; i++) {
        const struct clp_profile_line *l =
            clp_model_lines(q, clp_model_location(q, stack[i * 9]), &lines);
        assert_string_equal(clp_model_text(q, clp_model_function(q, l->function)->name), names[i]);
    }
    clp_profile_free(q);
    clp_profile_free(p);
}

/* A million distinct stacks into the tables of one window, then to a limit of 2 MB. */
static void a_big_profile_is_folded_with_its_total(void **state)
{
    (void)state;
    static const struct clp_value_type type = {"cpu", "nanoseconds"};
    struct clp_profile *p = window_profile(&type, 1);
    uint32_t names[1000], frames[40];
    double total = 0;
    for (int i = 0; i < 1000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "Shop.Type%d.Method", i);
        names[i] = clp_profile_frame(p, name);
    }
    for (uint32_t i = 0; i < 1000000; i++) {
        for (uint32_t k = 0; k < 40; k++)
            frames[k] = names[k < 4 ? i / (k == 0 ? 1 : k == 1 ? 1000 : 1000000) % 1000 : k * 7];
        total += 1 + i % 100;
        clp_profile_add(p, clp_profile_stack(p, frames, 40), 0, (double[]){1 + i % 100});
    }
    struct clp_reshaped r;
    const struct clp_reshape how = {
        .values = &cpu, .value_count = 1, .plain_max = 2000000, .samples_max = 16000};
    assert_int_equal(clp_profile_reshape(p, &how, &r), 0);
    print_message("folded %zu, %zu bytes, %s\n", r.folded, r.encoded.plain_len, r.note);
    assert_true(r.encoded.plain_len <= 2000000 && r.encoded.plain_len > 500000);
    assert_true(r.encoded.samples <= 16000 && r.encoded.samples > 8000);
    assert_true(r.folded > 0);
    assert_non_null(strstr(r.note, "stacks of 40 frames"));
    struct clp_profile *q = decode(&r.encoded);
    assert_true(clp_profile_total(q, 0) == total);
    clp_profile_free(q);
    clp_reshaped_done(&r);
    clp_profile_free(p);
}

static void the_model_itself_can_be_had(void **state)
{
    (void)state;
    struct clp_reshaped r;
    struct clp_profile *p = full();
    assert_int_equal(
        clp_profile_reshape(
            p, &(struct clp_reshape){.values = &cpu, .value_count = 1, .model = true}, &r),
        0);
    assert_null(r.encoded.data);
    assert_true(clp_profile_total(r.model, 0) == 4000);
    clp_reshaped_done(&r);
    clp_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_and_renames_types),
        cmocka_unit_test(nothing_is_said_so),
        cmocka_unit_test(spells_labels),
        cmocka_unit_test(label_values_are_bounded),
        cmocka_unit_test(deep_stacks_lose_their_root),
        cmocka_unit_test(a_big_profile_is_folded_with_its_total),
        cmocka_unit_test(the_model_itself_can_be_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
