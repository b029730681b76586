/* Metadata signatures: of the application's assemblies, and made at run time by anybody. */
#include "sampler/inproc/signature.h"

#include <errno.h>
#include <stdlib.h>

static void token_name(void *user, uint32_t token, unsigned depth, struct clp_text *out)
{
    (void)user;
    if (depth > CLP_SIGNATURE_DEPTH_MAX)
        abort();
    clp_text_hex(out, token);
}

static void address_name(void *user, uint64_t type, unsigned depth, struct clp_text *out)
{
    (void)user;
    (void)depth;
    clp_text_hex(out, type);
}

static void run(const uint8_t *data, size_t size, const struct clp_signature_names *names,
                size_t cap)
{
    char buf[1024];
    struct clp_text out = clp_text_in(buf, cap);
    int r = clp_signature_params(data, size, names, &out);
    if (r != 0 && r != -EBADMSG)
        abort();
    if (out.len >= cap || buf[out.len] != '\0')
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct clp_signature_names plain = {NULL, token_name, address_name};
    run(data, size, &plain, 1024);
    run(data, size, &plain, 8);
    return 0;
}
