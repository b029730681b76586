/* A reader of the library's ring in its smallest form, which believes nothing: it checks that every
 * definition comes before its first use and adds up what each thread was given. */
#ifndef CLP_TESTS_UNIT_LOOP_READER_H
#define CLP_TESTS_UNIT_LOOP_READER_H

#include "wire/reader.h"
#include "wire/wire.h"

#include <stdbool.h>

#define LOOP_READER_IDS 65536u
#define LOOP_READER_THREADS 4096u

/* Looks each millisecond whether it holds, and fails when it never does. */
#define loop_wait_until(condition)                                                                 \
    do {                                                                                           \
        for (int looks = 0; looks < 10000 && !(condition); looks++)                                \
            usleep(1000);                                                                          \
        assert_true(condition);                                                                    \
    } while (0)

struct loop_reader_thread {
    bool defined, has_stack;
    int32_t tid;
    uint32_t kind;
    char name[128];
    uint64_t total_ns, stack_ns; /* stack_ns: on real stacks, samples without frames included */
    uint64_t special_ns[CLP_SPECIAL_COUNT];
    uint32_t samples, incomplete, truncated;
};

struct loop_reader {
    int listener, sock, memfd;
    void *mapping;
    uint32_t ring_bytes;
    char path[64];
    struct clp_attach_data attach;
    struct clp_msg_hello hello;
    struct clp_reader *reader;

    bool image[LOOP_READER_IDS], method[LOOP_READER_IDS], body[LOOP_READER_IDS];
    char image_path[64][256]; /* of the first ids */
    struct loop_reader_thread threads[LOOP_READER_THREADS];
    uint64_t records, mark_id, mark_ns, last_time_ns;
    uint64_t total_at_mark_ns; /* all values in front of the last mark */
    uint64_t managed_frames, native_frames;
    const char *broken; /* the first promise that was broken, or NULL */
    /* For tests that look at stacks. */
    void (*on_sample)(void *user, const struct clp_reader_record *rec);
    void *user;
};

/* Announces itself to the loop and does the hand-shake; asserts that it succeeds. */
void loop_reader_open(struct loop_reader *r, uint32_t ring_bytes, uint32_t kinds,
                      uint64_t interval_ns);
/* The steps of it, for readers that misbehave. */
void loop_reader_announce(struct loop_reader *r);
bool loop_reader_accept(struct loop_reader *r, int timeout_ms);
int loop_reader_welcome(struct loop_reader *r, const uint8_t *nonce, int fd, uint32_t kinds,
                        uint64_t interval_ns);
/* With memory of its own, after the greeting; it is active some time later. */
void loop_reader_join(struct loop_reader *r, uint32_t ring_bytes, uint32_t kinds,
                      uint64_t interval_ns);
void loop_reader_send(struct loop_reader *r, const void *msg, size_t len);
/* The next message from the library: its bytes, 0 = closed, -1 = none in time. */
int loop_reader_receive(struct loop_reader *r, void *buf, size_t cap, int timeout_ms);

/* Waits until the library shows counters: the reader is active. */
void loop_reader_wait_active(struct loop_reader *r);
/* Reads what is there; asserts that nothing is broken. Records read. */
uint64_t loop_reader_pump(struct loop_reader *r);
void loop_reader_pump_for(struct loop_reader *r, uint64_t ns);
void loop_reader_settings(struct loop_reader *r, uint32_t kinds, uint64_t interval_ns);
/* FLUSH, and reads up to its MARK. */
void loop_reader_flush(struct loop_reader *r, uint64_t id);
bool loop_reader_wait_mark(struct loop_reader *r, uint64_t id, int timeout_ms);
void loop_reader_bye(struct loop_reader *r, uint16_t flags);
/* Frees everything; without a BYE sent before it is a reader that was killed. */
void loop_reader_close(struct loop_reader *r);

struct loop_reader_thread *loop_reader_by_tid(struct loop_reader *r, int32_t tid);
uint64_t loop_reader_total(const struct loop_reader *r);
uint64_t loop_reader_special(const struct loop_reader *r, enum clp_special s);

#endif
