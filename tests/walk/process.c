#include "tests/walk/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define ARENA_BYTES (64u << 20)

static void *grow(void *array, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return array;
    void *p = realloc(array, (n ? n * 2 : 1) * size);
    if (!p)
        abort();
    return p;
}

int64_t process_read(void *user, uint64_t address, void *buf, size_t len)
{
    const struct process *p = user;
    struct iovec local = {buf, len}, remote = {(void *)(uintptr_t)address, len};
    ssize_t n = process_vm_readv(p->pid, &local, 1, &remote, 1, 0);
    return n < 0 ? -errno : n;
}

/* ---- mappings and images ---- */

static void read_maps(struct process *p)
{
    char path[64], line[4600];
    snprintf(path, sizeof(path), "/proc/%d/maps", p->pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    p->nmaps = 0;
    while (fgets(line, sizeof(line), f)) {
        struct mapping m = {0};
        char perms[8] = "";
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %255[^\n]", &m.start, &m.end, perms, &m.offset,
                   m.path) < 4)
            continue;
        m.write = perms[1] == 'w';
        m.exec = perms[2] == 'x';
        p->maps = grow(p->maps, p->nmaps, sizeof(*p->maps));
        p->maps[p->nmaps++] = m;
    }
    fclose(f);
}

static const struct mapping *find_mapping(const struct process *p, uint64_t address)
{
    size_t low = 0, high = p->nmaps;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (address < p->maps[mid].start)
            high = mid;
        else if (address >= p->maps[mid].end)
            low = mid + 1;
        else
            return &p->maps[mid];
    }
    return NULL;
}

const struct mapping *process_mapping(struct process *p, uint64_t address)
{
    const struct mapping *m = find_mapping(p, address);
    /* What is no code may have been reserved then and be mapped now. */
    if ((!m || (!m->exec && !m->write)) && p->refresh_maps) {
        p->refresh_maps = false; /* once for each sample */
        read_maps(p);
        m = find_mapping(p, address);
    }
    return m;
}

static void load_vdso(struct process *p, struct image *i, const struct mapping *m)
{
    size_t len = m->end - m->start;
    void *copy = malloc(len);
    if (copy && process_read(p, m->start, copy, len) == (int64_t)len &&
        clp_native_table_build_mem(copy, len, &p->arena, &i->native) < 0)
        i->native = NULL;
    free(copy);
}

static void load_image(struct process *p, struct image *i, const struct mapping *m)
{
    i->tried = true;
    if (strcmp(m->path, "[vdso]") == 0) {
        load_vdso(p, i, m);
        return;
    }
    int fd = open(m->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (clp_elf_info(fd, &i->elf) == 0) {
        if (clp_native_table_build(fd, &p->arena, &i->native) < 0)
            i->native = NULL;
    } else if (clp_r2r_table_build(fd, &p->arena, &i->r2r, NULL, 0) < 0) {
        i->r2r = NULL;
    }
    close(fd);
}

static struct image *image_of(struct process *p, const struct mapping *m)
{
    for (size_t i = 0; i < p->nimages; i++)
        if (strcmp(p->images[i].path, m->path) == 0)
            return &p->images[i];
    p->images = grow(p->images, p->nimages, sizeof(*p->images));
    struct image *i = &p->images[p->nimages++];
    *i = (struct image){0};
    snprintf(i->path, sizeof(i->path), "%s", m->path);
    load_image(p, i, m);
    return i;
}

/* Headers and sections are separate mappings, mostly with a file offset of 0 both: the lowest one
 * that the image can reach. Gaps between sections are anonymous. */
static uint64_t image_base(const struct process *p, const struct image *i, const struct mapping *m)
{
    uint64_t base = m->start;
    for (const struct mapping *at = m; at >= p->maps; at--) {
        if (at->start + clp_r2r_image_bytes(i->r2r) <= m->start)
            break;
        if (strcmp(at->path, m->path) == 0)
            base = at->start;
        else if (at->path[0])
            break;
    }
    return base;
}

static uint64_t bias_of(const struct image *i, const struct mapping *m)
{
    if (strcmp(i->path, "[vdso]") == 0)
        return m->start;
    return m->start - m->offset + i->elf.first_load_offset - i->elf.first_load_vaddr;
}

/* ---- bodies ---- */

static uint32_t hash_name(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h | 1;
}

/* Without the tier in brackets at the end: all bodies of a method are one. */
static size_t untiered(const char *name)
{
    size_t n = strlen(name);
    const char *open = strrchr(name, '[');
    return open && n && name[n - 1] == ']' ? (size_t)(open - name) : n;
}

static int by_start(const void *a, const void *b)
{
    const struct body *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void add_body(struct process *p, char *line)
{
    uint64_t start, size;
    int at = 0;
    if (sscanf(line, "%lx %lx %n", &start, &size, &at) < 2 || at == 0)
        return;
    line[strcspn(line, "\n")] = 0;
    char *name = line + at;
    p->bodies = grow(p->bodies, p->nbodies, sizeof(*p->bodies));
    p->bodies[p->nbodies++] =
        (struct body){.start = start,
                      .end = start + size,
                      .method_key = hash_name(name, untiered(name)),
                      .stub = strncmp(name, "stub ", 5) == 0 || strncmp(name, "stub<", 5) == 0,
                      .name = strdup(name)};
}

static void read_perf_map(struct process *p)
{
    char path[64];
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    snprintf(path, sizeof(path), "/tmp/perf-%d.map", p->pid);
    FILE *f = fopen(path, "re");
    if (!f || fseek(f, p->map_read, SEEK_SET) != 0) {
        if (f)
            fclose(f);
        return;
    }
    size_t before = p->nbodies;
    while ((n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
        p->map_read += n;
        add_body(p, line);
    }
    free(line);
    fclose(f);
    if (p->nbodies != before)
        qsort(p->bodies, p->nbodies, sizeof(*p->bodies), by_start);
}

void process_refresh(struct process *p)
{
    read_perf_map(p);
    if (p->unstable_maps)
        read_maps(p);
    p->refresh_maps = !p->unstable_maps;
}

static struct body *find_body(struct process *p, uint64_t ip)
{
    size_t low = 0, high = p->nbodies;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (p->bodies[mid].start <= ip)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low > 0 && p->bodies[low - 1].start + (1u << 20) > ip; low--) {
        if (ip < p->bodies[low - 1].end)
            return &p->bodies[low - 1];
    }
    return NULL;
}

static void decode(struct process *p, struct body *b)
{
    uint8_t code[256];
    int64_t n = process_read(p, b->start, code, CLP_MIN(sizeof(code), b->end - b->start));
    clp_prologue_decode(code, n > 0 ? (size_t)n : 0, &b->frame);
    b->decoded = true;
}

/* ---- the code source ---- */

static bool find_jitted(struct process *p, uint64_t ip, struct clp_code *ret)
{
    struct body *b = find_body(p, ip);
    if (!b || b->stub)
        return false;
    if (!b->decoded)
        decode(p, b);
    *ret = (struct clp_code){.kind = CLP_CODE_MANAGED,
                             .id = (uint32_t)(b->start >> 4),
                             .method_key = b->method_key,
                             .start = b->start,
                             .end = b->end,
                             .frame = b->frame};
    return true;
}

static bool find_r2r(struct process *p, const struct image *i, const struct mapping *m, uint64_t ip,
                     struct clp_code *ret)
{
    struct clp_r2r_function f;
    uint64_t base = image_base(p, i, m);
    if (clp_r2r_find(i->r2r, (uint32_t)(ip - base), &f) < 0)
        return false;
    *ret = (struct clp_code){.kind = CLP_CODE_MANAGED,
                             .id = (uint32_t)((base + f.start_rva) >> 4) | 0x80000000u,
                             .method_key = f.method_rva ^ (uint32_t)(base >> 12),
                             .start = base + f.start_rva,
                             .end = base + f.end_rva,
                             .frame = f.frame};
    return true;
}

static void find(void *user, uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    struct process *p = user;
    (void)time_ns;
    *ret = (struct clp_code){0};
    if (find_jitted(p, ip, ret))
        return;
    const struct mapping *m = process_mapping(p, ip);
    if (!m || !m->exec)
        return;
    if (m->path[0] != '/' && strcmp(m->path, "[vdso]") != 0) {
        ret->kind = CLP_CODE_STUB;
        return;
    }
    if (strncmp(m->path, "/memfd:", 7) == 0) {
        ret->kind = CLP_CODE_STUB;
        return;
    }
    struct image *i = image_of(p, m);
    if (i->r2r && find_r2r(p, i, m, ip, ret))
        return;
    *ret = (struct clp_code){.kind = i->r2r ? CLP_CODE_STUB : CLP_CODE_NATIVE,
                             .id = (uint32_t)(i - p->images) + 1,
                             .start = bias_of(i, m),
                             .native = i->native};
}

void process_open(struct process *p, pid_t pid)
{
    *p = (struct process){.pid = pid, .refresh_maps = true};
    clp_arena_init(&p->arena, ARENA_BYTES);
    p->source = (struct clp_code_source){.user = p, .find = find, .read = process_read};
    read_maps(p);
    read_perf_map(p);
}

void process_close(struct process *p)
{
    for (size_t i = 0; i < p->nbodies; i++)
        free(p->bodies[i].name);
    free(p->bodies);
    free(p->images);
    free(p->maps);
    clp_arena_done(&p->arena);
}

/* "type Ns.T::M(args)[tier]" -> "Ns.T::M" */
static void short_name(const char *name, char *out, size_t cap)
{
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", name);
    char *colons = strstr(copy, "::");
    if (!colons) {
        snprintf(out, cap, "%s", name);
        return;
    }
    char *start = colons;
    while (start > copy && start[-1] != ' ')
        start--;
    char *paren = strchr(colons, '(');
    if (paren)
        *paren = 0;
    snprintf(out, cap, "%s%s", start, strstr(name, "OSR]") ? "%osr" : "");
}

void process_name(struct process *p, const struct clp_walk_frame *f, char *out, size_t cap)
{
    const struct mapping *m;
    uint64_t start = 0, end;
    struct body *b = f->kind == CLP_WALK_MANAGED ? find_body(p, f->address) : NULL;
    if (b) {
        short_name(b->name, out, cap);
    } else if (f->kind == CLP_WALK_HIJACKED_CALLER) {
        snprintf(out, cap, "[hijacked caller]");
    } else if (!(m = find_mapping(p, f->address))) {
        snprintf(out, cap, "%#lx", f->address);
    } else {
        struct image *i = m->path[0] == '/' || m->path[0] == '[' ? image_of(p, m) : NULL;
        const char *slash = strrchr(m->path, '/');
        const char *file = slash ? slash + 1 : m->path;
        if (i && i->native &&
            clp_native_function(i->native, f->address - f->base, &start, &end) < 0)
            start = 0;
        if (f->kind == CLP_WALK_MANAGED)
            snprintf(out, cap, "%s!r2r+%lx", file,
                     i && i->r2r ? f->address - image_base(p, i, m) : 0);
        else
            snprintf(out, cap, "%s!%lx (fn %lx)%s", file, f->address - f->base, start,
                     f->kind == CLP_WALK_STUB ? " stub" : "");
    }
}
