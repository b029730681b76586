#include "sampler/eventpipe/journal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "base/vec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (CLP_JOURNAL_SESSIONS_MAX * 64u)
#define ASK_NS (3 * CLP_NSEC_PER_SEC)

struct line {
    int32_t pid;
    uint64_t start_ticks, id;
};

struct clp_journal {
    int dir_fd;
    char name[64]; /* of this process's file */
    struct line *lines;
    uint32_t count, cap;
};

/* ---- this process's file ------------------------------------------------------------------- */

static int start_of(int32_t pid, uint64_t *ret)
{
    struct clp_dotnet d;
    int r = clp_dotnet_open(&clp_discover_system, pid, &d);
    if (r < 0)
        return r;
    *ret = d.start_ticks;
    clp_dotnet_done(&d);
    return 0;
}

static void put_lines(struct clp_strbuf *out, const struct line *lines, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        clp_strbuf_printf(out, "%" PRId32 " %" PRIu64 " %" PRIu64 "\n", lines[i].pid,
                          lines[i].start_ticks, lines[i].id);
}

/* Against a kill of this process, not of the machine: no fsync, so that little time passes between
 * the birth of a session and its note. */
static int write_file(int dir_fd, const char *name, int flags, const struct clp_strbuf *out)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    return fd < 0 ? -errno : clp_file_write_fd(fd, out->buf, out->len);
}

static int replace_file(int dir_fd, const char *name, const struct clp_strbuf *out)
{
    char temporary[80];
    snprintf(temporary, sizeof(temporary), ".%s", name);
    int r = write_file(dir_fd, temporary, O_TRUNC, out);
    if (r == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dir_fd, temporary, 0);
    return r;
}

static int write_lines(int dir_fd, const char *name, const struct line *lines, uint32_t count)
{
    struct clp_strbuf out;
    if (count == 0)
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
    clp_strbuf_init(&out, FILE_MAX_BYTES);
    put_lines(&out, lines, count);
    int r = clp_strbuf_error(&out);
    if (r == 0)
        r = replace_file(dir_fd, name, &out);
    clp_strbuf_done(&out);
    return r;
}

int clp_journal_add(struct clp_journal *j, int32_t pid, uint64_t start_ticks, uint64_t id)
{
    struct clp_strbuf out;
    if (!j)
        return 0;
    int r = CLP_VEC_GROW(j->lines, j->cap, j->count + 1, CLP_JOURNAL_SESSIONS_MAX);
    if (r < 0)
        return r;
    j->lines[j->count] = (struct line){.pid = pid, .start_ticks = start_ticks, .id = id};
    clp_strbuf_init(&out, FILE_MAX_BYTES);
    put_lines(&out, &j->lines[j->count++], 1);
    r = clp_strbuf_error(&out);
    if (r == 0)
        r = write_file(j->dir_fd, j->name, O_APPEND, &out);
    clp_strbuf_done(&out);
    return r;
}

int clp_journal_remove(struct clp_journal *j, int32_t pid, uint64_t start_ticks, uint64_t id)
{
    for (uint32_t i = 0; j && i < j->count; i++) {
        const struct line *l = &j->lines[i];
        if (l->pid != pid || l->start_ticks != start_ticks || l->id != id)
            continue;
        j->lines[i] = j->lines[--j->count];
        return write_lines(j->dir_fd, j->name, j->lines, j->count);
    }
    return 0;
}

int clp_journal_open(const char *folder, struct clp_journal **ret)
{
    uint64_t start;
    int r = start_of(getpid(), &start);
    if (r == 0)
        r = clp_file_mkdir_p(folder, 0700);
    if (r < 0)
        return r;
    struct clp_journal *j = calloc(1, sizeof(*j));
    if (!j)
        return -ENOMEM;
    j->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (j->dir_fd < 0) {
        r = -errno;
        free(j);
        return r;
    }
    snprintf(j->name, sizeof(j->name), "sessions.%d.%" PRIu64, getpid(), start);
    *ret = j;
    return 0;
}

struct clp_journal *clp_journal_close(struct clp_journal *j)
{
    if (!j)
        return NULL;
    (void)!write_lines(j->dir_fd, j->name, NULL, 0);
    (void)close(j->dir_fd);
    free(j->lines);
    free(j);
    return NULL;
}

/* ---- those left behind --------------------------------------------------------------------- */

/* Whether the session is over now, one way or the other. */
static bool stop_line(const struct line *l, int *stopped)
{
    struct clp_dotnet d;
    if (clp_dotnet_open(&clp_discover_system, l->pid, &d) < 0)
        return true;
    bool same = d.start_ticks == l->start_ticks;
    bool over = !same;
    if (same && d.state == CLP_DOTNET_PORT)
        clp_dotnet_ask(&d, 1, ASK_NS);
    if (same && d.state == CLP_DOTNET_READY) {
        struct clp_stream_port port = clp_stream_port_of(&d);
        over = clp_stream_stop_left(&port, l->id, CLP_STREAM_STOP_NS) == 0;
        *stopped += over;
    } else if (same) {
        over = d.state == CLP_DOTNET_STALE;
    }
    clp_dotnet_done(&d);
    return over;
}

static int recover_text(struct clp_journal *j, const char *name, const char *text)
{
    struct line left[64]; /* those that do not answer; more than that are given up */
    uint32_t left_count = 0;
    int stopped = 0;
    struct line l;
    for (const char *at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (sscanf(at, "%" SCNd32 " %" SCNu64 " %" SCNu64, &l.pid, &l.start_ticks, &l.id) == 3 &&
            l.pid > 0 && !stop_line(&l, &stopped) && left_count < CLP_ARRAY_LEN(left))
            left[left_count++] = l;
    (void)!write_lines(j->dir_fd, name, left, left_count);
    return stopped;
}

static bool is_left_behind(const struct clp_journal *j, const char *name)
{
    int32_t pid;
    uint64_t start, now;
    char end;
    if (strcmp(name, j->name) == 0)
        return false;
    if (sscanf(name, "sessions.%" SCNd32 ".%" SCNu64 "%c", &pid, &start, &end) != 2)
        return false;
    int r = start_of(pid, &now);
    return r == -ESRCH || (r == 0 && now != start);
}

int clp_journal_recover(struct clp_journal *j)
{
    int stopped = 0;
    CLP_CLEANUP(clp_cleanup_dir) DIR *dir = clp_file_list(j->dir_fd);
    if (!dir)
        return -errno;
    for (const struct dirent *e; (e = readdir(dir));) {
        CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
        if (!is_left_behind(j, e->d_name) ||
            clp_file_read_at(j->dir_fd, e->d_name, FILE_MAX_BYTES, &text, NULL) < 0)
            continue;
        stopped += recover_text(j, e->d_name, text);
    }
    return stopped;
}

int clp_journal_user_folder(char *ret, size_t cap)
{
    struct stat st;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int n = runtime && *runtime == '/' ? snprintf(ret, cap, "%s/clrpulse", runtime)
                                       : snprintf(ret, cap, "/tmp/clrpulse-%u", geteuid());
    if (n < 0 || (size_t)n >= cap)
        return -ENAMETOOLONG;
    if (lstat(ret, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
        return -EPERM;
    return 0;
}
