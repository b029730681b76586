#include "sampler/inproc/exported.h"

#include "sampler/inproc/images.h"
#include "sampler/inproc/maps.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define SEGMENTS_MAX 32u
#define DYNAMIC_MAX 128u
#define CHAIN_MAX 4096u /* symbols of one bucket */
#define NAME_MAX_BYTES 64u

static int read_exactly(uint64_t address, void *buf, size_t len)
{
    int64_t n = clp_images_read(address, buf, len);
    return n == (int64_t)len ? 0 : n < 0 ? (int)n : -EFAULT;
}

/* ---- where the image begins ---- */

struct search {
    uint64_t inside, first; /* of the mapping of a file's first byte that was seen last */
    uint64_t inode;
    uint32_t dev_major, dev_minor;
    uint64_t found;
};

static bool look_at(void *user, const struct clp_map_entry *e)
{
    struct search *s = user;
    if (e->inode && e->file_offset == 0) {
        s->first = e->start;
        s->inode = e->inode;
        s->dev_major = e->dev_major;
        s->dev_minor = e->dev_minor;
    }
    if (e->end <= s->inside)
        return true;
    if (e->start <= s->inside && e->inode && e->inode == s->inode && e->dev_major == s->dev_major &&
        e->dev_minor == s->dev_minor)
        s->found = s->first;
    return false;
}

/* ---- its dynamic section ---- */

struct image {
    uint64_t bias;
    uint64_t symbols, strings, hash; /* addresses */
};

/* Loaders may or may not have made addresses of these offsets. */
static uint64_t relocated(const struct image *m, uint64_t value)
{
    return value < m->bias ? m->bias + value : value;
}

static int read_dynamic(struct image *m, uint64_t address, uint64_t bytes)
{
    Elf64_Dyn d[DYNAMIC_MAX];
    size_t n = CLP_MIN(bytes / sizeof(d[0]), (uint64_t)DYNAMIC_MAX);
    int r = n ? read_exactly(address, d, n * sizeof(d[0])) : -EBADMSG;
    for (size_t i = 0; r == 0 && i < n && d[i].d_tag != DT_NULL; i++) {
        if (d[i].d_tag == DT_SYMTAB)
            m->symbols = relocated(m, d[i].d_un.d_ptr);
        else if (d[i].d_tag == DT_STRTAB)
            m->strings = relocated(m, d[i].d_un.d_ptr);
        else if (d[i].d_tag == DT_GNU_HASH)
            m->hash = relocated(m, d[i].d_un.d_ptr);
    }
    if (r == 0 && (!m->symbols || !m->strings || !m->hash))
        r = -EBADMSG;
    return r;
}

static int open_image(uint64_t base, struct image *ret)
{
    Elf64_Ehdr h;
    Elf64_Phdr p[SEGMENTS_MAX];
    int r = read_exactly(base, &h, sizeof(h));
    if (r < 0)
        return r;
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_phentsize != sizeof(p[0]) || h.e_phnum == 0 || h.e_phnum > SEGMENTS_MAX)
        return -EBADMSG;
    r = read_exactly(base + h.e_phoff, p, h.e_phnum * sizeof(p[0]));
    if (r < 0)
        return r;
    const Elf64_Phdr *load = NULL, *dynamic = NULL;
    for (unsigned i = 0; i < h.e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_offset == 0 && !load)
            load = &p[i];
        else if (p[i].p_type == PT_DYNAMIC)
            dynamic = &p[i];
    }
    if (!load || !dynamic)
        return -EBADMSG;
    *ret = (struct image){.bias = base - load->p_vaddr};
    return read_dynamic(ret, ret->bias + dynamic->p_vaddr, dynamic->p_memsz);
}

/* ---- its hash table (the format: binutils, and Drepper's "How to write shared libraries") ---- */

static uint32_t hash_of(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (uint8_t)*name;
    return h;
}

static bool has_name(const struct image *m, const Elf64_Sym *s, const char *name)
{
    char text[NAME_MAX_BYTES];
    size_t len = strlen(name) + 1;
    return len <= sizeof(text) && read_exactly(m->strings + s->st_name, text, len) == 0 &&
           memcmp(text, name, len) == 0;
}

/* Symbol `i`, if it is the one. */
static int take_symbol(const struct image *m, uint32_t i, const char *name, uint64_t *ret)
{
    Elf64_Sym s;
    int r = read_exactly(m->symbols + (uint64_t)i * sizeof(s), &s, sizeof(s));
    if (r < 0)
        return r;
    if (s.st_shndx == SHN_UNDEF || !has_name(m, &s, name))
        return -ENOENT;
    *ret = m->bias + s.st_value;
    return 0;
}

static int look_up(const struct image *m, const char *name, uint64_t *ret)
{
    struct {
        uint32_t buckets, first, bloom_words, bloom_shift;
    } table;
    uint32_t hash = hash_of(name), i, word;
    int r = read_exactly(m->hash, &table, sizeof(table));
    if (r < 0)
        return r;
    if (!table.buckets)
        return -ENOENT;
    uint64_t buckets = m->hash + sizeof(table) + 8ull * table.bloom_words;
    uint64_t chain = buckets + 4ull * table.buckets;
    r = read_exactly(buckets + 4ull * (hash % table.buckets), &i, sizeof(i));
    if (r < 0 || i < table.first)
        return r < 0 ? r : -ENOENT;
    for (unsigned n = 0; n < CHAIN_MAX; n++, i++) {
        r = read_exactly(chain + 4ull * (i - table.first), &word, sizeof(word));
        if (r < 0)
            return r;
        /* The lowest bit says that the bucket ends here. */
        r = (word | 1) == (hash | 1) ? take_symbol(m, i, name, ret) : -ENOENT;
        if (r != -ENOENT || word & 1)
            return r;
    }
    return -EBADMSG;
}

int clp_exported_find(uint64_t inside, const char *symbol, uint64_t *ret_address)
{
    struct search s = {.inside = inside};
    struct image m;
    int r = clp_maps_each(look_at, &s);
    if (r == 0)
        r = s.found ? open_image(s.found, &m) : -EBADMSG;
    return r == 0 ? look_up(&m, symbol, ret_address) : r;
}
