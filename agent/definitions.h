/* What a target has defined so far: images, methods, code bodies, threads. Part of profile_build.h.
 *
 * What the library tells to have gone is kept for a window in which nothing refers to it, and as
 * long as it is in the last stack of a thread. For the rest bounded by bytes and, for threads, by
 * number: thread numbers are never used again, so those whose kernel thread is gone are forgotten
 * when the table is full, then those that were quiet for longest.  When the bytes run short,
 * methods, bodies and images that were not used for longest are evicted between two windows. The
 * library tells each once, so what comes up again later, like what found no room, has no name any
 * more: the agent shows it as [other]. */
#ifndef CLP_AGENT_DEFINITIONS_H
#define CLP_AGENT_DEFINITIONS_H

#include "agent/span_labels.h"
#include "base/core/core.h"
#include "agent/waits.h"
#include "base/map.h"
#include "sampler/symbols/managed_name.h"
#include "sampler/symbols/native_symbols.h"
#include "sampler/symbols/pdb.h"
#include "wire/reader.h"
#include "wire/wire.h"

#include <stdbool.h>

/* `window` in these tells for which window the ids beside it are valid. */
struct clp_def_image {
    uint16_t kind; /* enum clp_image_kind */
    uint64_t start, end, bias, file_offset;
    uint8_t build_id[CLP_WIRE_BUILD_ID_MAX];
    size_t build_id_len;
    struct clp_symbols_image *symbols; /* NULL: none to be had */
    struct clp_pdb *pdb;               /* managed: its source lines; NULL: none to be had */
    uint64_t window;
    uint32_t mapping;
    uint64_t seen; /* window of its last use */
    bool gone;     /* unloaded */
    char path[];
};

struct clp_def_method {
    uint32_t image_id;
    uint32_t token; /* mdMethodDef, 0 for dynamic methods */
    uint16_t flags;
    uint16_t len[5]; /* of type, name, type_args, method_args, signature in `text` */
    uint64_t window;
    uint32_t location;
    uint64_t seen; /* window of its last use, or of its definition */
    bool gone;     /* unloaded */
    char text[];
};

/* The last sample with a stack that a thread had of one kind: what follows may refer to it. */
struct clp_def_last {
    uint32_t stack; /* id + 1 in the thread's window; 0: not made yet */
    enum clp_wait wait;
    struct clp_def_span span; /* span_id 0: none */
    uint64_t *frames;         /* raw, for the windows after */
    uint32_t frame_count, frame_cap;
};

struct clp_def_thread {
    int32_t tid;
    uint32_t kind; /* enum clp_thread_kind */
    bool gone;     /* ended; defined anew if it is needed once more */
    char *name;
    uint64_t window;                 /* the last one with a sample */
    uint32_t labels[CLP_WAIT_COUNT]; /* id + 1 of its label sets; 0: not made yet */
    struct clp_def_last cpu, wall;
    struct clp_def_span span;             /* of its samples that are in one */
    uint32_t span_labels[CLP_WAIT_COUNT]; /* as `labels`, inside `span` */
};

struct clp_definitions {
    struct clp_map images, methods, bodies, threads; /* bodies: method id as number */
    struct clp_symbols *symbols;
    int root_fd;
    int32_t pid;  /* 0: threads cannot be looked up by their tid */
    size_t bytes; /* in use */
    size_t ceiling;
    uint64_t now;       /* number of the window */
    uint64_t refused;   /* definitions beyond the ceiling */
    uint64_t evicted;   /* definitions that made room */
    bool any_gone;      /* a method, ever */
    bool incomplete;    /* something was refused or evicted, ever: an unknown id may be that */
    uint64_t forgotten; /* threads */
    uint32_t pdbs;      /* open; each holds a file */
};

void clp_definitions_init(struct clp_definitions *d, struct clp_symbols *symbols, int root_fd,
                          int32_t pid, size_t ceiling_bytes);
void clp_definitions_done(struct clp_definitions *d);
/* Takes IMAGE, METHOD, BODY, THREAD and GONE. What does not fit is counted. */
void clp_definitions_add(struct clp_definitions *d, const struct clp_reader_record *r);

/* A window begins. What has gone, and was not used in the whole window before, is forgotten. When
 * more than three quarters of the room are in use, it is halved first. */
void clp_definitions_turn(struct clp_definitions *d, uint64_t window);

struct clp_def_image *clp_definitions_image(const struct clp_definitions *d, uint32_t image_id);
/* The method of a code body. */
struct clp_def_method *clp_definitions_method(const struct clp_definitions *d, uint32_t body_id);
/* What names a frame counts as used in this window. */
void clp_definitions_use(const struct clp_definitions *d, uint64_t frame);
struct clp_def_thread *clp_definitions_thread(const struct clp_definitions *d, uint32_t thread_id);
/* Views into m->text. */
struct clp_managed_raw clp_def_method_raw(const struct clp_def_method *m);
/* Keeps a copy of a thread's stack. 0 or -ENOSPC, -ENOMEM with none kept. */
int clp_def_last_keep(struct clp_definitions *d, struct clp_def_last *l, const uint64_t *frames,
                      uint32_t count) CLP_MUST_USE;

#endif
