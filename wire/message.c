#include "wire/message.h"

#include "base/core/text.h"

#include <errno.h>
#include <string.h>

static const uint32_t sizes[CLP_MSG_TYPE_COUNT] = {
    [CLP_MSG_HELLO] = sizeof(struct clp_msg_hello),
    [CLP_MSG_WELCOME] = sizeof(struct clp_msg_welcome),
    [CLP_MSG_SETTINGS] = sizeof(struct clp_msg_settings),
    [CLP_MSG_FLUSH] = sizeof(struct clp_msg_flush),
    [CLP_MSG_BYE] = sizeof(struct clp_msg),
    [CLP_MSG_REFUSED] = sizeof(struct clp_msg_refused),
    [CLP_MSG_RECOUNT] = sizeof(struct clp_msg),
};

int clp_msg_check(const void *buf, size_t len)
{
    const struct clp_msg *m = buf;
    if (len < sizeof(*m) || m->size != len || m->type == 0 || m->type >= CLP_MSG_TYPE_COUNT ||
        sizes[m->type] != len)
        return -EBADMSG;
    return m->type;
}

int clp_nonce_equal(const uint8_t a[CLP_NONCE_BYTES], const uint8_t b[CLP_NONCE_BYTES])
{
    uint8_t differ = 0;
    for (size_t i = 0; i < CLP_NONCE_BYTES; i++)
        differ |= (uint8_t)(a[i] ^ b[i]);
    return differ == 0;
}

int clp_msg_hello_check(const struct clp_msg_hello *hello,
                        const uint8_t library_nonce[CLP_NONCE_BYTES], char *ret_version,
                        size_t version_cap)
{
    if (hello->magic != CLP_WIRE_MAGIC || hello->version != CLP_WIRE_VERSION)
        return -EPROTO;
    if (!clp_nonce_equal(hello->library_nonce, library_nonce))
        return -EACCES;
    struct clp_text t = clp_text_in(ret_version, version_cap);
    clp_text_utf8_clean(&t, hello->library_version,
                        strnlen(hello->library_version, sizeof(hello->library_version)));
    return 0;
}

int clp_attach_data_check(const void *data, size_t len, struct clp_attach_data *ret)
{
    struct clp_attach_data d;
    if (!data || len != sizeof(d))
        return -EINVAL;
    memcpy(&d, data, sizeof(d));
    if (d.magic != CLP_WIRE_MAGIC || d.version != CLP_WIRE_VERSION || d.socket_path[0] != '/' ||
        !memchr(d.socket_path, 0, sizeof(d.socket_path)))
        return -EINVAL;
    *ret = d;
    return 0;
}

struct clp_settings clp_settings_clamp(const struct clp_settings *s)
{
    uint64_t interval = CLP_MAX(s->cpu_interval_ns, CLP_CPU_INTERVAL_MIN_NS);
    return (struct clp_settings){
        .sample_kinds = s->sample_kinds & CLP_SAMPLE_KINDS_ALL,
        .wall_budget_ppm = CLP_MIN(s->wall_budget_ppm, CLP_WALL_BUDGET_MAX_PPM),
        .flags = s->flags & CLP_SETTINGS_NATIVE_STACKS,
        .cpu_interval_ns = CLP_MIN(interval, CLP_CPU_INTERVAL_MAX_NS),
    };
}
