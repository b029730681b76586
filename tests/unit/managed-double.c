/* Compiled so that one function has no frame and the other that of an rbp-based method. */
#include "tests/unit/managed-double.h"

#include "sampler/inproc/bodies.h"
#include "sampler/inproc/runtime.h"
#include "sampler/inproc/images.h"

#include <errno.h>
#include <string.h>

static _Atomic uint64_t sink;

/* In sections of their own the linker tells where each begins and ends. */
extern const char __start_double_leaf[], __stop_double_leaf[];
extern const char __start_double_root[], __stop_double_root[];

__attribute__((noinline, section("double_leaf"))) static void managed_leaf(_Atomic bool *stop)
{
    while (!atomic_load_explicit(stop, memory_order_relaxed))
        for (int i = 0; i < 1000; i++)
            atomic_fetch_add_explicit(&sink, 1, memory_order_relaxed);
}

__attribute__((noinline, section("double_root"))) void managed_root(_Atomic bool *stop)
{
    managed_leaf(stop);
    atomic_fetch_add_explicit(&sink, 1, memory_order_relaxed); /* no tail call */
}

/* As the compiler makes them: the leaf calls nothing and keeps no frame, Root is push rbp; mov
 * rbp,rsp. */
static const struct clp_managed_frame leaf_frame = {.base = CLP_BASE_RSP, .exact = true};
static const struct clp_managed_frame root_frame = {
    .base = CLP_BASE_RBP, .prologue_bytes = 4, .push_count = 1, .exact = true};

static bool body_range(uint32_t id, uint64_t *ret_start, uint64_t *ret_end)
{
    if (id != MANAGED_LEAF_BODY && id != MANAGED_ROOT_BODY)
        return false;
    bool leaf = id == MANAGED_LEAF_BODY;
    *ret_start = (uintptr_t)(leaf ? __start_double_leaf : __start_double_root);
    *ret_end = (uintptr_t)(leaf ? __stop_double_leaf : __stop_double_root);
    return true;
}

bool clp_bodies_find(uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    uint64_t start, end;
    (void)time_ns;
    for (uint32_t id = MANAGED_LEAF_BODY; id <= MANAGED_ROOT_BODY; id++)
        if (body_range(id, &start, &end) && ip >= start && ip < end) {
            *ret = (struct clp_code){.kind = CLP_CODE_MANAGED,
                                     .id = id,
                                     .method_key = id,
                                     .start = start,
                                     .end = end,
                                     .frame = id == MANAGED_LEAF_BODY ? leaf_frame : root_frame};
            return true;
        }
    return false;
}

bool clp_bodies_find_late(uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    (void)ip;
    (void)time_ns;
    (void)ret;
    return false;
}

void clp_bodies_prepare(void)
{
}

int clp_bodies_body_record(uint32_t body_id, struct clp_rec_body *ret)
{
    uint64_t start, end;
    if (!body_range(body_id, &start, &end))
        return -ENOENT;
    *ret = (struct clp_rec_body){.rec = {.size = sizeof(*ret), .type = CLP_REC_BODY},
                                 .body_id = body_id,
                                 .method_id = body_id + 100,
                                 .start = start,
                                 .code_bytes = (uint32_t)(end - start)};
    return 0;
}

static uint32_t image_id(void)
{
    static uint32_t id;
    if (!id)
        id = clp_images_next_id();
    return id;
}

int clp_bodies_method_record(uint32_t method_id, void *buf, size_t cap)
{
    bool leaf = method_id == MANAGED_LEAF_BODY + 100;
    const char *texts = leaf ? "Ns.WorkLeaf" : "Ns.WorkRoot";
    struct clp_rec_method *rec = buf;
    if (!leaf && method_id != MANAGED_ROOT_BODY + 100)
        return -ENOENT;
    if (cap < 48)
        return -ENOSPC;
    memset(buf, 0, 48);
    *rec = (struct clp_rec_method){.rec = {.size = 48, .type = CLP_REC_METHOD},
                                   .method_id = method_id,
                                   .image_id = image_id(),
                                   .token = 0x06000000 + method_id,
                                   .type_len = 7,
                                   .name_len = 4};
    memcpy(rec + 1, texts, 11);
    return 48;
}

bool clp_bodies_gone(enum clp_rec_type what, uint32_t id)
{
    (void)what, (void)id;
    return false;
}

int clp_bodies_image_record(uint32_t id, void *buf, size_t cap)
{
    struct clp_rec_image *rec = buf;
    if (id != image_id())
        return -ENOENT;
    if (cap < 64)
        return -ENOSPC;
    memset(buf, 0, 64);
    *rec = (struct clp_rec_image){.rec = {.size = 64, .type = CLP_REC_IMAGE},
                                  .image_id = id,
                                  .kind = CLP_IMAGE_MANAGED,
                                  .path_len = 8};
    memcpy(rec + 1, "work.dll", 8);
    return 64;
}

uint32_t clp_bodies_known(void)
{
    return 2;
}

uint64_t clp_bodies_refused(void)
{
    return 0;
}

size_t clp_bodies_bytes(void)
{
    return 0;
}

bool clp_bodies_in_filter(uint32_t body_id, uint64_t ip)
{
    (void)body_id;
    (void)ip;
    return false;
}

struct clr_info *managed_runtime;

struct clr_info *clp_runtime_info(void)
{
    return managed_runtime;
}
