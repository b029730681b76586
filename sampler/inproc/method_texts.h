/* A method in words, as naming hands it to the table. About 5 KB: made on the stack. */
#ifndef CLP_SAMPLER_INPROC_METHOD_TEXTS_H
#define CLP_SAMPLER_INPROC_METHOD_TEXTS_H

#include "base/core/text.h"

struct clp_method_texts {
    struct clp_text type, name, type_args, method_args, signature; /* as in struct clp_rec_method */
    uint32_t token;
    uint32_t module; /* number in modules.h, 0 = not known */
    uint16_t flags;  /* CLP_METHOD_* of the wire */
    char type_bytes[512], name_bytes[512], type_args_bytes[768], method_args_bytes[512],
        signature_bytes[1024];
};

#endif
