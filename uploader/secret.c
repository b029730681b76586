#include "uploader/secret.h"

#include "base/file.h"

#include <errno.h>
#include <stdbool.h>
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
