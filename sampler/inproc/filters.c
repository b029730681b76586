#include "sampler/inproc/filters.h"

#include "sampler/inproc/il_filters.h"
#include "sampler/inproc/images.h"
#include "sampler/inproc/names.h"
#include "sampler/inproc/runtime.h"

#define STARTS_MAX 64u /* code versions of one method */
#define RANGES_MAX 4u  /* hot and cold parts of one version */
#define SECTIONS_BYTES 4096u
#define MAP_MAX 2048u

static int filters_of(struct clr_info *info, clr_function_id function,
                      struct clp_il_range ret[CLP_IL_FILTERS_MAX])
{
    struct clp_function_facts facts;
    const uint8_t *body = NULL;
    uint8_t header[CLP_IL_HEADER_BYTES], sections[SECTIONS_BYTES];
    uint32_t bytes = 0, at;
    if (clp_names_facts(function, &facts) < 0 || !(facts.token & 0xffffff) ||
        !CLR_OK(info->slots->get_il_function_body(info, facts.module, facts.token, &body, &bytes)))
        return 0;
    int64_t n = clp_images_read((uintptr_t)body, header, CLP_MIN(bytes, sizeof(header)));
    if (n <= 0 || clp_il_sections_at(header, bytes, &at) < 0 || !at)
        return 0;
    n = clp_images_read((uintptr_t)body + at, sections, CLP_MIN(bytes - at, sizeof(sections)));
    int count = n > 0 ? clp_il_filters(sections, (size_t)n, ret) : 0;
    return CLP_MIN(count, (int)CLP_IL_FILTERS_MAX);
}

/* Where `ip` lies in a version's code: its parts count one after the other. */
static bool offset_in(struct clr_info *info, uint64_t start, uint64_t ip, uint32_t *ret)
{
    struct clr_code_range ranges[RANGES_MAX];
    uint32_t count = 0;
    uint64_t before = 0;
    if (!CLR_OK(info->slots->get_code_info4(info, start, RANGES_MAX, &count, ranges)))
        return false;
    for (uint32_t i = 0; i < CLP_MIN(count, RANGES_MAX); i++) {
        if (ip - ranges[i].start < ranges[i].size) {
            *ret = (uint32_t)(before + ip - ranges[i].start);
            return true;
        }
        before += ranges[i].size;
    }
    return false;
}

static bool find_version(struct clr_info *info, clr_function_id function, uint64_t ip,
                         uint64_t *ret_start, uint32_t *ret_offset)
{
    uint64_t starts[STARTS_MAX];
    uint32_t count = 0;
    if (!CLR_OK(info->slots->get_native_code_starts(info, function, 0, STARTS_MAX, &count, starts)))
        return false;
    for (uint32_t i = 0; i < CLP_MIN(count, STARTS_MAX); i++) {
        *ret_start = starts[i];
        if (offset_in(info, starts[i], ip, ret_offset))
            return true;
    }
    return false;
}

bool clp_filters_hold(clr_function_id function, uint64_t ip)
{
    static struct clr_il_map map[MAP_MAX];
    struct clp_il_range filters[CLP_IL_FILTERS_MAX];
    struct clr_info *info = clp_runtime_info();
    uint64_t start;
    uint32_t offset, count = 0;
    int filter_count = info ? filters_of(info, function, filters) : 0;
    if (!filter_count || !find_version(info, function, ip, &start, &offset) ||
        !CLR_OK(info->slots->get_il_to_native_map3(info, start, MAP_MAX, &count, map)))
        return false;
    return clp_il_in_filter(filters, filter_count, map, CLP_MIN(count, MAP_MAX), offset);
}
