/* Any bytes as a method's raw parts: the first one is flags, then type, name, type arguments,
 * method arguments and signature, each ended by a line feed. */
#include "base/core/text.h"
#include "sampler/symbols/managed_name.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct clp_name_text next_field(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *start = *at;
    const uint8_t *stop = start < end ? memchr(start, '\n', (size_t)(end - start)) : NULL;
    *at = stop ? stop + 1 : end;
    return (struct clp_name_text){(const char *)start, (size_t)((stop ? stop : end) - start)};
}

/* What every name promises. */
static void check(const char *name, size_t cap)
{
    size_t len = strnlen(name, cap);
    if (len == cap)
        abort();
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            abort();
    char again[3 * CLP_NAME_MAX];
    struct clp_text t = clp_text_in(again, sizeof(again));
    clp_text_utf8_clean(&t, name, len);
    if (t.len != len || memcmp(again, name, len) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t caps[] = {CLP_NAME_MAX, 40, 4, 1};
    if (size == 0)
        return 0;
    const uint8_t *at = data + 1, *end = data + size;
    struct clp_managed_raw raw = {.flags = data[0]};
    raw.type = next_field(&at, end);
    raw.name = next_field(&at, end);
    raw.type_args = next_field(&at, end);
    raw.method_args = next_field(&at, end);
    raw.signature = next_field(&at, end);
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        char name[CLP_NAME_MAX];
        clp_managed_name(&raw, name, caps[i]);
        check(name, caps[i]);
        clp_managed_system_name(&raw, name, caps[i]);
        check(name, caps[i]);
    }
    return 0;
}
