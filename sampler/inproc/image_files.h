/* The files behind executable mappings: identity, ELF facts, unwind table.
 *
 * A file is known by path, device and inode; what was read of it is kept for good, so loading and
 * unloading a library over and over costs nothing. Loop thread only. */
#ifndef CLP_SAMPLER_INPROC_IMAGE_FILES_H
#define CLP_SAMPLER_INPROC_IMAGE_FILES_H

#include "base/core/core.h"
#include "base/core/proctext.h"
#include "sampler/unwind/native.h"

#include <stdbool.h>

#define CLP_IMAGE_FILES_MAX 1024u
#define CLP_NO_FILE UINT32_MAX

enum clp_image_file_state {
    CLP_FILE_NEW = 0,
    CLP_FILE_ELF = 1,   /* info is filled; table where one could be built */
    CLP_FILE_OTHER = 2, /* executable, but no ELF: thunks in a PE image, a generated file */
};

struct clp_image_file {
    uint64_t inode; /* 0: the vdso */
    uint32_t dev_major, dev_minor;
    uint64_t first_page; /* where its offset 0 is mapped, or 0 */
    uint64_t exec_start, exec_end;
    const char *path;
    uint16_t path_len;
    uint8_t state; /* enum clp_image_file_state */
    bool deleted;
    struct clp_elf_info info;
    const struct clp_native_table *table;
};

/* Idempotent. 0 or -ENOMEM. */
int clp_image_files_init(void) CLP_MUST_USE;

/* Could the mapping be that of an image at all? Not anonymous memory, nor what the JIT writes
 * through another mapping (a memfd on Linux). */
bool clp_image_files_is_image(const struct clp_map_entry *e);
/* Number of the file of a mapping, known or new; CLP_NO_FILE without room. */
uint32_t clp_image_files_of(const struct clp_map_entry *e);
/* Is the mapping one of this file? The path counts: a deleted file's inode is soon given to
 * another. */
bool clp_image_files_same(uint32_t file, const struct clp_map_entry *e);

struct clp_image_file *clp_image_files_at(uint32_t file);
/* Reads the file, or what the loader mapped of it, at first sight. The file must be the one that is
 * mapped: its first page equals the one in memory (device and inode differ between maps and stat on
 * overlay file systems). Takes up to some 10 ms. */
void clp_image_files_load(struct clp_image_file *f);
/* The calling thread's CPU clock, but for what loading has taken: the price of looks at threads,
 * of which reading an image's tables, once in its life, is no part. Loop thread. */
uint64_t clp_image_files_cost_ns(void);

uint64_t clp_image_files_refused(void); /* beyond the ceilings */
size_t clp_image_files_bytes(void);

#endif
