#include "sampler/inproc/modules.h"

#include "base/core/bytes.h"
#include "base/core/text.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/pe_images.h"
#include "sampler/inproc/pe_layout.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/slots.h"
#include "sampler/inproc/code_lock.h"

#include <errno.h>
#include <string.h>

#define BUCKETS 256u
#define PATH_UNITS 1024u

static struct clp_slots modules;
static uint32_t buckets[BUCKETS];
static uint32_t last_serial; /* never reset: cache keys outlive a detach */

int clp_modules_init(void)
{
    clp_slots_init(&modules, sizeof(struct clp_module), 64, CLP_MODULES_MAX);
    memset(buckets, 0, sizeof(buckets));
    return 0;
}

struct clp_module *clp_modules_at_locked(uint32_t number)
{
    return clp_slots_at(&modules, number);
}

static uint32_t *bucket_of(clr_module_id id)
{
    return &buckets[(id >> 5) % BUCKETS];
}

uint32_t clp_modules_number_locked(clr_module_id id)
{
    uint32_t n = *bucket_of(id);
    while (n && clp_modules_at_locked(n)->id != id)
        n = clp_modules_at_locked(n)->next;
    return n;
}

static void unlink_locked(uint32_t number)
{
    struct clp_module *m = clp_modules_at_locked(number);
    uint32_t *link = bucket_of(m->id);
    while (*link && *link != number)
        link = &clp_modules_at_locked(*link)->next;
    if (*link)
        *link = m->next;
    m->next = 0;
}

bool clp_modules_collectible_locked(uint32_t number)
{
    return number && (clp_modules_at_locked(number)->flags & CLR_MODULE_COLLECTIBLE);
}

uint32_t clp_modules_last_serial_locked(void)
{
    return last_serial;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

static void free_if_unused_locked(uint32_t number)
{
    struct clp_module *m = clp_modules_at_locked(number);
    if (!m->dead || m->uses > 0)
        return;
    clp_strings_give(clp_code_table_strings_locked(), m->path);
    clp_slots_give(&modules, number);
}

void clp_modules_use_locked(uint32_t number)
{
    if (number)
        clp_modules_at_locked(number)->uses++;
}

void clp_modules_unuse_locked(uint32_t number)
{
    if (!number)
        return;
    clp_modules_at_locked(number)->uses--;
    free_if_unused_locked(number);
}

/* One callback kills the modules of one assembly. */
static struct clr_metadata *dead_metadata[64];
static uint32_t dead_count;

static void put_aside_locked(struct clp_module *m)
{
    if (m->metadata && dead_count < CLP_ARRAY_LEN(dead_metadata))
        dead_metadata[dead_count++] = m->metadata;
    m->metadata = NULL;
}

static bool kill_locked(uint32_t number, void (*each)(uint32_t, uint64_t), uint64_t now_ns)
{
    struct clp_module *m = clp_modules_at_locked(number);
    unlink_locked(number);
    m->uses++; /* `each` may give back what keeps the entry */
    each(number, now_ns);
    m->dead = true;
    put_aside_locked(m);
    bool watched = m->watched;
    clp_pe_images_remove_locked(m->base);
    clp_modules_unuse_locked(number);
    return !watched;
}

bool clp_modules_kill_locked(clr_assembly_id assembly, clr_module_id module,
                             void (*each)(uint32_t number, uint64_t now_ns), uint64_t now_ns)
{
    uint32_t number = module ? clp_modules_number_locked(module) : 0;
    bool unwatched = number && kill_locked(number, each, now_ns);
    for (uint32_t i = 0; assembly && i < BUCKETS; i++) {
        uint32_t next;
        for (uint32_t n = buckets[i]; n; n = next) {
            next = clp_modules_at_locked(n)->next;
            if (clp_modules_at_locked(n)->assembly == assembly)
                unwatched |= kill_locked(n, each, now_ns);
        }
    }
    return unwatched;
}

void clp_modules_abandon_locked(void (*each)(uint32_t number, uint64_t now_ns), uint64_t now_ns)
{
    for (uint32_t i = 0; i < BUCKETS; i++) {
        uint32_t next;
        for (uint32_t n = buckets[i]; n; n = next) {
            next = clp_modules_at_locked(n)->next;
            if (!clp_modules_collectible_locked(n))
                continue;
            clp_modules_at_locked(n)->metadata = NULL;
            (void)kill_locked(n, each, now_ns);
        }
    }
}

void clp_modules_done(bool release_metadata)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (uint32_t n = buckets[i]; n; n = clp_modules_at_locked(n)->next) {
            struct clr_metadata *md = clp_modules_at_locked(n)->metadata;
            if (md && release_metadata)
                md->slots->base.release((struct clr_object *)md);
        }
    clp_slots_done(&modules);
    memset(buckets, 0, sizeof(buckets));
}

/* ---- what the runtime says ----------------------------------------------------------------- */

struct facts {
    clr_assembly_id assembly;
    uint64_t base, end;
    uint32_t flags;
    struct clp_text path;
    char path_bytes[PATH_UNITS];
};

static int64_t read_memory(void *user, uint64_t address, void *buf, size_t len)
{
    (void)user;
    return clp_images_read(address, buf, len);
}

/* Only a mapped image with native code has addresses that can occur in a stack. */
static void ask_layout(struct facts *f, uint64_t base)
{
    struct clp_pe_layout layout;
    if (!base || (f->flags & (CLR_MODULE_FLAT_LAYOUT | CLR_MODULE_DYNAMIC)))
        return;
    if (clp_pe_layout(base, read_memory, NULL, &layout) < 0 || !layout.native_code)
        return;
    if (layout.component) {
        clp_pe_images_expect_composite();
        return;
    }
    f->base = base;
    f->end = base + layout.image_bytes;
}

static int ask_facts(struct clr_info *info, clr_module_id id, struct facts *f)
{
    uint16_t name[PATH_UNITS];
    uint32_t len = 0;
    uint64_t base = 0;
    clr_hresult hr = info->slots->get_module_info2(info, id, &base, PATH_UNITS, &len, name,
                                                   &f->assembly, &f->flags);
    if (!CLR_OK(hr))
        return -ENOENT;
    f->path = clp_text_in(f->path_bytes, sizeof(f->path_bytes));
    clp_text_utf16(&f->path, name, len > 0 ? CLP_MIN(len, PATH_UNITS) - 1 : 0);
    ask_layout(f, base);
    return 0;
}

static uint32_t add_locked(clr_module_id id, const struct facts *f)
{
    uint32_t number = clp_modules_number_locked(id);
    if (number)
        return number;
    number = clp_slots_take(&modules);
    if (!number)
        return 0;
    struct clp_module *m = clp_modules_at_locked(number);
    *m = (struct clp_module){.next = *bucket_of(id),
                             .serial = ++last_serial,
                             .id = id,
                             .assembly = f->assembly,
                             .base = f->base,
                             .end = f->end,
                             .flags = f->flags};
    m->path = clp_strings_take(clp_code_table_strings_locked(), f->path.buf, f->path.len);
    *bucket_of(id) = number;
    if (m->base && !(m->flags & CLR_MODULE_COLLECTIBLE))
        clp_pe_images_add_locked(m->base, m->end, m->path);
    return number;
}

uint32_t clp_modules_learn(clr_module_id id)
{
    struct facts f = {0};
    clp_code_lock();
    uint32_t number = clp_modules_number_locked(id);
    clp_code_unlock();
    struct clr_info *info = clp_runtime_info();
    if (number || !info || ask_facts(info, id, &f) < 0)
        return number;
    clp_code_lock();
    number = add_locked(id, &f);
    clp_code_unlock();
    return number;
}

void clp_modules_loaded(clr_module_id id)
{
    uint32_t number = clp_modules_learn(id);
    if (!number)
        return;
    clp_code_lock();
    clp_modules_at_locked(number)->watched = true;
    clp_code_unlock();
}

void clp_modules_attached(clr_module_id id, clr_assembly_id assembly)
{
    clp_code_lock();
    uint32_t number = clp_modules_number_locked(id);
    if (number)
        clp_modules_at_locked(number)->assembly = assembly;
    clp_code_unlock();
}

/* ---- metadata ------------------------------------------------------------------------------ */

static struct clr_metadata *ask_metadata(clr_module_id id)
{
    static const struct clr_guid iid = CLR_IID_METADATA_IMPORT2;
    struct clr_info *info = clp_runtime_info();
    void *md = NULL;
    if (!info || !CLR_OK(info->slots->get_module_metadata(info, id, 0, &iid, &md)))
        return NULL;
    return md;
}

/* The first of several threads that ask at once is kept. */
static struct clr_metadata *keep_metadata(uint32_t number, struct clr_metadata *md)
{
    clp_code_lock();
    struct clp_module *m = clp_modules_at_locked(number);
    struct clr_metadata *kept = m->metadata ? m->metadata : md;
    m->metadata = kept;
    clp_code_unlock();
    if (kept != md)
        md->slots->base.release((struct clr_object *)md);
    return kept;
}

struct clr_metadata *clp_modules_metadata(uint32_t number)
{
    clp_code_lock();
    const struct clp_module *m = clp_modules_at_locked(number);
    struct clr_metadata *md = m->metadata;
    clr_module_id id = m->dead ? 0 : m->id;
    clp_code_unlock();
    if (md || !id)
        return md;
    md = ask_metadata(id);
    return md ? keep_metadata(number, md) : NULL;
}

static void release(struct clr_metadata *md)
{
    md->slots->base.release((struct clr_object *)md);
}

void clp_modules_release_dead(void)
{
    struct clr_metadata *md;
    do {
        clp_code_lock();
        md = dead_count > 0 ? dead_metadata[--dead_count] : NULL;
        clp_code_unlock();
        if (md)
            release(md);
    } while (md);
}

/* ---- the wire ------------------------------------------------------------------------------ */

uint32_t clp_modules_image_id_locked(uint32_t number)
{
    if (!number)
        return 0;
    struct clp_module *m = clp_modules_at_locked(number);
    if (!m->image_id)
        m->image_id = clp_images_next_id();
    return m->image_id;
}

uint32_t clp_modules_of_image_locked(uint32_t image_id)
{
    for (uint32_t n = 1; n <= modules.high; n++)
        if (clp_modules_at_locked(n)->image_id == image_id)
            return n;
    return 0;
}

/* Not for modules that may unload: the record is made while samples are written, maybe later. */
static void learn_mvid(uint32_t image_id)
{
    clp_code_lock();
    uint32_t number = clp_modules_of_image_locked(image_id);
    bool ask = number && !clp_modules_at_locked(number)->mvid_known &&
               !clp_modules_collectible_locked(number);
    clp_code_unlock();
    struct clr_metadata *md = ask ? clp_modules_metadata(number) : NULL;
    struct clr_guid mvid;
    if (!md || !CLR_OK(md->slots->get_scope_props(md, NULL, 0, NULL, &mvid)))
        return;
    clp_code_lock();
    clp_modules_at_locked(number)->mvid = mvid;
    clp_modules_at_locked(number)->mvid_known = true;
    clp_code_unlock();
}

static int image_record_locked(const struct clp_module *m, void *buf, size_t cap)
{
    uint16_t id_len = m->mvid_known ? sizeof(m->mvid) : 0;
    uint16_t path_len = m->path ? m->path->len : 0;
    size_t size = CLP_ALIGN_UP(sizeof(struct clp_rec_image) + id_len + path_len, 8);
    bool memory = path_len == 0 || (m->flags & CLR_MODULE_DYNAMIC) || !(m->flags & CLR_MODULE_DISK);
    if (size > cap)
        return -ENOSPC;
    memset(buf, 0, size);
    struct clp_rec_image *r = buf;
    r->rec = (struct clp_rec){.size = (uint32_t)size, .type = CLP_REC_IMAGE};
    r->image_id = m->image_id;
    r->kind = memory ? CLP_IMAGE_MEMORY : CLP_IMAGE_MANAGED;
    r->start = m->base;
    r->end = m->end;
    r->build_id_len = id_len;
    r->path_len = path_len;
    uint8_t *texts = (uint8_t *)(r + 1);
    memcpy(texts, &m->mvid, id_len);
    if (path_len)
        memcpy(texts + id_len, m->path->text, path_len);
    return (int)size;
}

int clp_modules_image_record(uint32_t image_id, void *buf, size_t cap)
{
    if (!image_id)
        return -ENOENT;
    learn_mvid(image_id);
    clp_code_lock();
    uint32_t number = clp_modules_of_image_locked(image_id);
    int r = number ? image_record_locked(clp_modules_at_locked(number), buf, cap) : -ENOENT;
    clp_code_unlock();
    return r;
}

size_t clp_modules_bytes_locked(void)
{
    return clp_slots_bytes(&modules);
}

uint64_t clp_modules_refused_locked(void)
{
    return modules.refused;
}
