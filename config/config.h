/* The agent's settings: defaults, then the file, then the environment; the later wins.
 *
 * Errors are one sentence with the place: "clrpulse.yaml:12: profile.perod is no setting; did you
 * mean profile.period?". Agent side, one thread. */
#ifndef CLP_CONFIG_CONFIG_H
#define CLP_CONFIG_CONFIG_H

#include "base/core/core.h"
#include "base/log.h"
#include "config/value.h"

#include <stdbool.h>

#define CLP_CONFIG_FILE_MAX_BYTES (1u << 20)
#define CLP_CONFIG_UPLOADS_MAX 8u
#define CLP_CONFIG_ERROR_BYTES 512u
#define CLP_CONFIG_DEFAULT_PATH "/etc/clrpulse/clrpulse.yaml"

/* In the order of enum clp_span_mode (agent/span_labels.h). */
enum clp_config_spans { CLP_CONFIG_SPANS_FULL, CLP_CONFIG_SPANS_ROOT, CLP_CONFIG_SPANS_OFF };
enum clp_config_engine {
    CLP_CONFIG_ENGINE_AUTO,
    CLP_CONFIG_ENGINE_LIBRARY,
    CLP_CONFIG_ENGINE_EVENTPIPE
};
enum clp_config_log_format { CLP_CONFIG_LOG_TEXT, CLP_CONFIG_LOG_JSON };

#define CLP_CONFIG_UPLOAD_C_TEXT char *
#define CLP_CONFIG_UPLOAD_C_SECRET char *
#define CLP_CONFIG_UPLOAD_C_DURATION uint64_t
#define CLP_CONFIG_UPLOAD_C_SIZE uint64_t

/* One destination as it was written; what belongs to which kind is checked. What was not given is
 * NULL or 0. */
struct clp_config_upload {
    char *kind; /* "directory", "http"... */
#define CLP_UPLOAD_KEY(field, kind, kinds, text) CLP_CONFIG_UPLOAD_C_##kind field;
#include "config/uploads.def"
    struct clp_list headers; /* "Name: value" */
};

/* C type of each KIND of options.def. */
#define CLP_CONFIG_C_TEXT char *
#define CLP_CONFIG_C_DURATION uint64_t
#define CLP_CONFIG_C_PERCENT uint32_t /* in millionths */
#define CLP_CONFIG_PERCENT_OF_CORE_MAX 100000
#define CLP_CONFIG_C_SIZE uint64_t
#define CLP_CONFIG_C_LIST struct clp_list
#define CLP_CONFIG_C_TAGS struct clp_list
#define CLP_CONFIG_C_TYPES uint32_t
#define CLP_CONFIG_C_SWITCH bool
#define CLP_CONFIG_C_SPANS enum clp_config_spans
#define CLP_CONFIG_C_ENGINE enum clp_config_engine
#define CLP_CONFIG_C_LEVEL enum clp_log_level
#define CLP_CONFIG_C_FORMAT enum clp_config_log_format

struct clp_config {
    /* section_key: service_name, profile_period (ns), service_tags ("key:value" each)... */
#define CLP_KEY(section, key, kind, initial, low, high, text) CLP_CONFIG_C_##kind section##_##key;
#include "config/options.def"
    struct clp_config_upload uploads[CLP_CONFIG_UPLOADS_MAX];
    size_t upload_count; /* 0: a directory below state_dir */
};

struct clp_config_error {
    char text[CLP_CONFIG_ERROR_BYTES];
};

/* Defaults. 0 or -ENOMEM. Release with done, also after a later failure. */
int clp_config_init(struct clp_config *c) CLP_MUST_USE;
void clp_config_done(struct clp_config *c);

/* Reads a file over what is there. 0; -EINVAL with *ret_error for its contents; what reading it
 * said (also in words), -ENOENT among it. */
int clp_config_read_file(struct clp_config *c, const char *path,
                         struct clp_config_error *ret_error) CLP_MUST_USE;
/* The same from memory; `name` stands for the file in errors. */
int clp_config_read_text(struct clp_config *c, const char *name, const char *text, size_t len,
                         struct clp_config_error *ret_error) CLP_MUST_USE;
/* CLRPULSE_SECTION_KEY of `environment` (as environ), CLRPULSE_UPLOAD as YAML. Other variables that
 * begin with CLRPULSE_ are no error: clp_config_doubt_environment tells of them. */
int clp_config_read_environment(struct clp_config *c, char *const *environment,
                                struct clp_config_error *ret_error) CLP_MUST_USE;
/* Says a sentence for each variable that begins with CLRPULSE_ and that nothing reads: most likely
 * a name that was mistyped. Not for those that Kubernetes makes for a service called clrpulse. */
void clp_config_doubt_environment(char *const *environment,
                                  void (*say)(void *context, const char *sentence), void *context);
/* "section.key=value", as on the command line. 0, -EINVAL, -ENOMEM. */
int clp_config_assign(struct clp_config *c, const char *assignment,
                      struct clp_config_error *ret_error) CLP_MUST_USE;
/* Combinations that no single value shows. 0 or -EINVAL. */
int clp_config_check(const struct clp_config *c, struct clp_config_error *ret_error) CLP_MUST_USE;

/* ---- the table, for the reader of files, help and manual ---- */

enum clp_config_kind {
    CLP_CONFIG_TEXT,
    CLP_CONFIG_DURATION,
    CLP_CONFIG_PERCENT,
    CLP_CONFIG_SIZE,
    CLP_CONFIG_LIST,
    CLP_CONFIG_TAGS,
    CLP_CONFIG_TYPES,
    CLP_CONFIG_SWITCH,
    CLP_CONFIG_SPANS,
    CLP_CONFIG_ENGINE,
    CLP_CONFIG_LEVEL,
    CLP_CONFIG_FORMAT,
};

struct clp_config_key {
    const char *section, *key, *initial, *text;
    enum clp_config_kind kind;
    size_t offset;      /* in struct clp_config */
    uint64_t low, high; /* of durations (ns), sizes (bytes) and percentages (millionths) */
};
size_t clp_config_key_count(void);
const struct clp_config_key *clp_config_key_at(size_t i);

/* The keys of an entry of `upload`, for help and for reading. */
enum clp_config_upload_kind {
    CLP_CONFIG_UPLOAD_TEXT,
    CLP_CONFIG_UPLOAD_SECRET,
    CLP_CONFIG_UPLOAD_DURATION,
    CLP_CONFIG_UPLOAD_SIZE,
};
struct clp_config_upload_key {
    const char *name, *kinds, *text; /* kinds: the kinds of intake, with blanks around each */
    enum clp_config_upload_kind kind;
    size_t offset; /* in struct clp_config_upload */
};
size_t clp_config_upload_key_count(void);
const struct clp_config_upload_key *clp_config_upload_key_at(size_t i);

/* Sets one key from text (lists: comma-separated). 0, -EINVAL with the reason, without a place, in
 * *ret_error, -ENOMEM. */
int clp_config_set(struct clp_config *c, const struct clp_config_key *k, const char *value,
                   struct clp_config_error *ret_error) CLP_MUST_USE;

#endif
