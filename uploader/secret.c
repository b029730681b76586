#include "uploader/secret.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int from_file(const char *path, char **ret)
{
    size_t len;
    int r = clp_file_read(path, CLP_SECRET_MAX_BYTES, ret, &len);
    if (r < 0)
        return r;
    char *s = *ret;
    bool whole = strlen(s) == len;
    while (len > 0 && strchr(" \t\r\n", s[len - 1]))
        s[--len] = '\0';
    if (whole && !strpbrk(s, "\r\n"))
        return 0;
    clp_secret_free(ret);
    return -EINVAL;
}

int clp_secret_get(const char *spec, char **ret)
{
    char *found = NULL;
    if (strncmp(spec, "file:", 5) == 0) {
        int r = from_file(spec + 5, &found);
        if (r == 0)
            *ret = found;
        return r;
    }
    const char *text = spec;
    if (strncmp(spec, "env:", 4) == 0)
        text = getenv(spec + 4);
    if (!text)
        return -ENOKEY;
    if (strpbrk(text, "\r\n"))
        return -EINVAL;
    *ret = strdup(text);
    return *ret ? 0 : -ENOMEM;
}

void clp_secret_free(char **secret)
{
    if (*secret) {
        explicit_bzero(*secret, strlen(*secret));
        free(*secret);
    }
    *secret = NULL;
}

/* ---- not to be seen -------------------------------------------------------------------------- */

static void cleanup_url(CURLU **u)
{
    curl_url_cleanup(*u);
}

/* Kept with the longest first: of "admin123" nothing must stay because "admin" went before it. */
static int add_bytes(struct clp_secrets *s, const char *text, size_t len)
{
    if (len < CLP_SECRET_MIN_BYTES)
        return 0;
    char **longer = reallocarray(s->items, s->count + 1, sizeof(*longer));
    if (!longer)
        return -ENOMEM;
    s->items = longer;
    char *copy = strndup(text, len);
    if (!copy)
        return -ENOMEM;
    size_t at = s->count++;
    for (; at > 0 && strlen(s->items[at - 1]) < len; at--)
        s->items[at] = s->items[at - 1];
    s->items[at] = copy;
    return 0;
}

int clp_secrets_add(struct clp_secrets *s, const char *secret)
{
    return secret ? add_bytes(s, secret, strlen(secret)) : 0;
}

static int add_part(struct clp_secrets *s, CURLU *url, CURLUPart part, unsigned flags)
{
    char *text = NULL;
    CURLUcode code = curl_url_get(url, part, &text, flags);
    if (code != CURLUE_OK)
        return code == CURLUE_OUT_OF_MEMORY ? -ENOMEM : 0;
    int r = 0;
    if (part != CURLUPART_QUERY)
        r = clp_secrets_add(s, text);
    else
        for (char *at = text; r == 0 && *at;) {
            size_t len = strcspn(at, "&"), name = strcspn(at, "=&");
            size_t skip = name < len ? name + 1 : 0;
            r = add_bytes(s, at + skip, len - skip);
            at += len + (at[len] == '&');
        }
    curl_free(text);
    return r;
}

static int add_basic_of(struct clp_secrets *s, CURLU *url)
{
    char *user = NULL, *password = NULL;
    (void)curl_url_get(url, CURLUPART_USER, &user, CURLU_URLDECODE);
    (void)curl_url_get(url, CURLUPART_PASSWORD, &password, CURLU_URLDECODE);
    int r = clp_secrets_add_basic(s, user, password);
    curl_free(user);
    curl_free(password);
    return r;
}

int clp_secrets_add_url(struct clp_secrets *s, const char *text)
{
    static const CURLUPart parts[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY};
    CLP_CLEANUP(cleanup_url) CURLU *url = curl_url();
    if (!text)
        return 0;
    if (!url)
        return -ENOMEM;
    if (curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME | CURLU_GUESS_SCHEME))
        return clp_secrets_add(s, text);
    int r = add_basic_of(s, url);
    for (size_t i = 0; i < CLP_ARRAY_LEN(parts) && r == 0; i++) {
        r = add_part(s, url, parts[i], 0);
        if (r == 0)
            r = add_part(s, url, parts[i], CURLU_URLDECODE);
    }
    return r;
}

/* RFC 4648, of `len` bytes with their padding. */
static void to_base64(const uint8_t *from, size_t len, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3, to += 4) {
        uint32_t bits = (uint32_t)from[i] << 16;
        bits |= i + 1 < len ? (uint32_t)from[i + 1] << 8 : 0;
        bits |= i + 2 < len ? from[i + 2] : 0;
        for (int k = 0; k < 4; k++)
            to[k] = digits[bits >> (18 - 6 * k) & 63];
        for (size_t k = len - i; k < 3; k++)
            to[k + 1] = '=';
    }
    *to = '\0';
}

int clp_secrets_add_basic(struct clp_secrets *s, const char *user, const char *password)
{
    CLP_CLEANUP(clp_secret_free) char *pair = NULL;
    if (!user)
        return 0;
    int len = asprintf(&pair, "%s:%s", user, password ? password : "");
    if (len < 0) {
        pair = NULL; /* asprintf leaves it undefined */
        return -ENOMEM;
    }
    CLP_CLEANUP(clp_secret_free) char *coded = malloc(((size_t)len + 2) / 3 * 4 + 1);
    if (!coded)
        return -ENOMEM;
    to_base64((const uint8_t *)pair, (size_t)len, coded);
    return clp_secrets_add(s, coded);
}

/* The length of what `text` ends with and `secret` begins with. */
static size_t overlap(const char *text, const char *secret)
{
    size_t len = strlen(text), n = strlen(secret);
    n = CLP_MIN(n, len);
    while (n > 0 && memcmp(text + len - n, secret, n) != 0)
        n--;
    return n;
}

void clp_secrets_redact(const struct clp_secrets *s, char *text)
{
    for (size_t i = 0; i < s->count; i++) {
        size_t len = strlen(s->items[i]);
        for (char *at = text; (at = strstr(at, s->items[i])); at += len)
            memset(at, '*', len);
        size_t cut = overlap(text, s->items[i]);
        if (cut >= CLP_SECRET_MIN_BYTES)
            memset(text + strlen(text) - cut, '*', cut);
    }
}

void clp_secrets_done(struct clp_secrets *s)
{
    for (size_t i = 0; i < s->count; i++)
        clp_secret_free(&s->items[i]);
    free(s->items);
    *s = (struct clp_secrets){.items = NULL};
}
