/* Any bytes as an ELF file: build id, both symbol tables, look-ups and names. */
#include "base/core/text.h"
#include "sampler/symbols/elf_symbols.h"
#include "sampler/symbols/managed_name.h"
#include "sampler/symbols/native_symbols.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The table must be sorted without doubles, and a look-up must answer what the table says. */
static void check_table(const struct clp_file_bytes *bytes, const struct clp_elf_symbols *s)
{
    char name[64];
    for (uint32_t i = 0; i < s->count; i++) {
        if (i > 0 && s->at[i - 1].start >= s->at[i].start)
            abort();
        const struct clp_elf_symbol *hit = clp_elf_symbols_cover(s, s->at[i].start);
        if (s->at[i].size > 0 ? hit != &s->at[i] : hit == &s->at[i])
            abort();
        uint64_t next;
        (void)clp_elf_symbols_sizeless(s, s->at[i].start + 1, &next);
        if (clp_elf_string(bytes, &s->strings, s->at[i].name, name, sizeof(name)) < 0)
            abort();
    }
}

static void read_table(const struct clp_file_bytes *bytes, enum clp_elf_table which)
{
    struct clp_elf_limits limits = {.table_bytes = 1 << 16, .section_bytes = 1 << 20};
    struct clp_elf_symbols symbols;
    if (clp_elf_symbols_read(bytes, which, &limits, &symbols) < 0)
        return;
    check_table(bytes, &symbols);
    clp_elf_symbols_done(&symbols);
}

static void check_name(const char *name)
{
    char again[3 * CLP_NAME_MAX];
    struct clp_text t = clp_text_in(again, sizeof(again));
    clp_text_utf8_clean(&t, name, strnlen(name, CLP_NAME_MAX));
    if (strcmp(name, again) != 0 || strlen(name) >= CLP_NAME_MAX)
        abort();
}

static char dir[] = "/tmp/clp-fuzz-elf-XXXXXX";

static void remove_dir(void)
{
    rmdir(dir);
}

static int root_dir(void)
{
    static int root = -1;
    if (root >= 0)
        return root;
    if (!mkdtemp(dir) || (root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        abort();
    atexit(remove_dir);
    return root;
}

static void look_up(struct clp_symbols_image *m, uint64_t address)
{
    struct clp_symbol sym;
    char name[CLP_NAME_MAX], system_name[CLP_NAME_MAX];
    clp_symbols_find(m, address, &sym);
    if (sym.source != CLP_SYMBOL_NONE && (address < sym.start || address >= sym.end))
        abort();
    clp_symbols_name(m, &sym, name, sizeof(name), system_name, sizeof(system_name));
    check_name(name);
    check_name(system_name);
}

/* The same through the cache, as a file of a target: also unwind entries and the demangler. */
static void as_image(const uint8_t *data, size_t size)
{
    struct clp_symbols_image_spec spec = {.root_fd = root_dir(), .path = "/lib.so", .path_len = 7};
    struct clp_symbols *s;
    struct clp_symbols_image *m;
    int fd = openat(spec.root_fd, "lib.so", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) < 0)
        abort();
    if (clp_symbols_new(NULL, &s) < 0 || clp_symbols_image_get(s, &spec, &m) < 0)
        abort();
    unlinkat(spec.root_fd, "lib.so", 0);
    for (uint64_t address = 0; address < 0x2000; address += 0x55)
        look_up(m, address);
    for (size_t at = 0; at + 8 <= size && at < 128; at += 8) {
        uint64_t address;
        memcpy(&address, data + at, sizeof(address));
        look_up(m, address);
    }
    clp_symbols_image_unref(m);
    clp_symbols_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clp_file_bytes bytes = clp_file_bytes_of_mem(data, size);
    uint8_t id[CLP_ELF_BUILD_ID_MAX];
    size_t len = 0;
    if (clp_elf_build_id(&bytes, id, &len) == 0 && (len == 0 || len > sizeof(id)))
        abort();
    read_table(&bytes, CLP_ELF_SYMTAB);
    read_table(&bytes, CLP_ELF_DYNSYM);
    as_image(data, size);
    return 0;
}
