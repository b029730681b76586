#include "sampler/symbols/elf_symbols.h"

#include "base/cleanup.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECTIONS_MAX 8192 /* programs built with -ffunction-sections are linked before they run */
#define SEGMENTS_MAX 64
#define NOTES_MAX_BYTES 4096 /* of one note section */
#define PIECE_SYMBOLS 512
#define ALIASES_MAX 8 /* names that are compared for one address */
#define ALIAS_NAME_MAX 128
#define SIZELESS_MAX 65536u /* of which each costs a read while the table is built */
#define NESTING_MAX 32      /* symbols that may lie inside another */

/* ---- headers -------------------------------------------------------------------------------- */

struct sections {
    Elf64_Shdr *at;
    uint32_t count;
};

static void sections_done(struct sections *s)
{
    free(s->at);
}

static int read_header(const struct clp_file_bytes *b, Elf64_Ehdr *ret)
{
    int r = clp_file_bytes_read(b, 0, ret, sizeof(*ret));
    if (r < 0)
        return r;
    if (memcmp(ret->e_ident, ELFMAG, SELFMAG) != 0 || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
        ret->e_ident[EI_DATA] != ELFDATA2LSB || ret->e_machine != EM_X86_64)
        return -EBADMSG;
    return 0;
}

/* A file without section headers has none: count 0. */
static int read_sections(const struct clp_file_bytes *b, const Elf64_Ehdr *h, struct sections *ret)
{
    *ret = (struct sections){0};
    if (h->e_shoff == 0 || h->e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    uint64_t count = h->e_shnum;
    if (count == 0) { /* too many for the field: the number is in the first section's size */
        Elf64_Shdr first;
        int r = clp_file_bytes_read(b, h->e_shoff, &first, sizeof(first));
        if (r < 0)
            return r;
        count = first.sh_size;
    }
    if (count > SECTIONS_MAX)
        return -EFBIG;
    if (count == 0)
        return 0;
    CLP_CLEANUP(clp_cleanup_free) Elf64_Shdr *at = calloc(count, sizeof(*at));
    if (!at)
        return -ENOMEM;
    int r = clp_file_bytes_read(b, h->e_shoff, at, count * sizeof(*at));
    if (r < 0)
        return r;
    *ret = (struct sections){.at = CLP_TAKE(at), .count = (uint32_t)count};
    return 0;
}

/* ---- build id ------------------------------------------------------------------------------- */

/* One block of notes: {name size, descriptor size, type}, then both, each padded to 4 bytes. */
static int find_build_id(const uint8_t *notes, size_t len, uint8_t *ret_id, size_t *ret_len)
{
    while (len >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr n;
        memcpy(&n, notes, sizeof(n));
        uint64_t name = CLP_ALIGN_UP((uint64_t)n.n_namesz, 4);
        uint64_t desc = CLP_ALIGN_UP((uint64_t)n.n_descsz, 4);
        len -= sizeof(n);
        notes += sizeof(n);
        if (name > len || n.n_descsz > len - name)
            return -ENODATA;
        if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(notes, "GNU", 4) == 0 &&
            n.n_descsz > 0) {
            *ret_len = CLP_MIN((size_t)n.n_descsz, (size_t)CLP_ELF_BUILD_ID_MAX);
            memcpy(ret_id, notes + name, *ret_len);
            return 0;
        }
        if (desc > len - name)
            return -ENODATA;
        notes += name + desc;
        len -= name + desc;
    }
    return -ENODATA;
}

static int build_id_at(const struct clp_file_bytes *b, uint64_t offset, uint64_t size,
                       uint8_t *ret_id, size_t *ret_len)
{
    uint8_t notes[NOTES_MAX_BYTES];
    size_t len = CLP_MIN(size, sizeof(notes));
    if (!clp_file_bytes_inside(b, offset, len) || clp_file_bytes_read(b, offset, notes, len) < 0)
        return -ENODATA;
    return find_build_id(notes, len, ret_id, ret_len);
}

static int build_id_of_segments(const struct clp_file_bytes *b, const Elf64_Ehdr *h,
                                uint8_t *ret_id, size_t *ret_len)
{
    if (h->e_phentsize != sizeof(Elf64_Phdr))
        return -ENODATA;
    for (unsigned i = 0; i < h->e_phnum && i < SEGMENTS_MAX; i++) {
        Elf64_Phdr p;
        if (clp_file_bytes_read(b, h->e_phoff + i * sizeof(p), &p, sizeof(p)) < 0)
            return -ENODATA;
        if (p.p_type == PT_NOTE && build_id_at(b, p.p_offset, p.p_filesz, ret_id, ret_len) == 0)
            return 0;
    }
    return -ENODATA;
}

/* Sections first: in a separate debug file the segments point at bytes that were taken out. */
int clp_elf_build_id(const struct clp_file_bytes *b, uint8_t ret_id[CLP_ELF_BUILD_ID_MAX],
                     size_t *ret_len)
{
    Elf64_Ehdr h;
    CLP_CLEANUP(sections_done) struct sections s = {0};
    int r = read_header(b, &h);
    if (r < 0)
        return r;
    if (read_sections(b, &h, &s) == 0)
        for (uint32_t i = 0; i < s.count; i++)
            if (s.at[i].sh_type == SHT_NOTE &&
                build_id_at(b, s.at[i].sh_offset, s.at[i].sh_size, ret_id, ret_len) == 0)
                return 0;
    return build_id_of_segments(b, &h, ret_id, ret_len);
}

/* ---- symbols -------------------------------------------------------------------------------- */

struct reading {
    const struct clp_file_bytes *bytes;
    struct sections sections;
    const Elf64_Shdr *symbols;
    struct clp_elf_strings strings;
    uint32_t sizeless; /* seen so far */
    uint32_t cap;
    struct clp_elf_symbols out;
};

static int find_table(struct reading *rd, enum clp_elf_table which, size_t section_bytes)
{
    const struct sections *s = &rd->sections;
    for (uint32_t i = 0; i < s->count; i++) {
        const Elf64_Shdr *sh = &s->at[i];
        if (sh->sh_type != (uint32_t)which)
            continue;
        if (sh->sh_entsize != sizeof(Elf64_Sym) || sh->sh_link >= s->count ||
            s->at[sh->sh_link].sh_type != SHT_STRTAB)
            return -EBADMSG;
        const Elf64_Shdr *str = &s->at[sh->sh_link];
        if (!clp_file_bytes_inside(rd->bytes, sh->sh_offset, sh->sh_size) ||
            !clp_file_bytes_inside(rd->bytes, str->sh_offset, str->sh_size))
            return -EBADMSG;
        if (sh->sh_size > section_bytes)
            return -EFBIG;
        rd->symbols = sh;
        rd->strings = (struct clp_elf_strings){.offset = str->sh_offset, .bytes = str->sh_size};
        return 0;
    }
    return -ENODATA;
}

/* Tools leave markers in code that begin with a dot (.annobin_*, .L*): no functions. */
static bool is_marker(struct reading *rd, uint32_t name)
{
    char first;
    if (++rd->sizeless > SIZELESS_MAX)
        return true;
    return clp_file_bytes_read(rd->bytes, rd->strings.offset + name, &first, 1) < 0 || first == '.';
}

static bool in_code(const struct reading *rd, const Elf64_Sym *sym)
{
    return sym->st_shndx != SHN_UNDEF && sym->st_shndx < rd->sections.count &&
           (rd->sections.at[sym->st_shndx].sh_flags & SHF_EXECINSTR);
}

static bool is_function(struct reading *rd, const Elf64_Sym *sym)
{
    unsigned type = ELF64_ST_TYPE(sym->st_info);
    if (sym->st_name == 0 || sym->st_name >= rd->strings.bytes || sym->st_value > UINT32_MAX ||
        !in_code(rd, sym))
        return false;
    if (type == STT_FUNC || type == STT_GNU_IFUNC)
        return sym->st_size > 0 || !is_marker(rd, sym->st_name);
    return type == STT_NOTYPE && !is_marker(rd, sym->st_name); /* assembly without .type */
}

static int keep(struct reading *rd, const Elf64_Sym *sym, size_t table_bytes)
{
    struct clp_elf_symbols *out = &rd->out;
    if (out->count == rd->cap) {
        uint32_t cap = rd->cap ? rd->cap * 2 : 512;
        size_t ceiling = table_bytes / sizeof(*out->at);
        if (out->count >= ceiling)
            return -EFBIG;
        cap = (uint32_t)CLP_MIN((size_t)cap, ceiling);
        struct clp_elf_symbol *at = reallocarray(out->at, cap, sizeof(*at));
        if (!at)
            return -ENOMEM;
        out->at = at;
        rd->cap = cap;
    }
    uint64_t room = UINT32_MAX - sym->st_value;
    out->at[out->count++] = (struct clp_elf_symbol){
        .start = (uint32_t)sym->st_value,
        .size = (uint32_t)CLP_MIN(sym->st_size, room),
        .name = sym->st_name,
    };
    return 0;
}

static int read_symbols(struct reading *rd, size_t table_bytes)
{
    uint64_t left = rd->symbols->sh_size / sizeof(Elf64_Sym), offset = rd->symbols->sh_offset;
    Elf64_Sym piece[PIECE_SYMBOLS];
    while (left > 0) {
        size_t n = CLP_MIN(left, (uint64_t)PIECE_SYMBOLS);
        int r = clp_file_bytes_read(rd->bytes, offset, piece, n * sizeof(*piece));
        for (size_t i = 0; r == 0 && i < n; i++)
            if (is_function(rd, &piece[i]))
                r = keep(rd, &piece[i], table_bytes);
        if (r < 0)
            return r;
        offset += n * sizeof(*piece);
        left -= n;
    }
    return rd->out.count ? 0 : -ENODATA;
}

/* ---- one name for each address -------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    const struct clp_elf_symbol *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1; /* a known size beats none */
    return x->name < y->name ? -1 : x->name > y->name;
}

/* glibc's debug symbols also have its inner names, __GI_memcpy; those lose against any other. */
static size_t internal_marks(const char *name)
{
    static const char inner[] = "__GI_";
    bool internal = strncmp(name, inner, sizeof(inner) - 1) == 0;
    return strspn(internal ? name + sizeof(inner) - 1 : name, "_") + internal;
}

/* Fewer underscores in front, then shorter, then first in the alphabet: the public name. */
static bool plainer(const char *a, const char *b)
{
    size_t ua = internal_marks(a), ub = internal_marks(b), la = strlen(a), lb = strlen(b);
    if (ua != ub)
        return ua < ub;
    if (la != lb)
        return la < lb;
    return strcmp(a, b) < 0;
}

static struct clp_elf_symbol choose(const struct reading *rd, const struct clp_elf_symbol *group,
                                    uint32_t count)
{
    struct clp_elf_symbol best = group[0];
    char best_name[ALIAS_NAME_MAX], name[ALIAS_NAME_MAX];
    if (count == 1 ||
        clp_elf_string(rd->bytes, &rd->strings, best.name, best_name, sizeof(best_name)) < 0)
        return best;
    for (uint32_t i = 1; i < count && i < ALIASES_MAX; i++) {
        if (group[i].size == 0 && best.size > 0)
            break;
        if (clp_elf_string(rd->bytes, &rd->strings, group[i].name, name, sizeof(name)) == 0 &&
            plainer(name, best_name)) {
            best.name = group[i].name;
            memcpy(best_name, name, sizeof(name));
        }
    }
    return best;
}

static void drop_aliases(struct reading *rd)
{
    struct clp_elf_symbols *s = &rd->out;
    qsort(s->at, s->count, sizeof(*s->at), by_start);
    uint32_t kept = 0;
    for (uint32_t i = 0, n; i < s->count; i += n) {
        n = 1;
        while (i + n < s->count && s->at[i + n].start == s->at[i].start)
            n++;
        s->at[kept++] = choose(rd, &s->at[i], n);
    }
    s->count = kept;
    struct clp_elf_symbol *smaller = reallocarray(s->at, kept, sizeof(*s->at));
    if (smaller)
        s->at = smaller;
}

int clp_elf_symbols_read(const struct clp_file_bytes *b, enum clp_elf_table which,
                         const struct clp_elf_limits *limits, struct clp_elf_symbols *ret)
{
    Elf64_Ehdr h;
    struct reading rd = {.bytes = b};
    int r = read_header(b, &h);
    if (r < 0)
        return r;
    r = read_sections(b, &h, &rd.sections);
    if (r == 0)
        r = find_table(&rd, which, limits->section_bytes);
    if (r == 0)
        r = read_symbols(&rd, limits->table_bytes);
    if (r == 0)
        drop_aliases(&rd);
    sections_done(&rd.sections);
    if (r < 0) {
        clp_elf_symbols_done(&rd.out);
        return r;
    }
    rd.out.strings = rd.strings;
    *ret = rd.out;
    return 0;
}

void clp_elf_symbols_done(struct clp_elf_symbols *s)
{
    free(s->at);
    *s = (struct clp_elf_symbols){0};
}

/* ---- look-up -------------------------------------------------------------------------------- */

/* Number of symbols that start at or before `address`. */
static uint32_t starts_until(const struct clp_elf_symbols *s, uint64_t address)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->at[mid].start <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct clp_elf_symbol *clp_elf_symbols_cover(const struct clp_elf_symbols *s,
                                                   uint64_t address)
{
    uint32_t until = starts_until(s, address);
    for (uint32_t back = 1; back <= NESTING_MAX && back <= until; back++) {
        const struct clp_elf_symbol *sym = &s->at[until - back];
        if (address - sym->start < sym->size)
            return sym;
    }
    return NULL;
}

const struct clp_elf_symbol *clp_elf_symbols_sizeless(const struct clp_elf_symbols *s,
                                                      uint64_t address, uint64_t *ret_next)
{
    uint32_t until = starts_until(s, address);
    if (until == 0 || s->at[until - 1].size != 0)
        return NULL;
    *ret_next = until < s->count ? s->at[until].start : UINT64_MAX;
    return &s->at[until - 1];
}

int clp_elf_string(const struct clp_file_bytes *b, const struct clp_elf_strings *strings,
                   uint32_t name, char *buf, size_t cap)
{
    if (name >= strings->bytes || cap == 0)
        return -EBADMSG;
    size_t n = CLP_MIN(strings->bytes - name, (uint64_t)cap - 1);
    int r = clp_file_bytes_read(b, strings->offset + name, buf, n);
    if (r < 0)
        return r;
    buf[n] = '\0';
    return 0;
}
