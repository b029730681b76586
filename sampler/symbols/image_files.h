/* Finds and opens the files that belong to an image of a target: the module itself and its separate
 * debug file.  Paths and files are the target's: opened below its root, without following links,
 * regular files only, and never opened for reading before that is known (opening a device can do
 * things).  Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_IMAGE_FILES_H
#define CLP_SAMPLER_SYMBOLS_IMAGE_FILES_H

#include "sampler/symbols/elf_symbols.h"
#include "sampler/symbols/native_symbols.h"

/* Any regular file below `root_fd`: a descriptor for reading, or -errno (-EINVAL: not regular). */
int clp_image_open_regular(int root_fd, const char *path) CLP_MUST_USE;

/* Each of these opens a file whose build id is that of `spec` and returns it, or -1 when there is
 * none. What went wrong is counted in *stats. */

/* The module: in the target's root, else in ours if the build id proves that it is the same.
 * Without a build id the target's own is taken as it is. */
int clp_image_open_module(const struct clp_symbols_image_spec *spec, const char *path,
                          struct clp_symbols_stats *stats);

/* /usr/lib/debug/.build-id/xx/yyyy.debug in the target's root, else in ours. */
int clp_image_open_debug(const struct clp_symbols_image_spec *spec,
                         struct clp_symbols_stats *stats);

#endif
