/* The connections to the readers: hand-shake, messages, shared memory.
 *
 * Nothing here blocks: sockets are non-blocking, sends raise no signal, each round handles a
 * bounded number of messages.  A reader that breaks the rules is told why, once, and dropped. Loop
 * thread only. */
#ifndef CLP_SAMPLER_INPROC_LINKS_H
#define CLP_SAMPLER_INPROC_LINKS_H

#include "base/core/core.h"
#include "sampler/inproc/feed.h"
#include "wire/wire.h"

#include <stdbool.h>

#define CLP_LINKS_MAX 4

enum clp_link_state {
    CLP_LINK_FREE = 0,
    CLP_LINK_CONNECTING, /* the reader's queue was full */
    CLP_LINK_GREETED,    /* HELLO is sent */
    CLP_LINK_WELCOMED,   /* the memory is mapped; the loop will open the feed */
    CLP_LINK_ACTIVE,     /* the feed is open */
};

struct clp_link {
    enum clp_link_state state;
    int sock;
    uint64_t deadline_ns; /* of the hand-shake */
    struct clp_attach_data attach;
    struct clp_settings settings;
    void *mapping;
    size_t mapped_bytes;
    uint64_t flush_id; /* asked for, not yet accounted; 0 = none */
    bool reset;        /* the socket told once that the other end is closed */
    bool mark_due;     /* accounted, the mark is not yet in the ring */
    uint64_t mark_id, mark_time_ns;
    struct clp_feed feed;
};

struct clp_links_self {
    uint16_t major, minor, patch; /* of the runtime, for HELLO */
    bool own_descriptors;         /* this thread's descriptor table is its own */
};

void clp_links_init(const struct clp_links_self *self);

/* Begins the hand-shake with an announced reader. false when there is no place (it is told). */
bool clp_links_connect(const struct clp_attach_data *attach, uint64_t now_ns);

/* What serving the sockets brought about; the loop acts on it. */
struct clp_links_news {
    bool settings_changed; /* also: a reader came or went */
    bool detach_asked;     /* the last reader left and wished it */
};
void clp_links_serve(uint64_t now_ns, struct clp_links_news *news);

/* A place by number, for all in [0, CLP_LINKS_MAX). */
struct clp_link *clp_links_at(unsigned i);
/* Drops a link; with a reason, the reader is told. */
void clp_link_close(struct clp_link *l, const char *reason);
/* Asks a reader for the attach that puts the runtime's count right. */
void clp_link_ask_recount(struct clp_link *l);
/* Any place in use? */
bool clp_links_any(void);

#endif
