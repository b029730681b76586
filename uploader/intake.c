#include "uploader/intake.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "pprof/decode.h"
#include "uploader/secret.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static const struct clp_intake_kind *const kinds[CLP_UPLOAD_KINDS] = {
    [CLP_UPLOAD_DIRECTORY] = &clp_intake_directory, [CLP_UPLOAD_HTTP] = &clp_intake_http,
    [CLP_UPLOAD_PYROSCOPE] = &clp_intake_pyroscope, [CLP_UPLOAD_DATADOG] = &clp_intake_datadog,
    [CLP_UPLOAD_OTLP] = &clp_intake_otlp,           [CLP_UPLOAD_PARCA] = &clp_intake_parca,
};

/* The texts of struct clp_upload, for copying. */
static const size_t texts[] = {
    offsetof(struct clp_upload, url),      offsetof(struct clp_upload, path),
    offsetof(struct clp_upload, user),     offsetof(struct clp_upload, password),
    offsetof(struct clp_upload, token),    offsetof(struct clp_upload, tenant),
    offsetof(struct clp_upload, api_key),  offsetof(struct clp_upload, site),
    offsetof(struct clp_upload, format),   offsetof(struct clp_upload, otlp_version),
    offsetof(struct clp_upload, ca_file),  offsetof(struct clp_upload, cert_file),
    offsetof(struct clp_upload, key_file), offsetof(struct clp_upload, proxy),
    offsetof(struct clp_upload, no_proxy),
};

int clp_upload_parse_kind(const char *name, enum clp_upload_kind *ret)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(kinds); i++)
        if (strcmp(name, kinds[i]->name) == 0) {
            *ret = (enum clp_upload_kind)i;
            return 0;
        }
    return -EINVAL;
}

const char *clp_upload_kind_name(enum clp_upload_kind kind)
{
    return (size_t)kind < CLP_ARRAY_LEN(kinds) ? kinds[kind]->name : "unknown";
}

/* ---- copies ---------------------------------------------------------------------------------- */

static char **text_at(struct clp_upload *u, size_t i)
{
    return (char **)((char *)u + texts[i]);
}

static int copy_headers(struct clp_upload *to, const struct clp_upload *from)
{
    char **copies = calloc(from->header_count + 1, sizeof(*copies));
    if (!copies)
        return -ENOMEM;
    to->headers = (const char *const *)copies;
    for (; to->header_count < from->header_count; to->header_count++)
        if (!(copies[to->header_count] = strdup(from->headers[to->header_count])))
            return -ENOMEM;
    return 0;
}

static int copy_upload(struct clp_upload *to, const struct clp_upload *from)
{
    *to = *from;
    to->headers = NULL;
    to->header_count = 0;
    int r = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++) {
        char **text = text_at(to, i);
        if (*text && !(*text = strdup(*text)))
            r = -ENOMEM;
    }
    return r < 0 ? r : copy_headers(to, from);
}

static void free_upload(struct clp_upload *u)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++)
        clp_secret_free(text_at(u, i));
    for (size_t i = 0; i < u->header_count; i++) {
        char *header = (char *)(uintptr_t)u->headers[i];
        clp_secret_free(&header);
    }
    free((void *)(uintptr_t)u->headers);
}

/* ---- URL ------------------------------------------------------------------------------------- */

static void cleanup_url(CURLU **u)
{
    curl_url_cleanup(*u);
}

/* What may be shown of a URL: users put secrets into the other parts. */
static int shown_part(CURLU *url, char **ret)
{
    CLP_CLEANUP(cleanup_url) CURLU *copy = curl_url_dup(url);
    char *text = NULL;
    CURLUcode r = copy ? CURLUE_OK : CURLUE_OUT_OF_MEMORY;
    const CURLUPart secrets[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                                 CURLUPART_FRAGMENT};
    for (size_t i = 0; i < CLP_ARRAY_LEN(secrets) && r == CURLUE_OK; i++)
        r = curl_url_set(copy, secrets[i], NULL, 0);
    if (r == CURLUE_OK)
        r = curl_url_get(copy, CURLUPART_URL, &text, 0);
    *ret = r == CURLUE_OK ? strdup(text) : NULL;
    curl_free(text);
    return *ret ? 0 : -ENOMEM;
}

/* The kind's path behind the user's, which may be a prefix of a reverse proxy. */
static int add_path(CURLU *url, const char *more)
{
    char *path = NULL;
    if (!more || !*more)
        return 0;
    if (curl_url_get(url, CURLUPART_PATH, &path, 0) != CURLUE_OK)
        return -ENOMEM;
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf b;
    clp_strbuf_init(&b, 8192);
    clp_strbuf_add(&b, path, len);
    /* Who gives the whole URL means the same. */
    if (len < strlen(more) || strcmp(clp_strbuf_text(&b) + len - strlen(more), more) != 0)
        clp_strbuf_str(&b, more);
    curl_free(path);
    int r = clp_strbuf_error(&b);
    if (r == 0 && curl_url_set(url, CURLUPART_PATH, clp_strbuf_text(&b), 0) != CURLUE_OK)
        r = -ENOMEM;
    return r;
}

static int finish_url(struct clp_intake *in, CURLU *url)
{
    char *text = NULL;
    int r = add_path(url, in->path);
    if (r == 0 && curl_url_get(url, CURLUPART_URL, &text, 0) != CURLUE_OK)
        r = -ENOMEM;
    if (r < 0)
        return r;
    in->request_url = strdup(text);
    curl_free(text);
    if (in->socket)
        return in->request_url && (in->where || asprintf(&in->where, "unix://%s", in->socket) > 0)
                   ? 0
                   : -ENOMEM;
    return in->request_url ? shown_part(url, &in->where) : -ENOMEM;
}

static bool is_part(CURLU *url, CURLUPart part, const char *wanted)
{
    char *text = NULL;
    bool is = curl_url_get(url, part, &text, 0) == CURLUE_OK && strcmp(text, wanted) == 0;
    curl_free(text);
    return is;
}

/* What curl reads as something else than was meant, or finds out with each request only. */
static int check_url(CURLU *url, const char *text, const char **ret_why)
{
    const char *slashes = strstr(text, "://"), *host = slashes ? slashes + 3 : "/";
    if (!is_part(url, CURLUPART_SCHEME, "http") && !is_part(url, CURLUPART_SCHEME, "https"))
        return -EINVAL;
    if (*host == '/' || is_part(url, CURLUPART_PORT, "0"))
        return -EINVAL;
    const char *end = host + strcspn(host, "/?#"), *user = memrchr(host, '@', (size_t)(end - host));
    for (host = user ? user : host; host < end; host++)
        if ((unsigned char)*host >= 0x80) {
            *ret_why = "its url must have the host's name in letters of ASCII: as xn--...";
            return -EINVAL;
        }
    return 0;
}

static int read_url(struct clp_intake *in, const char **ret_why)
{
    const char *text = in->upload.url;
    CLP_CLEANUP(cleanup_url) CURLU *url = curl_url();
    if (!url)
        return -ENOMEM;
    *ret_why = "it needs a url of the form http://host:port, https://host or "
               "unix:///path/to/socket, with a port from 1 to 65535";
    if (text && strncmp(text, "unix://", 7) == 0) {
        if (text[7] != '/')
            return -EINVAL;
        if (strlen(text + 7) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
            *ret_why = "the path of a Unix socket in its url is longer than the 107 bytes that "
                       "Linux takes: use a shorter one, a symbolic link for instance";
            return -EINVAL;
        }
        in->socket = strdup(text + 7);
        if (!in->socket)
            return -ENOMEM;
        text = "http://localhost/";
    }
    if (!text || curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
        return -EINVAL;
    int r = check_url(url, text, ret_why);
    return r < 0 ? r : finish_url(in, url);
}

static int check_headers(const struct clp_upload *u, const char **ret_why)
{
    *ret_why = "a header must have the form \"Name: value\", on one line";
    for (size_t i = 0; i < u->header_count; i++) {
        const char *header = u->headers[i], *colon = strchr(header, ':');
        if (!colon || colon == header || strlen(header) > CLP_REQUEST_HEADER_MAX_BYTES)
            return -EINVAL;
        for (const char *c = header; *c; c++)
            if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f || (*c == ' ' && c < colon))
                return -EINVAL;
    }
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_intake(struct clp_intake *in, const char **ret_why)
{
    int r = check_headers(&in->upload, ret_why);
    in->path = in->kind->path;
    in->plain_max = in->upload.size_max ? in->upload.size_max : in->kind->plain_max;
    if (r == 0 && in->kind->open)
        r = in->kind->open(in, ret_why);
    if (r == 0 && !in->kind->is_files)
        r = read_url(in, ret_why);
    return r;
}

int clp_intake_open(const struct clp_upload *u, struct clp_intake **ret, const char **ret_why)
{
    const char *why = "there is no such kind of upload";
    int r = -EINVAL;
    CLP_CLEANUP(clp_intake_closep) struct clp_intake *in = NULL;
    if ((size_t)u->kind < CLP_ARRAY_LEN(kinds)) {
        in = calloc(1, sizeof(*in));
        r = in ? copy_upload(&in->upload, u) : -ENOMEM;
        if (r == 0) {
            in->kind = kinds[u->kind];
            r = open_intake(in, &why);
        }
    }
    if (r < 0) {
        if (ret_why)
            *ret_why = r == -ENOMEM ? "there is no memory" : why;
        return r;
    }
    *ret = CLP_TAKE(in);
    return 0;
}

struct clp_intake *clp_intake_close(struct clp_intake *in)
{
    if (!in)
        return NULL;
    free_upload(&in->upload);
    clp_secret_free(&in->request_url);
    free(in->socket);
    free(in->where);
    free(in);
    return NULL;
}

void clp_intake_closep(struct clp_intake **in)
{
    *in = clp_intake_close(*in);
}

uint64_t clp_intake_id(const struct clp_intake *in)
{
    const char *parts[] = {in->kind->name, in->where, in->upload.tenant ? in->upload.tenant : ""};
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a, the same in every run */
    for (size_t i = 0; i < CLP_ARRAY_LEN(parts); i++)
        for (const char *c = parts[i];; c++) {
            hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
            if (!*c)
                break;
        }
    return hash;
}

const char *clp_intake_where(const struct clp_intake *in)
{
    return in->where;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct clp_request *clp_requests_add(struct clp_requests *r, const char *part)
{
    if (r->count == CLP_ARRAY_LEN(r->items))
        return NULL;
    struct clp_request *q = &r->items[r->count++];
    *q = (struct clp_request){.header_count = 0};
    (void)snprintf(q->part, sizeof(q->part), "%s", part);
    return q;
}

int clp_request_header(struct clp_request *r, const char *name, const char *value)
{
    char *line = NULL;
    if (r->header_count == CLP_REQUEST_HEADERS_MAX || strlen(value) > CLP_REQUEST_HEADER_MAX_BYTES)
        return -EFBIG;
    if (asprintf(&line, "%s: %s", name, value) < 0)
        return -ENOMEM;
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '_';
    r->headers[r->header_count++] = line;
    return 0;
}

int clp_reply_grpc_code(const char *text, size_t len)
{
    int code = 0;
    while (len > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        len--;
    }
    if (len == 0 || len > 3)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        code = code * 10 + text[i] - '0';
    }
    return code;
}

void clp_request_take(struct clp_request *r, struct clp_reshaped *from)
{
    r->body = from->encoded.data;
    r->len = from->encoded.len;
    r->plain_len = from->encoded.plain_len;
    r->folded = from->folded;
    memcpy(r->note, from->note, sizeof(r->note));
    *from = (struct clp_reshaped){.folded = 0};
}

void clp_requests_done(struct clp_requests *r)
{
    for (size_t i = 0; i < r->count; i++) {
        struct clp_request *q = &r->items[i];
        for (size_t k = 0; k < q->header_count; k++)
            free(q->headers[k]);
        free(q->body);
    }
    r->count = 0;
}

static const char *build_failed(int r)
{
    switch (r) {
    case -ENODATA:
        return "nothing in it is for this intake";
    case -ESTALE:
        return "its time is not within the hour before now that the intake takes";
    case -EFBIG:
        return "it is too large even when folded";
    case -ENOMEM:
        return "there is no memory";
    default:
        return "it cannot be converted";
    }
}

int clp_intake_build(const struct clp_intake *in, const struct clp_chunk *c,
                     struct clp_requests *ret, struct clp_upload_result *result)
{
    const char *why = "";
    CLP_CLEANUP(clp_profile_freep) struct clp_profile *p = NULL;
    int r = clp_profile_decode(c->profile, c->profile_len, NULL, &p, &why);
    ret->count = 0;
    if (r == 0) {
        r = in->kind->build(in, c, p, ret);
        if (r < 0)
            why = build_failed(r);
    }
    if (r < 0) {
        clp_requests_done(ret);
        result->outcome = r == -ENOMEM ? CLP_OUTCOME_LATER : CLP_OUTCOME_DROP;
        clp_upload_say(result, "the profile cannot go to %s: %s", in->where, why);
    }
    return r;
}

/* ---- text ------------------------------------------------------------------------------------ */

void clp_upload_say(struct clp_upload_result *ret, const char *fmt, ...)
{
    char raw[CLP_UPLOAD_TEXT_BYTES * 2];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    for (char *c = raw; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    struct clp_text t = clp_text_in(ret->text, sizeof(ret->text));
    clp_text_utf8_clean(&t, n < 0 ? "" : raw, n < 0 ? 0 : strlen(raw));
}

const char *clp_upload_plain_name(const char *s, char *buf, size_t cap)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    struct clp_text t = clp_text_in(buf, cap);
    if (!s || !*s)
        s = "unknown";
    for (size_t i = 0; s[i] && !t.cut; i++)
        clp_text_char(&t, strchr(plain, s[i]) && (i > 0 || s[i] != '.') ? s[i] : '_');
    return buf;
}
