/* Writes profiles of several shapes into a directory, for pprof-readers.py, which knows what is in
 * them. */
#include "base/file.h"
#include "pprof/encode.h"

#include <stdio.h>
#include <stdlib.h>

static const struct clp_value_type types[] = {{"exceptions", "count"},
                                              {"alloc_objects", "count"},
                                              {"alloc_space", "bytes"},
                                              {"cpu", "nanoseconds"}};
static const struct clp_profile_config config = {
    .sample_types = types,
    .sample_type_count = 4,
    .default_sample_type = "cpu",
    .period_type = {"cpu", "nanoseconds"},
    .period = 10000000,
};

static void write_profile(const char *dir, const char *name, const struct clp_profile *p,
                          const struct clp_encode_options *o)
{
    char path[512];
    struct clp_encoded e;
    (void)snprintf(path, sizeof(path), "%s/%s.pb.gz", dir, name);
    int r = clp_profile_encode(p, o, &e);
    if (r == 0) {
        r = clp_file_write(path, e.data, e.len, 0600);
        clp_encoded_done(&e);
    }
    if (r < 0) {
        (void)fprintf(stderr, "%s: error %d\n", path, r);
        exit(1);
    }
}

static struct clp_profile *new_profile(const struct clp_profile_limits *limits)
{
    struct clp_profile_config c = config;
    struct clp_profile *p = NULL;
    if (limits)
        c.limits = *limits;
    if (clp_profile_new(&c, &p) < 0)
        exit(1);
    clp_profile_set_window(p, 1700000000000000000, 60000000000);
    return p;
}

static void add(struct clp_profile *p, const uint32_t *frames, size_t count,
                const struct clp_profile_label *labels, size_t label_count, const double *values)
{
    clp_profile_add(p, clp_profile_stack(p, frames, count),
                    clp_profile_labels(p, labels, label_count), values);
}

static uint32_t native_frame(struct clp_profile *p)
{
    const struct clp_profile_mapping libc = {.start = 0x7f0000000000,
                                             .limit = 0x7f0000200000,
                                             .file_offset = 0x1000,
                                             .filename = "/lib/libc.so.6",
                                             .build_id = "0123456789abcdef",
                                             .has_functions = true};
    struct clp_profile_line line = {
        clp_profile_function(p, &(struct clp_profile_function){.name = "qsort"}), 0};
    struct clp_profile_location l = {clp_profile_mapping(p, &libc), 0x7f0000012345, &line, 1};
    return clp_profile_location(p, &l);
}

static uint32_t inlined_frame(struct clp_profile *p)
{
    struct clp_profile_line lines[] = {
        {clp_profile_function(p, &(struct clp_profile_function){"App.Inner",
                                                                "App.Inner`1[System.__Canon]",
                                                                "Inner.cs", 3}),
         7},
        {clp_profile_function(
             p, &(struct clp_profile_function){"App.List<T>.Add", "App.List`1.Add", "List.cs", 10}),
         12}};
    struct clp_profile_location l = {.lines = lines, .line_count = 2};
    return clp_profile_location(p, &l);
}

/* cpu: App.Compare 1.4 s, qsort 0.5 s, App.Inner 0.1 s, all below App.Main. */
static void write_full(const char *dir)
{
    struct clp_profile *p = new_profile(NULL);
    (void)clp_profile_mapping(p, &(struct clp_profile_mapping){.filename = "/app/Program"});
    uint32_t root = clp_profile_frame(p, "App.Main");
    uint32_t compare = clp_profile_frame(p, "App.Compare");
    uint32_t native = native_frame(p);
    const struct clp_profile_label labels[] = {{.key = "thread_name", .str = "w\xc3\xb6rker"},
                                               {.key = "thread_id", .num = 4242, .unit = "id"}};
    add(p, (uint32_t[]){compare, native, root}, 3, labels, 2, (double[]){0, 0, 0, 1.4e9});
    add(p, (uint32_t[]){native, root}, 2, labels, 2, (double[]){0, 0, 0, 0.5e9});
    add(p, (uint32_t[]){inlined_frame(p), root}, 2, NULL, 0, (double[]){0, 1.4, 44.8, 0.1e9});
    add(p, (uint32_t[]){root}, 1, NULL, 0, (double[]){3, 2.8, 89.6, 0});
    if (clp_profile_comment(p, "clrpulse test") < 0)
        exit(1);
    write_profile(dir, "full", p, NULL);
    write_profile(dir, "cpu", p,
                  &(struct clp_encode_options){.values = (const uint8_t[]){3}, .value_count = 1});
    write_profile(dir, "alloc", p,
                  &(struct clp_encode_options){.values = (const uint8_t[]){1, 2},
                                               .value_count = 2,
                                               .period_type = {"space", "bytes"},
                                               .period = 102400});
    clp_profile_free(p);
}

/* 500 stacks of 30 frames, each four times, into a table for 100: 1,000 ns each time, 2 ms in all.
 */
static void write_folded(const char *dir)
{
    struct clp_profile *p = new_profile(&(struct clp_profile_limits){.stacks = 100});
    for (int i = 0; i < 2000; i++) {
        uint32_t frames[30];
        for (int k = 0; k < 30; k++) {
            char name[32];
            (void)snprintf(name, sizeof(name), "F%d", (i * 7 + k * 13) % 500);
            frames[k] = clp_profile_frame(p, name);
        }
        frames[0] = clp_profile_frame(p, i % 2 ? "Odd" : "Even");
        add(p, frames, 30, NULL, 0, (double[]){0, 0, 0, 1000});
    }
    write_profile(dir, "folded", p, NULL);
    clp_profile_free(p);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    write_full(argv[1]);
    write_folded(argv[1]);
    struct clp_profile *empty = new_profile(NULL);
    write_profile(argv[1], "empty", empty, NULL);
    clp_profile_free(empty);
    return 0;
}
