#include "uploader/uploader.h"
#include "base/core/text.h"
#include "uploader/backend.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct clp_backend *const backends[] = {
    [CLP_UPLOAD_DIRECTORY] = &clp_backend_directory,
    [CLP_UPLOAD_HTTP] = &clp_backend_http,
};

int clp_upload_parse_kind(const char *name, enum clp_upload_kind *ret)
{
    for (size_t i = 0; i < CLP_ARRAY_LEN(backends); i++)
        if (strcmp(name, backends[i]->name) == 0) {
            *ret = (enum clp_upload_kind)i;
            return 0;
        }
    return -EINVAL;
}

const char *clp_upload_kind_name(enum clp_upload_kind kind)
{
    return (size_t)kind < CLP_ARRAY_LEN(backends) ? backends[kind]->name : "unknown";
}

int clp_uploader_new(const struct clp_upload *u, struct clp_uploader **ret, const char **ret_why)
{
    const char *why = "there is no such kind of upload";
    struct clp_uploader *up = NULL;
    int r = -EINVAL;
    if ((size_t)u->kind < CLP_ARRAY_LEN(backends))
        r = backends[u->kind]->open(u, &up, &why);
    if (r < 0) {
        if (ret_why)
            *ret_why = r == -ENOMEM ? "there is no memory" : why;
        return r;
    }
    up->backend = backends[u->kind];
    *ret = up;
    return 0;
}

struct clp_uploader *clp_uploader_free(struct clp_uploader *up)
{
    if (up)
        up->backend->close(up);
    return NULL;
}

void clp_uploader_freep(struct clp_uploader **up)
{
    *up = clp_uploader_free(*up);
}

int clp_uploader_send(struct clp_uploader *up, const struct clp_upload_item *item,
                      struct clp_upload_result *ret)
{
    *ret = (struct clp_upload_result){.retry = CLP_RETRY_NONE};
    return up->backend->send(up, item, ret);
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
