#include "sampler/inproc/code_add.h"

#include "sampler/inproc/code_lock.h"
#include "sampler/inproc/code_table.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/modules.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/pe_images.h"
#include "sampler/inproc/runtime.h"

#include <errno.h>
#include <string.h>

#define STARTS_MAX 64u /* code versions of one method */
#define RANGES_MAX 4u  /* hot and cold parts of one version */
#define PROLOGUE_BYTES 128u

/* ---- bodies -------------------------------------------------------------------------------- */

void clp_code_decode(uint64_t start, uint32_t code_bytes, struct clp_managed_frame *ret)
{
    uint8_t code[PROLOGUE_BYTES];
    int64_t n = clp_images_read(start, code, CLP_MIN(code_bytes, PROLOGUE_BYTES));
    clp_prologue_decode(code, n > 0 ? (size_t)n : 0, ret);
}

bool clp_code_is_method_locked(uint32_t method, clr_function_id function)
{
    const struct clp_method *m = clp_code_table_method_locked(method);
    return m->function == function && !(m->state & CLP_METHOD_STATE_DEAD);
}

/* Code that may unload is decoded at once: later its memory may hold something else.  The other
 * waits until a sample meets it; most methods never do. */
static void add_range(uint32_t method, clr_function_id function, const struct clr_code_range *r,
                      uint64_t birth_ns)
{
    struct clp_managed_frame frame;
    clp_code_lock();
    bool mortal = clp_code_table_method_locked(method)->state & CLP_METHOD_STATE_MORTAL;
    clp_code_unlock();
    if (mortal)
        clp_code_decode(r->start, (uint32_t)r->size, &frame);
    clp_code_lock();
    uint32_t body = 0;
    if (clp_code_is_method_locked(method, function))
        body = clp_code_table_body_add_locked(method, r->start, (uint32_t)r->size, birth_ns, 0);
    if (body && mortal)
        clp_code_table_body_set_frame_locked(body, &frame);
    clp_code_unlock();
}

static void add_ranges(uint32_t method, clr_function_id function,
                       const struct clr_code_range *ranges, uint32_t count, uint64_t birth_ns)
{
    for (uint32_t i = 0; i < CLP_MIN(count, RANGES_MAX); i++)
        if (ranges[i].size > 0 && ranges[i].size <= UINT32_MAX)
            add_range(method, function, &ranges[i], birth_ns);
}

/* Precompiled code is known by its image, better than by its first bytes. */
static bool is_new_start_locked(uint32_t method, uint64_t start)
{
    return !clp_pe_images_cover_locked(start) &&
           !(method && clp_code_table_body_known_locked(method, start));
}

static bool is_new_start(uint32_t method, uint64_t start)
{
    clp_code_lock();
    bool is_new = is_new_start_locked(method, start);
    clp_code_unlock();
    return is_new;
}

void clp_code_add_versions(struct clr_info *info, uint32_t method, clr_function_id function,
                           uint64_t rejit, uint64_t birth_ns)
{
    uint64_t starts[STARTS_MAX];
    struct clr_code_range ranges[RANGES_MAX];
    uint32_t count = 0, got;
    if (!CLR_OK(
            info->slots->get_native_code_starts(info, function, rejit, STARTS_MAX, &count, starts)))
        return;
    for (uint32_t i = 0; i < CLP_MIN(count, STARTS_MAX); i++) {
        got = 0;
        if (is_new_start(method, starts[i]) &&
            CLR_OK(info->slots->get_code_info4(info, starts[i], RANGES_MAX, &got, ranges)))
            add_ranges(method, function, ranges, got, birth_ns);
    }
}

/* ---- methods ------------------------------------------------------------------------------- */

void clp_code_add_older_versions(struct clr_info *info, clr_function_id function, uint64_t birth_ns)
{
    uint64_t starts[STARTS_MAX];
    uint32_t count = 0;
    bool any = false;
    if (!CLR_OK(info->slots->get_native_code_starts(info, function, 0, STARTS_MAX, &count, starts)))
        return;
    clp_code_lock();
    uint32_t method = clp_code_table_method_find_locked(function);
    for (uint32_t i = 0; i < CLP_MIN(count, STARTS_MAX); i++)
        any |= is_new_start_locked(method, starts[i]);
    clp_code_unlock();
    if (any && (method = clp_code_find_or_add(function, false)) != 0)
        clp_code_add_versions(info, method, function, 0, birth_ns);
}

/* A method that is suspect and compiled again may be another one under a reused id. */
static uint32_t find_method(clr_function_id function)
{
    clp_code_lock();
    uint32_t method = clp_code_table_method_find_locked(function);
    uint64_t suspect_ns = method ? clp_code_table_suspect_ns_locked(method) : 0;
    if (suspect_ns) {
        clp_code_table_method_kill_locked(method, suspect_ns);
        method = 0;
    }
    clp_code_unlock();
    return method;
}

static uint32_t add_method_locked(clr_function_id function, uint32_t owner, bool sure)
{
    uint32_t method = clp_code_table_method_find_locked(function);
    if (method)
        return method;
    method = clp_code_table_method_add_locked(function, owner,
                                              owner || !sure ? CLP_METHOD_STATE_MORTAL : 0);
    if (method && !owner && !sure &&
        clp_code_table_set_unsure_locked(method, clp_modules_last_serial_locked()) < 0) {
        clp_code_table_method_kill_locked(method, 0);
        return 0;
    }
    return method;
}

/* A new method that may unload is named now, while it certainly exists. */
static uint32_t add_mortal_method(clr_function_id function, const struct clp_function_facts *facts,
                                  uint32_t owner, bool sure)
{
    struct clp_method_texts texts;
    clp_names_init_texts(&texts);
    clp_names_method(facts, &texts);
    clp_code_lock();
    uint32_t method = add_method_locked(function, owner, sure);
    if (method)
        clp_code_table_method_name_locked(method, &texts);
    clp_code_unlock();
    return method;
}

uint32_t clp_code_find_or_add(clr_function_id function, bool immortal)
{
    struct clp_function_facts facts;
    bool sure;
    uint32_t method = find_method(function);
    if (method || clp_names_facts(function, &facts) < 0)
        return method;
    uint32_t owner = clp_names_owner(&facts, &sure);
    if (owner || !(sure || immortal))
        return add_mortal_method(function, &facts, owner, sure);
    clp_code_lock();
    method = add_method_locked(function, 0, true);
    clp_code_unlock();
    return method;
}

/* ---- dynamic methods ----------------------------------------------------------------------- */

static bool has_name_locked(uint32_t method, const struct clp_text *name)
{
    const struct clp_method_name *n =
        clp_code_table_name_locked(clp_code_table_method_locked(method));
    return n && n->name && n->name->len == name->len &&
           memcmp(n->name->text, name->buf, name->len) == 0;
}

/* An id that is in the table under another name was reused without a word about its end. */
static uint32_t add_dynamic_method(clr_function_id function, const struct clp_method_texts *texts,
                                   uint64_t now_ns)
{
    clp_code_lock();
    uint32_t owner = clp_modules_collectible_locked(texts->module) ? texts->module : 0;
    uint32_t method = clp_code_table_method_find_locked(function);
    if (method && !has_name_locked(method, &texts->name)) {
        clp_code_table_method_kill_locked(method, now_ns);
        method = 0;
    }
    if (!method)
        method = clp_code_table_method_add_locked(function, owner, CLP_METHOD_STATE_MORTAL);
    if (method)
        clp_code_table_method_name_locked(method, texts);
    clp_code_unlock();
    return method;
}

int clp_code_add_dynamic(struct clr_info *info, clr_function_id function, uint64_t birth_ns,
                         bool with_signature)
{
    struct clp_method_texts texts;
    struct clr_code_range ranges[RANGES_MAX];
    uint32_t count = 0;
    clp_names_init_texts(&texts);
    if (clp_names_dynamic(function, with_signature, &texts) < 0)
        return -ENOENT;
    clr_hresult hr = info->slots->get_code_info2(info, function, RANGES_MAX, &count, ranges);
    if (!CLR_OK(hr))
        return hr == CLR_E_FUNCTION_NOT_COMPILED ? -ENODATA : -ENOENT;
    uint32_t method = add_dynamic_method(function, &texts, birth_ns);
    if (!method)
        return -ENOMEM;
    add_ranges(method, function, ranges, count, birth_ns);
    return 0;
}
