#include "sampler/inproc/ranges.h"

#include "base/core/arena.h"
#include "sampler/inproc/clock.h"
#include "sampler/inproc/image_files.h"
#include "sampler/inproc/maps.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define RANGES_MAX 16384u
#define CACHE_SLOTS 1024u
#define TRUST_NS (100 * CLP_NSEC_PER_MSEC) /* so long a mapping is taken to be still there, */
#define TRUST_BLIND_NS CLP_NSEC_PER_SEC    /* or so long where only the whole list can tell */
#define REFRESH_COST_SHARE 50              /* at least 50 times as long apart as one takes */
#define REFRESH_FREE 20 /* these are never put off: the list grows while a process starts */

/* Sorted by address; neighbours without a file are one. */
struct range_list {
    struct clp_range *at;
    uint32_t count;
};

static struct {
    struct range_list now, next; /* `next` is filled by a refresh, then they change places */
    uint32_t cache[CACHE_SLOTS]; /* by page: index + 1 */
    uint64_t pass, now_ns;       /* the round, and when it began */
    bool looked;                 /* the list was read in this round */
    uint64_t refresh_allowed_ns;
    uint64_t refreshes;
    uint64_t refused;
    char path[4096];
} R;

int clp_ranges_init(void)
{
    if (R.now.at)
        return 0;
    struct clp_range *now = clp_pages_alloc(RANGES_MAX * sizeof(struct clp_range));
    struct clp_range *next = clp_pages_alloc(RANGES_MAX * sizeof(struct clp_range));
    if (!now || !next) {
        clp_pages_free(now, RANGES_MAX * sizeof(struct clp_range));
        clp_pages_free(next, RANGES_MAX * sizeof(struct clp_range));
        return -ENOMEM;
    }
    R.now.at = now;
    R.next.at = next;
    R.pass = UINT64_MAX;
    return 0;
}

uint64_t clp_ranges_refused(void)
{
    return R.refused;
}

size_t clp_ranges_bytes(void)
{
    return ((size_t)R.now.count + R.next.count) * sizeof(struct clp_range);
}

/* ---- the list ---- */

/* The first range that ends behind `ip`. */
static uint32_t place_of(uint64_t ip)
{
    uint32_t low = 0, high = R.now.count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (R.now.at[mid].end <= ip)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The image that an unchanged mapping had before the refresh. */
static uint32_t known_image(const struct clp_range *r)
{
    const struct range_list *old = &R.now;
    uint32_t low = 0, high = old->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (old->at[mid].start < r->start)
            low = mid + 1;
        else
            high = mid;
    }
    bool same = low < old->count && old->at[low].start == r->start &&
                old->at[low].file == r->file && old->at[low].file_offset == r->file_offset;
    return same ? old->at[low].image : 0;
}

static void add_range(struct range_list *l, struct clp_range r)
{
    struct clp_range *last = l->count ? &l->at[l->count - 1] : NULL;
    if (r.file == CLP_NO_FILE && last && last->file == CLP_NO_FILE && last->end == r.start) {
        last->end = r.end;
        return;
    }
    if (l->count == RANGES_MAX) {
        R.refused++;
        return;
    }
    l->at[l->count++] = r; /* NOLINT(clang-analyzer-core.NullDereference): init made both lists */
}

static bool is_vsyscall(const struct clp_map_entry *e)
{
    return e->path_len == 10 && memcmp(e->path, "[vsyscall]", 10) == 0;
}

/* The last mapping of a file's beginning, on the way to the executable one behind it. */
struct refresh {
    uint64_t first_page;
    uint64_t inode;
    uint32_t dev_major, dev_minor;
};

static bool take_mapping(void *user, const struct clp_map_entry *e)
{
    struct refresh *s = user;
    if (e->file_offset == 0 && e->inode != 0 && e->readable)
        *s = (struct refresh){e->start, e->inode, e->dev_major, e->dev_minor};
    if (!e->executable || is_vsyscall(e))
        return true;
    struct clp_range r = {.start = e->start,
                          .end = e->end,
                          .file_offset = e->file_offset,
                          .seen_ns = R.now_ns,
                          .file = CLP_NO_FILE};
    if (clp_image_files_is_image(e)) {
        r.file = clp_image_files_of(e);
        if (r.file == CLP_NO_FILE)
            return true; /* unknown is better than a stub that it is not */
        struct clp_image_file *f = clp_image_files_at(r.file);
        f->exec_start = e->start;
        f->exec_end = e->end;
        bool begun =
            s->inode == e->inode && s->dev_major == e->dev_major && s->dev_minor == e->dev_minor;
        f->first_page = e->inode == 0 ? e->start : begun ? s->first_page : 0;
        r.image = known_image(&r);
    }
    add_range(&R.next, r);
    return true;
}

static void forget_places(void)
{
    memset(R.cache, 0, sizeof(R.cache));
}

static void refresh(void)
{
    struct refresh s = {0};
    uint64_t began = clp_clock_monotonic_ns();
    R.looked = true;
    R.next.count = 0;
    if (clp_maps_each(take_mapping, &s) == 0) {
        struct range_list old = R.now;
        R.now = R.next;
        R.next = old;
        forget_places();
    }
    uint64_t ended = clp_clock_monotonic_ns();
    R.refreshes++;
    R.refresh_allowed_ns =
        R.refreshes < REFRESH_FREE ? 0 : ended + REFRESH_COST_SHARE * (ended - began);
}

/* ---- look-up ---- */

static struct clp_range *search(uint64_t ip)
{
    uint32_t *slot = &R.cache[(ip >> 12) % CACHE_SLOTS];
    if (*slot) {
        struct clp_range *r = &R.now.at[*slot - 1];
        if (ip >= r->start && ip < r->end)
            return r;
    }
    uint32_t at = place_of(ip);
    if (at == R.now.count || ip < R.now.at[at].start)
        return NULL;
    *slot = at + 1;
    return &R.now.at[at];
}

static bool same_mapping(const struct clp_range *r, const struct clp_map_entry *e)
{
    if (!e->executable)
        return false;
    if (r->file == CLP_NO_FILE)
        return !clp_image_files_is_image(e);
    return e->start == r->start && e->end == r->end && e->file_offset == r->file_offset &&
           clp_image_files_same(r->file, e);
}

/* An address that was a library's may be something else by now. */
static bool still_there(struct clp_range *r)
{
    struct clp_map_entry e;
    uint64_t age = R.now_ns - r->seen_ns;
    if (age < TRUST_NS)
        return true;
    if (!clp_maps_find_is_cheap())
        return age < TRUST_BLIND_NS;
    if (clp_maps_find(r->start, &e, R.path, sizeof(R.path)) < 0 || !same_mapping(r, &e))
        return false;
    r->seen_ns = R.now_ns;
    return true;
}

/* Memory of stubs that is new goes in without reading the list. */
static void add_stubs(uint64_t ip, const struct clp_map_entry *e)
{
    uint32_t at = place_of(ip);
    if (R.now.count == RANGES_MAX) {
        R.refused++;
        return;
    }
    /* Neighbours that grew keep their part; the rest is the list's affair. */
    uint64_t low = at > 0 ? R.now.at[at - 1].end : 0;
    uint64_t high = at < R.now.count ? R.now.at[at].start : UINT64_MAX;
    memmove(&R.now.at[at + 1], &R.now.at[at], (R.now.count - at) * sizeof(struct clp_range));
    R.now.at[at] = (struct clp_range){.start = CLP_MAX(e->start, low),
                                      .end = CLP_MIN(e->end, high),
                                      .seen_ns = R.now_ns,
                                      .file = CLP_NO_FILE};
    R.now.count++;
    forget_places();
}

/* An address that no range covers: what the kernel says of it alone. true: reading the list may
 * tell more. */
static bool ask_for_one(uint64_t ip)
{
    struct clp_map_entry e;
    if (!clp_maps_find_is_cheap())
        return true;
    if (clp_maps_find(ip, &e, R.path, sizeof(R.path)) < 0 || !e.executable)
        return false;
    if (clp_image_files_is_image(&e))
        return true;
    add_stubs(ip, &e);
    return false;
}

static void begin_pass(uint64_t pass)
{
    R.pass = pass;
    R.now_ns = clp_clock_monotonic_ns();
    R.looked = false;
}

bool clp_ranges_held(uint64_t ip)
{
    return R.now.at && search(ip);
}

struct clp_range *clp_ranges_find(uint64_t ip, uint64_t pass)
{
    if (!R.now.at)
        return NULL;
    if (pass != R.pass)
        begin_pass(pass);
    struct clp_range *r = search(ip);
    if (r && still_there(r))
        return r;
    if (!r && !ask_for_one(ip))
        return search(ip);
    /* Better unknown than what used to be there. */
    if (R.looked || R.now_ns < R.refresh_allowed_ns)
        return NULL;
    refresh();
    return search(ip);
}
