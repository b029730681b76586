#include "uploader/uploader.h"

#include "base/cleanup.h"
#include "uploader/intake.h"
#include "uploader/transfer.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>

#define WAIT_MS 200

static void send_request(struct clp_transfers *ts, const struct clp_intake *in,
                         const struct clp_request *q, struct clp_upload_result *ret)
{
    struct clp_transfer *t = NULL;
    void *context;
    int r = clp_transfer_start(ts, in, q, NULL, &t, ret);
    if (r < 0 && !*ret->text) {
        ret->outcome = CLP_OUTCOME_LATER;
        clp_upload_say(ret, "cannot send to %s: out of memory", in->where);
    }
    for (struct clp_transfer *done = NULL; r == 0 && !done;) {
        clp_transfers_step(ts);
        done = clp_transfers_next(ts, &context, ret);
        if (!done)
            clp_transfers_wait(ts, WAIT_MS); /* the transfer has its own time-outs */
    }
    clp_transfer_end(ts, t);
}

static int send_all(struct clp_intake *in, const struct clp_chunk *c,
                    const struct clp_requests *requests, struct clp_upload_result *ret)
{
    struct clp_transfers *ts = NULL;
    int r = in->kind->is_files ? 0 : clp_transfers_new(&ts);
    if (r < 0)
        return r;
    for (size_t i = 0; i < requests->count; i++) {
        if (in->kind->is_files)
            (void)in->kind->store(in, c, &requests->items[i], ret);
        else
            send_request(ts, in, &requests->items[i], ret);
        if (ret->outcome != CLP_OUTCOME_DONE)
            break;
    }
    clp_transfers_free(ts);
    return ret->outcome == CLP_OUTCOME_DONE ? 0 : -EREMOTEIO;
}

int clp_intake_send(struct clp_intake *in, const struct clp_upload_header *h, const void *profile,
                    size_t len, struct clp_upload_result *ret)
{
    CLP_CLEANUP(clp_cleanup_free) uint8_t *bytes = NULL;
    size_t bytes_len;
    struct clp_chunk c;
    struct clp_requests requests;
    *ret = (struct clp_upload_result){.outcome = CLP_OUTCOME_DROP};
    /* Through the form of the spool, so that what is tried here is what will be sent. */
    int r = clp_chunk_write(h, profile, len, &bytes, &bytes_len);
    if (r == 0)
        r = clp_chunk_read(bytes, bytes_len, &c, NULL);
    if (r < 0) {
        clp_upload_say(ret, "the profile cannot be prepared for %s", in->where);
        return r;
    }
    r = clp_intake_build(in, &c, &requests, ret);
    if (r == 0)
        r = send_all(in, &c, &requests, ret);
    clp_requests_done(&requests);
    clp_chunk_done(&c);
    return r;
}

int clp_uploader_setup(void)
{
    struct sigaction now;
    /* TLS libraries write to sockets without MSG_NOSIGNAL. */
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -ENOMEM;
}

void clp_uploader_teardown(void)
{
    curl_global_cleanup();
}
