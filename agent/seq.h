/* The numbers of profiles (profile_seq): from 0 for each runtime instance, one for each window that
 * has samples, the same for all that is made of a window.
 *
 * The next number lives in two places, of which the larger counts: a small file for each instance
 * in the state directory, and a word in the shared memory, which the library hands on to the next
 * agent.  So an agent that was killed, or that lost its state directory, goes on where it was. A
 * number is taken when its profile is safe in the spool: clp_seq_next, write, clp_seq_taken. An
 * agent that is killed between the last two leaves the number in the spool alone, so the next one
 * reads it there before anything is sent: clp_seq_found.
 *
 * One thread. */
#ifndef CLP_AGENT_SEQ_H
#define CLP_AGENT_SEQ_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "sampler/eventpipe/ipc.h"

#define CLP_SEQ_MAX (1ull << 53) /* a target may claim any number; more than this is nonsense */
#define CLP_SEQ_FILES_MAX 8192u
#define CLP_SEQ_OLD_SECONDS (7 * 86400) /* longer than the longest window, by far */

struct clp_seq;

/* Files go to `state_dir`/seq, which is made. One that cannot be made or written is a fault of the
 * caller's to tell; numbers then live in the shared memory only, and *ret works all the same.
 * Files of instances that have long ended are removed. 0, -ENOMEM (no *ret), or another fault. */
int clp_seq_new(const char *state_dir, struct clp_seq **ret, struct clp_fault *fault) CLP_MUST_USE;
struct clp_seq *clp_seq_free(struct clp_seq *s); /* NULL is fine; returns NULL */

/* The number for the next window of that runtime instance. `shared` is the word that the library
 * handed on (0: none). */
uint64_t clp_seq_next(const struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES],
                      uint64_t shared);
/* The number is taken: the next one is seq + 1. 0, or what the file system said. */
int clp_seq_taken(struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES],
                  uint64_t seq) CLP_MUST_USE;
/* A profile of that number waits in the spool: the next one is later. `runtime`: the instance's id,
 * a UUID with any letter for its dashes; what is none says nothing. */
void clp_seq_found(struct clp_seq *s, const char *runtime, uint64_t seq);
/* The instance has ended and its last profile is written. */
void clp_seq_forget(struct clp_seq *s, const uint8_t cookie[CLP_GUID_BYTES]);

#endif
