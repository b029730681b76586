#include "base/core/arena.h"

#include <sys/mman.h>

#define CHUNK_BYTES (64u << 10)

struct clp_arena_chunk {
    struct clp_arena_chunk *next;
    size_t bytes;
    size_t used;
    size_t reserved; /* keeps the payload aligned to 16 */
};

void *clp_pages_alloc(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* Advice only: where it is refused a child merely carries the pages along. */
    (void)madvise(p, bytes, MADV_DONTFORK);
    return p;
}

void clp_pages_free(void *p, size_t bytes)
{
    if (p)
        (void)munmap(p, bytes);
}

void clp_arena_init(struct clp_arena *a, size_t ceiling_bytes)
{
    *a = (struct clp_arena){.ceiling_bytes = ceiling_bytes};
}

static struct clp_arena_chunk *add_chunk(struct clp_arena *a, size_t payload)
{
    size_t bytes = CLP_ALIGN_UP(payload + sizeof(struct clp_arena_chunk), CHUNK_BYTES);
    if (bytes < payload || a->mapped_bytes + bytes > a->ceiling_bytes)
        return NULL;
    struct clp_arena_chunk *c = clp_pages_alloc(bytes);
    if (!c)
        return NULL;
    *c = (struct clp_arena_chunk){
        .next = a->chunks, .bytes = bytes, .used = sizeof(struct clp_arena_chunk)};
    a->chunks = c;
    a->mapped_bytes += bytes;
    return c;
}

void *clp_arena_alloc(struct clp_arena *a, size_t bytes)
{
    struct clp_arena_chunk *c = a->chunks;
    size_t need = CLP_ALIGN_UP(bytes, 16);
    if (need < bytes || !c || c->bytes - c->used < need)
        c = need < bytes ? NULL : add_chunk(a, need);
    if (!c) {
        a->refused++;
        return NULL;
    }
    void *p = (uint8_t *)c + c->used;
    c->used += need;
    return p;
}

void clp_arena_done(struct clp_arena *a)
{
    while (a->chunks) {
        struct clp_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        clp_pages_free(c, c->bytes);
    }
    a->mapped_bytes = 0;
}
