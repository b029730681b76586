/* Function symbols of an ELF file as a compact sorted table.
 *
 * The file is foreign: read with pread in bounded pieces, every offset and count checked; a
 * malformed one yields an error or a table without the bad entries.  Sources: System V gABI chapter
 * 4, x86-64 psABI, elf(5).  Agent side (malloc). Internal to this folder. */
#ifndef CLP_SAMPLER_SYMBOLS_ELF_SYMBOLS_H
#define CLP_SAMPLER_SYMBOLS_ELF_SYMBOLS_H

#include "sampler/symbols/file_bytes.h"

#define CLP_ELF_BUILD_ID_MAX 32

/* The build id (NT_GNU_BUILD_ID), longer ones cut; -ENODATA when there is none, -EBADMSG. */
int clp_elf_build_id(const struct clp_file_bytes *b, uint8_t ret_id[CLP_ELF_BUILD_ID_MAX],
                     size_t *ret_len) CLP_MUST_USE;

/* Where names lie in the file: enough to read one later. */
struct clp_elf_strings {
    uint64_t offset, bytes;
};

/* Addresses are link-time and fit 32 bits: what a frame of the wire can carry. */
struct clp_elf_symbol {
    uint32_t start, size; /* size 0: not known, from assembly */
    uint32_t name;        /* offset in the strings */
};

struct clp_elf_symbols {
    struct clp_elf_symbol *at; /* by start, one for each start */
    uint32_t count;
    struct clp_elf_strings strings;
};

enum clp_elf_table {
    CLP_ELF_SYMTAB = 2, /* SHT_SYMTAB */
    CLP_ELF_DYNSYM = 11 /* SHT_DYNSYM */
};

struct clp_elf_limits {
    size_t table_bytes;   /* of the result while it is built */
    size_t section_bytes; /* of the symbol section in the file */
};

/* Reads the function symbols. Of several names at one address the plainest is kept: `write` rather
 * than `__write`. -ENODATA: no such section, or no function in it; -EFBIG: beyond a limit;
 * -EBADMSG; -ENOMEM; -errno of the read. Give back with clp_elf_symbols_done. */
int clp_elf_symbols_read(const struct clp_file_bytes *b, enum clp_elf_table which,
                         const struct clp_elf_limits *limits,
                         struct clp_elf_symbols *ret) CLP_MUST_USE;
void clp_elf_symbols_done(struct clp_elf_symbols *s);

/* The innermost symbol whose size covers `address`, or NULL. */
const struct clp_elf_symbol *clp_elf_symbols_cover(const struct clp_elf_symbols *s,
                                                   uint64_t address);
/* The nearest symbol at or before `address`, if it has no size, and the start of the one after it
 * in *ret_next (UINT64_MAX: none); else NULL. */
const struct clp_elf_symbol *clp_elf_symbols_sizeless(const struct clp_elf_symbols *s,
                                                      uint64_t address, uint64_t *ret_next);

/* A name, cut at cap - 1 bytes. -EBADMSG when the offset is outside of the strings. */
int clp_elf_string(const struct clp_file_bytes *b, const struct clp_elf_strings *strings,
                   uint32_t name, char *buf, size_t cap) CLP_MUST_USE;

#endif
