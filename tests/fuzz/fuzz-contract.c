/* The runtime's description of itself, as text. */
#include "sampler/inproc/contract.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_contract c;
    int r = clp_contract_parse((const char *)data, size, &c);
    if (r != 0 && r != -EBADMSG && r != -ENOTSUP)
        abort();
    if (r == 0 && (c.os_id > 65536 || c.locals > 65536 || c.context > 3 * 65536))
        abort();
    return 0;
}
