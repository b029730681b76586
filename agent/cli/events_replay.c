/* clrpulse events replay: a recorded stream through the engine, to a profile. The same bytes give
 * the same profile. */
#include "agent/cli/events.h"
#include "agent/eventpipe_build.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "pprof/encode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct replay {
    struct clp_nettrace *reader;
    struct clp_epb *build;
    uint64_t first_ticks, last_ticks;
};

static void take_event(void *context, const struct clp_nettrace_event *e)
{
    struct replay *r = context;
    if (r->first_ticks == 0)
        r->first_ticks = e->ticks;
    r->last_ticks = e->ticks;
    clp_epb_event(r->build, e);
}

static int finish(struct replay *r, struct clp_profile **ret)
{
    struct clp_epb_window w = {
        .start_unix_ns = clp_nettrace_unix_ns(r->reader, r->first_ticks),
        .duration_ns = r->last_ticks - r->first_ticks,
        .end_ticks = r->last_ticks + 1,
        .lost = clp_nettrace_counts(r->reader)->lost,
        .partial = !clp_nettrace_is_complete(r->reader),
    };
    return clp_epb_finish(r->build, &w, ret);
}

static int write_profile(const struct clp_profile *p, const char *path, struct clp_fault *f)
{
    struct clp_encoded encoded;
    int r = clp_profile_encode(p, NULL, &encoded);
    if (r == 0) {
        r = clp_file_write(path, encoded.data, encoded.len, 0644);
        clp_encoded_done(&encoded);
    }
    if (r < 0)
        return clp_fault_set(f, -EIO, "cannot write %s: %s", path, strerror(-r));
    return 0;
}

/* trace.nettrace becomes trace.pb.gz. */
static int output_path(const struct clp_cli *cli, char *ret, size_t cap)
{
    const char *in = cli->words[1];
    size_t len = strlen(in);
    if (cli->events_output)
        return snprintf(ret, cap, "%s", cli->events_output) >= (int)cap ? -ENAMETOOLONG : 0;
    if (len > 9 && strcmp(in + len - 9, ".nettrace") == 0)
        len -= 9;
    return snprintf(ret, cap, "%.*s.pb.gz", (int)len, in) >= (int)cap ? -ENAMETOOLONG : 0;
}

static int replay(const struct clp_cli *cli, struct replay *r, struct clp_fault *f)
{
    char path[4096];
    CLP_CLEANUP(clp_profile_freep) struct clp_profile *profile = NULL;
    struct clp_epb_config build = {0};
    struct clp_nettrace_config config = {.event = take_event, .context = r};
    if (output_path(cli, path, sizeof(path)) < 0)
        return clp_fault_set(f, -ENAMETOOLONG, "the path of the file is too long");
    if (clp_epb_new(&build, &r->build) < 0 || clp_nettrace_new(&config, &r->reader) < 0)
        return clp_fault_set(f, -ENOMEM, "out of memory");
    int e = clp_events_read_file(r->reader, cli->words[1], f);
    if (e < 0)
        return e;
    if (finish(r, &profile) < 0)
        return clp_fault_set(f, -ENOMEM, "out of memory");
    return write_profile(profile, path, f);
}

int clp_events_replay(const struct clp_cli *cli)
{
    struct clp_fault f = {0};
    struct replay r = {0};
    if (cli->word_count != 2) {
        fprintf(stderr, "clrpulse: events replay needs a file: "
                        "`clrpulse events replay FILE.nettrace -o FILE.pb.gz`\n");
        return CLP_EXIT_USE;
    }
    int e = replay(cli, &r, &f);
    clp_nettrace_free(r.reader);
    clp_epb_free(r.build);
    return e < 0 ? clp_exit_fault(&f) : CLP_EXIT_DONE;
}
