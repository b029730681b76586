/* What the files of `clrpulse events` share. */
#ifndef CLP_AGENT_CLI_EVENTS_H
#define CLP_AGENT_CLI_EVENTS_H

#include "agent/cli/cli.h"
#include "agent/eventpipe_spec.h"
#include "sampler/eventpipe/journal.h"
#include "sampler/eventpipe/stream.h"
#include "sampler/nettrace/nettrace.h"

#define CLP_EVENTS_BUFFER_MB 256u
#define CLP_EVENTS_CHUNK_BYTES (256u << 10)

int clp_events_record(const struct clp_cli *cli);
int clp_events_show(const struct clp_cli *cli);
int clp_events_replay(const struct clp_cli *cli);

/* A session for a command: opened, noted, read until its end. */
struct clp_live_events {
    struct clp_dotnet process;
    struct clp_stream stream;
    struct clp_journal *journal; /* NULL when there can be none */
    int stop_fd;
    bool interrupted;  /* by a signal or the end of the duration */
    uint64_t until_ns; /* 0: no end of its own */
};

/* Finds the process, stops sessions that a killed command left, opens. 0, or a fault; in both cases
 * end with clp_live_done. */
int clp_live_open(struct clp_live_events *l, const struct clp_cli *cli, uint64_t rundown_keywords,
                  const char *default_providers, struct clp_fault *f) CLP_MUST_USE;
/* The next bytes, waiting for them; the session is stopped at its time and read to its end. How
 * many; 0 at the end; -errno. */
int64_t clp_live_read(struct clp_live_events *l, void *buf, size_t cap) CLP_MUST_USE;
void clp_live_done(struct clp_live_events *l);
/* Feeds all of a recorded file to a reader. 0, or a fault. */
int clp_events_read_file(struct clp_nettrace *reader, const char *path,
                         struct clp_fault *f) CLP_MUST_USE;

#endif
