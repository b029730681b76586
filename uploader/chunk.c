#include "uploader/chunk.h"

#include "base/core/bytes.h"
#include "base/core/text.h"
#include "uploader/chunk.pb-c.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TEXT_MAX_BYTES 1024u

/* As it lies in the file; written field by field, so the layout is only pinned here. */
struct prefix {
    uint8_t magic[8];
    uint32_t version, header_len;
    uint64_t profile_len;
    uint32_t content_crc, prefix_crc;
};
static_assert(sizeof(struct prefix) == CLP_CHUNK_PREFIX_BYTES, "docs/spool.md draws it");
static_assert(offsetof(struct prefix, profile_len) == 16, "docs/spool.md draws it");
static_assert(offsetof(struct prefix, content_crc) == 24, "docs/spool.md draws it");

static uint32_t checksum(const void *data, size_t len)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), data, len);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Texts are made valid here, once, so that everything behind the spool may rely on it. */
static char *clean(const char *text, char **at)
{
    struct clp_text t = clp_text_in(*at, TEXT_MAX_BYTES);
    char *start = *at;
    clp_text_utf8_clean(&t, text ? text : "", text ? strnlen(text, TEXT_MAX_BYTES) : 0);
    *at += t.len + 1;
    return start;
}

static void fill_header(ClpChunk__Header *m, const struct clp_upload_header *h, char *texts,
                        char **tags)
{
    m->service = clean(h->service, &texts);
    m->env = clean(h->env, &texts);
    m->version = clean(h->version, &texts);
    m->host = clean(h->host, &texts);
    m->runtime_id = clean(h->runtime_id, &texts);
    m->runtime_version = clean(h->runtime_version, &texts);
    m->container_id = clean(h->container_id, &texts);
    for (size_t i = 0; i < h->tag_count; i++)
        tags[i] = clean(h->tags[i], &texts);
    m->n_tag = h->tag_count;
    m->tag = tags;
    m->pid = h->pid;
    m->ns_pid = h->ns_pid;
    m->seq = h->seq;
    m->start_unix_ns = h->start_unix_ns;
    m->duration_ns = h->duration_ns;
    m->cgroup_inode = h->cgroup_inode;
}

static uint8_t *assemble(const ClpChunk__Header *m, const void *profile, size_t len,
                         size_t header_len)
{
    uint8_t *data = malloc(CLP_CHUNK_PREFIX_BYTES + header_len + len);
    if (!data)
        return NULL;
    uint8_t *body = data + CLP_CHUNK_PREFIX_BYTES;
    (void)clp_chunk__header__pack(m, body);
    memcpy(body + header_len, profile, len);
    struct prefix p = {.version = htole32(CLP_CHUNK_VERSION),
                       .header_len = htole32((uint32_t)header_len),
                       .profile_len = htole64(len),
                       .content_crc = htole32(checksum(body, header_len + len))};
    memcpy(p.magic, CLP_CHUNK_MAGIC, sizeof(p.magic));
    p.prefix_crc = htole32(checksum(&p, offsetof(struct prefix, prefix_crc)));
    memcpy(data, &p, sizeof(p));
    return data;
}

int clp_chunk_write(const struct clp_upload_header *h, const void *profile, size_t len,
                    uint8_t **ret, size_t *ret_len)
{
    char *tags[CLP_UPLOAD_TAGS_MAX];
    ClpChunk__Header m = CLP_CHUNK__HEADER__INIT;
    if (len > CLP_CHUNK_PROFILE_MAX_BYTES || h->tag_count > CLP_UPLOAD_TAGS_MAX)
        return -EFBIG;
    char *texts = malloc((7 + h->tag_count) * TEXT_MAX_BYTES);
    if (!texts)
        return -ENOMEM;
    fill_header(&m, h, texts, tags);
    size_t header_len = clp_chunk__header__get_packed_size(&m);
    int r = -EFBIG;
    if (header_len <= CLP_CHUNK_HEADER_MAX_BYTES) {
        uint8_t *data = assemble(&m, profile, len, header_len);
        r = data ? 0 : -ENOMEM;
        if (data) {
            *ret = data;
            *ret_len = CLP_CHUNK_PREFIX_BYTES + header_len + len;
        }
    }
    free(texts);
    return r;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *check(const uint8_t *data, size_t len, uint32_t *ret_header_len)
{
    struct clp_bytes b = clp_bytes_of(data, len);
    const uint8_t *magic = clp_bytes_take(&b, 8);
    if (!magic || memcmp(magic, CLP_CHUNK_MAGIC, 8) != 0)
        return "it is no chunk of clrpulse";
    uint32_t version = clp_bytes_u32(&b), header_len = clp_bytes_u32(&b);
    uint64_t profile_len = clp_bytes_u64(&b);
    uint32_t content_crc = clp_bytes_u32(&b), prefix_crc = clp_bytes_u32(&b);
    if (b.bad || prefix_crc != checksum(data, 28))
        return "its first bytes are damaged";
    if (version != CLP_CHUNK_VERSION)
        return "it is of another version of clrpulse";
    if (header_len > CLP_CHUNK_HEADER_MAX_BYTES || profile_len > CLP_CHUNK_PROFILE_MAX_BYTES ||
        clp_bytes_left(&b) != header_len + profile_len)
        return "it is cut short, or longer than it says";
    if (content_crc != checksum(b.at, header_len + (size_t)profile_len))
        return "its contents do not match their checksum";
    *ret_header_len = header_len;
    return NULL;
}

static void take_header(struct clp_upload_header *h, const ClpChunk__Header *m)
{
    *h = (struct clp_upload_header){
        .service = m->service,
        .env = m->env,
        .version = m->version,
        .host = m->host,
        .runtime_id = m->runtime_id,
        .runtime_version = m->runtime_version,
        .container_id = m->container_id,
        .tags = (const char *const *)m->tag,
        .tag_count = CLP_MIN(m->n_tag, (size_t)CLP_UPLOAD_TAGS_MAX),
        .pid = m->pid,
        .ns_pid = m->ns_pid,
        .seq = m->seq,
        .start_unix_ns = m->start_unix_ns,
        .duration_ns = m->duration_ns,
        .cgroup_inode = m->cgroup_inode,
    };
}

int clp_chunk_read(const void *data, size_t len, struct clp_chunk *ret, const char **ret_why)
{
    uint32_t header_len = 0;
    const uint8_t *bytes = data;
    const char *why = check(bytes, len, &header_len);
    ClpChunk__Header *m = NULL;
    if (!why) {
        bytes += CLP_CHUNK_PREFIX_BYTES;
        m = clp_chunk__header__unpack(NULL, header_len, bytes);
        if (!m)
            why = "its header cannot be read";
    }
    if (why) {
        if (ret_why)
            *ret_why = why;
        return -EBADMSG;
    }
    *ret = (struct clp_chunk){.profile = bytes + header_len,
                              .profile_len = len - CLP_CHUNK_PREFIX_BYTES - header_len,
                              .own = m};
    take_header(&ret->header, m);
    return 0;
}

void clp_chunk_done(struct clp_chunk *c)
{
    if (c->own)
        clp_chunk__header__free_unpacked(c->own, NULL);
    *c = (struct clp_chunk){.own = NULL};
}
