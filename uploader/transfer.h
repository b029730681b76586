/* HTTP requests by libcurl's multi interface: several at once on the caller's one thread.
 *
 * No answer is waited for beyond its time-outs, none is read beyond a bound; redirects are not
 * followed; certificates are verified. */
#ifndef CLP_UPLOADER_TRANSFER_H
#define CLP_UPLOADER_TRANSFER_H

#include "uploader/intake.h"

struct clp_transfers; /* the connections, kept alive between requests */
struct clp_transfer;  /* one request under way */

int clp_transfers_new(struct clp_transfers **ret) CLP_MUST_USE;
/* Accepts NULL; returns NULL. No transfer may be under way. */
struct clp_transfers *clp_transfers_free(struct clp_transfers *ts);

/* Starts. `in` and `q` must outlive the transfer. 0; or what a secret's source said, with a
 * sentence in *result, -ENOMEM. */
int clp_transfer_start(struct clp_transfers *ts, const struct clp_intake *in,
                       const struct clp_request *q, void *context, struct clp_transfer **ret,
                       struct clp_upload_result *result) CLP_MUST_USE;
/* Abandons it, or frees one that was given out as finished. Accepts NULL; returns NULL. */
struct clp_transfer *clp_transfer_end(struct clp_transfers *ts, struct clp_transfer *t);

/* Moves everything on. Then clp_transfers_next until NULL: each that finished, once, with its
 * outcome. */
void clp_transfers_step(struct clp_transfers *ts);
struct clp_transfer *clp_transfers_next(struct clp_transfers *ts, void **ret_context,
                                        struct clp_upload_result *ret);
/* Waits for the network, at most `ms`, or for clp_transfers_wake from another thread. */
void clp_transfers_wait(struct clp_transfers *ts, int ms);
void clp_transfers_wake(struct clp_transfers *ts);

#endif
