/* Values as people write them, and what they may have meant. Pure; thread-safe. */
#ifndef CLP_CONFIG_VALUE_H
#define CLP_CONFIG_VALUE_H

#include "base/core/core.h"

/* "10ms", "1.5s", "2m", "1h", also "us" and "ns". `bare_unit_ns` is the unit of a number without
 * one; 0: a unit must be given. 0, -EINVAL, -ERANGE. */
int clp_value_duration(const char *text, uint64_t bare_unit_ns, uint64_t *ret_ns) CLP_MUST_USE;
/* The shortest exact form, such as "60s" or "10ms". */
void clp_value_duration_text(uint64_t ns, char *buf, size_t cap);

/* "0.5%" as millionths; the sign must be there. 0, -EINVAL, -ERANGE. */
int clp_value_percent(const char *text, uint32_t *ret_ppm) CLP_MUST_USE;

/* "256MiB", "64KiB", "1GiB", also "B", "KB", "MB", "GB" (powers of 1,000); a unit must be given,
 * except for 0. 0, -EINVAL, -ERANGE. */
int clp_value_size(const char *text, uint64_t *ret_bytes) CLP_MUST_USE;

/* Where to listen: "9464" (loopback), "ADDRESS:9464", "[v6 ADDRESS]:9464"; addresses are numbers or
 * "localhost". Port 0: any that is free. 0 or -EINVAL. */
struct sockaddr_storage;
int clp_value_listen(const char *text, struct sockaddr_storage *ret) CLP_MUST_USE;

enum clp_profile_type {
#define CLP_PROFILE_TYPE(id, name, text) CLP_TYPE_##id,
#include "config/types.def"
#undef CLP_PROFILE_TYPE
    CLP_TYPE_COUNT
};
const char *clp_profile_type_name(enum clp_profile_type type);
/* A comma-separated list of type names to a mask of (1 << type), which is never empty. 0, or
 * -EINVAL with a sentence in `error`. */
int clp_value_types(const char *text, uint32_t *ret_mask, char *error, size_t cap) CLP_MUST_USE;

/* The one of `count` names that `word` was probably meant to be, or NULL when none is near (more
 * edits than a third of its letters, or than one in two; two that are swapped are one).
 * `name_at(context, i)` gives the names; may give NULL to skip one. */
const char *clp_value_nearest(const char *word, size_t count,
                              const char *(*name_at)(const void *context, size_t i),
                              const void *context);

/* A list of texts that grows to CLP_LIST_MAX. */
#define CLP_LIST_MAX 256u
struct clp_list {
    char **items;
    size_t count;
};
/* Copies `len` bytes. 0, -ENOSPC, -ENOMEM. */
int clp_list_add(struct clp_list *l, const char *text, size_t len) CLP_MUST_USE;
/* Adds the items of a comma-separated list, blanks around them removed, empty ones left out. */
int clp_list_add_split(struct clp_list *l, const char *text) CLP_MUST_USE;
void clp_list_done(struct clp_list *l);

#endif
