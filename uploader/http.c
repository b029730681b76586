/* Kind `http`: POST of the gzipped pprof.  What the profile is about goes into headers, so that a
 * small receiver need not read pprof:
 *
 *     Clrpulse-Service, Clrpulse-Kind, Clrpulse-Pid, Clrpulse-Start (UTC), Clrpulse-Seq */
#include "base/cleanup.h"
#include "base/clock.h"
#include "uploader/backend.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef CLP_VERSION
#define CLP_VERSION "dev"
#endif

#define CONNECT_TIMEOUT_DEFAULT_NS (5 * CLP_NSEC_PER_SEC)
#define TIMEOUT_DEFAULT_NS (10 * CLP_NSEC_PER_SEC)
#define RETRY_AFTER_MAX_NS (3600 * CLP_NSEC_PER_SEC)
#define HEADER_MAX_BYTES 8192u
#define REPLY_KEPT_BYTES 256u         /* of the reply, for the error sentence */
#define REPLY_READ_BYTES (256u << 10) /* after that the connection is dropped */

struct http {
    struct clp_uploader base;
    CURL *curl;                 /* keeps its connection between calls */
    struct curl_slist *headers; /* the caller's and our constant ones */
    char *shown_url;            /* without user, password, query and fragment */
    char error[CURL_ERROR_SIZE];
    char reply[REPLY_KEPT_BYTES + 1];
    size_t reply_kept, reply_len;
};

/* ---- set-up --------------------------------------------------------------------------------- */

static void http_close(struct clp_uploader *up)
{
    struct http *h = (struct http *)up;
    curl_easy_cleanup(h->curl);
    curl_slist_free_all(h->headers);
    free(h->shown_url);
    free(h);
}

static void close_http(struct http **h)
{
    if (*h)
        http_close(&(*h)->base);
}

static void cleanup_url(CURLU **u)
{
    curl_url_cleanup(*u);
}

/* What may be shown of a URL: users put secrets into the other parts. */
static int shown_part(CURLU *url, char **ret)
{
    CURLU *copy = curl_url_dup(url);
    char *text = NULL;
    CURLUcode r = copy ? CURLUE_OK : CURLUE_OUT_OF_MEMORY;
    const CURLUPart secrets[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                                 CURLUPART_FRAGMENT};
    for (size_t i = 0; i < CLP_ARRAY_LEN(secrets) && r == CURLUE_OK; i++)
        r = curl_url_set(copy, secrets[i], NULL, 0);
    if (r == CURLUE_OK)
        r = curl_url_get(copy, CURLUPART_URL, &text, 0);
    curl_url_cleanup(copy);
    *ret = r == CURLUE_OK ? strdup(text) : NULL;
    curl_free(text);
    return *ret ? 0 : -ENOMEM;
}

static int check_url(const char *text, char **ret_shown, const char **ret_why)
{
    CLP_CLEANUP(cleanup_url) CURLU *url = curl_url();
    char *scheme = NULL;
    if (!url)
        return -ENOMEM;
    *ret_why = "kind http needs a url of the form http://host:port/path or https://...";
    if (!text || curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
        return -EINVAL;
    bool http = strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0;
    curl_free(scheme);
    return http ? shown_part(url, ret_shown) : -EINVAL;
}

static bool header_is(const char *header, const char *name)
{
    size_t len = strlen(name);
    return strncasecmp(header, name, len) == 0 && header[len] == ':';
}

static int add_header(struct curl_slist **list, const char *header)
{
    struct curl_slist *longer = curl_slist_append(*list, header);
    if (!longer)
        return -ENOMEM;
    *list = longer;
    return 0;
}

/* The caller's header wins over ours of the same name. */
static int add_own_header(struct http *h, const char *name, const char *value)
{
    for (struct curl_slist *l = h->headers; l; l = l->next)
        if (header_is(l->data, name))
            return 0;
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf b;
    clp_strbuf_init(&b, HEADER_MAX_BYTES);
    clp_strbuf_printf(&b, "%s: %s", name, value);
    int r = clp_strbuf_error(&b);
    return r < 0 ? r : add_header(&h->headers, b.buf);
}

static int check_header(const char *header, const char **ret_why)
{
    const char *colon = strchr(header, ':');
    *ret_why = "a header must have the form \"Name: value\", on one line";
    if (!colon || colon == header || strlen(header) > HEADER_MAX_BYTES)
        return -EINVAL;
    for (const char *c = header; *c; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f || (*c == ' ' && c < colon))
            return -EINVAL;
    return 0;
}

static int set_headers(struct http *h, const struct clp_upload *u, const char **ret_why)
{
    int r = 0;
    for (size_t i = 0; i < u->header_count && r == 0; i++) {
        r = check_header(u->headers[i], ret_why);
        if (r == 0)
            r = add_header(&h->headers, u->headers[i]);
    }
    if (r == 0)
        r = add_own_header(h, "Content-Type", "application/octet-stream");
    if (r == 0)
        r = add_own_header(h, "User-Agent", "clrpulse/" CLP_VERSION);
    /* Without this curl waits a second for "100 Continue" that many receivers never send. */
    return r < 0 ? r : add_header(&h->headers, "Expect:");
}

/* Keeps the start of the reply for people, reads the rest up to a bound and throws it away. */
static size_t take_reply(char *data, size_t size, size_t count, void *context)
{
    struct http *h = context;
    size_t len = size * count;
    size_t kept = CLP_MIN(len, REPLY_KEPT_BYTES - h->reply_kept);
    memcpy(h->reply + h->reply_kept, data, kept);
    h->reply_kept += kept;
    h->reply[h->reply_kept] = '\0';
    h->reply_len += len;
    return h->reply_len > REPLY_READ_BYTES ? 0 : len;
}

static long milliseconds(uint64_t ns, uint64_t standard)
{
    uint64_t ms = (ns ? ns : standard) / CLP_NSEC_PER_MSEC;
    return (long)CLP_MAX(CLP_MIN(ms, (uint64_t)INT32_MAX), (uint64_t)1);
}

static int set_options(struct http *h, const struct clp_upload *u)
{
    CURL *c = h->curl;
    CURLcode r = curl_easy_setopt(c, CURLOPT_URL, u->url);
    r = r ? r : curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    r = r ? r : curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    r = r ? r : curl_easy_setopt(c, CURLOPT_POST, 1L);
    r = r ? r : curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->error);
    r = r ? r : curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_reply);
    r = r ? r : curl_easy_setopt(c, CURLOPT_WRITEDATA, h);
    r = r ? r
          : curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                             milliseconds(u->connect_timeout_ns, CONNECT_TIMEOUT_DEFAULT_NS));
    r = r ? r
          : curl_easy_setopt(c, CURLOPT_TIMEOUT_MS,
                             milliseconds(u->timeout_ns, TIMEOUT_DEFAULT_NS));
    return r == CURLE_OK ? 0 : -ENOMEM;
}

static int http_open(const struct clp_upload *u, struct clp_uploader **ret, const char **ret_why)
{
    CLP_CLEANUP(close_http) struct http *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    int r = check_url(u->url, &h->shown_url, ret_why);
    if (r == 0)
        r = set_headers(h, u, ret_why);
    if (r < 0)
        return r;
    h->curl = curl_easy_init();
    r = h->curl ? set_options(h, u) : -ENOMEM;
    if (r < 0)
        return r;
    struct http *done = CLP_TAKE(h);
    *ret = &done->base;
    return 0;
}

/* ---- outcome -------------------------------------------------------------------------------- */

static int no_reply(const struct http *h, CURLcode code, struct clp_upload_result *ret)
{
    static const struct {
        CURLcode code;
        int error;
    } errors[] = {
        {CURLE_OPERATION_TIMEDOUT, -ETIMEDOUT},
        {CURLE_COULDNT_CONNECT, -ECONNREFUSED},
        {CURLE_COULDNT_RESOLVE_HOST, -EHOSTUNREACH},
        {CURLE_COULDNT_RESOLVE_PROXY, -EHOSTUNREACH},
        {CURLE_OUT_OF_MEMORY, -ENOMEM},
        {CURLE_SEND_ERROR, -ECONNRESET},
        {CURLE_RECV_ERROR, -ECONNRESET},
        {CURLE_GOT_NOTHING, -ECONNRESET},
    };
    int error = -EIO;
    for (size_t i = 0; i < CLP_ARRAY_LEN(errors); i++)
        if (errors[i].code == code)
            error = errors[i].error;
    ret->retry = CLP_RETRY_LATER; /* networks and certificates get mended */
    clp_upload_say(ret, "cannot send to %s: %s", h->shown_url,
                   h->error[0] ? h->error : curl_easy_strerror(code));
    return error;
}

/* What a status says to people; the ones that are not here speak for themselves. */
static const char *advice(long status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {400, " (it does not understand the profile)"},
        {401, " (check the user, password or token)"},
        {403, " (check the user, password or token)"},
        {404, " (check the path of the URL)"},
        {405, " (check the path of the URL)"},
        {413, " (the profile is too large for it)"},
        {429, " (it wants fewer requests)"},
    };
    for (size_t i = 0; i < CLP_ARRAY_LEN(table); i++)
        if (table[i].status == status)
            return table[i].text;
    return status >= 300 && status < 400 ? " (redirects are not followed: use the final URL)" : "";
}

static int judge_status(struct http *h, long status, struct clp_upload_result *ret)
{
    curl_off_t wait_s = 0;
    ret->http_status = (int)status;
    if (status >= 200 && status < 300) {
        clp_upload_say(ret, "%s", h->shown_url);
        return 0;
    }
    bool later = status == 408 || status == 429 || status >= 500;
    ret->retry = later ? CLP_RETRY_LATER : CLP_RETRY_NONE;
    if (later && curl_easy_getinfo(h->curl, CURLINFO_RETRY_AFTER, &wait_s) == CURLE_OK &&
        wait_s > 0)
        ret->retry_after_ns =
            CLP_MIN((uint64_t)wait_s, RETRY_AFTER_MAX_NS / CLP_NSEC_PER_SEC) * CLP_NSEC_PER_SEC;
    clp_upload_say(ret, "%s answered %ld%s%s%s", h->shown_url, status, advice(status),
                   h->reply_kept ? ": " : "", h->reply);
    return -EREMOTEIO;
}

/* ---- sending -------------------------------------------------------------------------------- */

/* The constant headers and those of this profile, as one list that the caller frees. */
static int item_headers(const struct http *h, const struct clp_upload_item *item,
                        struct curl_slist **ret)
{
    char service[128], kind[32], when[CLP_CLOCK_UTC_BYTES], line[256];
    const struct {
        const char *name;
        const char *value;
    } texts[] = {
        {"Service", clp_upload_plain_name(item->service, service, sizeof(service))},
        {"Kind", clp_upload_plain_name(item->kind, kind, sizeof(kind))},
        {"Start", clp_clock_utc(item->start_unix_ns, when)},
    };
    int r = 0;
    for (struct curl_slist *l = h->headers; l && r == 0; l = l->next)
        r = add_header(ret, l->data);
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts) && r == 0; i++) {
        (void)snprintf(line, sizeof(line), "Clrpulse-%s: %s", texts[i].name, texts[i].value);
        r = add_header(ret, line);
    }
    if (r < 0)
        return r;
    (void)snprintf(line, sizeof(line), "Clrpulse-Pid: %d", item->pid);
    r = add_header(ret, line);
    (void)snprintf(line, sizeof(line), "Clrpulse-Seq: %llu", (unsigned long long)item->seq);
    return r < 0 ? r : add_header(ret, line);
}

static CURLcode exchange(struct http *h, struct curl_slist *headers,
                         const struct clp_upload_item *item)
{
    h->error[0] = '\0';
    h->reply[0] = '\0';
    h->reply_kept = h->reply_len = 0;
    CURLcode r = curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
    r = r ? r : curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, item->data);
    r = r ? r : curl_easy_setopt(h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)item->len);
    r = r ? r : curl_easy_perform(h->curl);
    /* Neither outlives this call. */
    (void)curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, NULL);
    (void)curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, "");
    return r;
}

static int http_send(struct clp_uploader *up, const struct clp_upload_item *item,
                     struct clp_upload_result *ret)
{
    struct http *h = (struct http *)up;
    struct curl_slist *headers = NULL;
    long status = 0;
    int r = item_headers(h, item, &headers);
    CURLcode code = r < 0 ? CURLE_OUT_OF_MEMORY : exchange(h, headers, item);
    curl_slist_free_all(headers);
    (void)curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &status);
    /* The status is the answer: what becomes of the reply's body does not matter. Sending again
     * after a "200" whose body never ended would store the profile twice. */
    if (status < 200)
        return no_reply(h, code, ret);
    return judge_status(h, status, ret);
}

const struct clp_backend clp_backend_http = {
    .name = "http",
    .open = http_open,
    .close = http_close,
    .send = http_send,
};
