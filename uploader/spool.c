#include "uploader/spool.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/core/text.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define DIRECTORY_MODE 0750
#define FILE_MODE 0640
#define START_DIGITS 20u
#define CHUNK_ENDING ".chunk"
#define SENT_ENDING ".sent"
#define BAD_ENDING ".bad"
#define TEMP_ENDING ".tmp"
#define SENT_MAX_BYTES 65536u

struct clp_spool {
    struct clp_spool_config config;
    char *dir; /* its own copy: a directory that was removed is made again at any time */
    uint64_t intakes[CLP_SPOOL_INTAKES_MAX];
    uint32_t all; /* the mask of all intakes */
    int dir_fd, lock_fd;
    struct clp_spool_entry *first, *last;
    uint64_t memory_bytes;
    uint64_t aged_ns; /* when ages were looked at; 0: never */
    uint32_t bad_files;
    struct clp_spool_counts counts;
};

const char *clp_spool_loss_text(enum clp_spool_loss loss)
{
    static const char *const texts[] = {
        [CLP_SPOOL_FULL] = "the spool was full",
        [CLP_SPOOL_OLD] = "older than spool.max_age",
        [CLP_SPOOL_NO_ROOM] = "neither the spool nor memory had room",
        [CLP_SPOOL_BAD] = "damaged in the spool",
    };
    return (size_t)loss < CLP_ARRAY_LEN(texts) ? texts[loss] : "unknown";
}

/* ---- names ----------------------------------------------------------------------------------- */

static void file_name(const struct clp_spool_entry *e, const char *ending,
                      char buf[CLP_SPOOL_NAME_BYTES + 8])
{
    (void)snprintf(buf, CLP_SPOOL_NAME_BYTES + 8, "%s%s", e->name, ending);
}

static void name_chunk(const struct clp_upload_header *h, char buf[CLP_SPOOL_NAME_BYTES])
{
    char runtime[65];
    size_t n = 0;
    const char *id = h->runtime_id && *h->runtime_id ? h->runtime_id : "unknown";
    for (; id[n] && n < sizeof(runtime) - 1; n++)
        runtime[n] = strchr("0123456789abcdefghijklmnopqrstuvwxyz", id[n]) ? id[n] : '_';
    runtime[n] = '\0';
    (void)snprintf(buf, CLP_SPOOL_NAME_BYTES, "%020" PRIu64 "-%s-%" PRIu64, h->start_unix_ns,
                   runtime, h->seq);
}

/* Whether it is a name that name_chunk makes. */
static bool parse_name(struct clp_spool_entry *e)
{
    char again[CLP_SPOOL_NAME_BYTES], *end;
    const char *last = strrchr(e->name, '-');
    if (strspn(e->name, "0123456789") != START_DIGITS || e->name[START_DIGITS] != '-' || !last ||
        last <= e->name + START_DIGITS)
        return false;
    errno = 0;
    e->start_unix_ns = strtoull(e->name, NULL, 10);
    e->seq = strtoull(last + 1, &end, 10);
    (void)snprintf(again, sizeof(again), "%020" PRIu64 "%.*s-%" PRIu64, e->start_unix_ns,
                   (int)(last - e->name - START_DIGITS), e->name + START_DIGITS, e->seq);
    return errno == 0 && *end == '\0' && strcmp(again, e->name) == 0;
}

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n > e && strcmp(name + n - e, ending) == 0;
}

/* "NAME.chunk" into the entry's name and what it says. */
static bool parse_file_name(struct clp_spool_entry *e, const char *file)
{
    size_t len = strlen(file) - strlen(CHUNK_ENDING);
    if (len >= CLP_SPOOL_NAME_BYTES)
        return false;
    memcpy(e->name, file, len);
    e->name[len] = '\0';
    return parse_name(e);
}

int clp_spool_numbers(const char *dir,
                      void (*found)(void *context, const char *runtime, uint64_t seq),
                      void *context)
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *d = opendir(dir);
    struct clp_spool_entry e;
    if (!d)
        return -errno;
    for (struct dirent *f; (f = readdir(d));)
        if (has_ending(f->d_name, CHUNK_ENDING) && parse_file_name(&e, f->d_name)) {
            char *runtime = e.name + START_DIGITS + 1;
            *strrchr(runtime, '-') = '\0';
            found(context, runtime, e.seq);
        }
    return 0;
}

bool clp_spool_same_target(const struct clp_spool_entry *a, const struct clp_spool_entry *b)
{
    const char *x = a->name + START_DIGITS, *y = b->name + START_DIGITS;
    size_t xs = (size_t)(strrchr(a->name, '-') - x), ys = (size_t)(strrchr(b->name, '-') - y);
    return xs == ys && memcmp(x, y, xs) == 0;
}

/* ---- the index ------------------------------------------------------------------------------- */

static struct clp_spool_entry *new_entry(const struct clp_spool *s)
{
    struct clp_spool_entry *e = calloc(1, sizeof(*e));
    size_t count = CLP_MAX(s->config.intake_count, (size_t)1);
    if (e)
        e->progress = calloc(count, sizeof(*e->progress));
    if (e && !e->progress) {
        free(e);
        return NULL;
    }
    return e;
}

static void free_entry(const struct clp_spool *s, struct clp_spool_entry *e)
{
    for (size_t i = 0; i < s->config.intake_count; i++)
        free(e->progress[i].parts);
    free(e->progress);
    free(e->data);
    free(e);
}

static bool is_before(const struct clp_spool_entry *a, const struct clp_spool_entry *b)
{
    return a->start_unix_ns < b->start_unix_ns ||
           (a->start_unix_ns == b->start_unix_ns && a->seq < b->seq);
}

/* New ones nearly always go to the end. */
static void link_entry(struct clp_spool *s, struct clp_spool_entry *e)
{
    struct clp_spool_entry *before = s->last;
    while (before && is_before(e, before))
        before = before->prev;
    e->prev = before;
    e->next = before ? before->next : s->first;
    *(e->next ? &e->next->prev : &s->last) = e;
    *(before ? &before->next : &s->first) = e;
    s->counts.chunks++;
    s->counts.bytes += e->bytes;
    if (e->data) {
        s->counts.in_memory++;
        s->memory_bytes += e->bytes;
    }
}

static void unlink_entry(struct clp_spool *s, struct clp_spool_entry *e)
{
    *(e->next ? &e->next->prev : &s->last) = e->prev;
    *(e->prev ? &e->prev->next : &s->first) = e->next;
    s->counts.chunks--;
    s->counts.bytes -= e->bytes;
    if (e->data) {
        s->counts.in_memory--;
        s->memory_bytes -= e->bytes;
    }
}

static void remove_file(const struct clp_spool *s, const struct clp_spool_entry *e,
                        const char *ending)
{
    char name[CLP_SPOOL_NAME_BYTES + 8];
    file_name(e, ending, name);
    if (s->dir_fd >= 0)
        (void)unlinkat(s->dir_fd, name, 0);
}

static void remove_entry(struct clp_spool *s, struct clp_spool_entry *e)
{
    /* In this order: a .sent without its chunk is tidied away, a chunk without it is sent again. */
    if (!e->data)
        remove_file(s, e, CHUNK_ENDING);
    remove_file(s, e, SENT_ENDING);
    unlink_entry(s, e);
    free_entry(s, e);
}

static void drop(struct clp_spool *s, struct clp_spool_entry *e, enum clp_spool_loss loss)
{
    s->counts.lost[loss]++;
    remove_entry(s, e);
}

static struct clp_spool_entry *oldest_free(const struct clp_spool *s, bool in_memory)
{
    struct clp_spool_entry *e = s->first;
    while (e && (e->uses > 0 || (in_memory && !e->data)))
        e = e->next;
    return e;
}

static void make_room(struct clp_spool *s, uint64_t chunks, uint64_t bytes)
{
    struct clp_spool_entry *e;
    while ((s->counts.bytes - s->memory_bytes + bytes > s->config.bytes_max ||
            s->counts.chunks + chunks > s->config.files_max) &&
           (e = oldest_free(s, false)))
        drop(s, e, CLP_SPOOL_FULL);
}

/* One that is larger than the whole spool may be: no room is ever enough for it. */
static bool fits(const struct clp_spool *s, uint64_t bytes)
{
    return bytes <= s->config.bytes_max;
}

/* The bound was higher when they were stored. Those in memory are there because they are too large.
 */
static void drop_too_large(struct clp_spool *s)
{
    for (struct clp_spool_entry *e = s->first, *next; e; e = next) {
        next = e->next;
        if (!e->data && e->uses == 0 && !fits(s, e->bytes))
            drop(s, e, CLP_SPOOL_FULL);
    }
}

void clp_spool_age(struct clp_spool *s, uint64_t now_ns)
{
    struct clp_spool_entry *e = s->first, *next;
    if (s->aged_ns && now_ns - s->aged_ns < CLP_NSEC_PER_SEC)
        return;
    s->aged_ns = now_ns;
    for (; e; e = next) { /* all: stamps, which order them, may have gone back and forth */
        next = e->next;
        if (e->uses == 0 && (int64_t)now_ns - e->born_ns > (int64_t)s->config.age_max_ns)
            drop(s, e, CLP_SPOOL_OLD);
    }
}

/* ---- taking up what is there ----------------------------------------------------------------- */

static size_t intake_index(const struct clp_spool *s, uint64_t id)
{
    size_t i = 0;
    while (i < s->config.intake_count && s->intakes[i] != id)
        i++;
    return i;
}

static void note_part(struct clp_spool_entry *e, size_t intake, const char *part, size_t len)
{
    struct clp_spool_progress *p = &e->progress[intake];
    if (len == 1 && *part == '*') {
        e->done |= 1u << intake;
        p->part_count = 0;
        free(CLP_TAKE(p->parts));
        return;
    }
    if (!p->parts) /* without memory it will be sent once more, which its id tells */
        p->parts = calloc(CLP_SPOOL_PARTS_MAX, sizeof(*p->parts));
    if (p->parts && p->part_count < CLP_SPOOL_PARTS_MAX && len < CLP_SPOOL_PART_BYTES) {
        memcpy(p->parts[p->part_count], part, len);
        p->parts[p->part_count++][len] = '\0';
    }
}

/* A last line without its end was being written when the agent died: that part goes again. */
static void read_sent(struct clp_spool *s, struct clp_spool_entry *e)
{
    char name[CLP_SPOOL_NAME_BYTES + 8], *end;
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    file_name(e, SENT_ENDING, name);
    if (clp_file_read_at(s->dir_fd, name, SENT_MAX_BYTES, &text, NULL) < 0)
        return;
    for (char *line = text; (end = strchr(line, '\n')); line = end + 1) {
        char *rest;
        uint64_t id = strtoull(line, &rest, 16);
        size_t intake = intake_index(s, id);
        if (rest == line + 16 && *rest == ' ' && rest + 1 < end && intake < s->config.intake_count)
            note_part(e, intake, rest + 1, (size_t)(end - rest - 1));
    }
}

static int take_chunk(struct clp_spool *s, const char *file, bool *ret_known)
{
    struct stat st;
    *ret_known = false;
    /* One that is larger than any chunk, maybe of nothing but holes, would crowd out all others. */
    if (fstatat(s->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
        st.st_size > (off_t)CLP_CHUNK_MAX_BYTES)
        return 0;
    struct clp_spool_entry *e = new_entry(s);
    if (!e)
        return -ENOMEM;
    e->bytes = (uint64_t)st.st_size;
    if (!parse_file_name(e, file)) {
        free_entry(s, e);
        return 0;
    }
    *ret_known = true;
    uint64_t now_unix_ns = clp_clock_realtime_ns();
    e->born_ns = (int64_t)clp_clock_monotonic_ns();
    if (e->start_unix_ns < now_unix_ns)
        e->born_ns -= (int64_t)(now_unix_ns - e->start_unix_ns);
    read_sent(s, e);
    link_entry(s, e);
    if ((e->done & s->all) == s->all)
        remove_entry(s, e);
    return 0;
}

static void set_file_aside(struct clp_spool *s, const char *file)
{
    char bad[NAME_MAX + 1];
    s->counts.lost[CLP_SPOOL_BAD]++;
    int n = snprintf(bad, sizeof(bad), "%s%s", file, BAD_ENDING);
    if (n < 0 || (size_t)n >= sizeof(bad) || s->bad_files >= CLP_SPOOL_BAD_MAX ||
        renameat(s->dir_fd, file, s->dir_fd, bad) < 0)
        (void)unlinkat(s->dir_fd, file, 0);
    else
        s->bad_files++;
}

/* A .sent whose chunk is gone, or a file that was being written when the agent died. */
static bool is_left_over(const struct clp_spool *s, const char *file)
{
    char chunk[NAME_MAX + 1];
    struct stat st;
    if (has_ending(file, TEMP_ENDING))
        return strstr(file, CHUNK_ENDING) != NULL;
    if (!has_ending(file, SENT_ENDING))
        return false;
    int n = snprintf(chunk, sizeof(chunk), "%.*s%s", (int)(strlen(file) - strlen(SENT_ENDING)),
                     file, CHUNK_ENDING);
    return n > 0 && (size_t)n < sizeof(chunk) &&
           fstatat(s->dir_fd, chunk, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int take_file(struct clp_spool *s, const char *file)
{
    bool known = true;
    int r = 0;
    if (has_ending(file, CHUNK_ENDING))
        r = take_chunk(s, file, &known);
    else if (is_left_over(s, file))
        (void)unlinkat(s->dir_fd, file, 0);
    if (r == 0 && !known)
        set_file_aside(s, file);
    return r;
}

static int count_bad(struct clp_spool *s, const char *file)
{
    s->bad_files += has_ending(file, BAD_ENDING);
    return 0;
}

static int each_file(struct clp_spool *s, int (*take)(struct clp_spool *s, const char *file))
{
    CLP_CLEANUP(clp_cleanup_dir) DIR *d = clp_file_list(s->dir_fd);
    if (!d)
        return -errno;
    int r = 0;
    for (struct dirent *f; r == 0 && (f = readdir(d));)
        r = take(s, f->d_name);
    return r;
}

static int lock_directory(int dir_fd, int *ret)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd =
        openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    *ret = CLP_TAKE_FD(fd);
    return 0;
}

static int open_directory(struct clp_spool *s)
{
    int r = clp_file_mkdir_p(s->dir, DIRECTORY_MODE);
    if (r < 0)
        return r;
    s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir_fd < 0)
        return -errno;
    r = lock_directory(s->dir_fd, &s->lock_fd);
    if (r < 0)
        return r;
    r = each_file(s, count_bad);
    return r < 0 ? r : each_file(s, take_file);
}

static void close_directory(struct clp_spool *s)
{
    clp_cleanup_fd(&s->dir_fd);
    clp_cleanup_fd(&s->lock_fd); /* and with it the lock */
    s->dir_fd = s->lock_fd = -1;
}

static void free_spool(struct clp_spool *s)
{
    while (s->first) {
        struct clp_spool_entry *e = s->first;
        unlink_entry(s, e);
        free_entry(s, e);
    }
    close_directory(s);
    free(s->dir);
    free(s);
}

int clp_spool_open(const struct clp_spool_config *c, struct clp_spool **ret)
{
    struct clp_spool *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->config = *c;
    s->config.intake_count = CLP_MIN(c->intake_count, (size_t)CLP_SPOOL_INTAKES_MAX);
    for (size_t i = 0; i < s->config.intake_count; i++)
        s->intakes[i] = c->intakes[i];
    s->all = (1u << s->config.intake_count) - 1;
    s->dir_fd = s->lock_fd = -1;
    s->dir = c->dir ? strdup(c->dir) : NULL;
    int r = c->dir && !s->dir ? -ENOMEM : c->dir ? open_directory(s) : 0;
    if (r < 0) {
        free_spool(s);
        return r;
    }
    drop_too_large(s);
    make_room(s, 0, 0);
    *ret = s;
    return 0;
}

/* ---- storing --------------------------------------------------------------------------------- */

/* Somebody has removed the directory: a new one takes its place, and what was in the old one is
 * found missing when its turn comes. The descriptors keep their numbers, since chunks are read
 * without the owner's lock. */
static int replace_directory(const struct clp_spool *s)
{
    int r = clp_file_mkdir_p(s->dir, DIRECTORY_MODE);
    if (r < 0)
        return r;
    CLP_CLEANUP(clp_cleanup_fd) int lock = -1;
    CLP_CLEANUP(clp_cleanup_fd) int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = dir < 0 ? -errno : lock_directory(dir, &lock);
    if (r < 0)
        return r;
    bool replaced = dup3(dir, s->dir_fd, O_CLOEXEC) >= 0 && dup3(lock, s->lock_fd, O_CLOEXEC) >= 0;
    return replaced ? 0 : -errno;
}

static int write_chunk(const struct clp_spool *s, const struct clp_spool_entry *e,
                       const uint8_t *data, size_t len)
{
    char name[CLP_SPOOL_NAME_BYTES + 8];
    if (s->dir_fd < 0)
        return -ENODEV;
    file_name(e, CHUNK_ENDING, name);
    int r = clp_file_write_at(s->dir_fd, name, data, len, FILE_MODE);
    if (r == -ENOENT && replace_directory(s) == 0)
        r = clp_file_write_at(s->dir_fd, name, data, len, FILE_MODE);
    return r;
}

/* On a full disk the oldest make room, a few at a time. */
static int write_with_room(struct clp_spool *s, const struct clp_spool_entry *e,
                           const uint8_t *data, size_t len)
{
    int r = write_chunk(s, e, data, len);
    for (int i = 0; i < 8 && (r == -ENOSPC || r == -EDQUOT); i++) {
        struct clp_spool_entry *old = s->first;
        while (old && (old->uses > 0 || old->data))
            old = old->next;
        if (!old)
            return r;
        drop(s, old, CLP_SPOOL_FULL);
        r = write_chunk(s, e, data, len);
    }
    return r;
}

static void make_memory_room(struct clp_spool *s, uint64_t bytes)
{
    struct clp_spool_entry *old;
    while (s->memory_bytes + bytes > s->config.memory_max && (old = oldest_free(s, true)))
        drop(s, old, CLP_SPOOL_NO_ROOM);
}

static int keep_in_memory(struct clp_spool *s, struct clp_spool_entry *e, uint8_t *data)
{
    make_memory_room(s, e->bytes);
    if (s->memory_bytes + e->bytes > s->config.memory_max)
        return -ENOMEM;
    e->data = data;
    return 0;
}

int clp_spool_put(struct clp_spool *s, const struct clp_upload_header *h, const void *profile,
                  size_t len, bool *ret_memory, int *ret_why)
{
    size_t bytes = 0;
    CLP_CLEANUP(clp_cleanup_free) uint8_t *data = NULL;
    struct clp_spool_entry *e = new_entry(s);
    int r = e ? clp_chunk_write(h, profile, len, &data, &bytes) : -ENOMEM;
    *ret_memory = false;
    if (r == 0) {
        name_chunk(h, e->name);
        e->bytes = bytes;
        e->start_unix_ns = h->start_unix_ns;
        e->seq = h->seq;
        e->born_ns = (int64_t)(clp_clock_monotonic_ns() - h->duration_ns);
        make_room(s, 1, fits(s, bytes) ? bytes : 0);
        *ret_why = fits(s, bytes) ? write_with_room(s, e, data, bytes) : -EFBIG;
        if (*ret_why < 0) {
            r = keep_in_memory(s, e, data);
            *ret_memory = r == 0;
        }
    }
    if (r < 0) {
        s->counts.lost[CLP_SPOOL_NO_ROOM]++;
        if (e)
            free_entry(s, e);
        return r;
    }
    if (e->data)
        (void)CLP_TAKE(data);
    link_entry(s, e);
    return 0;
}

/* ---- another spool takes its place ----------------------------------------------------------- */

/* Its intakes' progress in the order of `s`: some are the same, some are new. */
static int translate(const struct clp_spool *s, const struct clp_spool *from,
                     struct clp_spool_entry *e)
{
    struct clp_spool_entry t = {0};
    t.progress = calloc(CLP_MAX(s->config.intake_count, (size_t)1), sizeof(*t.progress));
    if (!t.progress)
        return -ENOMEM;
    for (size_t i = 0; i < from->config.intake_count; i++) {
        struct clp_spool_progress *p = &e->progress[i];
        size_t at = intake_index(s, from->intakes[i]);
        if (at < s->config.intake_count) {
            t.progress[at].parts = CLP_TAKE(p->parts);
            t.progress[at].part_count = p->part_count;
            t.progress[at].lacking = p->lacking;
            t.done |= (e->done >> i & 1) << at;
        }
        free(p->parts);
    }
    free(e->progress);
    e->progress = t.progress;
    e->done = t.done;
    return 0;
}

/* The marks first: a .sent without its chunk is tidied away. */
static int move_files(const struct clp_spool *s, const struct clp_spool *from,
                      const struct clp_spool_entry *e)
{
    char name[CLP_SPOOL_NAME_BYTES + 8];
    if (s->dir_fd < 0 || from->dir_fd < 0)
        return -EXDEV;
    file_name(e, SENT_ENDING, name);
    if (renameat(from->dir_fd, name, s->dir_fd, name) < 0 && errno != ENOENT)
        return -errno;
    file_name(e, CHUNK_ENDING, name);
    return renameat(from->dir_fd, name, s->dir_fd, name) < 0 ? -errno : 0;
}

static bool take_entry(struct clp_spool *s, struct clp_spool *from, struct clp_spool_entry *e)
{
    if ((!e->data && move_files(s, from, e) < 0) || translate(s, from, e) < 0)
        return false;
    unlink_entry(from, e);
    link_entry(s, e);
    clp_spool_release(s, e);
    return true;
}

uint64_t clp_spool_take_over(struct clp_spool *s, struct clp_spool *from)
{
    uint64_t left = 0;
    for (struct clp_spool_entry *e = from->first, *next; e; e = next) {
        next = e->next;
        left += !take_entry(s, from, e);
    }
    for (size_t i = 0; i < CLP_SPOOL_LOSSES; i++) {
        s->counts.lost[i] += from->counts.lost[i];
        from->counts.lost[i] = 0;
    }
    drop_too_large(s);
    make_room(s, 0, 0);
    make_memory_room(s, 0);
    return left;
}

void clp_spool_leave_directory(struct clp_spool *s)
{
    for (struct clp_spool_entry *e = s->first, *next; e; e = next) {
        next = e->next;
        if (e->data)
            continue;
        unlink_entry(s, e);
        free_entry(s, e);
    }
    close_directory(s);
}

/* ---- use ------------------------------------------------------------------------------------- */

struct clp_spool_entry *clp_spool_first(const struct clp_spool *s)
{
    return s->first;
}

int clp_spool_load(const struct clp_spool *s, const struct clp_spool_entry *e, uint8_t **ret,
                   size_t *ret_len)
{
    char name[CLP_SPOOL_NAME_BYTES + 8];
    if (!e->data) {
        file_name(e, CHUNK_ENDING, name);
        return clp_file_read_at(s->dir_fd, name, CLP_CHUNK_MAX_BYTES, (char **)ret, ret_len);
    }
    uint8_t *copy = malloc(e->bytes);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, e->data, e->bytes);
    *ret = copy;
    *ret_len = e->bytes;
    return 0;
}

bool clp_spool_has_part(const struct clp_spool_entry *e, size_t intake, const char *part)
{
    const struct clp_spool_progress *p = &e->progress[intake];
    for (uint8_t i = 0; i < p->part_count; i++)
        if (strcmp(p->parts[i], part) == 0)
            return true;
    return false;
}

/* One write of one line: a crash leaves it there or not, at worst without its end. */
static void append_sent(const struct clp_spool *s, const struct clp_spool_entry *e, size_t intake,
                        const char *part)
{
    char name[CLP_SPOOL_NAME_BYTES + 8], line[64];
    if (s->dir_fd < 0 || e->data)
        return;
    file_name(e, SENT_ENDING, name);
    CLP_CLEANUP(clp_cleanup_fd)
    int fd =
        openat(s->dir_fd, name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    int n = snprintf(line, sizeof(line), "%016" PRIx64 " %.*s\n", s->intakes[intake],
                     (int)CLP_SPOOL_PART_BYTES - 1, part);
    /* Not there, it would be sent twice after a crash: no reason to lose it now. But the next mark
     * must not stand behind the half of this one. */
    if (fd >= 0) {
        off_t end = lseek(fd, 0, SEEK_END);
        if (write(fd, line, (size_t)n) != n && end >= 0)
            (void)!ftruncate(fd, end);
    }
}

void clp_spool_sent(struct clp_spool *s, struct clp_spool_entry *e, size_t intake, const char *part)
{
    const char *text = part ? part : "*";
    note_part(e, intake, text, strlen(text));
    if ((e->done & s->all) == s->all) {
        if (e->uses == 0)
            remove_entry(s, e);
        else if (!e->data)
            remove_file(s, e, CHUNK_ENDING); /* now: a crash must not send it again */
        return;
    }
    append_sent(s, e, intake, text);
}

void clp_spool_release(struct clp_spool *s, struct clp_spool_entry *e)
{
    if (e->uses == 0 && (e->done & s->all) == s->all)
        remove_entry(s, e);
}

void clp_spool_set_aside(struct clp_spool *s, struct clp_spool_entry *e, bool damaged)
{
    char name[CLP_SPOOL_NAME_BYTES + 8];
    if (damaged && s->dir_fd >= 0 && !e->data) {
        file_name(e, CHUNK_ENDING, name);
        set_file_aside(s, name);
    }
    remove_file(s, e, SENT_ENDING);
    unlink_entry(s, e);
    free_entry(s, e);
}

bool clp_spool_take_flush(struct clp_spool *s)
{
    return s->dir_fd >= 0 && unlinkat(s->dir_fd, "flush", 0) == 0;
}

const struct clp_spool_counts *clp_spool_counts(const struct clp_spool *s)
{
    return &s->counts;
}

/* With what its intakes have already. */
static bool write_late(struct clp_spool *s, struct clp_spool_entry *e)
{
    if (!fits(s, e->bytes) || write_chunk(s, e, e->data, e->bytes) < 0)
        return false;
    free(CLP_TAKE(e->data));
    for (size_t i = 0; i < s->config.intake_count; i++) {
        for (uint8_t k = 0; k < e->progress[i].part_count; k++)
            append_sent(s, e, i, e->progress[i].parts[k]);
        if (e->done & (1u << i))
            append_sent(s, e, i, "*");
    }
    return true;
}

uint64_t clp_spool_close(struct clp_spool *s)
{
    uint64_t lost = 0;
    if (!s)
        return 0;
    for (struct clp_spool_entry *e = s->first; e; e = e->next)
        if (e->data && !write_late(s, e))
            lost++;
    free_spool(s);
    return lost;
}
