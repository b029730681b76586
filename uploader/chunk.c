#include "uploader/chunk.h"

#include "base/core/bytes.h"
#include "base/core/text.h"
#include "uploader/chunk.pb-c.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TEXT_MAX_BYTES 1024u
#define NAME_MAX_BYTES 256u
#define TEXTS 7u

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
static char *clean_to(const char *text, size_t most, char **at)
{
    struct clp_text t = clp_text_in(*at, most);
    char *start = *at;
    clp_text_utf8_clean(&t, text ? text : "", text ? strnlen(text, most) : 0);
    *at += t.len + 1;
    return start;
}

static char *clean(const char *text, char **at)
{
    return clean_to(text, TEXT_MAX_BYTES, at);
}

struct numbers {
    ClpChunk__Number items[CLP_UPLOAD_NUMBERS_MAX], *at[CLP_UPLOAD_NUMBERS_MAX];
};

static size_t fill_numbers(struct numbers *n, const struct clp_upload_number *from, size_t count,
                           char **texts)
{
    size_t kept = 0;
    for (size_t i = 0; i < CLP_MIN(count, (size_t)CLP_UPLOAD_NUMBERS_MAX); i++) {
        if (!isfinite(from[i].value))
            continue;
        clp_chunk__number__init(&n->items[kept]);
        n->items[kept].name = clean_to(from[i].name, NAME_MAX_BYTES, texts);
        n->items[kept].value = from[i].value;
        n->at[kept] = &n->items[kept];
        kept++;
    }
    return kept;
}

/* Room for all that a header may hold, while it is packed. */
struct room {
    struct numbers endpoints;
    char *tags[CLP_UPLOAD_TAGS_MAX];
    char texts[(TEXTS + CLP_UPLOAD_TAGS_MAX) * TEXT_MAX_BYTES +
               CLP_UPLOAD_NUMBERS_MAX * NAME_MAX_BYTES];
};

static void fill_header(ClpChunk__Header *m, const struct clp_upload_header *h, struct room *room)
{
    char *texts = room->texts, **tags = room->tags;
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
    m->n_endpoint = fill_numbers(&room->endpoints, h->endpoints, h->endpoint_count, &texts);
    m->endpoint = room->endpoints.at;
}

/* What is said beside it gives way first, then tags from the end: no profile is lost for that. */
static size_t shrink_to_fit(ClpChunk__Header *m)
{
    size_t len;
    while ((len = clp_chunk__header__get_packed_size(m)) > CLP_CHUNK_HEADER_MAX_BYTES) {
        if (m->n_endpoint)
            m->n_endpoint = 0;
        else if (m->n_tag)
            m->n_tag--;
        else
            break;
    }
    return len;
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
    ClpChunk__Header m = CLP_CHUNK__HEADER__INIT;
    if (len > CLP_CHUNK_PROFILE_MAX_BYTES || h->tag_count > CLP_UPLOAD_TAGS_MAX)
        return -EFBIG;
    struct room *room = malloc(sizeof(*room));
    if (!room)
        return -ENOMEM;
    fill_header(&m, h, room);
    size_t header_len = shrink_to_fit(&m);
    int r = -EFBIG;
    if (header_len <= CLP_CHUNK_HEADER_MAX_BYTES) {
        uint8_t *data = assemble(&m, profile, len, header_len);
        r = data ? 0 : -ENOMEM;
        if (data) {
            *ret = data;
            *ret_len = CLP_CHUNK_PREFIX_BYTES + header_len + len;
        }
    }
    free(room);
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

/* What a chunk owns: the message, and its numbers as the header has them. */
struct own {
    ClpChunk__Header *message;
    struct clp_upload_number endpoints[CLP_UPLOAD_NUMBERS_MAX];
};

static size_t take_numbers(struct clp_upload_number *to, ClpChunk__Number *const *from,
                           size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < CLP_MIN(count, (size_t)CLP_UPLOAD_NUMBERS_MAX); i++)
        if (isfinite(from[i]->value))
            to[kept++] = (struct clp_upload_number){from[i]->name, from[i]->value};
    return kept;
}

static void take_header(struct clp_upload_header *h, struct own *own)
{
    const ClpChunk__Header *m = own->message;
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
        .endpoints = own->endpoints,
        .endpoint_count = take_numbers(own->endpoints, m->endpoint, m->n_endpoint),
    };
}

int clp_chunk_read(const void *data, size_t len, struct clp_chunk *ret, const char **ret_why)
{
    uint32_t header_len = 0;
    const uint8_t *bytes = data;
    const char *why = check(bytes, len, &header_len);
    struct own *own = why ? NULL : calloc(1, sizeof(*own));
    if (!why && !own)
        return -ENOMEM;
    if (!why) {
        bytes += CLP_CHUNK_PREFIX_BYTES;
        own->message = clp_chunk__header__unpack(NULL, header_len, bytes);
        if (!own->message)
            why = "its header cannot be read";
    }
    if (why) {
        free(own);
        if (ret_why)
            *ret_why = why;
        return -EBADMSG;
    }
    *ret = (struct clp_chunk){.profile = bytes + header_len,
                              .profile_len = len - CLP_CHUNK_PREFIX_BYTES - header_len,
                              .own = own};
    take_header(&ret->header, own);
    return 0;
}

void clp_chunk_done(struct clp_chunk *c)
{
    struct own *own = c->own;
    if (own)
        clp_chunk__header__free_unpacked(own->message, NULL);
    free(own);
    *c = (struct clp_chunk){.own = NULL};
}
