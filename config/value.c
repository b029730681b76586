#include "config/value.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"h", 3600 * CLP_NSEC_PER_SEC}, {"m", 60 * CLP_NSEC_PER_SEC}, {"s", CLP_NSEC_PER_SEC},
    {"ms", CLP_NSEC_PER_MSEC},      {"us", CLP_NSEC_PER_USEC},    {"ns", 1},
};

static uint64_t unit_ns(const char *name, uint64_t bare_unit_ns)
{
    if (!*name)
        return bare_unit_ns;
    for (size_t i = 0; i < CLP_ARRAY_LEN(units); i++)
        if (strcmp(units[i].name, name) == 0)
            return units[i].ns;
    return 0;
}

/* Digits with at most one point, read by hand: strtod would follow the locale and take "inf".
 * What follows them, or NULL where there are none. */
static const char *number(const char *text, double *ret)
{
    double n = 0, scale = 1;
    const char *c = text;
    int digits = 0;
    for (; *c >= '0' && *c <= '9' && digits < 15; c++, digits++)
        n = n * 10 + (*c - '0');
    if (digits > 0 && *c == '.')
        for (c++; *c >= '0' && *c <= '9' && digits < 15; c++, digits++)
            n += (*c - '0') * (scale /= 10);
    *ret = n;
    return digits ? c : NULL;
}

int clp_value_percent(const char *text, uint32_t *ret_ppm)
{
    double n;
    const char *rest = number(text, &n);
    if (!rest || strcmp(rest, "%") != 0)
        return -EINVAL;
    if (n > 100)
        return -ERANGE;
    *ret_ppm = (uint32_t)(n * 10000 + 0.5);
    return 0;
}

int clp_value_duration(const char *text, uint64_t bare_unit_ns, uint64_t *ret_ns)
{
    double n;
    const char *rest = number(text, &n);
    uint64_t unit = rest ? unit_ns(rest, bare_unit_ns) : 0;
    if (unit == 0)
        return -EINVAL;
    double ns = n * (double)unit + 0.5;
    if (ns >= 9e18)
        return -ERANGE;
    *ret_ns = (uint64_t)ns;
    return 0;
}

int clp_value_size(const char *text, uint64_t *ret_bytes)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } sizes[] = {{"B", 1},     {"KiB", 1ull << 10}, {"MiB", 1ull << 20}, {"GiB", 1ull << 30},
                 {"KB", 1000}, {"MB", 1000000},     {"GB", 1000000000}};
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18)
        return -EINVAL;
    uint64_t n = strtoull(text, NULL, 10);
    const char *unit = text + digits + strspn(text + digits, " ");
    if (n == 0 && !*unit) {
        *ret_bytes = 0;
        return 0;
    }
    for (size_t i = 0; i < CLP_ARRAY_LEN(sizes); i++)
        if (strcmp(unit, sizes[i].unit) == 0) {
            if (n > UINT64_MAX / sizes[i].bytes)
                return -ERANGE;
            *ret_bytes = n * sizes[i].bytes;
            return 0;
        }
    return -EINVAL;
}

static int listen_port(const char *text, uint16_t *ret_port)
{
    size_t digits = strspn(text, "0123456789");
    unsigned long port = digits > 0 && digits < 6 ? strtoul(text, NULL, 10) : UINT16_MAX + 1ul;
    if (text[digits] || port > UINT16_MAX)
        return -EINVAL;
    *ret_port = htons((uint16_t)port);
    return 0;
}

static int listen_address(const char *text, size_t len, uint16_t port, struct sockaddr_storage *ret)
{
    char address[INET6_ADDRSTRLEN];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = port};
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    snprintf(address, sizeof(address), "%.*s", (int)(bracketed ? len - 2 : len), text + bracketed);
    if (!bracketed && strcmp(address, "localhost") == 0)
        snprintf(address, sizeof(address), "127.0.0.1");
    *ret = (struct sockaddr_storage){0};
    if (bracketed ? inet_pton(AF_INET6, address, &v6.sin6_addr) != 1
                  : inet_pton(AF_INET, address, &v4.sin_addr) != 1)
        return -EINVAL;
    if (bracketed)
        memcpy(ret, &v6, sizeof(v6));
    else
        memcpy(ret, &v4, sizeof(v4));
    return 0;
}

int clp_value_listen(const char *text, struct sockaddr_storage *ret)
{
    uint16_t port;
    const char *colon = strrchr(text, ':');
    int r = listen_port(colon ? colon + 1 : text, &port);
    if (r < 0)
        return r;
    if (!colon)
        return listen_address("127.0.0.1", 9, port, ret);
    size_t len = (size_t)(colon - text);
    return len < INET6_ADDRSTRLEN ? listen_address(text, len, port, ret) : -EINVAL;
}

void clp_value_duration_text(uint64_t ns, char *buf, size_t cap)
{
    for (size_t i = 2; i < CLP_ARRAY_LEN(units); i++) /* hours and minutes read better as seconds */
        if (ns % units[i].ns == 0) {
            snprintf(buf, cap, "%llu%s", (unsigned long long)(ns / units[i].ns), units[i].name);
            return;
        }
}

static const char *const type_names[] = {
#define CLP_PROFILE_TYPE(id, name, text) name,
#include "config/types.def"
#undef CLP_PROFILE_TYPE
};

static const char type_list[] = ""
#define CLP_PROFILE_TYPE(id, name, text) ", " name
#include "config/types.def"
#undef CLP_PROFILE_TYPE
    ;

const char *clp_profile_type_name(enum clp_profile_type type)
{
    return type_names[type];
}

/* The next item of a comma-separated list without the blanks around it; false at the end. */
static bool next_item(const char **list, const char **ret, size_t *ret_len)
{
    const char *at = *list;
    if (!at)
        return false;
    const char *comma = strchr(at, ',');
    size_t len = comma ? (size_t)(comma - at) : strlen(at);
    *list = comma ? comma + 1 : NULL;
    while (len > 0 && (*at == ' ' || *at == '\t')) {
        at++;
        len--;
    }
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
        len--;
    *ret = at;
    *ret_len = len;
    return true;
}

static int type_of(const char *word, size_t len)
{
    for (int i = 0; i < CLP_TYPE_COUNT; i++)
        if (strlen(type_names[i]) == len && memcmp(type_names[i], word, len) == 0)
            return i;
    return -EINVAL;
}

static const char *type_name_at(const void *context, size_t i)
{
    (void)context;
    return type_names[i];
}

static int refuse_type(const char *item, size_t len, char *error, size_t cap)
{
    char word[65];
    snprintf(word, sizeof(word), "%.*s", (int)CLP_MIN(len, sizeof(word) - 1), item);
    const char *near = clp_value_nearest(word, CLP_TYPE_COUNT, type_name_at, NULL);
    if (len == 0)
        snprintf(error, cap, "no type to record is named; this version records: %s", type_list + 2);
    else
        snprintf(error, cap, "'%s' cannot be recorded; %s%s%sthis version records: %s", word,
                 near ? "did you mean " : "", near ? near : "", near ? "? " : "", type_list + 2);
    return -EINVAL;
}

int clp_value_types(const char *text, uint32_t *ret_mask, char *error, size_t cap)
{
    uint32_t mask = 0;
    const char *item;
    size_t len;
    while (next_item(&text, &item, &len)) {
        int type = type_of(item, len);
        if (type < 0)
            return refuse_type(item, len, error, cap);
        mask |= 1u << type;
    }
    *ret_mask = mask;
    return 0;
}

/* ---- nearest ------------------------------------------------------------------------------- */

#define WORD_MAX 64

/* Edits (insert, remove, replace, swap two neighbours) between two words, cut at WORD_MAX letters:
 * their optimal string alignment. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][WORD_MAX + 1];
    size_t a_len = strnlen(a, WORD_MAX), b_len = strnlen(b, WORD_MAX);
    for (size_t i = 0; i <= a_len; i++) {
        size_t *now = rows[i % 3], *above = rows[(i + 2) % 3];
        const size_t *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            now[j] = now[j - 1] + 1;
            if (i == 0)
                continue;
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = CLP_MIN(now[j], CLP_MIN(above[j] + 1, replaced));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = CLP_MIN(now[j], before[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

/* More of them make of a word any other one. */
static size_t most_edits(const char *word)
{
    size_t len = strnlen(word, WORD_MAX);
    return len == 2 ? 1 : len / 3;
}

const char *clp_value_nearest(const char *word, size_t count,
                              const char *(*name_at)(const void *context, size_t i),
                              const void *context)
{
    const char *best = NULL;
    size_t least = most_edits(word) + 1;
    for (size_t i = 0; i < count; i++) {
        const char *name = name_at(context, i);
        size_t d = name ? distance(word, name) : SIZE_MAX;
        if (d < least) {
            least = d;
            best = name;
        }
    }
    return best;
}

/* ---- lists --------------------------------------------------------------------------------- */

int clp_list_add(struct clp_list *l, const char *text, size_t len)
{
    if (l->count >= CLP_LIST_MAX)
        return -ENOSPC;
    char **items = realloc(l->items, (l->count + 1) * sizeof(*items));
    if (!items)
        return -ENOMEM;
    l->items = items;
    items[l->count] = strndup(text, len);
    if (!items[l->count])
        return -ENOMEM;
    l->count++;
    return 0;
}

int clp_list_add_split(struct clp_list *l, const char *text)
{
    const char *item;
    size_t len;
    while (next_item(&text, &item, &len)) {
        int r = len > 0 ? clp_list_add(l, item, len) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

void clp_list_done(struct clp_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct clp_list){0};
}
