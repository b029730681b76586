#include "sampler/inproc/bodies.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/code_add.h"
#include "sampler/inproc/code_events.h"
#include "sampler/inproc/code_learn.h"
#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/filters.h"
#include "sampler/inproc/gate.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/pe_images.h"

#include <errno.h>
#include <string.h>

#define NOTHING_ENTRIES 512u
#define ABSENT_ENTRIES 1024u
#define NOTHING_NS CLP_NSEC_PER_SEC

/* Addresses that were asked late in vain: stubs, copied helpers. Loop thread. */
static struct {
    uint64_t ip, until_ns;
} nothing[NOTHING_ENTRIES];

/* Addresses that no code of ours covers: most native frames. Loop thread. */
static struct {
    uint64_t ip;
    uint32_t version;
} absent[ABSENT_ENTRIES];

int clp_bodies_init(void)
{
    int r = clp_code_table_init();
    if (r < 0)
        return r;
    clp_code_events_init();
    memset(nothing, 0, sizeof(nothing));
    memset(absent, 0, sizeof(absent));
    if ((r = clp_modules_init()) < 0 || (r = clp_pe_images_init()) < 0)
        clp_bodies_done();
    return r;
}

void clp_bodies_done(void)
{
    clp_modules_done(true);
    clp_pe_images_done();
    clp_names_done();
    clp_code_table_done();
}

/* ---- lookup -------------------------------------------------------------------------------- */

/* Fills *ret. Returns false when the frame is still to be decoded, or no wire number is left. */
static bool fill_locked(uint32_t number, struct clp_code *ret)
{
    const struct clp_body *b = clp_code_table_body_locked(number);
    ret->kind = CLP_CODE_MANAGED;
    ret->id = clp_code_table_body_wire_id_locked(number);
    ret->method_key = clp_code_table_method_wire_id_locked(b->method);
    ret->start = b->start;
    ret->end = b->start + b->code_bytes;
    ret->native = NULL;
    clp_code_table_body_get_frame(b, &ret->frame);
    return (b->state & CLP_BODY_STATE_DECODED) && ret->id && ret->method_key;
}

/* A body that cannot unload, at its first sight in a sample. */
static bool decode(uint32_t number, struct clp_code *ret)
{
    if (!ret->id || !ret->method_key)
        return false;
    clp_code_decode(ret->start, (uint32_t)(ret->end - ret->start), &ret->frame);
    clp_code_lock();
    clp_code_table_body_set_frame_locked(number, &ret->frame);
    clp_code_unlock();
    return true;
}

/* The method to make sure of before its name is used for a sample of this time; 0 = none. */
static uint32_t suspect_locked(uint32_t number, uint64_t time_ns)
{
    const struct clp_body *b = clp_code_table_body_locked(number);
    if ((b->state & (CLP_BODY_STATE_UNSURE | CLP_BODY_STATE_DEAD)) != CLP_BODY_STATE_UNSURE)
        return 0;
    uint64_t since_ns = clp_code_table_suspect_ns_locked(b->method);
    return since_ns && time_ns >= since_ns ? b->method : 0;
}

static size_t absent_place(uint64_t ip)
{
    return (ip * 0x9e3779b97f4a7c15ull) >> 54;
}

static bool is_absent(uint64_t ip)
{
    size_t at = absent_place(ip);
    return absent[at].ip == ip && absent[at].version == clp_code_table_version(ip);
}

/* `version` is from before the search. */
static void note_absent(uint64_t ip, uint32_t version)
{
    size_t at = absent_place(ip);
    clp_code_lock();
    bool covered = clp_code_table_covered_locked(ip);
    clp_code_unlock();
    if (covered)
        return;
    absent[at].ip = ip;
    absent[at].version = version;
}

static bool find_in_table(uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    struct clp_code code;
    clp_code_lock();
    uint32_t number = clp_code_table_find_locked(ip, time_ns);
    uint32_t suspect = number ? suspect_locked(number, time_ns) : 0;
    bool ready = number && fill_locked(number, &code);
    clp_code_unlock();
    if (!number || (suspect && !clp_code_confirm(suspect, ip, time_ns)) ||
        (!ready && !decode(number, &code)))
        return false;
    *ret = code;
    return true;
}

/* One body for each RUNTIME_FUNCTION: the main part, a cold part and each funclet of a method. */
static bool add_precompiled(uint64_t ip, uint64_t time_ns, uint64_t base,
                            const struct clp_r2r_function *f, struct clp_code *ret)
{
    clr_function_id function;
    uint32_t method = clp_code_method_at(ip, &function);
    clp_code_lock();
    if (!method || !clp_code_is_method_locked(method, function))
        method = clp_code_table_method_add_locked(0, 0, 0);
    uint32_t body = 0;
    if (method)
        body = clp_code_table_body_add_locked(method, base + f->start_rva,
                                              f->end_rva - f->start_rva, 0, CLP_BODY_STATE_R2R);
    if (body)
        clp_code_table_body_set_frame_locked(body, &f->frame);
    clp_code_unlock();
    return find_in_table(ip, time_ns, ret);
}

bool clp_bodies_find(uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    struct clp_r2r_function f;
    uint64_t base;
    if (is_absent(ip))
        return false;
    uint32_t version = clp_code_table_version(ip);
    if (find_in_table(ip, time_ns, ret))
        return true;
    switch (clp_pe_images_find(ip, &base, &f)) {
    case CLP_PE_FUNCTION:
        return add_precompiled(ip, time_ns, base, &f, ret);
    case CLP_PE_OTHER:
        *ret = (struct clp_code){.kind = CLP_CODE_STUB};
        return true;
    default:
        note_absent(ip, version);
        return false;
    }
}

bool clp_bodies_find_late(uint64_t ip, uint64_t time_ns, struct clp_code *ret)
{
    size_t at = (ip * 0x9e3779b97f4a7c15ull) >> 55;
    uint64_t now = clp_clock_monotonic_ns();
    if (nothing[at].ip == ip && now < nothing[at].until_ns)
        return false;
    if (clp_pe_images_discover(ip))
        return clp_bodies_find(ip, time_ns, ret);
    int r = clp_code_learn_at(ip, time_ns);
    if (r == 0 && find_in_table(ip, time_ns, ret))
        return true;
    if (r != -EAGAIN) {
        nothing[at].ip = ip;
        nothing[at].until_ns = now + NOTHING_NS;
    }
    return false;
}

void clp_bodies_prepare(void)
{
    clp_pe_images_prepare("System.Private.CoreLib.dll");
}

bool clp_bodies_in_filter(uint32_t body_id, uint64_t ip)
{
    clr_function_id function = 0;
    clp_gate_enter(CLP_GATE_MODULES | CLP_GATE_DYNAMIC);
    clp_code_lock();
    uint32_t number = clp_code_table_body_of_wire_locked(body_id);
    const struct clp_body *b = number ? clp_code_table_body_locked(number) : NULL;
    if (b && b->death_ns == CLP_ALIVE_NS && !clp_code_table_suspect_ns_locked(b->method))
        function = clp_code_table_method_locked(b->method)->function;
    clp_code_unlock();
    bool in_filter = function && clp_filters_hold(function, ip);
    clp_gate_leave();
    return in_filter;
}

/* ---- records ------------------------------------------------------------------------------- */

int clp_bodies_body_record(uint32_t body_id, struct clp_rec_body *ret)
{
    clp_code_lock();
    uint32_t number = clp_code_table_body_of_wire_locked(body_id);
    if (number) {
        const struct clp_body *b = clp_code_table_body_locked(number);
        struct clp_managed_frame frame;
        clp_code_table_body_get_frame(b, &frame);
        *ret = (struct clp_rec_body){.rec = {.size = sizeof(*ret), .type = CLP_REC_BODY},
                                     .body_id = body_id,
                                     .method_id = clp_code_table_method_wire_id_locked(b->method),
                                     .start = b->start,
                                     .code_bytes = b->code_bytes};
        ret->flags =
            (b->state & CLP_BODY_STATE_R2R ? CLP_BODY_R2R : 0) | (frame.osr ? CLP_BODY_OSR : 0);
    }
    clp_code_unlock();
    return number ? (int)sizeof(*ret) : -ENOENT;
}

static uint16_t put_text(uint8_t **at, const struct clp_string *s)
{
    if (!s)
        return 0;
    memcpy(*at, s->text, s->len);
    *at += s->len;
    return s->len;
}

static size_t texts_bytes(const struct clp_method_name *n)
{
    const struct clp_string *texts[] = {n->type, n->name, n->type_args, n->method_args,
                                        n->signature};
    size_t sum = 0;
    for (size_t i = 0; i < CLP_ARRAY_LEN(texts); i++)
        sum += texts[i] ? texts[i]->len : 0;
    return sum;
}

static int method_record_locked(uint32_t method_id, uint32_t number, void *buf, size_t cap)
{
    static const struct clp_method_name nameless;
    const struct clp_method_name *n =
        clp_code_table_name_locked(clp_code_table_method_locked(number));
    if (!n)
        n = &nameless;
    size_t size = CLP_ALIGN_UP(sizeof(struct clp_rec_method) + texts_bytes(n), 8);
    if (size > cap)
        return -ENOSPC;
    memset(buf, 0, size);
    struct clp_rec_method *r = buf;
    uint8_t *at = (uint8_t *)(r + 1);
    r->rec = (struct clp_rec){.size = (uint32_t)size, .type = CLP_REC_METHOD};
    r->method_id = method_id;
    r->image_id = clp_modules_image_id_locked(n->module);
    r->token = n->token;
    r->flags = n->flags;
    r->type_len = put_text(&at, n->type);
    r->name_len = put_text(&at, n->name);
    r->type_args_len = put_text(&at, n->type_args);
    r->method_args_len = put_text(&at, n->method_args);
    r->signature_len = put_text(&at, n->signature);
    return (int)size;
}

int clp_bodies_method_record(uint32_t method_id, void *buf, size_t cap)
{
    clp_code_lock();
    uint32_t number = clp_code_table_method_of_wire_locked(method_id);
    bool named = number && (clp_code_table_method_locked(number)->state & CLP_METHOD_STATE_NAMED);
    clp_code_unlock();
    if (!number)
        return -ENOENT;
    if (!named)
        clp_code_name_method(number);
    clp_code_lock();
    int r = method_record_locked(method_id, number, buf, cap);
    clp_code_unlock();
    return r;
}

int clp_bodies_image_record(uint32_t image_id, void *buf, size_t cap)
{
    return clp_modules_image_record(image_id, buf, cap);
}

bool clp_bodies_gone(enum clp_rec_type what, uint32_t id)
{
    clp_code_lock();
    bool gone = what == CLP_REC_METHOD ? !clp_code_table_method_of_wire_locked(id)
                                       : !clp_modules_of_image_locked(id);
    clp_code_unlock();
    return gone;
}

/* ---- counts -------------------------------------------------------------------------------- */

static uint32_t count_of(uint32_t (*count_locked)(void))
{
    clp_code_lock();
    uint32_t n = count_locked();
    clp_code_unlock();
    return n;
}

uint32_t clp_bodies_body_count(void)
{
    return count_of(clp_code_table_body_wire_count_locked);
}

uint32_t clp_bodies_method_count(void)
{
    return count_of(clp_code_table_method_wire_count_locked);
}

uint32_t clp_bodies_known(void)
{
    return count_of(clp_code_table_body_count_locked);
}

uint64_t clp_bodies_refused(void)
{
    clp_code_lock();
    uint64_t n =
        clp_code_table_refused_locked() + clp_modules_refused_locked() + clp_pe_images_refused();
    clp_code_unlock();
    return n;
}

size_t clp_bodies_bytes(void)
{
    clp_code_lock();
    size_t n = clp_code_table_bytes_locked() + clp_modules_bytes_locked() + clp_pe_images_bytes();
    clp_code_unlock();
    return n;
}
