/* Any text as a mangled name: bounded output, bounded time. */
#include "base/core/text.h"
#include "sampler/symbols/demangle.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char mangled[1025], buf[1024];
    size_t len = size < sizeof(mangled) ? size : sizeof(mangled) - 1;
    if (len)
        memcpy(mangled, data, len);
    mangled[len] = '\0';
    struct clp_text t = clp_text_in(buf, sizeof(buf));
    clp_text_add(&t, "before");
    int r = clp_demangle(&t, mangled);
    if (strlen(buf) != t.len || strncmp(buf, "before", 6) != 0)
        abort();
    if (r != 1 && t.len != 6)
        abort();
    return 0;
}
