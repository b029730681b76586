/* The sessions that this process has open in targets, on disk: should it be killed, the next one
 * stops them. A session that nobody reads costs its target buffers and one of 64 places until it
 * writes an event.
 *
 * One file for each process that has sessions, "sessions.PID.START", a line for each session, "PID
 * START ID" in decimal. A file whose process is gone belongs to whoever finds it. The folder is
 * trusted (state.dir, or the user's runtime folder).
 *
 * One owner, one thread. */
#ifndef CLP_SAMPLER_EVENTPIPE_JOURNAL_H
#define CLP_SAMPLER_EVENTPIPE_JOURNAL_H

#include "base/core/core.h"
#include "sampler/eventpipe/stream.h"

#define CLP_JOURNAL_SESSIONS_MAX 4096u

struct clp_journal;

/* Opens the folder, made with its parents when missing. 0 or -errno. */
int clp_journal_open(const char *folder, struct clp_journal **ret) CLP_MUST_USE;
/* Removes this process's file. Accepts NULL; returns NULL. */
struct clp_journal *clp_journal_close(struct clp_journal *j);

/* Notes a session as soon as its id is known; forgets it when it is over. A journal that cannot be
 * written costs no profile: 0 or -errno. j may be NULL. */
int clp_journal_add(struct clp_journal *j, int32_t pid, uint64_t start_ticks,
                    uint64_t id) CLP_MUST_USE;
int clp_journal_remove(struct clp_journal *j, int32_t pid, uint64_t start_ticks,
                       uint64_t id) CLP_MUST_USE;

/* Stops the sessions of processes that are gone and removes their files. How many were stopped, or
 * -errno. Targets that are gone too are passed over; one that does not answer keeps its line for
 * the next time. */
int clp_journal_recover(struct clp_journal *j) CLP_MUST_USE;

/* The folder for commands that a user runs: $XDG_RUNTIME_DIR/clrpulse, else /tmp/clrpulse-UID,
 * which must belong to the user. 0, or -EPERM, -ENAMETOOLONG. */
int clp_journal_user_folder(char *ret, size_t cap) CLP_MUST_USE;

#endif
