#include "uploader/transfer.h"

#include "base/cleanup.h"
#include "uploader/secret.h"
#include "uploader/verdict.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef CLP_VERSION
#define CLP_VERSION "dev"
#endif

#define CONNECT_TIMEOUT_DEFAULT_NS (5 * CLP_NSEC_PER_SEC)
#define TIMEOUT_DEFAULT_NS (10 * CLP_NSEC_PER_SEC)
#define RETRY_AFTER_MAX_S 3600
#define REPLY_KEPT_BYTES 4096u      /* for people and for kinds that answer in the body */
#define REPLY_READ_BYTES (1u << 20) /* more is cut off with the connection */
#define REPLY_HEAD_BYTES (1u << 17) /* all heads of a reply: 1xx, a proxy's, trailers */
#define CONNECTIONS_MAX 32L

#define ODD_PROXY                                                                                  \
    "proxy (or http_proxy, https_proxy, all_proxy of the environment) does not have the form "     \
    "http://user:password@host:port, with '/', '@', '?' and '#' of the password as %2F, %40, "     \
    "%3F and %23"

struct clp_transfers {
    CURLM *multi;
};

struct clp_transfer {
    const struct clp_intake *in;
    void *context;
    CURL *curl;
    struct curl_slist *headers;
    struct clp_secrets secrets; /* not to be seen in what is said about it */
    bool proxy_is_odd;
    char error[CURL_ERROR_SIZE];
    char reply[REPLY_KEPT_BYTES + 1];
    size_t reply_kept, reply_len, head_len;
};

int clp_transfers_new(struct clp_transfers **ret)
{
    struct clp_transfers *ts = calloc(1, sizeof(*ts));
    if (!ts)
        return -ENOMEM;
    ts->multi = curl_multi_init();
    if (!ts->multi) {
        free(ts);
        return -ENOMEM;
    }
    (void)curl_multi_setopt(ts->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_MAX);
    *ret = ts;
    return 0;
}

struct clp_transfers *clp_transfers_free(struct clp_transfers *ts)
{
    if (ts) {
        (void)curl_multi_cleanup(ts->multi);
        free(ts);
    }
    return NULL;
}

/* ---- headers --------------------------------------------------------------------------------- */

static bool header_is(const char *header, const char *name)
{
    size_t len = strcspn(name, ":");
    return strncasecmp(header, name, len) == 0 && header[len] == ':';
}

static int add_line(struct clp_transfer *t, const char *line)
{
    struct curl_slist *longer = curl_slist_append(t->headers, line);
    if (!longer)
        return -ENOMEM;
    t->headers = longer;
    return 0;
}

/* The user's header wins over ours of the same name. */
static int add_own(struct clp_transfer *t, const char *line)
{
    for (struct curl_slist *l = t->headers; l; l = l->next)
        if (header_is(l->data, line))
            return 0;
    return add_line(t, line);
}

static int secret_failed(const struct clp_intake *in, int error, const char *what,
                         struct clp_upload_result *result)
{
    result->outcome = CLP_OUTCOME_LATER;
    if (error == -ENOKEY)
        clp_upload_say(result, "cannot send to %s: the variable that %s names is not set",
                       in->where, what);
    else
        clp_upload_say(result, "cannot send to %s: %s cannot be had: %s", in->where, what,
                       strerror(-error));
    return error;
}

static int add_with_secret(struct clp_transfer *t, const char *name, size_t name_len,
                           const char *before, const char *spec, struct clp_upload_result *result)
{
    CLP_CLEANUP(clp_secret_free) char *value = NULL;
    CLP_CLEANUP(clp_secret_free) char *line = NULL;
    int r = clp_secret_get(spec, &value);
    if (r < 0)
        return secret_failed(t->in, r, "a header", result);
    if (asprintf(&line, "%.*s: %s%s", (int)name_len, name, before, value) < 0) {
        line = NULL; /* asprintf leaves it undefined */
        return -ENOMEM;
    }
    r = clp_secrets_add(&t->secrets, value);
    return r < 0 ? r : add_line(t, line);
}

static int add_users(struct clp_transfer *t, struct clp_upload_result *result)
{
    const struct clp_upload *u = &t->in->upload;
    int r = 0;
    for (size_t i = 0; i < u->header_count && r == 0; i++) {
        const char *header = u->headers[i], *colon = strchr(header, ':');
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        r = add_with_secret(t, header, (size_t)(colon - header), "", value, result);
    }
    if (r == 0 && u->token)
        r = add_with_secret(t, "Authorization", strlen("Authorization"), "Bearer ", u->token,
                            result);
    if (r == 0 && t->in->key_header)
        r = add_with_secret(t, t->in->key_header, strlen(t->in->key_header), "", u->api_key,
                            result);
    return r;
}

static int set_headers(struct clp_transfer *t, const struct clp_request *q,
                       struct clp_upload_result *result)
{
    int r = add_users(t, result);
    for (size_t i = 0; i < q->header_count && r == 0; i++)
        r = add_own(t, q->headers[i]);
    if (r == 0)
        r = add_own(t, "User-Agent: clrpulse/" CLP_VERSION);
    /* Without this curl waits a second for "100 Continue" that many receivers never send. */
    return r < 0 ? r : add_line(t, "Expect:");
}

/* ---- options --------------------------------------------------------------------------------- */

/* Keeps the start of the reply, reads the rest up to a bound and throws it away. */
static size_t take_reply(char *data, size_t size, size_t count, void *context)
{
    struct clp_transfer *t = context;
    size_t len = size * count;
    size_t kept = CLP_MIN(len, REPLY_KEPT_BYTES - t->reply_kept);
    memcpy(t->reply + t->reply_kept, data, kept);
    t->reply_kept += kept;
    t->reply[t->reply_kept] = '\0';
    t->reply_len += len;
    return t->reply_len > REPLY_READ_BYTES ? 0 : len;
}

/* curl keeps all of them until the end, and would take heads for as long as the time-out lets it.
 */
static size_t take_head(char *line, size_t size, size_t count, void *context)
{
    struct clp_transfer *t = context;
    (void)line;
    t->head_len += size * count;
    return t->head_len > REPLY_HEAD_BYTES ? 0 : size * count;
}

static long milliseconds(uint64_t ns, uint64_t standard)
{
    uint64_t ms = (ns ? ns : standard) / CLP_NSEC_PER_MSEC;
    return (long)CLP_MAX(CLP_MIN(ms, (uint64_t)INT32_MAX), (uint64_t)1);
}

static CURLcode set_exchange(struct clp_transfer *t, const struct clp_request *q)
{
    CURL *c = t->curl;
    const struct clp_upload *u = &t->in->upload;
    CURLcode r = curl_easy_setopt(c, CURLOPT_URL, t->in->request_url);
    r = r ? r : curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    r = r ? r : curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    /* Else the end of a transfer waits for the thread that looks up its name, and with it all other
     * transfers. The thread frees what it has when the resolver gives up. */
    r = r ? r : curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
    r = r ? r : curl_easy_setopt(c, CURLOPT_PRIVATE, t);
    r = r ? r : curl_easy_setopt(c, CURLOPT_POST, 1L);
    r = r ? r : curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    r = r ? r : curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
    r = r ? r : curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->len);
    r = r ? r : curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error);
    r = r ? r : curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_reply);
    r = r ? r : curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    r = r ? r : curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_head);
    r = r ? r : curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    r = r ? r
          : curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                             milliseconds(u->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS));
    return r ? r
             : curl_easy_setopt(c, CURLOPT_TIMEOUT_MS,
                                milliseconds(u->timeout_ns, TIMEOUT_DEFAULT_NS));
}

static CURLcode set_network(struct clp_transfer *t)
{
    CURL *c = t->curl;
    const struct clp_upload *u = &t->in->upload;
    CURLcode r = CURLE_OK;
    if (t->in->socket) {
        r = curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, t->in->socket);
        return r ? r : curl_easy_setopt(c, CURLOPT_PROXY, "");
    }
    if (u->no_proxy)
        r = curl_easy_setopt(c, CURLOPT_NOPROXY, u->no_proxy);
    if (!r && u->ca_file)
        r = curl_easy_setopt(c, CURLOPT_CAINFO, u->ca_file);
    if (!r && u->ca_file) /* of a proxy that is spoken to over TLS, too */
        r = curl_easy_setopt(c, CURLOPT_PROXY_CAINFO, u->ca_file);
    if (!r && u->cert_file)
        r = curl_easy_setopt(c, CURLOPT_SSLCERT, u->cert_file);
    if (!r && u->key_file)
        r = curl_easy_setopt(c, CURLOPT_SSLKEY, u->key_file);
    return r;
}

/* The proxy that curl takes from the environment, which has no upper case for plain HTTP. */
static const char *proxy_of_environment(const char *url)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};
    bool tls = strncmp(url, "https:", 6) == 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(names); i++) {
        const char *text = getenv(names[i]);
        if (text && *text && (i >= 3 || tls == (i > 0)))
            return text;
    }
    return NULL;
}

/* What curl would refuse with words that show all of it; and a password with a '/' inside, half of
 * which curl would take for the host's port. */
static bool is_odd_proxy(const char *text)
{
    char *scheme = NULL;
    CURLU *url = curl_url();
    bool read =
        url &&
        !curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME | CURLU_GUESS_SCHEME) &&
        !curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
    bool known = read && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0 ||
                          strncmp(scheme, "socks", 5) == 0);
    const char *slashes = strstr(text, "://"), *host = slashes ? slashes + 3 : text;
    curl_free(scheme);
    curl_url_cleanup(url);
    return !known || strchr(host + strcspn(host, "/?#"), '@');
}

/* Of the setting, NULL when there is none, or of the environment. */
static int look_at_proxy(struct clp_transfer *t, const char *proxy)
{
    if (t->in->socket)
        return 0;
    if (!proxy)
        proxy = proxy_of_environment(t->in->request_url);
    t->proxy_is_odd = proxy && *proxy && is_odd_proxy(proxy);
    int r = clp_secrets_add_url(&t->secrets, proxy);
    return r < 0 ? r : clp_secrets_add(&t->secrets, proxy);
}

/* Those of the URL, and what becomes of user and password. */
static int hide_credentials(struct clp_transfer *t, const char *password)
{
    int r = clp_secrets_add_url(&t->secrets, t->in->request_url);
    if (r == 0)
        r = clp_secrets_add(&t->secrets, password);
    return r < 0 ? r : clp_secrets_add_basic(&t->secrets, t->in->upload.user, password);
}

/* curl copies texts: ours are wiped. */
static int set_secrets(struct clp_transfer *t, struct clp_upload_result *result)
{
    const struct clp_upload *u = &t->in->upload;
    CLP_CLEANUP(clp_secret_free) char *password = NULL;
    CLP_CLEANUP(clp_secret_free) char *proxy = NULL;
    int r = u->password ? clp_secret_get(u->password, &password) : 0;
    if (r < 0)
        return secret_failed(t->in, r, "password", result);
    r = u->proxy && !t->in->socket ? clp_secret_get(u->proxy, &proxy) : 0;
    if (r < 0)
        return secret_failed(t->in, r, "proxy", result);
    r = look_at_proxy(t, proxy);
    if (r == 0)
        r = hide_credentials(t, password);
    if (r < 0)
        return r;
    CURLcode code = CURLE_OK;
    if (proxy)
        code = curl_easy_setopt(t->curl, CURLOPT_PROXY, proxy);
    if (!code && u->user) {
        code = curl_easy_setopt(t->curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        code = code ? code : curl_easy_setopt(t->curl, CURLOPT_USERNAME, u->user);
        code = code ? code : curl_easy_setopt(t->curl, CURLOPT_PASSWORD, password ? password : "");
    }
    return code ? -ENOMEM : 0;
}

int clp_transfer_start(struct clp_transfers *ts, const struct clp_intake *in,
                       const struct clp_request *q, void *context, struct clp_transfer **ret,
                       struct clp_upload_result *result)
{
    struct clp_transfer *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->in = in;
    t->context = context;
    t->curl = curl_easy_init();
    int r = t->curl ? set_headers(t, q, result) : -ENOMEM;
    if (r == 0 && (set_exchange(t, q) || set_network(t)))
        r = -ENOMEM;
    if (r == 0)
        r = set_secrets(t, result);
    if (r == 0 && curl_multi_add_handle(ts->multi, t->curl) != CURLM_OK)
        r = -ENOMEM;
    if (r < 0) {
        clp_transfer_end(ts, t);
        return r;
    }
    *ret = t;
    return 0;
}

struct clp_transfer *clp_transfer_end(struct clp_transfers *ts, struct clp_transfer *t)
{
    if (!t)
        return NULL;
    if (t->curl) {
        (void)curl_multi_remove_handle(ts->multi, t->curl);
        curl_easy_cleanup(t->curl);
    }
    for (struct curl_slist *l = t->headers; l; l = l->next)
        explicit_bzero(l->data, strlen(l->data));
    curl_slist_free_all(t->headers);
    clp_secrets_done(&t->secrets);
    free(t);
    return NULL;
}

/* ---- outcome --------------------------------------------------------------------------------- */

static const char *header_text(CURL *curl, const char *name)
{
    struct curl_header *h;
    return curl_easy_header(curl, name, 0, CURLH_HEADER | CURLH_TRAILER, -1, &h) == CURLHE_OK
               ? h->value
               : "";
}

static void judge_reply(struct clp_transfer *t, int status, struct clp_upload_result *ret)
{
    char text[REPLY_KEPT_BYTES + 1] = "";
    const char *code = header_text(t->curl, "grpc-status");
    struct clp_reply reply = {.status = status,
                              .body = t->reply,
                              .len = t->reply_kept,
                              .grpc_status = clp_reply_grpc_code(code, strlen(code)),
                              .grpc_message = ""};
    if (*code)
        reply.grpc_message = header_text(t->curl, "grpc-message");
    if (t->in->kind->judge)
        status = t->in->kind->judge(&reply, text, sizeof(text));
    char *said = t->in->kind->judge ? text : t->reply;
    clp_verdict_of_reply(t->in, status, said, &t->secrets, ret);
}

static void judge(struct clp_transfer *t, CURLcode code, struct clp_upload_result *ret)
{
    long status = 0;
    curl_off_t wait_s = 0;
    *ret = (struct clp_upload_result){.http_status = 0};
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    /* The status is the answer: what becomes of the reply's body does not matter. Sending again
     * after a "200" whose body never ended would store the profile twice. */
    if (status < 200) {
        clp_secrets_redact(&t->secrets, t->error);
        if (t->proxy_is_odd)
            clp_verdict_of_failure(t->in, CURLE_OK, ODD_PROXY, ret);
        else
            clp_verdict_of_failure(t->in, code, t->error, ret);
        return;
    }
    judge_reply(t, (int)status, ret);
    if (ret->outcome != CLP_OUTCOME_DONE &&
        curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &wait_s) == CURLE_OK && wait_s > 0)
        ret->retry_after_ns =
            (uint64_t)CLP_MIN(wait_s, (curl_off_t)RETRY_AFTER_MAX_S) * CLP_NSEC_PER_SEC;
}

void clp_transfers_step(struct clp_transfers *ts)
{
    int running;
    (void)curl_multi_perform(ts->multi, &running);
}

struct clp_transfer *clp_transfers_next(struct clp_transfers *ts, void **ret_context,
                                        struct clp_upload_result *ret)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(ts->multi, &left));) {
        struct clp_transfer *t = NULL;
        if (m->msg != CURLMSG_DONE ||
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t) != CURLE_OK)
            continue;
        judge(t, m->data.result, ret);
        *ret_context = t->context;
        return t;
    }
    return NULL;
}

void clp_transfers_wait(struct clp_transfers *ts, int ms)
{
    (void)curl_multi_poll(ts->multi, NULL, 0, ms, NULL);
}

void clp_transfers_wake(struct clp_transfers *ts)
{
    (void)curl_multi_wakeup(ts->multi);
}
