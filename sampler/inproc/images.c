#include "sampler/inproc/images.h"

#include "base/core/arena.h"
#include "sampler/inproc/image_files.h"
#include "sampler/inproc/ranges.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define IMAGES_MAX 2048u

/* A file at a place: what the wire calls an image. */
struct image {
    uint32_t id;
    uint32_t file;
    uint64_t bias;
    uint64_t start, end, file_offset;
};

static struct {
    struct image *images;
    uint32_t count;
    uint64_t refused;
} I;

static _Atomic uint32_t last_id;

uint32_t clp_images_next_id(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

int clp_images_init(void)
{
    if (!I.images)
        I.images = clp_pages_alloc(IMAGES_MAX * sizeof(struct image));
    if (!I.images)
        return -ENOMEM;
    int r = clp_image_files_init();
    return r < 0 ? r : clp_ranges_init();
}

static uint32_t image_at(uint32_t file, uint64_t bias, const struct clp_range *r)
{
    for (uint32_t i = I.count; i-- > 0;)
        if (I.images[i].file == file && I.images[i].bias == bias)
            return i + 1;
    if (I.count == IMAGES_MAX) {
        I.refused++;
        return 0;
    }
    I.images[I.count] = (struct image){.id = clp_images_next_id(),
                                       .file = file,
                                       .bias = bias,
                                       .start = r->start,
                                       .end = r->end,
                                       .file_offset = r->file_offset};
    return ++I.count;
}

/* The image of a mapping, or NULL: no ELF, or beyond the ceiling. */
static const struct image *resolve(struct clp_range *r)
{
    struct clp_image_file *f = clp_image_files_at(r->file);
    clp_image_files_load(f);
    if (r->image == 0 && f->state == CLP_FILE_ELF) {
        uint64_t bias =
            r->start - r->file_offset + f->info.first_load_offset - f->info.first_load_vaddr;
        r->image = image_at(r->file, bias, r);
    }
    return r->image ? &I.images[r->image - 1] : NULL;
}

void clp_images_find(uint64_t ip, uint64_t pass, struct clp_code *ret)
{
    *ret = (struct clp_code){.kind = CLP_CODE_UNKNOWN};
    struct clp_range *r = clp_ranges_find(ip, pass);
    if (!r)
        return;
    ret->kind = CLP_CODE_STUB;
    ret->start = r->start;
    ret->end = r->end;
    if (r->file == CLP_NO_FILE)
        return;
    const struct image *image = resolve(r);
    if (image) {
        ret->kind = CLP_CODE_NATIVE;
        ret->id = image->id;
        ret->start = image->bias;
        ret->native = clp_image_files_at(image->file)->table;
    } else if (clp_image_files_at(r->file)->state == CLP_FILE_ELF) {
        ret->kind = CLP_CODE_UNKNOWN;
    }
}

int clp_images_record(uint32_t image_id, void *buf, size_t cap)
{
    const struct image *image = NULL;
    for (uint32_t i = 0; i < I.count && !image; i++)
        if (I.images[i].id == image_id)
            image = &I.images[i];
    if (!image)
        return -ENOENT;
    const struct clp_image_file *f = clp_image_files_at(image->file);
    size_t text = sizeof(struct clp_rec_image) + f->info.build_id_len;
    uint32_t size = (uint32_t)CLP_ALIGN_UP(text + f->path_len, 8);
    if (size > cap || size > CLP_WIRE_RECORD_MAX_BYTES)
        return -ENOSPC;
    struct clp_rec_image *rec = buf;
    memset(buf, 0, size);
    *rec = (struct clp_rec_image){
        .rec = {.size = size, .type = CLP_REC_IMAGE},
        .image_id = image->id,
        .kind = f->inode == 0 ? CLP_IMAGE_VDSO : CLP_IMAGE_ELF,
        .build_id_len = f->info.build_id_len,
        .start = image->start,
        .end = image->end,
        .bias = image->bias,
        .file_offset = image->file_offset,
        .path_len = f->path_len,
    };
    memcpy(rec + 1, f->info.build_id, f->info.build_id_len);
    memcpy((char *)buf + text, f->path, f->path_len);
    return (int)size;
}

uint64_t clp_images_refused(void)
{
    return I.refused + clp_image_files_refused() + clp_ranges_refused();
}

size_t clp_images_bytes(void)
{
    return clp_image_files_bytes() + clp_ranges_bytes() + I.count * sizeof(struct image);
}
