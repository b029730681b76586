#include "agent/definitions.h"

#include "agent/profile_build.h"
#include "base/vec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES_MAX (1u << 20) /* the byte ceiling is reached long before */
#define PDBS_MAX 64            /* files held open for each target */

void clp_definitions_init(struct clp_definitions *d, struct clp_symbols *symbols, int root_fd,
                          int32_t pid, size_t ceiling_bytes)
{
    *d = (struct clp_definitions){
        .symbols = symbols, .root_fd = root_fd, .pid = pid, .ceiling = ceiling_bytes};
    clp_map_init(&d->images, ENTRIES_MAX);
    clp_map_init(&d->methods, ENTRIES_MAX);
    clp_map_init(&d->bodies, ENTRIES_MAX);
    clp_map_init(&d->threads, CLP_BUILD_THREADS_MAX);
}

static void free_thread(struct clp_definitions *d, struct clp_def_thread *t)
{
    d->bytes -= sizeof(*t) + strlen(t->name) + 1;
    d->bytes -= (t->cpu.frame_cap + t->wall.frame_cap) * sizeof(*t->cpu.frames);
    free(t->name);
    free(t->cpu.frames);
    free(t->wall.frames);
    free(t);
}

void clp_definitions_done(struct clp_definitions *d)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->images); clp_map_next(&d->images, &at, &i);) {
        struct clp_def_image *image = i.value->ptr;
        clp_symbols_image_unref(image->symbols);
        clp_pdb_free(image->pdb);
        free(image);
    }
    for (uint32_t at = clp_map_begin(&d->methods); clp_map_next(&d->methods, &at, &i);)
        free(i.value->ptr);
    for (uint32_t at = clp_map_begin(&d->threads); clp_map_next(&d->threads, &at, &i);)
        free_thread(d, i.value->ptr);
    clp_map_done(&d->images);
    clp_map_done(&d->methods);
    clp_map_done(&d->bodies);
    clp_map_done(&d->threads);
}

static void refuse(struct clp_definitions *d)
{
    d->refused++;
    d->incomplete = true;
}

/* Room for an entry and its place in a map; NULL is counted. */
static void *new_entry(struct clp_definitions *d, size_t bytes)
{
    void *p = d->bytes + bytes <= d->ceiling ? calloc(1, bytes) : NULL;
    if (p)
        d->bytes += bytes;
    else
        refuse(d);
    return p;
}

static bool put(struct clp_definitions *d, struct clp_map *map, uint32_t id, void *entry,
                size_t bytes)
{
    if (clp_map_put_u64(map, id, (union clp_map_value){.ptr = entry}) == 0)
        return true;
    free(entry);
    d->bytes -= bytes;
    refuse(d);
    return false;
}

/* ---- images -------------------------------------------------------------------------------- */

static struct clp_symbols_image *open_symbols(struct clp_definitions *d,
                                              const struct clp_reader_record *r)
{
    const struct clp_rec_image *rec = r->image.rec;
    struct clp_symbols_image *image = NULL;
    struct clp_symbols_image_spec spec = {
        .root_fd = d->root_fd,
        .vdso = rec->kind == CLP_IMAGE_VDSO,
        .path = r->image.path,
        .path_len = strlen(r->image.path),
        .build_id = rec->build_id_len ? r->image.build_id : NULL,
        .build_id_len = rec->build_id_len,
    };
    if (rec->kind != CLP_IMAGE_ELF && rec->kind != CLP_IMAGE_VDSO)
        return NULL;
    return clp_symbols_image_get(d->symbols, &spec, &image) < 0 ? NULL : image;
}

static struct clp_pdb *open_pdb(struct clp_definitions *d, const struct clp_reader_record *r)
{
    const struct clp_rec_image *rec = r->image.rec;
    struct clp_pdb *pdb = NULL;
    const uint8_t *mvid = rec->build_id_len == 16 ? r->image.build_id : NULL;
    if (rec->kind != CLP_IMAGE_MANAGED || !mvid || d->pdbs >= PDBS_MAX ||
        clp_pdb_open(d->root_fd, r->image.path, mvid, &pdb) < 0)
        return NULL;
    d->pdbs++;
    return pdb;
}

static void add_image(struct clp_definitions *d, const struct clp_reader_record *r)
{
    const struct clp_rec_image *rec = r->image.rec;
    size_t path_len = strlen(r->image.path);
    size_t bytes = sizeof(struct clp_def_image) + path_len + 1;
    if (clp_map_get_u64(&d->images, rec->image_id))
        return; /* sent again with the same meaning */
    struct clp_def_image *image = new_entry(d, bytes);
    if (!image)
        return;
    image->kind = rec->kind;
    image->seen = d->now;
    image->start = rec->start;
    image->end = rec->end;
    image->bias = rec->bias;
    image->file_offset = rec->file_offset;
    image->build_id_len = CLP_MIN(rec->build_id_len, sizeof(image->build_id));
    memcpy(image->build_id, r->image.build_id, image->build_id_len);
    memcpy(image->path, r->image.path, path_len + 1);
    if (!put(d, &d->images, rec->image_id, image, bytes))
        return;
    image->symbols = open_symbols(d, r);
    image->pdb = open_pdb(d, r);
}

struct clp_def_image *clp_definitions_image(const struct clp_definitions *d, uint32_t image_id)
{
    struct clp_def_image *image = clp_map_get_ptr_u64(&d->images, image_id);
    if (image)
        image->seen = d->now;
    return image;
}

/* ---- methods and bodies -------------------------------------------------------------------- */

static void add_method(struct clp_definitions *d, const struct clp_reader_record *r)
{
    const char *texts[] = {r->method.type, r->method.name, r->method.type_args,
                           r->method.method_args, r->method.signature};
    size_t len[CLP_ARRAY_LEN(texts)], total = 0;
    if (clp_map_get_u64(&d->methods, r->method.rec->method_id))
        return;
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++)
        total += len[i] = strnlen(texts[i], UINT16_MAX);
    size_t bytes = sizeof(struct clp_def_method) + total;
    struct clp_def_method *m = new_entry(d, bytes);
    if (!m)
        return;
    m->seen = d->now;
    m->image_id = r->method.rec->image_id;
    m->token = r->method.rec->token;
    m->flags = r->method.rec->flags;
    char *at = m->text;
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++) {
        m->len[i] = (uint16_t)len[i];
        memcpy(at, texts[i], len[i]);
        at += len[i];
    }
    (void)put(d, &d->methods, r->method.rec->method_id, m, bytes);
}

struct clp_managed_raw clp_def_method_raw(const struct clp_def_method *m)
{
    struct clp_managed_raw raw = {.flags = m->flags};
    struct clp_name_text *texts[] = {&raw.type, &raw.name, &raw.type_args, &raw.method_args,
                                     &raw.signature};
    const char *at = m->text;
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++) {
        *texts[i] = (struct clp_name_text){.at = at, .len = m->len[i]};
        at += m->len[i];
    }
    return raw;
}

#define BODY_BYTES 32 /* of a map's entry, roughly */

static void add_body(struct clp_definitions *d, const struct clp_rec_body *rec)
{
    union clp_map_value method = {.u64 = rec->method_id};
    bool known = clp_map_get_u64(&d->bodies, rec->body_id) != NULL;
    if (known)
        return;
    if (d->bytes + BODY_BYTES > d->ceiling || clp_map_put_u64(&d->bodies, rec->body_id, method) < 0)
        refuse(d);
    else
        d->bytes += BODY_BYTES;
}

static struct clp_def_method *method_of(const struct clp_definitions *d, uint32_t body_id)
{
    const union clp_map_value *method = clp_map_get_u64(&d->bodies, body_id);
    return method ? clp_map_get_ptr_u64(&d->methods, method->u64) : NULL;
}

struct clp_def_method *clp_definitions_method(const struct clp_definitions *d, uint32_t body_id)
{
    struct clp_def_method *m = method_of(d, body_id);
    if (m)
        m->seen = d->now;
    return m;
}

void clp_definitions_use(const struct clp_definitions *d, uint64_t frame)
{
    uint32_t image = clp_frame_kind(frame) == CLP_FRAME_NATIVE ? clp_frame_id(frame) : 0;
    if (clp_frame_kind(frame) == CLP_FRAME_MANAGED) {
        const struct clp_def_method *m = clp_definitions_method(d, clp_frame_id(frame));
        image = m ? m->image_id : 0;
    }
    (void)clp_definitions_image(d, image);
}

/* ---- eviction ------------------------------------------------------------------------------ */

static size_t method_bytes(const struct clp_def_method *m)
{
    size_t n = sizeof(*m);
    for (size_t i = 0; i < CLP_ARRAY_LEN(m->len); i++)
        n += m->len[i];
    return n;
}

/* What was not used since: of those that are gone, and of all. */
struct ages {
    uint64_t gone_before, all_before;
};

static bool is_old(const struct ages *a, uint64_t seen, bool gone)
{
    return seen < a->all_before || (gone && seen < a->gone_before);
}

static void evict_methods(struct clp_definitions *d, const struct ages *ages)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->methods); clp_map_next(&d->methods, &at, &i);) {
        struct clp_def_method *m = i.value->ptr;
        if (!is_old(ages, m->seen, m->gone))
            continue;
        uint64_t id = i.key_u64;
        d->bytes -= method_bytes(m);
        d->evicted += !m->gone;
        free(m);
        (void)clp_map_remove_u64(&d->methods, id, NULL);
    }
    for (uint32_t at = clp_map_begin(&d->bodies); clp_map_next(&d->bodies, &at, &i);) {
        uint64_t id = i.key_u64;
        if (clp_map_get_u64(&d->methods, i.value->u64))
            continue;
        d->bytes -= BODY_BYTES;
        (void)clp_map_remove_u64(&d->bodies, id, NULL);
    }
}

static void evict_images(struct clp_definitions *d, const struct ages *ages)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->images); clp_map_next(&d->images, &at, &i);) {
        struct clp_def_image *image = i.value->ptr;
        if (!is_old(ages, image->seen, image->gone))
            continue;
        uint64_t id = i.key_u64;
        d->bytes -= sizeof(*image) + strlen(image->path) + 1;
        d->evicted += !image->gone;
        d->pdbs -= image->pdb != NULL;
        clp_symbols_image_unref(image->symbols);
        clp_pdb_free(image->pdb);
        free(image);
        (void)clp_map_remove_u64(&d->images, id, NULL);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

static bool is_gone(const struct clp_definitions *d, const struct clp_def_thread *t)
{
    char path[64];
    if (d->pid == 0 || t->tid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/task/%d", d->pid, t->tid);
    return access(path, F_OK) < 0 && errno == ENOENT;
}

static void forget_where(struct clp_definitions *d, uint64_t before_window, bool only_gone)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->threads); clp_map_next(&d->threads, &at, &i);) {
        struct clp_def_thread *t = i.value->ptr;
        bool keep = only_gone ? !is_gone(d, t) : t->window == 0 || t->window >= before_window;
        if (keep) /* window 0: its first sample is still to come */
            continue;
        uint64_t id = i.key_u64;
        free_thread(d, t);
        (void)clp_map_remove_u64(&d->threads, id, NULL);
        d->forgotten++;
    }
}

/* The library defines one anew before it says anything of it again. */
static void forget_ended(struct clp_definitions *d)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->threads); clp_map_next(&d->threads, &at, &i);) {
        struct clp_def_thread *t = i.value->ptr;
        if (!t->gone)
            continue;
        uint64_t id = i.key_u64;
        free_thread(d, t);
        (void)clp_map_remove_u64(&d->threads, id, NULL);
    }
}

static uint64_t newest_window(const struct clp_definitions *d)
{
    struct clp_map_item i;
    uint64_t newest = 0;
    for (uint32_t at = clp_map_begin(&d->threads); clp_map_next(&d->threads, &at, &i);) {
        const struct clp_def_thread *t = i.value->ptr;
        newest = CLP_MAX(newest, t->window);
    }
    return newest;
}

/* Full means mostly: many short-lived threads. A quarter must become free, so that this is rare. */
static void make_room(struct clp_definitions *d)
{
    if (d->threads.len < CLP_BUILD_THREADS_MAX)
        return;
    forget_where(d, 0, true);
    if (d->threads.len > CLP_BUILD_THREADS_MAX / 4 * 3)
        forget_where(d, newest_window(d), false);
    if (d->threads.len > CLP_BUILD_THREADS_MAX / 4 * 3)
        forget_where(d, UINT64_MAX, false);
}

static struct clp_def_thread *new_thread(struct clp_definitions *d, uint32_t id, const char *name)
{
    size_t name_bytes = strlen(name) + 1;
    make_room(d);
    struct clp_def_thread *t = new_entry(d, sizeof(*t));
    if (!t)
        return NULL;
    char *copy = new_entry(d, name_bytes);
    if (!copy || !put(d, &d->threads, id, t, sizeof(*t))) {
        if (copy)
            d->bytes -= name_bytes;
        else
            d->bytes -= sizeof(*t);
        if (!copy)
            free(t); /* put has freed it otherwise */
        free(copy);
        return NULL;
    }
    memcpy(copy, name, name_bytes);
    t->name = copy;
    return t;
}

static void rename_thread(struct clp_definitions *d, struct clp_def_thread *t, const char *name)
{
    if (strcmp(t->name, name) == 0)
        return;
    size_t bytes = strlen(name) + 1;
    char *copy = new_entry(d, bytes);
    if (!copy)
        return;
    memcpy(copy, name, bytes);
    d->bytes -= strlen(t->name) + 1;
    free(t->name);
    t->name = copy;
    memset(t->labels, 0, sizeof(t->labels)); /* samples from now on carry the new name */
}

static void add_thread(struct clp_definitions *d, const struct clp_reader_record *r)
{
    const struct clp_rec_thread *rec = r->thread.rec;
    struct clp_def_thread *t = clp_map_get_ptr_u64(&d->threads, rec->thread_id);
    if (t)
        rename_thread(d, t, r->thread.name);
    else
        t = new_thread(d, rec->thread_id, r->thread.name);
    if (!t)
        return;
    t->tid = rec->tid;
    t->kind = rec->kind;
    t->gone = false;
}

struct clp_def_thread *clp_definitions_thread(const struct clp_definitions *d, uint32_t thread_id)
{
    return clp_map_get_ptr_u64(&d->threads, thread_id);
}

int clp_def_last_keep(struct clp_definitions *d, struct clp_def_last *l, const uint64_t *frames,
                      uint32_t count)
{
    uint32_t cap = l->frame_cap;
    l->frame_count = 0;
    if (count > cap && d->bytes + (count - cap) * 2 * sizeof(*frames) > d->ceiling)
        return -ENOSPC;
    int r = CLP_VEC_GROW(l->frames, l->frame_cap, count, CLP_WIRE_FRAMES_MAX);
    d->bytes += (l->frame_cap - cap) * sizeof(*frames);
    if (r < 0)
        return r;
    memcpy(l->frames, frames, count * sizeof(*frames));
    l->frame_count = count;
    return 0;
}

static void note_gone(struct clp_definitions *d, const struct clp_rec_gone *rec)
{
    if (rec->what == CLP_REC_THREAD) {
        struct clp_def_thread *t = clp_map_get_ptr_u64(&d->threads, rec->id);
        if (t)
            t->gone = true;
    } else if (rec->what == CLP_REC_METHOD) {
        struct clp_def_method *m = clp_map_get_ptr_u64(&d->methods, rec->id);
        if (m)
            d->any_gone = m->gone = true;
    } else {
        struct clp_def_image *image = clp_map_get_ptr_u64(&d->images, rec->id);
        if (image)
            image->gone = true;
    }
}

void clp_definitions_add(struct clp_definitions *d, const struct clp_reader_record *r)
{
    switch (r->type) {
    case CLP_REC_IMAGE:
        add_image(d, r);
        break;
    case CLP_REC_METHOD:
        add_method(d, r);
        break;
    case CLP_REC_BODY:
        add_body(d, r->body.rec);
        break;
    case CLP_REC_THREAD:
        add_thread(d, r);
        break;
    case CLP_REC_GONE:
        note_gone(d, r->gone.rec);
        break;
    default:
        break;
    }
}

/* The rest of a thread's clock goes where its last sample went, in windows after as well. */
static void keep_gone(const struct clp_definitions *d, const struct clp_def_last *l)
{
    for (uint32_t i = 0; i < l->frame_count; i++) {
        uint64_t f = l->frames[i];
        bool managed = clp_frame_kind(f) == CLP_FRAME_MANAGED;
        const struct clp_def_method *m = managed ? method_of(d, clp_frame_id(f)) : NULL;
        if (m && m->gone)
            clp_definitions_use(d, f);
    }
}

static void keep_last_stacks(struct clp_definitions *d)
{
    struct clp_map_item i;
    for (uint32_t at = clp_map_begin(&d->threads); clp_map_next(&d->threads, &at, &i);) {
        const struct clp_def_thread *t = i.value->ptr;
        keep_gone(d, &t->cpu);
        keep_gone(d, &t->wall);
    }
}

/* ---- windows ------------------------------------------------------------------------------- */

/* What was used in the window that has just ended goes last. */
void clp_definitions_turn(struct clp_definitions *d, uint64_t window)
{
    static const uint64_t ages[] = {256, 64, 16, 4, 2, 1};
    uint64_t before = d->evicted;
    struct ages old = {.gone_before = window - 1};
    d->now = window;
    forget_ended(d);
    if (d->any_gone)
        keep_last_stacks(d);
    evict_methods(d, &old);
    evict_images(d, &old);
    bool full = d->bytes > d->ceiling / 4 * 3;
    for (size_t i = 0; full && i < CLP_ARRAY_LEN(ages) && d->bytes > d->ceiling / 2; i++) {
        if (window < ages[i])
            continue;
        old.all_before = window - ages[i] + 1;
        evict_methods(d, &old);
        evict_images(d, &old);
    }
    d->incomplete |= d->evicted > before;
}
