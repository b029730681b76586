/* The contract between libclrpulse.so (in the target) and a reader (agent, record).
 *
 * Two channels per reader:
 *  - a Unix SOCK_SEQPACKET socket for a hand-shake and a few commands (struct clp_msg_*);
 *  - a shared memory object, made, sized, allocated and sealed by the reader (wire/memory.h) and
 *    handed over with SCM_RIGHTS: one header page, then a byte ring written by the library's one
 *    thread (wire/ring.h) and read by the reader (wire/reader.h; struct clp_rec_*).
 *
 * Trust: the reader may be root and the target hostile.  The reader copies what it reads, then
 * checks it (wire/reader.h); it never follows an offset out of the ring.  The library trusts the
 * reader as far as the runtime already does (whoever may send AttachProfiler owns the process).
 *
 * Everything is little-endian; the layouts are drawn in docs/wire.md and pinned below. */
#ifndef CLP_WIRE_WIRE_H
#define CLP_WIRE_WIRE_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define CLP_WIRE_MAGIC 0x3145524957504c43ull /* "CLPWIRE1" */
#define CLP_WIRE_VERSION 9u
#define CLP_WIRE_HEADER_BYTES 4096u
/* Four of the largest records: a record that does not fit before the ring's end and the padding in
 * front of it never fill the ring by themselves. */
#define CLP_WIRE_RING_MIN_BYTES (256u << 10)
#define CLP_WIRE_RING_MAX_BYTES (64u << 20)
#define CLP_WIRE_RECORD_MAX_BYTES (64u << 10)
#define CLP_WIRE_FRAMES_MAX 4096u
#define CLP_WIRE_ID_MAX 0x0fffffffu    /* image, method and body ids: what a frame can carry */
#define CLP_WIRE_VALUE_MAX (1ll << 53) /* of one sample; 104 days in nanoseconds */
#define CLP_WIRE_BUILD_ID_MAX 32u

/* ---- shared memory ------------------------------------------------------------------------- */

/* Counters of what the library did for this reader since it joined; written by the library's thread
 * only. One table makes the enum, `status`, the profile's comment and the manual. */
enum clp_counter {
#define CLP_COUNTER(id, name, kind, unit, text) CLP_CTR_##id,
#include "wire/counters.def"
#undef CLP_COUNTER
    CLP_CTR_COUNT
};

struct clp_wire_header {
    uint64_t magic; /* reader writes it last */
    uint32_t version;
    uint32_t ring_bytes; /* power of two; the ring starts at CLP_WIRE_HEADER_BYTES */
    uint64_t reserved0[6];

    /* Written by the library. Positions count bytes for ever; p lies at p % ring_bytes. */
    _Atomic uint64_t head; /* end of the last complete record; release */
    /* CLOCK_MONOTONIC of the library thread's last round; release, after its counters */
    _Atomic uint64_t heartbeat_ns;
    _Atomic uint64_t kept_seq; /* the largest next_seq that any reader has left behind */
    /* CLOCK_MONOTONIC from which on this reader is told, in front of the first heartbeat; 0: since
     * the program began, or since the reader came. */
    _Atomic uint64_t opened_ns;
    uint64_t reserved1[4];

    /* Written by the reader. */
    _Atomic uint64_t tail;     /* start of the first record not yet read; release */
    _Atomic uint64_t next_seq; /* number of the next profile (an agent); 0: takes no numbers */
    uint64_t reserved2[6];

    /* Written by the library; indexed by enum clp_counter. `marked` is what `counters` was at the
     * last MARK: written in front of it and left alone until the reader asks for the next one. */
    _Atomic uint64_t counters[64];
    _Atomic uint64_t marked[64];
};
static_assert(sizeof(struct clp_wire_header) == 64 * 3 + 64 * 8 * 2, "drawn in docs/wire.md");
static_assert(sizeof(struct clp_wire_header) <= CLP_WIRE_HEADER_BYTES, "one page");
static_assert(CLP_CTR_COUNT <= 64, "room for counters");
static_assert(offsetof(struct clp_wire_header, head) == 64, "writer's cache line");
static_assert(offsetof(struct clp_wire_header, tail) == 128, "reader's cache line");
static_assert(offsetof(struct clp_wire_header, counters) == 192, "drawn in docs/wire.md");
static_assert(offsetof(struct clp_wire_header, marked) == 704, "drawn in docs/wire.md");

/* ---- records ------------------------------------------------------------------------------- */

/* A record starts at a multiple of 8, is a multiple of 8 long and never wraps: CLP_REC_PAD fills
 * the end of the ring. Text fields: u16 length in the fixed part, bytes (UTF-8, no NUL) after it,
 * in the order of the lengths, zero padding at the end. */
enum clp_rec_type {
    CLP_REC_PAD = 1,    /* skip */
    CLP_REC_IMAGE = 2,  /* an ELF or managed module; before its first use */
    CLP_REC_METHOD = 3, /* a managed method */
    CLP_REC_BODY = 4,   /* one piece of compiled code of a method */
    CLP_REC_THREAD = 5, /* a thread, or its new name: the later one wins */
    CLP_REC_SAMPLE = 6,
    CLP_REC_MARK = 7, /* answer to CLP_MSG_FLUSH: all that happened before it is in the ring */
    CLP_REC_EVENT = 8,
    CLP_REC_SPAN = 10,     /* the span of a thread's samples from here on */
    CLP_REC_ENDPOINT = 11, /* the name of an endpoint; before its first use */
    CLP_REC_ROOT = 12, /* a local root has ended: its endpoint for good, also for samples before */
    CLP_REC_GONE = 13, /* a definition that new samples will not use */
    CLP_REC_TYPE_COUNT
};

struct clp_rec {
    uint32_t size;  /* whole record in bytes, this header included */
    uint16_t type;  /* enum clp_rec_type */
    uint16_t count; /* samples: number of frames; else 0 */
};
static_assert(sizeof(struct clp_rec) == 8, "drawn in docs/wire.md");

enum clp_image_kind {
    CLP_IMAGE_ELF = 1,
    CLP_IMAGE_MANAGED = 2, /* a PE file (R2R or IL); path as the runtime knows it */
    CLP_IMAGE_MEMORY = 3,  /* a managed module without a file: Reflection.Emit, Load(byte[]) */
    CLP_IMAGE_VDSO = 4,
};

struct clp_rec_image {
    struct clp_rec rec;
    uint32_t image_id; /* from 1 to CLP_WIRE_ID_MAX; never reused within a library's life */
    uint16_t kind;     /* enum clp_image_kind */
    uint16_t build_id_len;
    uint64_t start, end;  /* mapped range at definition time; for people and pprof mappings */
    uint64_t bias;        /* ELF: run-time address minus link-time address */
    uint64_t file_offset; /* of `start` in the file */
    uint16_t path_len;
    uint16_t reserved[3];
    /* build_id bytes, then path */
};
static_assert(sizeof(struct clp_rec_image) == 56, "drawn in docs/wire.md");

enum {
    /* Its type has another method of that name. For what a compiler made from a method M
     * (`<M>d__1`, `<M>b__1_0`, `<M>g__L|1_0`): the type that M was written in has another M. */
    CLP_METHOD_OVERLOADED = 1 << 0,
    CLP_METHOD_DYNAMIC = 1 << 1, /* LCG: DynamicMethod, compiled expression, compiled regex */
    CLP_METHOD_STUB = 1 << 2,    /* IL stub */
    CLP_METHOD_NAME_CUT = 1 << 3,
    /* Of a method whose type is a state machine: the type implements IAsyncStateMachine; or
     * System.Collections.IEnumerator or IAsyncEnumerator`1. An async iterator has both. By name
     * alone they look the same (`<M>d__1.MoveNext`). */
    CLP_METHOD_ASYNC = 1 << 4,
    CLP_METHOD_ITERATOR = 1 << 5,
};

/* Names are raw, as metadata has them; sampler/symbols makes them readable.
 *   type      "Ns.Outer`1+Inner", empty for dynamic and global methods
 *   name      "Method", ".ctor", "MoveNext"
 *   type_args "System.Int32,System.Collections.Generic.List`1[System.String]" of the type, may
 *             be empty. An argument of code that is shared by all reference types is
 *             "System.__Canon", with the parameter's name from metadata where it is known:
 *             "System.__Canon:TKey".
 *   method_args  the same for the method's own generic arguments
 *   signature "System.Int32,System.String[],System.Byte&,!0,!!0": parameters, no return type */
struct clp_rec_method {
    struct clp_rec rec;
    uint32_t method_id;
    uint32_t image_id; /* its module */
    uint32_t token;    /* mdMethodDef, 0 for dynamic methods */
    uint16_t flags;
    uint16_t type_len, name_len, type_args_len, method_args_len, signature_len;
    /* texts */
};
static_assert(sizeof(struct clp_rec_method) == 32, "drawn in docs/wire.md");

enum {
    CLP_BODY_R2R = 1 << 0, /* precompiled */
    CLP_BODY_OSR = 1 << 1,
};

struct clp_rec_body {
    struct clp_rec rec;
    uint32_t body_id;   /* from 1; never reused */
    uint32_t method_id; /* defined before */
    uint64_t start;     /* address */
    uint32_t code_bytes;
    uint32_t flags;
};
static_assert(sizeof(struct clp_rec_body) == 32, "drawn in docs/wire.md");

enum clp_thread_kind {
    CLP_THREAD_MANAGED = 1, /* has a Thread object */
    CLP_THREAD_RUNTIME = 2, /* the runtime's own native threads: GC, tiering, diagnostics */
    CLP_THREAD_NATIVE = 3,  /* everything else */
    CLP_THREAD_OURS = 4,    /* the library's one thread */
    CLP_THREAD_PROCESS = 5, /* stands for the whole process: [short-lived threads] */
};

struct clp_rec_thread {
    struct clp_rec rec;
    uint32_t thread_id; /* the library's number, from 1, never reused (tids are) */
    int32_t tid;        /* in the target's pid namespace */
    uint32_t kind;      /* enum clp_thread_kind */
    uint16_t name_len;
    uint16_t reserved;
    /* name */
};
static_assert(sizeof(struct clp_rec_thread) == 24, "drawn in docs/wire.md");

/* CPU and WALL come in SAMPLE records, the others in EVENT records. */
enum clp_sample_kind {
    CLP_SAMPLE_CPU = 1, /* value: CPU nanoseconds */
    /* value: nanoseconds in which the thread lived and did not run.  value2: the number of the
     * system call that it was in, plus one; 0 where there was none or it is not known. */
    CLP_SAMPLE_WALL = 2,
    CLP_SAMPLE_EXCEPTION = 3, /* value: exceptions; texts: type, message */
    CLP_SAMPLE_ALLOC = 4,     /* values: objects, bytes; texts: class, heap */
    CLP_SAMPLE_LOCK = 5, /* values: waits, nanoseconds; number: the owner's tid, 0 unknown; texts:
                          * its name; other frames: its stack, managed frames only */
    CLP_SAMPLE_LIVE = 6, /* values: objects, bytes; texts: class, age; number: generation */
    CLP_SAMPLE_GC = 7,   /* values: collections, pause nanoseconds; number: generation;
                          * texts: reason, kind */
    CLP_SAMPLE_WAIT = 8, /* values: waits for handles and monitors, nanoseconds */
    CLP_SAMPLE_KIND_COUNT
};
#define CLP_WIRE_WAITS_SINCE 9 /* the first .NET that tells of waits for handles */
#define CLP_SAMPLE_KINDS_EVENT                                                                     \
    (1u << CLP_SAMPLE_EXCEPTION | 1u << CLP_SAMPLE_ALLOC | 1u << CLP_SAMPLE_LOCK |                 \
     1u << CLP_SAMPLE_LIVE | 1u << CLP_SAMPLE_GC | 1u << CLP_SAMPLE_WAIT)
#define CLP_SAMPLE_KINDS_ALL (1u << CLP_SAMPLE_CPU | 1u << CLP_SAMPLE_WALL | CLP_SAMPLE_KINDS_EVENT)

/* A sample without frames (count 0) adds its value to the stack of the last sample of the same
 * thread and kind in this ring that has a stack: frames, and not the flag NO_STACK.  There always
 * is one: the library writes CLP_SPECIAL_UNSAMPLED instead where there is none.  So is the rest of
 * a thread's clock at a flush or at its end accounted for without the stack being sent again, and
 * so is a wait that goes on.  With the flag CPU_WAIT a sample of kind WALL without frames goes to
 * the thread's last stack of kind CPU, or, where the ring has none, to its last one of kind WALL.
 */
enum {
    CLP_SAMPLE_TRUNCATED = 1 << 0,    /* the root part of the stack is missing */
    CLP_SAMPLE_IN_EXCEPTION = 1 << 1, /* SIGSEGV was blocked: inside hardware exception handling */
    CLP_SAMPLE_GC_WAIT = 1 << 2,      /* waits for a garbage collection */
    CLP_SAMPLE_NO_STACK = 1 << 3,     /* time that is known without a stack; frames say why */
    CLP_SAMPLE_INCOMPLETE = 1 << 4,   /* the walk ended before a thread's root */
    CLP_SAMPLE_CPU_WAIT = 1 << 5,     /* WALL: could have run, and got no CPU */
    CLP_SAMPLE_IN_SPAN = 1 << 6,      /* inside the span of the thread's last SPAN record */
    CLP_SAMPLE_FLAGS_ALL = (1 << 7) - 1,
};

struct clp_rec_sample {
    struct clp_rec rec; /* count = frames */
    uint64_t time_ns;   /* CLOCK_MONOTONIC */
    int64_t value;      /* kind's unit */
    int64_t value2;     /* second value of the kind, or 0 */
    uint32_t thread_id;
    uint16_t kind;
    uint16_t flags;
    /* uint64_t frames[count], leaf first */
};
static_assert(sizeof(struct clp_rec_sample) == 40, "drawn in docs/wire.md");

/* An estimate made of events: `value` things of `kind` happened on this stack with these texts.
 * Complete in itself: its texts are in it, and a value that found the ring full comes later under a
 * word. The values of a kind in front of a MARK add up to its control totals. */
#define CLP_EVENT_TEXTS 2u
#define CLP_EVENT_TEXT_MAX_BYTES 1024u /* of each, at most */

struct clp_rec_event {
    struct clp_rec rec; /* count = frames, at least 1 */
    uint64_t time_ns;   /* CLOCK_MONOTONIC */
    double value;       /* finite, 0 to CLP_WIRE_VALUE_MAX, as is value2; fractions are meant */
    double value2;
    uint64_t number;
    uint32_t thread_id;
    uint16_t kind;
    uint16_t flags; /* as of samples */
    uint16_t text_len[CLP_EVENT_TEXTS];
    uint16_t other_count; /* of the frames, at their end: another thread's stack; < count */
    uint16_t reserved;
    /* uint64_t frames[count], leaf first; texts */
};
static_assert(sizeof(struct clp_rec_event) == 56, "drawn in docs/wire.md");

struct clp_rec_mark {
    struct clp_rec rec;
    uint64_t flush_id; /* of the FLUSH that it answers; 0 = the library's last words */
    uint64_t time_ns;  /* CLOCK_MONOTONIC up to which all CPU clocks are accounted for */
};
static_assert(sizeof(struct clp_rec_mark) == 24, "drawn in docs/wire.md");

/* Holds for the thread's samples with the flag IN_SPAN that follow in this ring, until the next
 * SPAN of that thread. Ids are the numbers that their hexadecimal texts write; never 0, but for the
 * local root of a span whose root is not known. */
struct clp_rec_span {
    struct clp_rec rec;
    uint32_t thread_id;
    uint32_t endpoint; /* defined before, as known when the samples were taken; 0 = not known */
    uint64_t trace_high, trace_low;
    uint64_t span_id;
    uint64_t local_root_span_id;
};
static_assert(sizeof(struct clp_rec_span) == 48, "drawn in docs/wire.md");

#define CLP_ENDPOINT_OTHER 1u /* [other]: needs no definition */
#define CLP_ENDPOINT_NAME_MAX_BYTES 200u

struct clp_rec_endpoint {
    struct clp_rec rec;
    uint32_t endpoint; /* from 2; never used again for another name */
    uint16_t name_len; /* from 1 to CLP_ENDPOINT_NAME_MAX_BYTES */
    uint16_t reserved;
    /* name */
};
static_assert(sizeof(struct clp_rec_endpoint) == 16, "drawn in docs/wire.md");

struct clp_rec_root {
    struct clp_rec rec;
    uint64_t local_root_span_id; /* 0: none that needs its name, only the count */
    uint32_t endpoint;           /* defined before */
    uint32_t ended;              /* local roots of that name since they were last counted */
};
static_assert(sizeof(struct clp_rec_root) == 24, "drawn in docs/wire.md");

/* Code that was unloaded, or a thread that ended: what follows in the ring refers to it only for
 * what happened before, as the place where an object that lives still was allocated; a thread is
 * defined anew before that. A reader may forget what nothing has referred to for a while. Best
 * effort: not everything that goes is told. */
struct clp_rec_gone {
    struct clp_rec rec;
    uint16_t what; /* CLP_REC_IMAGE, METHOD (with its bodies) or THREAD */
    uint16_t reserved;
    uint32_t id;
};
static_assert(sizeof(struct clp_rec_gone) == 16, "drawn in docs/wire.md");

/* Storage for any record, aligned as the ring is. */
union clp_rec_any {
    struct clp_rec rec;
    struct clp_rec_image image;
    struct clp_rec_method method;
    struct clp_rec_body body;
    struct clp_rec_thread thread;
    struct clp_rec_sample sample;
    struct clp_rec_event event;
    struct clp_rec_mark mark;
    struct clp_rec_span span;
    struct clp_rec_endpoint endpoint;
    struct clp_rec_root root;
    struct clp_rec_gone gone;
    uint64_t words[CLP_WIRE_RECORD_MAX_BYTES / 8];
    uint8_t bytes[CLP_WIRE_RECORD_MAX_BYTES];
};

/* ---- frames -------------------------------------------------------------------------------- */

/* kind (4 bits) | id (28 bits) | offset (32 bits).  The offset is that of the address to look up:
 * the interrupted instruction itself for a leaf, return address minus one for every caller. */
enum clp_frame_kind {
    CLP_FRAME_MANAGED = 1, /* id = body_id, offset from the body's start */
    CLP_FRAME_NATIVE = 2,  /* id = image_id, offset = link-time address */
    CLP_FRAME_SPECIAL = 3, /* id = enum clp_special */
    CLP_FRAME_UNKNOWN = 4, /* code that belongs to nothing known; id = 0, offset = 0 */
};

/* Frames that are words; the texts are in wire/specials.def, shown in brackets. */
enum clp_special {
    CLP_SPECIAL_NONE = 0,
#define CLP_SPECIAL(id, text) CLP_SPECIAL_##id,
#include "wire/specials.def"
#undef CLP_SPECIAL
    CLP_SPECIAL_COUNT
};

static inline uint64_t clp_frame_make(enum clp_frame_kind kind, uint32_t id, uint32_t offset)
{
    return ((uint64_t)kind << 60) | ((uint64_t)(id & 0x0fffffffu) << 32) | offset;
}
static inline enum clp_frame_kind clp_frame_kind(uint64_t frame)
{
    return (enum clp_frame_kind)(frame >> 60);
}
static inline uint32_t clp_frame_id(uint64_t frame)
{
    return (uint32_t)(frame >> 32) & 0x0fffffffu;
}
static inline uint32_t clp_frame_offset(uint64_t frame)
{
    return (uint32_t)frame;
}

/* ---- attach data and socket messages ------------------------------------------------------- */

#define CLP_NONCE_BYTES 16
#define CLP_SOCKET_PATH_MAX 104 /* fits sockaddr_un */

/* The client data of AttachProfiler, and, as "CLRPULSE_ATTACH=<hex of this struct>", the
 * environment of a process started under clrpulse.  Each attach announces one reader (but for
 * CLP_ATTACH_COUNT_ONLY): an attach
 * that finds the library already active hands it the new reader and answers 0x80131375 (cancel
 * activation), which the reader takes for success. */
struct clp_attach_data {
    uint64_t magic; /* CLP_WIRE_MAGIC */
    uint32_t version;
    uint32_t flags;                         /* enum below */
    uint8_t library_nonce[CLP_NONCE_BYTES]; /* the library shows it to the reader */
    uint8_t reader_nonce[CLP_NONCE_BYTES];  /* the reader shows it to the library */
    char socket_path[CLP_SOCKET_PATH_MAX];  /* as the target sees it, NUL-terminated */
};
static_assert(sizeof(struct clp_attach_data) == 152, "drawn in docs/wire.md");
/* The answer to RECOUNT: no reader is announced, the attach alone is wanted. */
enum { CLP_ATTACH_COUNT_ONLY = 1 };

enum clp_msg_type {
    CLP_MSG_HELLO = 1,    /* library -> reader, first */
    CLP_MSG_WELCOME = 2,  /* reader -> library, with the memfd */
    CLP_MSG_SETTINGS = 3, /* reader -> library, at any time after WELCOME */
    CLP_MSG_FLUSH = 4, /* reader -> library: account for everything up to now, then CLP_REC_MARK */
    CLP_MSG_BYE = 5,   /* reader -> library: leaves; a closed socket means the same without flags */
    CLP_MSG_REFUSED = 6, /* library -> reader: reason, then closes */
    CLP_MSG_RECOUNT = 7, /* library -> reader: attach once more, CLP_ATTACH_COUNT_ONLY; the runtime
                            has lost count of its profilers (sampler/inproc/counted.h) */
    CLP_MSG_TYPE_COUNT
};

struct clp_msg {
    uint32_t size; /* whole message */
    uint16_t type;
    uint16_t flags;
};

enum { CLP_BYE_DETACH_IF_LAST = 1 }; /* clp_msg.flags of BYE */
/* clp_msg.flags of REFUSED: every place is taken, which ends when a reader leaves. */
enum { CLP_REFUSED_FULL = 1 };

struct clp_msg_hello {
    struct clp_msg msg;
    uint64_t magic;
    uint32_t version;
    uint32_t pid; /* in the target's namespace */
    uint8_t library_nonce[CLP_NONCE_BYTES];
    uint16_t runtime_major, runtime_minor, runtime_patch, reserved;
    uint64_t flags; /* enum below */
    char library_version[32];
};
static_assert(sizeof(struct clp_msg_hello) == 88, "drawn in docs/wire.md");
/* System calls that a seccomp filter of the target refuses, as far as it costs something. */
enum { CLP_HELLO_NO_TIMERS = 1, CLP_HELLO_NO_VM_READV = 2 };

struct clp_settings {
    uint32_t sample_kinds;    /* bit (1 << enum clp_sample_kind) */
    uint32_t flags;           /* enum below */
    uint64_t cpu_interval_ns; /* mean; clamped to 1 ms .. 1 s; the smallest of all readers counts */
    /* What wall samples may cost, in millionths of one core; 0: CLP_WALL_BUDGET_PPM. The largest of
     * all readers counts. */
    uint32_t wall_budget_ppm;
    uint32_t reserved0;
    uint64_t reserved[5];
};
#define CLP_WALL_BUDGET_PPM 5000u
#define CLP_WALL_BUDGET_MAX_PPM 100000u
enum { CLP_SETTINGS_NATIVE_STACKS = 1 }; /* also sample threads that are not the runtime's */
#define CLP_CPU_INTERVAL_MIN_NS 1000000ull
#define CLP_CPU_INTERVAL_MAX_NS 1000000000ull
static_assert(sizeof(struct clp_settings) == 64, "drawn in docs/wire.md");

struct clp_msg_welcome {
    struct clp_msg msg;
    uint8_t reader_nonce[CLP_NONCE_BYTES];
    struct clp_settings settings;
};
static_assert(sizeof(struct clp_msg_welcome) == 88, "drawn in docs/wire.md");
struct clp_msg_settings {
    struct clp_msg msg;
    struct clp_settings settings;
};
static_assert(sizeof(struct clp_msg_settings) == 72, "drawn in docs/wire.md");
struct clp_msg_flush {
    struct clp_msg msg;
    uint64_t flush_id; /* the reader's number, not 0 */
};
static_assert(sizeof(struct clp_msg_flush) == 16, "drawn in docs/wire.md");
struct clp_msg_refused {
    struct clp_msg msg;
    char reason[120]; /* a sentence, NUL-terminated */
};
static_assert(sizeof(struct clp_msg_refused) == 128, "drawn in docs/wire.md");

/* Storage for any message, and for one that is too long to be one. */
union clp_msg_any {
    struct clp_msg msg;
    struct clp_msg_hello hello;
    struct clp_msg_welcome welcome;
    struct clp_msg_settings settings;
    struct clp_msg_flush flush;
    struct clp_msg_refused refused;
    uint8_t bytes[136];
};

#endif
