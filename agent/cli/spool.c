/* clrpulse spool: what waits for its uploads. Works beside a running agent: nothing here is locked,
 * the agent takes a file that is gone for one that was dropped by hand. */
#include "agent/cli/cli.h"

#include "agent/outbox.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "uploader/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING ".chunk"
#define FLUSH_NS (60 * CLP_NSEC_PER_SEC)

struct place {
    const char *path;
    int fd;
    struct dirent **names;
    int count;
};

static int fail(int code, const char *fmt, ...) CLP_PRINTF(2, 3);
static int fail(int code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    clp_vprint_sentence(fmt, args);
    va_end(args);
    return code;
}

static int is_chunk(const struct dirent *d)
{
    size_t n = strlen(d->d_name), e = strlen(ENDING);
    return n > e && strcmp(d->d_name + n - e, ENDING) == 0;
}

static int code_of(int error)
{
    bool denied = error == EACCES || error == EPERM || error == EROFS;
    return denied ? CLP_EXIT_PERMISSION : CLP_EXIT_FAILED;
}

static int cannot_open(const char *path, int error)
{
    return fail(code_of(error),
                "cannot read the spool %s: %s; name it with -d or in the configuration (spool.dir)",
                path, strerror(error));
}

static int open_place(struct place *p, const char *path)
{
    *p = (struct place){.path = path};
    p->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->fd < 0)
        return cannot_open(path, errno);
    p->count = scandirat(p->fd, ".", &p->names, is_chunk, alphasort);
    return p->count < 0 ? cannot_open(path, errno) : CLP_EXIT_DONE;
}

static void close_place(struct place *p)
{
    for (int i = 0; i < p->count; i++)
        free(p->names[i]);
    free(p->names);
    clp_cleanup_fd(&p->fd);
}

/* ---- one chunk ------------------------------------------------------------------------------- */

static int load(const struct place *p, const char *file, uint8_t **ret, struct clp_chunk *chunk,
                const char **ret_why)
{
    size_t len;
    int r = clp_file_read_at(p->fd, file, CLP_CHUNK_MAX_BYTES, (char **)ret, &len);
    if (r < 0) {
        *ret_why = strerror(-r);
        return r;
    }
    return clp_chunk_read(*ret, len, chunk, ret_why);
}

static void list_one(const struct place *p, const char *file)
{
    struct clp_chunk c = {.own = NULL};
    CLP_CLEANUP(clp_cleanup_free) uint8_t *bytes = NULL;
    const char *why = "";
    char when[CLP_CLOCK_UTC_BYTES];
    size_t name_len = strlen(file) - strlen(ENDING);
    if (load(p, file, &bytes, &c, &why) < 0) {
        printf("%-24s  %8s  %6s  %6s  ", "-", "-", "-", "-");
        clp_print_foreign(stdout, file, name_len);
        printf(" (%s)\n", why);
        return;
    }
    printf("%-24s  %8d  %6llu  %5zuK  ", clp_clock_utc(c.header.start_unix_ns, when), c.header.pid,
           (unsigned long long)c.header.seq, (c.profile_len + 1023) / 1024);
    clp_print_foreign(stdout, file, name_len);
    printf("  ");
    clp_print_foreign(stdout, c.header.service, SIZE_MAX);
    putchar('\n');
    clp_chunk_done(&c);
}

static int list(const struct place *p)
{
    printf("%-24s  %8s  %6s  %6s  NAME  SERVICE\n", "START", "PID", "SEQ", "SIZE");
    for (int i = 0; i < p->count; i++)
        list_one(p, p->names[i]->d_name);
    return CLP_EXIT_DONE;
}

/* "NAME" or "NAME.chunk"; whether it is in the spool. */
static bool find_file(const struct place *p, const char *word, char file[NAME_MAX + 1])
{
    size_t len = strlen(word), ending = strlen(ENDING);
    bool whole = len > ending && strcmp(word + len - ending, ENDING) == 0;
    (void)snprintf(file, NAME_MAX + 1, "%s%s", word, whole ? "" : ENDING);
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->names[i]->d_name, file) == 0)
            return true;
    return false;
}

static int no_such(const struct place *p, const char *word)
{
    return fail(CLP_EXIT_FAILED,
                "there is no profile %s in %s; `clrpulse spool ls` lists what is there", word,
                p->path);
}

static void show_field(const char *name, const char *value)
{
    if (!*value)
        return;
    printf("%-16s ", name);
    clp_print_foreign(stdout, value, SIZE_MAX);
    putchar('\n');
}

static void show_header(const struct clp_chunk *c)
{
    char when[CLP_CLOCK_UTC_BYTES];
    const struct clp_upload_header *h = &c->header;
    show_field("service", h->service);
    show_field("env", h->env);
    show_field("version", h->version);
    show_field("host", h->host);
    show_field("runtime id", h->runtime_id);
    show_field("runtime", h->runtime_version);
    show_field("container id", h->container_id);
    for (size_t i = 0; i < h->tag_count; i++)
        show_field("tag", h->tags[i]);
    printf("%-16s %d\n%-16s %llu\n", "pid", h->pid, "profile_seq", (unsigned long long)h->seq);
    printf("%-16s %s\n%-16s %.3f s\n", "start", clp_clock_utc(h->start_unix_ns, when), "duration",
           (double)h->duration_ns / 1e9);
    printf("%-16s %zu bytes of gzipped pprof\n", "profile", c->profile_len);
}

static void show_progress(const struct place *p, const char *file)
{
    char name[NAME_MAX + 8];
    CLP_CLEANUP(clp_cleanup_free) char *text = NULL;
    (void)snprintf(name, sizeof(name), "%.*s.sent", (int)(strlen(file) - strlen(ENDING)), file);
    if (clp_file_read_at(p->fd, name, 65536, &text, NULL) < 0)
        return;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        show_field("sent", line);
    }
}

static int show(const struct place *p, const struct clp_cli *cli)
{
    char file[NAME_MAX + 1];
    struct clp_chunk c = {.own = NULL};
    CLP_CLEANUP(clp_cleanup_free) uint8_t *bytes = NULL;
    const char *why = "";
    int r = 0;
    if (!find_file(p, cli->words[1], file))
        return no_such(p, cli->words[1]);
    if (load(p, file, &bytes, &c, &why) < 0)
        return fail(CLP_EXIT_FAILED, "%s cannot be read: %s", file, why);
    if (cli->spool_output)
        r = clp_file_write(cli->spool_output, c.profile, c.profile_len, 0640);
    else {
        show_header(&c);
        show_progress(p, file);
    }
    clp_chunk_done(&c);
    return r < 0 ? fail(CLP_EXIT_FAILED, "cannot write %s: %s", cli->spool_output, strerror(-r))
                 : CLP_EXIT_DONE;
}

/* ---- drop ------------------------------------------------------------------------------------ */

static int drop_file(const struct place *p, const char *file)
{
    char sent[NAME_MAX + 8];
    if (unlinkat(p->fd, file, 0) < 0 && errno != ENOENT)
        return -errno;
    (void)snprintf(sent, sizeof(sent), "%.*s.sent", (int)(strlen(file) - strlen(ENDING)), file);
    (void)unlinkat(p->fd, sent, 0);
    return 0;
}

static int dropped(const char *file, int r)
{
    return r < 0 ? fail(code_of(-r), "cannot remove %s: %s", file, strerror(-r)) : CLP_EXIT_DONE;
}

/* The first that cannot be removed is named: all others may have the same reason. */
static int drop_all(const struct place *p)
{
    int code = CLP_EXIT_DONE, failed = 0;
    for (int i = 0; i < p->count; i++) {
        const char *file = p->names[i]->d_name;
        int r = drop_file(p, file);
        if (r < 0 && failed++ == 0)
            code = dropped(file, r);
    }
    printf("%d dropped\n", p->count - failed);
    return failed > 1 ? fail(code, "%d others cannot be removed either", failed - 1) : code;
}

static int drop(const struct place *p, const struct clp_cli *cli)
{
    char file[NAME_MAX + 1];
    if (cli->spool_all)
        return drop_all(p);
    if (!find_file(p, cli->words[1], file))
        return no_such(p, cli->words[1]);
    return dropped(file, drop_file(p, file));
}

/* ---- flush ----------------------------------------------------------------------------------- */

static bool agent_runs(const struct place *p)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(p->fd, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static int ask_agent(const struct place *p)
{
    CLP_CLEANUP(clp_cleanup_fd)
    int fd = openat(p->fd, "flush", O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    if (fd < 0)
        return fail(code_of(errno), "cannot ask the agent in %s: %s", p->path, strerror(errno));
    printf("the running agent tries now; `clrpulse status` tells how it went\n");
    return CLP_EXIT_DONE;
}

/* No agent runs: this process is one for a minute. */
static int send_now(const struct place *p, const struct clp_config *config)
{
    char path[4200], why[512];
    struct clp_upload uploads[CLP_CONFIG_UPLOADS_MAX];
    struct clp_delivery *d = NULL;
    size_t count = clp_outbox_uploads(config, path, sizeof(path), uploads);
    struct clp_delivery_config c = clp_outbox_delivery_config(config, uploads, count);
    c.spool_dir = p->path;
    c.needs_spool = true;
    if (clp_uploader_setup() < 0)
        return fail(CLP_EXIT_FAILED, "out of memory");
    int r = clp_delivery_start(&c, &d, why, sizeof(why));
    if (r < 0) {
        clp_uploader_teardown();
        return fail(code_of(-r), "%s", why);
    }
    uint64_t until_ns = clp_clock_monotonic_ns() + FLUSH_NS;
    uint64_t left = clp_delivery_wait(d, until_ns);
    clp_delivery_stop(d, 0, NULL);
    clp_uploader_teardown();
    if (left)
        return fail(CLP_EXIT_FAILED, "%llu profiles could not be delivered and stay in %s",
                    (unsigned long long)left, p->path);
    printf("nothing is left in the spool\n");
    return CLP_EXIT_DONE;
}

/* ---- command --------------------------------------------------------------------------------- */

static int act(const struct place *p, const struct clp_config *config, const struct clp_cli *cli)
{
    switch (cli->words[0][0]) {
    case 'l':
        return list(p);
    case 's':
        return show(p, cli);
    case 'd':
        return drop(p, cli);
    default:
        return agent_runs(p) ? ask_agent(p) : send_now(p, config);
    }
}

/* NULL when the words make sense. */
static const char *check_words(const struct clp_cli *cli)
{
    static const char *const verbs[] = {"ls", "show", "flush", "drop"};
    const char *verb = cli->word_count ? cli->words[0] : "";
    bool known = false;
    for (size_t i = 0; i < CLP_ARRAY_LEN(verbs); i++)
        known |= strcmp(verbs[i], verb) == 0;
    if (!known)
        return "say what: clrpulse spool ls, show NAME, flush or drop NAME";
    bool named = strcmp(verb, "show") == 0 || (strcmp(verb, "drop") == 0 && !cli->spool_all);
    if (named && cli->word_count < 2)
        return "say which: `clrpulse spool ls` lists the names (drop also takes --all)";
    if (!named && cli->word_count > 1)
        return "there is a word too many; see `clrpulse spool --help`";
    return NULL;
}

int clp_command_spool(const struct clp_cli *cli)
{
    struct clp_config config;
    struct clp_config_error error = {""};
    struct place place;
    const char *wrong = check_words(cli);
    if (wrong)
        return fail(CLP_EXIT_USE, "%s", wrong);
    int r = clp_read_settings(&config, cli->spool_config, NULL, NULL, &error);
    int code = r < 0 ? fail(CLP_EXIT_USE, "%s", error.text)
                     : open_place(&place, cli->spool_dir ? cli->spool_dir : config.spool_dir);
    if (r == 0) {
        if (code == CLP_EXIT_DONE)
            code = act(&place, &config, cli);
        close_place(&place);
    }
    clp_config_done(&config);
    return code;
}
