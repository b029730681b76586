#include "sampler/inproc/thread_names.h"

#include "base/core/text.h"
#include "sampler/inproc/images.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define THREAD_WORDS (744 / 8) /* readable in every version, see hijack.c */
#define OBJECT_WORDS 16u       /* more than a managed Thread's fields */
#define UNITS_MAX 400u         /* of a name: more than is kept of it */

/* Where the runtime's Thread keeps the handle of the managed one; learnt, 0 = not yet. */
static uint32_t handle_word;

static bool read_words(uint64_t address, uint64_t *words, size_t count)
{
    size_t bytes = count * sizeof(*words);
    return address >= 4096 && address % 8 == 0 && address >> 47 == 0 &&
           clp_images_read(address, words, bytes) == (int64_t)bytes;
}

/* The managed object behind a handle, if it leads back to the runtime's. */
static bool leads_back(uint64_t handle, uint64_t clr_thread, uint64_t object[OBJECT_WORDS])
{
    uint64_t at;
    if (!read_words(handle, &at, 1) || !read_words(at, object, OBJECT_WORDS))
        return false;
    for (unsigned i = 1; i < OBJECT_WORDS; i++)
        if (object[i] == clr_thread)
            return true;
    return false;
}

static bool find_object(uint64_t clr_thread, uint64_t object[OBJECT_WORDS])
{
    uint64_t words[THREAD_WORDS];
    if (!read_words(clr_thread, words, THREAD_WORDS))
        return false;
    if (handle_word && leads_back(words[handle_word], clr_thread, object))
        return true;
    for (uint32_t i = 1; i < THREAD_WORDS; i++)
        if (leads_back(words[i], clr_thread, object)) {
            handle_word = i;
            return true;
        }
    return false;
}

/* A string: its type, its length, its UTF-16 units. */
static bool read_string(uint64_t address, const char *comm, size_t comm_len, struct clp_text *t)
{
    uint64_t head[2];
    uint16_t units[UNITS_MAX];
    if (!read_words(address, head, 2))
        return false;
    uint32_t len = (uint32_t)head[1];
    size_t want = CLP_MIN(len, UNITS_MAX) * sizeof(units[0]);
    if (len < comm_len / 4 || len > 1u << 20 ||
        clp_images_read(address + 12, units, want) != (int64_t)want)
        return false;
    t->len = 0;
    t->cut = false;
    clp_text_utf16(t, units, CLP_MIN(len, UNITS_MAX));
    return t->len > comm_len && memcmp(t->buf, comm, comm_len) == 0;
}

int clp_thread_names_find(uint64_t clr_thread, const char *comm, size_t comm_len, char *ret,
                          size_t cap)
{
    uint64_t object[OBJECT_WORDS];
    struct clp_text t = clp_text_in(ret, cap);
    if (comm_len != CLP_THREAD_COMM_MAX || !find_object(clr_thread, object))
        return -ENOENT;
    for (unsigned i = 1; i < OBJECT_WORDS; i++)
        if (object[i] != clr_thread && read_string(object[i], comm, comm_len, &t))
            return 0;
    return -ENOENT;
}
