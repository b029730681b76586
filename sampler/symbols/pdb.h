/* Source lines of managed methods, from portable PDBs.
 *
 * A PDB lies inside its module or beside it, and is used only if its id is the one that the module
 * names; the module only if its MVID is that of the module which the target has loaded.  The
 * runtime's own modules ship without PDBs.  Nothing is loaded: a look-up reads the few rows that it
 * needs (an embedded PDB is inflated once into anonymous memory of the kernel, a memfd).
 *
 * Foreign bytes: opened below the target's root without following links, checked, bounded
 * (tests/fuzz/fuzz-pdb.c).  Agent side (malloc).  Not thread-safe for one clp_pdb. */
#ifndef CLP_SAMPLER_SYMBOLS_PDB_H
#define CLP_SAMPLER_SYMBOLS_PDB_H

#include "base/core/core.h"

#define CLP_PDB_DOCUMENT_MAX 512

struct clp_pdb;

/* Opens the PDB of a managed module, while the target's files can be had. `path` is the module's as
 * the target sees it; `mvid` (16 bytes) is what a clp_rec_image of kind CLP_IMAGE_MANAGED has as
 * build id, NULL: unchecked. Uses root_fd during the call only. -ENODATA: the module has no
 * portable PDB; -ESTALE: the file is another build; -ENOENT, -ELOOP...: no such file; -EBADMSG:
 * malformed; -EFBIG; -ENOMEM. */
int clp_pdb_open(int root_fd, const char *path, const uint8_t *mvid,
                 struct clp_pdb **ret) CLP_MUST_USE;
struct clp_pdb *clp_pdb_free(struct clp_pdb *p);

struct clp_pdb_place {
    uint32_t line;                       /* from 1 */
    char document[CLP_PDB_DOCUMENT_MAX]; /* path as the compiler had it; valid UTF-8, may be cut */
};

/* Where the code of a method begins: its first line that a debugger would stop at. For the MoveNext
 * of an async method or iterator that is the first line of the body that people wrote. `token` is
 * the mdMethodDef. -ENODATA: the method has no line (compiler-made); -EBADMSG; -errno of the read.
 */
int clp_pdb_method_start(const struct clp_pdb *p, uint32_t token,
                         struct clp_pdb_place *ret) CLP_MUST_USE;

/* ---- for tests ------------------------------------------------------------------------------ */

/* A PDB, or a module with one inside, that lies in memory: for the fuzzer. `bytes` must stay. */
int clp_pdb_open_mem(const void *bytes, size_t len, struct clp_pdb **ret) CLP_MUST_USE;

#endif
