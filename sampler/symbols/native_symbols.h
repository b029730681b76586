/* Names of native functions, from the ELF files of a target.
 *
 * One cache serves all targets: an image is known by its build id, so the libc of twenty containers
 * is read once.  Images are opened when they are defined (the target may be gone when its samples
 * are named) and read at the first look-up; what stays in memory is a sorted table of 12 bytes a
 * symbol, the name itself is read from the open file when it is asked for.
 *
 * Where symbols come from: .symtab; else .symtab of the separate debug file of the same build id,
 * under /usr/lib/debug/.build-id of the target's root, then of ours; else .dynsym.  A symbol names
 * an address only if its size covers it.  A symbol without size (assembly) reaches to the next
 * symbol, and only inside the same unwind entry (FDE).  Everything else is `module!0x<start of the
 * function>`, start taken from the unwind tables: true and stable for one build; never the nearest
 * symbol.
 *
 * The files are foreign bytes: opened below the target's root only, regular files only, build id
 * compared, each offset and count checked, sizes bounded (tests/fuzz/fuzz-elf-symbols.c).
 *
 * Agent side: allocates with malloc.  Not thread-safe: one cache belongs to one thread. */
#ifndef CLP_SAMPLER_SYMBOLS_NATIVE_SYMBOLS_H
#define CLP_SAMPLER_SYMBOLS_NATIVE_SYMBOLS_H

#include "base/core/core.h"

#include <stdbool.h>
#include <stdint.h>

struct clp_symbols;
struct clp_symbols_image;

/* A field of 0 means its default. */
struct clp_symbols_limits {
    size_t tables_bytes; /* of all tables together; least recently used ones go. Default 8 MiB */
    size_t image_bytes;  /* of one image's table. Default 4 MiB */
    size_t symtab_bytes; /* a bigger symbol section in a file is not read. Default 32 MiB */
    uint32_t open_files; /* Default 256; an image beyond has no names */
    uint32_t images;     /* known at once. Default 4096 */
    /* Time for reading files, so that no target can keep the agent busy with them: load_ns at once
     * (default 5 s), and after that one part in load_share of the time that passes (default 10). */
    uint64_t load_ns;
    uint32_t load_share;
};

/* What is counted; every field only grows, except those named "now". */
struct clp_symbols_stats {
    uint32_t images_now, open_now;
    size_t tables_bytes_now;
    uint64_t loads, evictions;
    uint64_t put_off;     /* load_ns was used up: no name this time, the next look-up tries again */
    uint64_t not_found;   /* file could not be opened */
    uint64_t other_build; /* file on disk is not the one that is mapped */
    uint64_t malformed;   /* no ELF file, or one that contradicts itself */
    uint64_t too_big;     /* beyond image_bytes or symtab_bytes */
    uint64_t demangle_given_up; /* a mangled name that unfolds without end */
};

/* `limits` may be NULL. Errors: -ENOMEM. */
int clp_symbols_new(const struct clp_symbols_limits *limits, struct clp_symbols **ret) CLP_MUST_USE;
/* All images must have been given back. NULL is fine; returns NULL. */
struct clp_symbols *clp_symbols_free(struct clp_symbols *s);
void clp_symbols_get_stats(const struct clp_symbols *s, struct clp_symbols_stats *ret);

/* What a clp_rec_image says of an image. Texts and bytes are copied. */
struct clp_symbols_image_spec {
    int root_fd; /* directory fd of the target's root (/proc/PID/root); -1 when it is gone */
    bool vdso;   /* names come from our own vdso if the build ids are equal; path is not opened */
    const char *path; /* as the target sees it, path_len bytes, no NUL needed */
    size_t path_len;
    const uint8_t *build_id; /* without one the file is taken unchecked, and only below root_fd */
    size_t build_id_len;
};

/* The image, opened or found in the cache; give it back with clp_symbols_image_unref. An image
 * whose file cannot be had is no error: it answers with its module's name. Uses root_fd during the
 * call only. Errors: -EINVAL (too long path or build id), -ENOSPC (limits.images are all
 * in use), -ENOMEM. */
int clp_symbols_image_get(struct clp_symbols *s, const struct clp_symbols_image_spec *spec,
                          struct clp_symbols_image **ret) CLP_MUST_USE;
struct clp_symbols_image *clp_symbols_image_unref(struct clp_symbols_image *image);

enum clp_symbol_source {
    CLP_SYMBOL_NONE = 0, /* nothing known: `module![unknown]`, one function for the whole image */
    CLP_SYMBOL_ELF = 1,  /* a symbol that covers the address */
    CLP_SYMBOL_FDE = 2,  /* function start only: `module!0x...` */
};

/* A function. {image, start, source} is the key to cache names by. */
struct clp_symbol {
    uint64_t start, end; /* link-time addresses; both 0 for CLP_SYMBOL_NONE */
    uint32_t source;     /* enum clp_symbol_source */
    uint32_t name;       /* opaque */
};

/* The function that covers a link-time address. Reads the file at the image's first look-up, later
 * only memory. Always fills *ret. */
void clp_symbols_find(struct clp_symbols_image *m, uint64_t address, struct clp_symbol *ret);

/* Its name for people (demangled, without parameters) and as the file has it (mangled), both valid
 * UTF-8, bounded by CLP_NAME_MAX (managed_name.h). `system_name` may be NULL. `sym` must come from
 * clp_symbols_find on the same image. Reads the file. */
void clp_symbols_name(struct clp_symbols_image *m, const struct clp_symbol *sym, char *name,
                      size_t name_cap, char *system_name, size_t system_name_cap);

#endif
