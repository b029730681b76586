#include "sampler/unwind/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/core/bytes.h"
#include "sampler/unwind/ehframe.h"

#define PHDRS_MAX 256
#define NOTE_BYTES_MAX 4096

static bool segment_file_range(const Elf64_Phdr *p, uint64_t vaddr, uint64_t *ret_offset,
                               uint64_t *ret_left)
{
    if (p->p_type != PT_LOAD || vaddr < p->p_vaddr || vaddr - p->p_vaddr >= p->p_filesz)
        return false;
    *ret_offset = p->p_offset + (vaddr - p->p_vaddr);
    *ret_left = p->p_filesz - (vaddr - p->p_vaddr);
    return true;
}

static void take_exec(const Elf64_Phdr *p, struct clp_elf_layout *l)
{
    uint64_t end = p->p_vaddr + p->p_memsz;
    if (!(p->p_flags & PF_X) || p->p_memsz == 0 || end < p->p_vaddr)
        return;
    if (l->exec_high == 0) {
        l->info.first_load_vaddr = p->p_vaddr;
        l->info.first_load_offset = p->p_offset;
        l->exec_low = p->p_vaddr;
    }
    l->exec_low = CLP_MIN(l->exec_low, p->p_vaddr);
    l->exec_high = CLP_MAX(l->exec_high, end);
    l->info.exec_end_vaddr = l->exec_high;
}

/* Notes are {u32 name length, u32 descriptor length, u32 type}, name, descriptor, each padded to 4.
 */
static void find_build_id(const uint8_t *notes, size_t len, struct clp_elf_info *info)
{
    struct clp_bytes b = clp_bytes_of(notes, len);
    while (!b.bad && info->build_id_len == 0) {
        uint32_t name_len = clp_bytes_u32(&b);
        uint32_t desc_len = clp_bytes_u32(&b);
        uint32_t type = clp_bytes_u32(&b);
        const uint8_t *name = clp_bytes_take(&b, CLP_ALIGN_UP((size_t)name_len, 4));
        const uint8_t *desc = clp_bytes_take(&b, CLP_ALIGN_UP((size_t)desc_len, 4));
        if (!name || !desc || type != NT_GNU_BUILD_ID || name_len != 4 || memcmp(name, "GNU", 4))
            continue;
        if (desc_len == 0 || desc_len > CLP_BUILD_ID_MAX)
            continue;
        memcpy(info->build_id, desc, desc_len);
        info->build_id_len = (uint8_t)desc_len;
    }
}

static uint64_t place_of(const struct clp_source *s, const Elf64_Phdr *p)
{
    return s->process ? p->p_vaddr : p->p_offset;
}

static int take_notes(const struct clp_source *s, const Elf64_Phdr *p, struct clp_elf_info *info)
{
    uint8_t notes[NOTE_BYTES_MAX];
    size_t len = (size_t)CLP_MIN(p->p_filesz, sizeof(notes));
    int r = clp_source_read(s, place_of(s, p), notes, len);
    if (r == 0)
        find_build_id(notes, len, info);
    return r == -EBADMSG ? 0 : r; /* a segment beyond the file's end: no build id, still an ELF */
}

/* .eh_frame_hdr: version, three encodings, then the encoded pointer to .eh_frame. */
static int eh_frame_address(const struct clp_source *s, const Elf64_Phdr *p, uint64_t *ret)
{
    uint8_t head[12] = {0};
    int r = clp_source_read(s, place_of(s, p), head, sizeof(head));
    if (r < 0)
        return r;
    if (head[0] != 1)
        return -EBADMSG;
    struct clp_bytes b = clp_bytes_of(head + 4, sizeof(head) - 4);
    return clp_eh_pointer(&b, head[1], p->p_vaddr + 4, ret);
}

static void locate_in_segments(const struct clp_source *s, const Elf64_Phdr *ph, size_t n,
                               uint64_t vaddr, struct clp_elf_layout *l)
{
    for (size_t i = 0; i < n && l->eh_bytes == 0; i++) {
        uint64_t offset, left;
        if (!segment_file_range(&ph[i], vaddr, &offset, &left))
            continue;
        l->eh_vaddr = vaddr;
        l->eh_offset = s->process ? vaddr : offset;
        l->eh_bytes = left;
    }
}

/* Sections may be stripped; where they exist they give the exact length, and the only trace of an
 * .eh_frame that has no header segment. */
static int refine_by_section(const struct clp_source *s, const Elf64_Ehdr *eh,
                             struct clp_elf_layout *l)
{
    if (eh->e_shoff == 0 || eh->e_shentsize != sizeof(Elf64_Shdr) || eh->e_shnum == 0 ||
        eh->e_shstrndx >= eh->e_shnum)
        return 0;
    Elf64_Shdr names;
    int r = clp_source_read(s, eh->e_shoff + (uint64_t)eh->e_shstrndx * sizeof(names), &names,
                            sizeof(names));
    for (uint32_t i = 0; r == 0 && i < eh->e_shnum; i++) {
        Elf64_Shdr sh;
        char name[sizeof(".eh_frame")] = "";
        r = clp_source_read(s, eh->e_shoff + (uint64_t)i * sizeof(sh), &sh, sizeof(sh));
        if (r < 0 || sh.sh_type == SHT_NOBITS || sh.sh_addr == 0 || !(sh.sh_flags & SHF_ALLOC))
            continue;
        if (l->eh_bytes && sh.sh_addr != l->eh_vaddr)
            continue;
        r = clp_source_read(s, names.sh_offset + sh.sh_name, name, sizeof(name));
        if (r < 0 || memcmp(name, ".eh_frame", sizeof(name)) != 0)
            continue;
        l->eh_vaddr = sh.sh_addr;
        l->eh_offset = sh.sh_offset;
        l->eh_bytes = sh.sh_size;
        break;
    }
    return r == -EBADMSG ? 0 : r;
}

static int read_segments(const struct clp_source *s, const Elf64_Ehdr *eh, Elf64_Phdr *ph)
{
    if (eh->e_phentsize != sizeof(*ph) || eh->e_phnum == 0 || eh->e_phnum > PHDRS_MAX)
        return -EBADMSG;
    return clp_source_read(s, eh->e_phoff, ph, eh->e_phnum * sizeof(*ph));
}

static int read_header(const struct clp_source *s, Elf64_Ehdr *ret)
{
    int r = clp_source_read(s, 0, ret, sizeof(*ret));
    if (r < 0)
        return r;
    if (memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0 || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
        ret->e_ident[EI_DATA] != ELFDATA2LSB || ret->e_machine != CLP_REGS_ELF_MACHINE)
        return -EBADMSG;
    return 0;
}

int clp_elf_layout(const struct clp_source *s, struct clp_elf_layout *ret)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph[PHDRS_MAX];
    struct clp_elf_layout l = {0};
    int r = read_header(s, &eh);
    if (r == 0)
        r = read_segments(s, &eh, ph);
    for (size_t i = 0; r == 0 && i < eh.e_phnum; i++) {
        uint64_t vaddr;
        if (ph[i].p_type == PT_LOAD)
            take_exec(&ph[i], &l);
        else if (ph[i].p_type == PT_NOTE && l.info.build_id_len == 0)
            r = take_notes(s, &ph[i], &l.info);
        else if (ph[i].p_type == PT_GNU_EH_FRAME && eh_frame_address(s, &ph[i], &vaddr) == 0)
            locate_in_segments(s, ph, eh.e_phnum, vaddr, &l);
    }
    if (r == 0 && !s->process) /* sections are not mapped */
        r = refine_by_section(s, &eh, &l);
    if (r < 0)
        return r;
    *ret = l;
    return 0;
}

int clp_elf_info(int fd, struct clp_elf_info *ret)
{
    struct clp_source s;
    struct clp_elf_layout l;
    int r = clp_source_open_fd(fd, &s);
    if (r == 0)
        r = clp_elf_layout(&s, &l);
    if (r < 0)
        return r;
    *ret = l.info;
    return 0;
}
