#include "sampler/unwind/native.h"

#include <errno.h>
#include <string.h>

#include "sampler/unwind/elf.h"
#include "sampler/unwind/hijack.h"
#include "sampler/unwind/intern.h"
#include "sampler/unwind/rule.h"

#define EH_BYTES_MAX (64u << 20)
#define PAGE_SHIFT 16
#define PAGES_MAX (1u << 15) /* 2 GB of code */

/* One FDE while the table is built: sorted by address. */
struct entry {
    uint64_t start;
    uint32_t len;
    uint32_t fde; /* offset of the record */
};

struct build {
    struct clp_eh_section section;
    struct clp_scratch eh, entries_memory, rows_memory;
    struct entry *entry;
    uint32_t entries;
    struct clp_rule_intern rules;
    uint64_t low, high; /* code range that rows may lie in */

    /* Emission, into memory of our own: how many rows there are shows at the end. */
    uint64_t base; /* of the table */
    struct clp_row *row;
    uint32_t *page_first;
    uint32_t rows, rows_max;
    uint32_t pages, pages_started;
    bool at_function; /* the next row starts a function */
    bool signal_frame;
    uint16_t last_rule;
    uint64_t function, end; /* the current one */
    unsigned pushes;        /* of the hijack stub's that the current function has in common */
    uint64_t trip[CLP_TRIPS_MAX];
    unsigned trips;
};

/* ---- building ------------------------------------------------------------------------------ */

static bool usable(const struct build *b, const struct clp_fde *f, size_t offset)
{
    return f->start >= b->low && f->end <= b->high && f->end - f->start <= UINT32_MAX &&
           offset <= UINT32_MAX;
}

static uint32_t scan_entries(struct build *b, struct entry *out)
{
    struct clp_cie cie = {0};
    struct clp_fde f;
    size_t offset = 0, at;
    uint32_t n = 0;
    while (clp_eh_next(&b->section, &offset, &cie, &f, &at) == 1) {
        if (!usable(b, &f, at))
            continue;
        if (out)
            out[n] = (struct entry){f.start, (uint32_t)(f.end - f.start), (uint32_t)at};
        n++;
    }
    return n;
}

static bool before(const struct entry *a, const struct entry *b)
{
    return a->start != b->start ? a->start < b->start : a->fde < b->fde;
}

static void sift(struct entry *e, uint32_t root, uint32_t n)
{
    struct entry moving = e[root];
    for (;;) {
        uint32_t child = root * 2 + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&e[child], &e[child + 1]))
            child++;
        if (!before(&moving, &e[child]))
            break;
        e[root] = e[child];
        root = child;
    }
    e[root] = moving;
}

/* Heap sort: no recursion and no memory of its own (libc's qsort may allocate). */
static void sort_entries(struct entry *e, uint32_t n)
{
    uint32_t i = 1;
    while (i < n && before(&e[i - 1], &e[i]))
        i++;
    if (i >= n)
        return; /* as linkers mostly write it */
    for (i = n / 2; i-- > 0;)
        sift(e, i, n);
    for (i = n; i-- > 1;) {
        struct entry last = e[i];
        e[i] = e[0];
        e[0] = last;
        sift(e, 0, i);
    }
}

static int collect_entries(struct build *b)
{
    uint32_t n = scan_entries(b, NULL);
    if (n == 0)
        return -ENODATA;
    int r = clp_scratch_alloc((size_t)n * sizeof(struct entry), &b->entries_memory);
    if (r < 0)
        return r;
    b->entry = (struct entry *)b->entries_memory.at;
    b->entries = scan_entries(b, b->entry);
    sort_entries(b->entry, b->entries);
    return 0;
}

static void add_row(struct build *b, uint64_t vaddr, uint16_t rule)
{
    if (b->rows == b->rows_max)
        return; /* cannot be: see start_rows */
    uint64_t page = (vaddr - b->base) >> PAGE_SHIFT;
    while (b->pages_started <= page)
        b->page_first[b->pages_started++] = b->rows;
    b->row[b->rows++] = (struct clp_row){.low = (uint16_t)vaddr, .rule = rule};
}

static void emit_row(void *user, uint64_t start, const struct clp_cfi_row *row)
{
    struct build *b = user;
    if (start >= b->end)
        return; /* clipped by the next function */
    b->pushes = clp_hijack_pushes(b->pushes, start - b->function, &row->cfa);
    if (b->pushes == CLP_HIJACK_PUSHES && b->trips < CLP_TRIPS_MAX)
        b->trip[b->trips++] = b->function;
    uint16_t rule = clp_rule_intern(&b->rules, row, b->signal_frame);
    if (!b->at_function && rule == b->last_rule)
        return;
    add_row(b, start, b->at_function ? rule | CLP_ROW_START : rule);
    b->at_function = false;
    b->last_rule = rule;
}

static void emit_function(struct build *b, struct clp_cie *cie, const struct entry *e, uint64_t end)
{
    struct clp_fde f;
    size_t offset = e->fde, at;
    if (clp_eh_next(&b->section, &offset, cie, &f, &at) != 1)
        return;
    b->at_function = true;
    b->signal_frame = cie->signal_frame;
    b->function = e->start;
    b->pushes = 0;
    b->end = end;
    clp_cfi_run(&b->section, cie, &f, emit_row, b);
}

static void emit_all(struct build *b)
{
    struct clp_cie cie = {0};
    for (uint32_t i = 0; i < b->entries; i++) {
        const struct entry *e = &b->entry[i];
        uint64_t end = e->start + e->len;
        uint64_t next = i + 1 < b->entries ? b->entry[i + 1].start : UINT64_MAX;
        if (e->start == next)
            continue; /* two records for one function: the last one counts */
        emit_function(b, &cie, e, CLP_MIN(end, next));
        if (end < next)
            add_row(b, end, CLP_RULE_ID_NONE);
    }
}

static void copy_rules(const struct clp_rule_intern *in, struct clp_native_table *t, uint8_t *at)
{
    t->rules = in->rules;
    t->extras = in->extras;
    t->pool_bytes = in->pool_bytes;
    memcpy(at, in->rule, in->rules * sizeof(struct clp_rule));
    t->rule = (const struct clp_rule *)at;
    at += in->rules * sizeof(struct clp_rule);
    if (in->extras)
        memcpy(at, in->extra, in->extras * sizeof(struct clp_rule_extra));
    t->extra = (const struct clp_rule_extra *)at;
    at += in->extras * sizeof(struct clp_rule_extra);
    if (in->pool_bytes)
        memcpy(at, in->pool, in->pool_bytes);
    t->pool = at;
}

static size_t rules_bytes(const struct clp_rule_intern *in)
{
    return in->rules * sizeof(struct clp_rule) + in->extras * sizeof(struct clp_rule_extra) +
           in->pool_bytes;
}

/* A row takes at least one byte of its function's program, a function two rows besides and far more
 * than two bytes. Address space: what is not used is never touched. */
static int start_rows(struct build *b)
{
    size_t rows = b->eh.bytes, index_bytes;
    b->base = b->entry[0].start & ~((1ull << PAGE_SHIFT) - 1);
    uint64_t pages = ((b->high - b->base) >> PAGE_SHIFT) + 1;
    if (pages > PAGES_MAX)
        return -EBADMSG;
    index_bytes = (pages + 1) * sizeof(uint32_t);
    int r = clp_scratch_alloc(index_bytes + rows * sizeof(struct clp_row), &b->rows_memory);
    if (r < 0)
        return r;
    b->pages = (uint32_t)pages;
    b->page_first = (uint32_t *)b->rows_memory.at;
    b->row = (struct clp_row *)(b->rows_memory.at + index_bytes);
    b->rows_max = (uint32_t)rows;
    return 0;
}

static int write_table(const struct build *b, struct clp_arena *arena,
                       const struct clp_native_table **ret)
{
    size_t index_bytes = CLP_ALIGN_UP(((size_t)b->pages + 1) * sizeof(uint32_t), 16);
    size_t rows_bytes = CLP_ALIGN_UP((size_t)b->rows * sizeof(struct clp_row), 16);
    size_t head = CLP_ALIGN_UP(sizeof(struct clp_native_table), 16);
    size_t bytes = head + index_bytes + rows_bytes + rules_bytes(&b->rules);
    uint8_t *at = clp_arena_alloc(arena, bytes);
    if (!at)
        return -ENOMEM;
    struct clp_native_table *t = (struct clp_native_table *)at;
    memcpy(at + head, b->page_first, ((size_t)b->pages + 1) * sizeof(uint32_t));
    memcpy(at + head + index_bytes, b->row, b->rows * sizeof(struct clp_row));
    t->base = b->base;
    t->bytes = bytes;
    t->pages = b->pages;
    t->rows = b->rows;
    memcpy(t->trip, b->trip, sizeof(t->trip));
    t->page_first = (const uint32_t *)(at + head);
    t->row = (const struct clp_row *)(at + head + index_bytes);
    copy_rules(&b->rules, t, at + head + index_bytes + rows_bytes);
    *ret = t;
    return 0;
}

static int emit_table(struct build *b, struct clp_arena *arena, const struct clp_native_table **ret)
{
    int r = start_rows(b);
    if (r < 0)
        return r;
    emit_all(b);
    while (b->pages_started <= b->pages)
        b->page_first[b->pages_started++] = b->rows;
    return write_table(b, arena, ret);
}

static uint64_t left_from(const struct clp_source *s, uint64_t offset)
{
    return offset < s->size ? s->size - offset : 0;
}

static int build(const struct clp_source *s, struct clp_arena *arena,
                 const struct clp_native_table **ret)
{
    struct clp_elf_layout l;
    struct build b = {0};
    int r = clp_elf_layout(s, &l);
    if (r == 0 && (l.eh_bytes == 0 || l.exec_high == 0))
        r = -ENODATA;
    if (r == 0) { /* without sections the length is that of the segment's rest, maybe short */
        uint64_t left = left_from(s, l.eh_offset);
        r = clp_scratch_load(s, l.eh_offset, CLP_MIN(l.eh_bytes, left), EH_BYTES_MAX, &b.eh);
    }
    if (r < 0)
        return r;
    b.section = (struct clp_eh_section){.bytes = b.eh.at, .len = b.eh.bytes, .vaddr = l.eh_vaddr};
    b.low = l.exec_low;
    b.high = l.exec_high;
    r = clp_rule_intern_init(&b.rules);
    if (r == 0)
        r = collect_entries(&b);
    if (r == 0)
        r = emit_table(&b, arena, ret);
    clp_rule_intern_done(&b.rules);
    clp_scratch_done(&b.rows_memory);
    clp_scratch_done(&b.entries_memory);
    clp_scratch_done(&b.eh);
    return r;
}

int clp_native_table_build(int fd, struct clp_arena *arena, const struct clp_native_table **ret)
{
    struct clp_source s;
    int r = clp_source_open_fd(fd, &s);
    return r < 0 ? r : build(&s, arena, ret);
}

int clp_native_table_build_mem(const void *elf, size_t len, struct clp_arena *arena,
                               const struct clp_native_table **ret)
{
    struct clp_source s = clp_source_of(elf, len);
    return build(&s, arena, ret);
}

int clp_native_table_build_mapped(const struct clp_code_source *process, uint64_t bias,
                                  struct clp_arena *arena, const struct clp_native_table **ret)
{
    struct clp_source s = clp_source_mapped(process, bias);
    return build(&s, arena, ret);
}

size_t clp_native_table_bytes(const struct clp_native_table *t)
{
    return t->bytes;
}

/* ---- looking up ---------------------------------------------------------------------------- */

/* Index of the last row at or before the address, and its page; -1 when there is none. */
static int64_t find_row(const struct clp_native_table *t, uint64_t vaddr)
{
    uint64_t page = (vaddr - t->base) >> PAGE_SHIFT;
    if (vaddr < t->base || page >= t->pages)
        return -1;
    uint16_t low = (uint16_t)vaddr;
    uint32_t first = t->page_first[page];
    uint32_t n = t->page_first[page + 1] - first;
    const struct clp_row *at = t->row + first;
    while (n > 0) { /* at: first row beyond the address */
        uint32_t half = n / 2;
        bool beyond = at[half].low > low;
        at = beyond ? at : at + half + 1;
        n = beyond ? half : n - half - 1;
    }
    return (int64_t)(at - t->row) - 1;
}

const struct clp_rule *clp_native_rule(const struct clp_native_table *t, uint64_t vaddr)
{
    int64_t i = find_row(t, vaddr);
    return &t->rule[i < 0 ? CLP_RULE_ID_NONE : t->row[i].rule & CLP_ROW_RULE];
}

static uint64_t row_vaddr(const struct clp_native_table *t, uint32_t row, uint64_t page)
{
    while (row < t->page_first[page])
        page--;
    while (row >= t->page_first[page + 1])
        page++;
    return t->base + (page << PAGE_SHIFT) + t->row[row].low;
}

int clp_native_function(const struct clp_native_table *t, uint64_t vaddr, uint64_t *ret_start,
                        uint64_t *ret_end)
{
    int64_t at = find_row(t, vaddr);
    if (at < 0 || t->row[at].rule == CLP_RULE_ID_NONE)
        return -ENOENT;
    uint64_t page = (vaddr - t->base) >> PAGE_SHIFT;
    uint32_t first = (uint32_t)at, last = (uint32_t)at + 1;
    while (first > 0 && !(t->row[first].rule & CLP_ROW_START))
        first--;
    while (last < t->rows && t->row[last].rule != CLP_RULE_ID_NONE &&
           !(t->row[last].rule & CLP_ROW_START))
        last++;
    uint64_t end = last < t->rows ? row_vaddr(t, last, page) : vaddr + 1;
    *ret_start = row_vaddr(t, first, page);
    *ret_end = end;
    return 0;
}

enum clp_step clp_native_step(const struct clp_native_table *t, uint64_t bias, uint64_t lookup,
                              const struct clp_stack_view *stack, struct clp_regs *regs)
{
    return clp_rule_apply(t, clp_native_rule(t, lookup - bias), stack, regs);
}
