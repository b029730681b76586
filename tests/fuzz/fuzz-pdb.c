/* Any bytes as a portable PDB, or as a module with one inside. */
#include "base/core/text.h"
#include "sampler/symbols/pdb.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_document(const char *document)
{
    char again[3 * CLP_PDB_DOCUMENT_MAX];
    struct clp_text t = clp_text_in(again, sizeof(again));
    clp_text_utf8_clean(&t, document, strnlen(document, CLP_PDB_DOCUMENT_MAX));
    if (strcmp(document, again) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_pdb *p;
    if (clp_pdb_open_mem(data, size, &p) < 0)
        return 0;
    for (uint32_t token = 0x06000000; token < 0x06000040; token++) {
        struct clp_pdb_place place;
        if (clp_pdb_method_start(p, token, &place) == 0)
            check_document(place.document);
    }
    clp_pdb_free(p);
    return 0;
}
