/* Headers of a mapped PE file. */
#include "sampler/inproc/pe_layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t size;
};

static int64_t read_input(void *user, uint64_t address, void *buf, size_t len)
{
    const struct input *in = user;
    if (address >= in->size)
        return -EFAULT;
    size_t n = CLP_MIN(len, in->size - (size_t)address);
    memcpy(buf, in->data + address, n);
    return (int64_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct clp_pe_layout l;
    int r = clp_pe_layout(0, read_input, &in, &l);
    if (r > 0 || (r < 0 && r != -EBADMSG && r != -EFAULT))
        abort();
    if (r == 0 && l.native_code && l.image_bytes == 0)
        abort();
    return 0;
}
