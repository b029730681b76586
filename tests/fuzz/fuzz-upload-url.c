/* Any text as the address and header of an upload: refused with a reason, or it can be shown, and
 * what is shown holds no user and password. */
#include "uploader/uploader.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const uint8_t *bytes, size_t len)
{
    char *s = malloc(len + 1);
    if (s) {
        memcpy(s, bytes, len);
        s[len] = '\0';
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_intake *in = NULL;
    const char *why = NULL;
    if (size < 2 || size > 4096)
        return 0;
    char *url = text_of(data + 1, size - 1);
    if (!url)
        return 0;
    size_t len = strlen(url);
    char *line = len + 2 < size ? text_of(data + 2 + len, size - 2 - len) : NULL;
    const char *const headers[] = {line};
    struct clp_upload u = {.kind = (enum clp_upload_kind)(1 + data[0] % (CLP_UPLOAD_KINDS - 1)),
                           .url = url,
                           .headers = headers,
                           .header_count = line ? 1 : 0};
    int r = clp_intake_open(&u, &in, &why);
    if (r < 0 && !why)
        abort();
    if (r == 0 && (!clp_intake_where(in) ||
                   (strncmp(url, "unix://", 7) != 0 && strchr(clp_intake_where(in), '?'))))
        abort();
    clp_intake_close(in);
    free(line);
    free(url);
    return 0;
}
