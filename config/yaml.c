#include "config/yaml.h"

#include "base/cleanup.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

/* A document in the making: where it came from and what went wrong. Nodes are visited along the
 * fixed shape of the settings only, so an alias that holds itself ends in a wrong type, not in a
 * loop. */
struct walk {
    struct clp_config *config;
    yaml_document_t *doc;
    const char *name;
    struct clp_config_error *error;
};

static CLP_PRINTF(3, 4) int refuse(const struct walk *w, const yaml_node_t *at, const char *fmt,
                                   ...)
{
    char said[CLP_CONFIG_ERROR_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(said, sizeof(said), fmt, args);
    va_end(args);
    snprintf(w->error->text, sizeof(w->error->text), "%.200s:%zu: %.300s", w->name,
             at->start_mark.line + 1, said);
    return -EINVAL;
}

static yaml_node_t *node(const struct walk *w, int id)
{
    return yaml_document_get_node(w->doc, id);
}

static const char *scalar(const yaml_node_t *n)
{
    return (const char *)n->data.scalar.value;
}

/* libyaml takes NULs ("\0") into scalars; no setting may hold one. */
static bool is_text(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && strlen(scalar(n)) == n->data.scalar.length;
}

static bool is_null(const yaml_node_t *n)
{
    if (!is_text(n) || n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    return strcmp(scalar(n), "") == 0 || strcmp(scalar(n), "~") == 0 ||
           strcmp(scalar(n), "null") == 0;
}

/* Calls `each` for the pairs of a mapping; its keys are text, each once. */
static int each_pair(const struct walk *w, const yaml_node_t *map, const char *what,
                     int (*each)(const struct walk *w, const yaml_node_t *key,
                                 const yaml_node_t *value, void *context),
                     void *context)
{
    if (is_null(map))
        return 0;
    if (map->type != YAML_MAPPING_NODE)
        return refuse(w, map, "%s takes keys and values", what);
    yaml_node_pair_t *first = map->data.mapping.pairs.start;
    for (yaml_node_pair_t *p = first; p < map->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = node(w, p->key);
        if (!is_text(key))
            return refuse(w, key, "a key of %s must be text", what);
        for (yaml_node_pair_t *q = first; q < p; q++)
            if (strcmp(scalar(node(w, q->key)), scalar(key)) == 0)
                return refuse(w, key, "'%.60s' is set twice", scalar(key));
        int r = each(w, key, node(w, p->value), context);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- sections ------------------------------------------------------------------------------ */

/* The value of one key as the text that clp_config_set takes. */
static int add_tag(const struct walk *w, const yaml_node_t *key, const yaml_node_t *value, void *to)
{
    if (!is_text(value) || strchr(scalar(value), ',') || strpbrk(scalar(key), ",:"))
        return refuse(w, value, "a tag takes text without a comma");
    clp_strbuf_printf(to, "%s:%s,", scalar(key), scalar(value));
    return 0;
}

static int add_items(const struct walk *w, const yaml_node_t *list, struct clp_strbuf *to)
{
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top;
         i++) {
        const yaml_node_t *n = node(w, *i);
        if (!is_text(n) || strchr(scalar(n), ','))
            return refuse(w, n, "a list takes texts without a comma");
        clp_strbuf_printf(to, "%s,", scalar(n));
    }
    if (to->len > 0)
        to->buf[--to->len] = '\0';
    return 0;
}

static int value_text(const struct walk *w, const struct clp_config_key *k, const yaml_node_t *n,
                      struct clp_strbuf *to)
{
    bool list = k->kind == CLP_CONFIG_LIST || k->kind == CLP_CONFIG_TYPES;
    int r = 0;
    if (k->kind == CLP_CONFIG_TAGS)
        r = each_pair(w, n, "service.tags", add_tag, to);
    else if (list && n->type == YAML_SEQUENCE_NODE)
        r = add_items(w, n, to);
    else if (list || !is_text(n))
        return refuse(w, n, "%s.%s takes %s", k->section, k->key,
                      list ? "a list, such as [a, b]" : "one value");
    else
        clp_strbuf_str(to, scalar(n));
    return r < 0 ? r : clp_strbuf_error(to);
}

static int set_key(const struct walk *w, const struct clp_config_key *k, const yaml_node_t *value)
{
    CLP_CLEANUP(clp_strbuf_done) struct clp_strbuf text;
    clp_strbuf_init(&text, CLP_CONFIG_FILE_MAX_BYTES);
    int r = value_text(w, k, value, &text);
    if (r < 0)
        return r;
    struct clp_config_error why = {""};
    r = clp_config_set(w->config, k, clp_strbuf_text(&text), &why);
    return r == -EINVAL ? refuse(w, value, "%s", why.text) : r;
}

static const char *key_of_section(const void *section, size_t i)
{
    const struct clp_config_key *k = clp_config_key_at(i);
    return strcmp(k->section, section) == 0 ? k->key : NULL;
}

static int section_pair(const struct walk *w, const yaml_node_t *key, const yaml_node_t *value,
                        void *section)
{
    for (size_t i = 0; i < clp_config_key_count(); i++) {
        const struct clp_config_key *k = clp_config_key_at(i);
        if (strcmp(k->section, section) == 0 && strcmp(k->key, scalar(key)) == 0)
            return set_key(w, k, value);
    }
    const char *near =
        clp_value_nearest(scalar(key), clp_config_key_count(), key_of_section, section);
    if (near)
        return refuse(w, key, "%s.%.60s is no setting; did you mean %s.%s?", (const char *)section,
                      scalar(key), (const char *)section, near);
    return refuse(w, key, "%s.%.60s is no setting", (const char *)section, scalar(key));
}

/* ---- upload -------------------------------------------------------------------------------- */

static bool is_number(const struct clp_config_upload_key *k)
{
    return k->kind == CLP_CONFIG_UPLOAD_DURATION || k->kind == CLP_CONFIG_UPLOAD_SIZE;
}

static void *upload_field(struct clp_config_upload *u, const struct clp_config_upload_key *k)
{
    return (char *)u + k->offset;
}

static bool is_given(const struct clp_config_upload *u, const struct clp_config_upload_key *k)
{
    const void *at = (const char *)u + k->offset;
    return is_number(k) ? *(const uint64_t *)at != 0 : *(char *const *)at != NULL;
}

static void upload_done(struct clp_config_upload *u)
{
    free(u->kind);
    for (size_t i = 0; i < clp_config_upload_key_count(); i++)
        if (!is_number(clp_config_upload_key_at(i)))
            free(*(char **)upload_field(u, clp_config_upload_key_at(i)));
    clp_list_done(&u->headers);
    *u = (struct clp_config_upload){0};
}

void clp_config_uploads_done(struct clp_config *c)
{
    for (size_t i = 0; i < c->upload_count; i++)
        upload_done(&c->uploads[i]);
    c->upload_count = 0;
}

static int add_header(const struct walk *w, const yaml_node_t *key, const yaml_node_t *value,
                      void *to)
{
    char line[2048];
    if (!is_text(value))
        return refuse(w, value, "a header takes one text");
    int n = snprintf(line, sizeof(line), "%s: %s", scalar(key), scalar(value));
    if (n < 0 || (size_t)n >= sizeof(line) || strpbrk(line, "\r\n"))
        return refuse(w, value, "the header is too long or holds a line end");
    return clp_list_add(to, line, (size_t)n);
}

/* The other way to write them: "Name: value" each. */
static int add_header_line(const struct walk *w, const yaml_node_t *n, struct clp_list *to)
{
    const char *colon = is_text(n) ? strchr(scalar(n), ':') : NULL;
    if (!colon || colon == scalar(n) || strpbrk(scalar(n), "\r\n"))
        return refuse(w, n, "a header is one text, \"Name: value\"");
    return clp_list_add(to, scalar(n), strlen(scalar(n)));
}

static int read_headers(const struct walk *w, const yaml_node_t *n, struct clp_list *to)
{
    int r = 0;
    if (n->type != YAML_SEQUENCE_NODE)
        return each_pair(w, n, "headers", add_header, to);
    for (yaml_node_item_t *i = n->data.sequence.items.start;
         r == 0 && i < n->data.sequence.items.top; i++)
        r = add_header_line(w, node(w, *i), to);
    return r;
}

static const char *upload_key(const void *context, size_t i)
{
    (void)context;
    size_t count = clp_config_upload_key_count();
    return i < count ? clp_config_upload_key_at(i)->name : i == count ? "kind" : "headers";
}

static int set_upload_key(const struct walk *w, const yaml_node_t *value,
                          struct clp_config_upload *u, const struct clp_config_upload_key *k)
{
    if (!is_text(value) || !*scalar(value) || strlen(scalar(value)) > 4000)
        return refuse(w, value, "%s takes one text", k->name);
    if (is_number(k)) {
        bool duration = k->kind == CLP_CONFIG_UPLOAD_DURATION;
        uint64_t n = 0;
        int r =
            duration ? clp_value_duration(scalar(value), 0, &n) : clp_value_size(scalar(value), &n);
        if (r < 0 || n == 0 || (duration && n > 3600 * CLP_NSEC_PER_SEC))
            return refuse(w, value, "%s is a %s with its unit, such as %s", k->name,
                          duration ? "duration of at most 1h" : "size", duration ? "10s" : "2MiB");
        *(uint64_t *)upload_field(u, k) = n;
        return 0;
    }
    char **to = upload_field(u, k);
    *to = strdup(scalar(value));
    return *to ? 0 : -ENOMEM;
}

static int upload_pair(const struct walk *w, const yaml_node_t *key, const yaml_node_t *value,
                       void *context)
{
    struct clp_config_upload *u = context;
    const char *name = scalar(key);
    if (strcmp(name, "headers") == 0)
        return read_headers(w, value, &u->headers);
    for (size_t i = 0; i < clp_config_upload_key_count(); i++)
        if (strcmp(clp_config_upload_key_at(i)->name, name) == 0)
            return set_upload_key(w, value, u, clp_config_upload_key_at(i));
    if (strcmp(name, "kind") == 0) {
        if (!is_text(value) || !*scalar(value))
            return refuse(w, value, "%s takes one text", name);
        u->kind = strdup(scalar(value));
        return u->kind ? 0 : -ENOMEM;
    }
    const char *near = clp_value_nearest(name, clp_config_upload_key_count() + 2, upload_key, NULL);
    return refuse(w, key, "upload takes no %.60s; %s%s%s", name, near ? "did you mean " : "",
                  near ? near : "`clrpulse agent --help` lists what it takes", near ? "?" : "");
}

static const char *const upload_kinds[] = {"directory", "http", "pyroscope",
                                           "datadog",   "otlp", "parca"};

static const char *upload_kind(const void *context, size_t i)
{
    (void)context;
    return upload_kinds[i];
}

static int check_upload_kind(const struct walk *w, const yaml_node_t *at, const char *kind)
{
    if (!kind)
        return refuse(w, at,
                      "an upload needs a kind: directory, http, pyroscope, datadog, otlp or "
                      "parca");
    for (size_t i = 0; i < CLP_ARRAY_LEN(upload_kinds); i++)
        if (strcmp(upload_kinds[i], kind) == 0)
            return 0;
    const char *near = clp_value_nearest(kind, CLP_ARRAY_LEN(upload_kinds), upload_kind, NULL);
    return refuse(w, at, "'%.60s' is no kind of upload; %s%s", kind,
                  near ? "did you mean "
                       : "there are directory, http, pyroscope, datadog, otlp and parca",
                  near ? near : "");
}

static int check_upload(const struct walk *w, const yaml_node_t *at,
                        const struct clp_config_upload *u)
{
    int r = check_upload_kind(w, at, u->kind);
    if (r < 0)
        return r;
    bool directory = strcmp(u->kind, "directory") == 0;
    if (directory && (!u->path || u->headers.count))
        return refuse(w, at, "an upload of kind directory takes a path and nothing else");
    for (size_t i = 0; i < clp_config_upload_key_count(); i++) {
        const struct clp_config_upload_key *k = clp_config_upload_key_at(i);
        char word[64];
        snprintf(word, sizeof(word), " %s ", u->kind);
        if (is_given(u, k) && !strstr(k->kinds, word))
            return refuse(w, at, "an upload of kind %s takes no %s", u->kind, k->name);
    }
    /* Datadog's own variables may say where its agent is. */
    if (!directory && !u->url && strcmp(u->kind, "datadog") != 0)
        return refuse(w, at, "an upload of kind %s needs a url", u->kind);
    if (u->token && u->user)
        return refuse(w, at, "an upload takes a user or a token, not both");
    return 0;
}

static int read_upload_list(const struct walk *w, const yaml_node_t *list)
{
    struct clp_config *c = w->config;
    clp_config_uploads_done(c);
    if (is_null(list))
        return 0;
    if (list->type != YAML_SEQUENCE_NODE)
        return refuse(w, list, "upload takes a list: - { kind: directory, path: /some/where }");
    for (yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top;
         i++) {
        const yaml_node_t *n = node(w, *i);
        if (c->upload_count == CLP_CONFIG_UPLOADS_MAX)
            return refuse(w, n, "more than %u uploads", CLP_CONFIG_UPLOADS_MAX);
        struct clp_config_upload *u =
            &c->uploads[c->upload_count++]; /* done() frees it from now on */
        int r = each_pair(w, n, "an upload", upload_pair, u);
        if (r == 0)
            r = check_upload(w, n, u);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- document ------------------------------------------------------------------------------ */

static const char *section_name(const void *context, size_t i)
{
    (void)context;
    return i == 0 ? "upload" : clp_config_key_at(i - 1)->section;
}

static int top_pair(const struct walk *w, const yaml_node_t *key, const yaml_node_t *value,
                    void *context)
{
    (void)context;
    if (strcmp(scalar(key), "upload") == 0)
        return read_upload_list(w, value);
    for (size_t i = 0; i < clp_config_key_count(); i++) {
        const char *section = clp_config_key_at(i)->section;
        if (strcmp(section, scalar(key)) == 0)
            return each_pair(w, value, section, section_pair, (void *)(uintptr_t)section);
    }
    const char *near =
        clp_value_nearest(scalar(key), clp_config_key_count() + 1, section_name, NULL);
    if (near)
        return refuse(w, key, "%.60s is no section; did you mean %s?", scalar(key), near);
    return refuse(w, key, "%.60s is no section", scalar(key));
}

static int read_root(const struct walk *w, const yaml_node_t *root)
{
    return each_pair(w, root, "the configuration", top_pair, NULL);
}

static int parse_failed(const yaml_parser_t *p, const char *name, struct clp_config_error *e)
{
    size_t line = p->problem_mark.line + 1;
    if (p->error == YAML_MEMORY_ERROR)
        return -ENOMEM;
    snprintf(e->text, sizeof(e->text), "%.200s:%zu: not YAML: %.200s", name, line,
             p->problem ? p->problem : "cannot be read");
    return -EINVAL;
}

/* A file of settings is four levels deep. libyaml takes time that grows with the square of the
 * depth, so what is deeper is refused before it is read as a whole; so is a second document, which
 * would be silently without effect. */
#define DEPTH_MAX 16

struct shape {
    unsigned depth, documents;
};

static int refuse_line(const yaml_event_t *event, const char *name, const char *what,
                       struct clp_config_error *e)
{
    snprintf(e->text, sizeof(e->text), "%.200s:%zu: %s", name, event->start_mark.line + 1, what);
    return -EINVAL;
}

static int take_event(struct shape *s, const yaml_event_t *event, const char *name,
                      struct clp_config_error *e)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (s->documents++ == 0)
            return 0;
        return refuse_line(event, name,
                           "a second document begins; a configuration is one document, without "
                           "--- between its parts",
                           e);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (s->depth++ < DEPTH_MAX)
            return 0;
        return refuse_line(event, name, "nested too deeply for a configuration", e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        s->depth--;
        return 0;
    default:
        return 0;
    }
}

static int check_shape(const char *name, const char *text, size_t len, struct clp_config_error *e)
{
    yaml_parser_t parser;
    struct shape s = {0};
    int r = 0;
    if (!yaml_parser_initialize(&parser))
        return -ENOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    for (bool end = false; r == 0 && !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            r = parse_failed(&parser, name, e);
            break;
        }
        r = take_event(&s, &event, name, e);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return r;
}

static int read_document(struct clp_config *c, const char *name, const char *text, size_t len,
                         int (*read)(const struct walk *w, const yaml_node_t *root),
                         struct clp_config_error *e)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    int r = check_shape(name, text, len, e);
    if (r < 0)
        return r;
    if (!yaml_parser_initialize(&parser))
        return -ENOMEM;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (!yaml_parser_load(&parser, &doc)) {
        r = parse_failed(&parser, name, e);
    } else {
        struct walk w = {.config = c, .doc = &doc, .name = name, .error = e};
        yaml_node_t *root = yaml_document_get_root_node(&doc);
        r = root ? read(&w, root) : 0; /* an empty file changes nothing */
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    return r;
}

int clp_config_read_text(struct clp_config *c, const char *name, const char *text, size_t len,
                         struct clp_config_error *e)
{
    return read_document(c, name, text, len, read_root, e);
}

int clp_config_read_uploads(struct clp_config *c, const char *name, const char *text, size_t len,
                            struct clp_config_error *e)
{
    return read_document(c, name, text, len, read_upload_list, e);
}
