#include "sampler/symbols/demangle.h"

#include "base/core/core.h"
#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *mangled, *want; /* NULL: left alone */
} names[] = {
    {"_ZN4shop5Order5totalERKSt6vectorIiSaIiEE", "shop::Order::total"},
    {"_ZZN1A1fEvENKUlvE_clEv", "A::f()::{lambda()#1}::operator()"},
    {"_ZN4shop5order5total17h05af221e174051e9E", "shop::order::total"},
    {"_RNvC4shop5total", "shop::total"},
    {"_RINvC4shop5totalFG_RL0_hEuE", "shop::total::<for<'a> fn(&'a u8)>"},
    {"main", NULL},
    {"_Z", NULL},
    {"_R", NULL},
    {"", NULL},
};

static void names_read_like_their_source(void **state)
{
    char buf[256];
    (void)state;
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++) {
        struct clp_text t = clp_text_in(buf, sizeof(buf));
        clp_text_add(&t, "in ");
        int r = clp_demangle(&t, names[i].mangled);
        assert_int_equal(r, names[i].want != NULL);
        assert_string_equal(buf + 3, names[i].want ? names[i].want : "");
    }
}

/* Substitutions double the name each time. */
static void a_name_that_unfolds_without_end_is_left_alone(void **state)
{
    char mangled[1024] = "_Z1fI2abIiiE", buf[256];
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    (void)state;
    for (size_t i = 0; i < 30; i++) {
        char s[3] = {'S', digits[i + 1], '\0'};
        strcat(mangled, "S0_I");
        strcat(mangled, s);
        strcat(mangled, "_");
        strcat(mangled, s);
        strcat(mangled, "_E");
    }
    strcat(mangled, "Evv");
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    int r = clp_demangle(&t, mangled);
    assert_true(r == -E2BIG || r == 0);
    assert_int_equal(t.len, 0);
}

/* The demangler would count through them one by one. */
static void a_binder_of_a_billion_lifetimes_is_left_alone(void **state)
{
    char buf[256];
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    (void)state;
    assert_int_equal(clp_demangle(&t, "_RINvC4shop5totalFGzzzzzzzzzz_uEuE"), 0);
    assert_int_equal(t.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_read_like_their_source),
        cmocka_unit_test(a_name_that_unfolds_without_end_is_left_alone),
        cmocka_unit_test(a_binder_of_a_billion_lifetimes_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
