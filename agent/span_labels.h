/* What samples say of the request that they were taken in: labels trace_id, span_id,
 * local_root_span_id and endpoint.
 *
 * The ids are known with the sample, the endpoint for good only when the local root ends: it is
 * added when the window has ended, or up to a window later (clp_span_labels_close). Part of
 * profile_build.h; one thread. */
#ifndef CLP_AGENT_SPAN_LABELS_H
#define CLP_AGENT_SPAN_LABELS_H

#include "base/core/core.h"
#include "base/map.h"
#include "pprof/profile.h"
#include "uploader/header.h"
#include "wire/reader.h"

/* How much of it goes into profiles. Each local root, or span, makes samples of its own. */
enum clp_span_mode {
    CLP_SPANS_FULL = 0,
    CLP_SPANS_ROOTS = 1, /* without span_id */
    CLP_SPANS_OFF = 2,
};

#define CLP_SPAN_LABELS_MAX 3u          /* of one sample, before its endpoint is known */
#define CLP_SPAN_ENDPOINTS_WINDOW 500u  /* distinct names in one window, then [other] */
#define CLP_SPAN_SETS_WINDOW 32768u     /* label sets with a span in one window, then without */
#define CLP_SPAN_ENDPOINTS_KNOWN 16384u /* names of one target */
#define CLP_SPAN_ROOTS_WINDOW 65536u

/* The span that a thread is in; span_id 0: none. */
struct clp_def_span {
    uint64_t trace_high, trace_low, span_id, local_root_span_id;
    uint64_t endpoint; /* number of the name that it began with; 0: none */
};

struct clp_span_labels {
    enum clp_span_mode mode;
    struct clp_map endpoints; /* number -> name */
    struct clp_map roots;     /* of this window: root -> endpoint, final ones with a bit */
    struct clp_map closed;    /* the same of the window before */
    uint32_t open;            /* of `closed`: without their last name */
    struct clp_map names;     /* shown in this window */
    struct clp_map requests;  /* that ended in this window, by endpoint */
    struct clp_upload_number ended[CLP_UPLOAD_NUMBERS_MAX]; /* of the window before: the busiest */
    size_t ended_count;
    uint32_t sets;    /* made in this window */
    uint64_t without; /* samples that got no span labels because there were too many */
};

void clp_span_labels_init(struct clp_span_labels *s, enum clp_span_mode mode);
void clp_span_labels_done(struct clp_span_labels *s);

/* Takes ENDPOINT and ROOT; of SPAN what concerns the endpoint. */
void clp_span_labels_record(struct clp_span_labels *s, const struct clp_reader_record *r);
/* Texts of one span's labels, which the labels point into. */
struct clp_span_texts {
    char trace[33], span[17], root[17];
};
/* Appends at most CLP_SPAN_LABELS_MAX labels; how many. */
size_t clp_span_labels_of(struct clp_span_labels *s, const struct clp_def_span *span,
                          struct clp_span_texts *texts, struct clp_profile_label *ret);
/* The window ends. What comes from here on belongs to the next one, but for the names of roots that
 * end now: they are still taken for this one, until clp_span_labels_name. */
void clp_span_labels_close(struct clp_span_labels *s, struct clp_profile *p);
/* Adds endpoints to the profile of the window that was closed last, as they are known by now. */
void clp_span_labels_name(struct clp_span_labels *s, struct clp_profile *p);

#endif
