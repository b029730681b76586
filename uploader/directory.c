/* Kind `directory`: one file for each profile, for people and scripts. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "uploader/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DIRECTORY_MODE 0750
#define FILE_MODE 0640

struct directory {
    struct clp_uploader base;
    char *path;
};

static int directory_open(const struct clp_upload *u, struct clp_uploader **ret,
                          const char **ret_why)
{
    if (!u->path || !*u->path) {
        *ret_why = "kind directory needs a path";
        return -EINVAL;
    }
    struct directory *d = calloc(1, sizeof(*d));
    char *path = strdup(u->path);
    if (!d || !path) {
        free(d);
        free(path);
        return -ENOMEM;
    }
    d->path = path;
    *ret = &d->base;
    return 0;
}

static void directory_close(struct clp_uploader *up)
{
    struct directory *d = (struct directory *)up;
    free(d->path);
    free(d);
}

/* SERVICE-PID-KIND-TIME-SEQ.pb.gz: at most 64 + 32 bytes of names, so it fits every file system. */
static void file_name(const struct clp_upload_item *item, struct clp_strbuf *b)
{
    char service[64], kind[32], when[CLP_CLOCK_UTC_BYTES];
    clp_strbuf_printf(
        b, "%s-%d-%s-%s-%llu.pb.gz", clp_upload_plain_name(item->service, service, sizeof(service)),
        item->pid, clp_upload_plain_name(item->kind, kind, sizeof(kind)),
        clp_clock_utc_compact(item->start_unix_ns, when), (unsigned long long)item->seq);
}

static int write_file(const char *path, const char *name, const struct clp_upload_item *item)
{
    /* Each time anew: somebody may have tidied the directory away, or mounted another one. */
    int r = clp_file_mkdir_p(path, DIRECTORY_MODE);
    if (r < 0)
        return r;
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return clp_file_write_at(fd, name, item->data, item->len, FILE_MODE);
}

static int directory_send(struct clp_uploader *up, const struct clp_upload_item *item,
                          struct clp_upload_result *ret)
{
    const struct directory *d = (const struct directory *)up;
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf name;
    clp_strbuf_init(&name, NAME_MAX);
    file_name(item, &name);
    int r = clp_strbuf_error(&name);
    if (r == 0)
        r = write_file(d->path, name.buf, item);
    if (r == 0) {
        clp_upload_say(ret, "%s/%s", d->path, name.buf);
        return 0;
    }
    ret->retry = CLP_RETRY_LATER; /* a full or read-only disk, missing rights: all can be mended */
    clp_upload_say(ret, "cannot write %s in %s: %s", clp_strbuf_text(&name), d->path, strerror(-r));
    return r;
}

const struct clp_backend clp_backend_directory = {
    .name = "directory",
    .open = directory_open,
    .close = directory_close,
    .send = directory_send,
};
