#include "agent/health.h"

#include "base/cleanup.h"
#include "config/value.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#define CLP_HEALTH_REASON_BYTES 256u

struct clp_health {
    struct clp_health_answers answers;
    struct MHD_Daemon *http;
    int fd;
};

/* ---- answers ------------------------------------------------------------------------------- */

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned code, const char *type,
                                 struct clp_strbuf *text)
{
    char *body;
    size_t len;
    if (clp_strbuf_take(text, &body, &len) < 0)
        return MHD_NO;
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback(len, body, free);
    if (!r) {
        free(body);
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result done = MHD_queue_response(c, code, r);
    MHD_destroy_response(r);
    return done;
}

static unsigned answer_health(const struct clp_health *h, struct clp_strbuf *to)
{
    static const struct {
        unsigned status;
        const char *answer;
    } states[] = {
#define CLP_HEALTH(id, status, answer, meaning) {status, answer},
#include "agent/healths.def"
#undef CLP_HEALTH
    };
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf reason;
    clp_strbuf_init(&reason, CLP_HEALTH_REASON_BYTES);
    enum clp_health_state s = h->answers.health(h->answers.context, &reason);
    clp_strbuf_str(to, states[s].answer);
    if (reason.len)
        clp_strbuf_printf(to, " %s", clp_strbuf_text(&reason));
    clp_strbuf_str(to, "\n");
    return states[s].status;
}

static unsigned answer(const struct clp_health *h, const char *path, const char *method,
                       const char **type, struct clp_strbuf *to)
{
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        clp_strbuf_str(to, "only GET and HEAD are answered\n");
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    if (strcmp(path, "/healthz") == 0)
        return answer_health(h, to);
    if (strcmp(path, "/metrics") == 0) {
        *type = "text/plain; version=0.0.4; charset=utf-8";
        h->answers.metrics(h->answers.context, to);
        return MHD_HTTP_OK;
    }
    clp_strbuf_str(to, "there are /healthz and /metrics\n");
    return MHD_HTTP_NOT_FOUND;
}

/* Called first with the head of a request: whatever may follow it is not waited for. */
static enum MHD_Result handle(void *context, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *data_len, void **request)
{
    struct clp_health *h = context;
    struct clp_strbuf text;
    const char *type = "text/plain; charset=utf-8";
    (void)version, (void)data, (void)data_len, (void)request;
    clp_strbuf_init(&text, CLP_HEALTH_MAX_BYTES);
    unsigned code = answer(h, path, method, &type, &text);
    enum MHD_Result done = send_text(c, code, type, &text);
    clp_strbuf_done(&text);
    return done;
}

/* ---- life ---------------------------------------------------------------------------------- */

static int start(struct clp_health *h, const struct sockaddr_storage *at)
{
    unsigned flags = MHD_USE_EPOLL | (at->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    h->http = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, h, MHD_OPTION_SOCK_ADDR, (const struct sockaddr *)at,
        MHD_OPTION_CONNECTION_LIMIT, CLP_HEALTH_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        CLP_HEALTH_CONNECTION_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384,
        MHD_OPTION_LISTENING_ADDRESS_REUSE, 0u, MHD_OPTION_END);
    if (!h->http)
        return errno ? -errno : -EIO;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->http, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || info->epoll_fd < 0)
        return -EIO;
    h->fd = info->epoll_fd;
    return 0;
}

int clp_health_start(const char *listen, const struct clp_health_answers *answers,
                     struct clp_health **ret, struct clp_fault *fault)
{
    struct sockaddr_storage at;
    if (clp_value_listen(listen, &at) < 0)
        return clp_fault_set(fault, -EINVAL, "health.listen is PORT or ADDRESS:PORT, not '%.60s'",
                             listen);
    struct clp_health *h = calloc(1, sizeof(*h));
    if (!h)
        return clp_fault_set(fault, -ENOMEM, "out of memory");
    h->answers = *answers;
    h->fd = -1;
    errno = 0;
    int r = start(h, &at);
    if (r < 0) {
        clp_health_stop(h);
        return clp_fault_set(fault, r,
                             "cannot listen on %.60s: %s; set health.listen to another port, or "
                             "to nothing",
                             listen, strerror(-r));
    }
    *ret = h;
    return 0;
}

struct clp_health *clp_health_stop(struct clp_health *h)
{
    if (!h)
        return NULL;
    if (h->http)
        MHD_stop_daemon(h->http);
    free(h);
    return NULL;
}

int clp_health_fd(const struct clp_health *h)
{
    return h ? h->fd : -1;
}

void clp_health_step(struct clp_health *h)
{
    if (h)
        (void)MHD_run(h->http);
}

unsigned clp_health_port(const struct clp_health *h)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->http, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}
