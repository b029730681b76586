/* Kind `directory`: one file for each kind of sample, for people and scripts. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "uploader/intake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DIRECTORY_MODE 0750
#define FILE_MODE 0640

static int directory_open(struct clp_intake *in, const char **ret_why)
{
    *ret_why = "kind directory needs a path";
    if (!in->upload.path || !*in->upload.path)
        return -EINVAL;
    in->where = strdup(in->upload.path);
    return in->where ? 0 : -ENOMEM;
}

static int directory_build(const struct clp_intake *in, const struct clp_chunk *c,
                           const struct clp_profile *p, struct clp_requests *ret)
{
    const struct clp_reshape how = {.all_labels = true};
    return clp_series_build(in, c, p, CLP_SPELLING_OWN, &how, NULL, ret); /* named when stored */
}

/* SERVICE-PID-KIND-TIME-SEQ.pb.gz: at most 64 + 32 bytes of names, so it fits every file system. */
static void file_name(const struct clp_upload_header *h, const char *part, struct clp_strbuf *b)
{
    char service[64], kind[32], when[CLP_CLOCK_UTC_BYTES];
    clp_strbuf_printf(b, "%s-%d-%s-%s-%llu.pb.gz",
                      clp_upload_plain_name(h->service, service, sizeof(service)), h->pid,
                      clp_upload_plain_name(part, kind, sizeof(kind)),
                      clp_clock_utc_compact(h->start_unix_ns, when), (unsigned long long)h->seq);
}

static int write_file(const char *path, const char *name, const struct clp_request *request)
{
    /* Each time anew: somebody may have tidied the directory away, or mounted another one. */
    int r = clp_file_mkdir_p(path, DIRECTORY_MODE);
    if (r < 0)
        return r;
    CLP_CLEANUP(clp_cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return clp_file_write_at(fd, name, request->body, request->len, FILE_MODE);
}

static int directory_store(const struct clp_intake *in, const struct clp_chunk *c,
                           const struct clp_request *request, struct clp_upload_result *ret)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf name;
    clp_strbuf_init(&name, NAME_MAX);
    file_name(&c->header, request->part, &name);
    int r = clp_strbuf_error(&name);
    if (r == 0)
        r = write_file(in->upload.path, name.buf, request);
    if (r == 0) {
        ret->outcome = CLP_OUTCOME_DONE;
        clp_upload_say(ret, "%s/%s", in->upload.path, name.buf);
        return 0;
    }
    ret->outcome =
        CLP_OUTCOME_LATER; /* a full or read-only disk, missing rights: all can be mended */
    clp_upload_say(ret, "cannot write %s in %s: %s", clp_strbuf_text(&name), in->upload.path,
                   strerror(-r));
    return r;
}

const struct clp_intake_kind clp_intake_directory = {
    .name = "directory",
    .is_files = true,
    .open = directory_open,
    .build = directory_build,
    .store = directory_store,
};
