/* The few facts of an ELF file that unwinding needs. Internal to sampler/unwind. */
#ifndef CLP_SAMPLER_UNWIND_ELF_H
#define CLP_SAMPLER_UNWIND_ELF_H

#include "sampler/unwind/native.h"
#include "sampler/unwind/source.h"

struct clp_elf_layout {
    struct clp_elf_info info;
    uint64_t exec_low, exec_high; /* link-time range of all executable segments */
    uint64_t eh_vaddr;            /* .eh_frame: link-time address, place in the file, length */
    uint64_t eh_offset;
    uint64_t eh_bytes; /* 0: the file has none */
};

/* 0, -EBADMSG, or -errno of the read. */
int clp_elf_layout(const struct clp_source *s, struct clp_elf_layout *ret) CLP_MUST_USE;

#endif
