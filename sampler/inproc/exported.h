/* Where an ELF image that is mapped in this process has an exported symbol, found without the
 * loader's lock and without trust in what is mapped. */
#ifndef CLP_SAMPLER_INPROC_EXPORTED_H
#define CLP_SAMPLER_INPROC_EXPORTED_H

#include "base/core/core.h"

/* `inside`: any address in the image's memory. The image needs a GNU hash table, as the runtime's
 * have. 0; -ENOENT it exports no such symbol; -EBADMSG no image, or not one of that kind; -errno of
 * a read. Loop thread: reads /proc/self/maps. */
int clp_exported_find(uint64_t inside, const char *symbol, uint64_t *ret_address) CLP_MUST_USE;

#endif
