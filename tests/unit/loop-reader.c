#include "tests/unit/loop-reader.h"

#include "sampler/inproc/clock.h"
#include "sampler/inproc/loop.h"
#include "wire/memory.h"
#include "wire/message.h"

#include "tests/unit/clp-cmocka.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void loop_reader_announce(struct loop_reader *r)
{
    static int number;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memset(r, 0, sizeof(*r));
    r->sock = r->memfd = -1;
    snprintf(r->path, sizeof(r->path), "/tmp/clp-loop-%d-%d", getpid(), ++number);
    memcpy(a.sun_path, r->path, sizeof(r->path));
    r->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    unlink(r->path);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(r->listener, 1), 0);
    r->attach = (struct clp_attach_data){.magic = CLP_WIRE_MAGIC, .version = CLP_WIRE_VERSION};
    memset(r->attach.library_nonce, 'a' + number % 26, CLP_NONCE_BYTES);
    memset(r->attach.reader_nonce, 'A' + number % 26, CLP_NONCE_BYTES);
    memcpy(r->attach.socket_path, r->path, sizeof(r->path));
    assert_int_equal(clp_loop_add_reader(&r->attach), 0);
}

int loop_reader_receive(struct loop_reader *r, void *buf, size_t cap, int timeout_ms)
{
    struct pollfd p = {.fd = r->sock, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0)
        return -1;
    ssize_t n = recv(r->sock, buf, cap, MSG_DONTWAIT);
    return n < 0 ? 0 : (int)n; /* a reset is an end as well */
}

bool loop_reader_accept(struct loop_reader *r, int timeout_ms)
{
    char version[40];
    struct pollfd p = {.fd = r->listener, .events = POLLIN};
    if (poll(&p, 1, timeout_ms) <= 0)
        return false;
    r->sock = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(r->sock >= 0);
    if (loop_reader_receive(r, &r->hello, sizeof(r->hello), timeout_ms) != sizeof(r->hello))
        return false;
    assert_int_equal(clp_msg_check(&r->hello, sizeof(r->hello)), CLP_MSG_HELLO);
    assert_int_equal(
        clp_msg_hello_check(&r->hello, r->attach.library_nonce, version, sizeof(version)), 0);
    assert_int_equal(r->hello.pid, getpid());
    return true;
}

int loop_reader_welcome(struct loop_reader *r, const uint8_t *nonce, int fd, uint32_t kinds,
                        uint64_t interval_ns)
{
    struct clp_msg_welcome w = {.msg = {sizeof(w), CLP_MSG_WELCOME, 0},
                                .settings = {.sample_kinds = kinds,
                                             .cpu_interval_ns = interval_ns,
                                             .flags = CLP_SETTINGS_NATIVE_STACKS}};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&w, sizeof(w)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    memcpy(w.reader_nonce, nonce, CLP_NONCE_BYTES);
    if (fd >= 0) {
        m.msg_control = control;
        m.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    return sendmsg(r->sock, &m, MSG_NOSIGNAL) == sizeof(w) ? 0 : -errno;
}

void loop_reader_join(struct loop_reader *r, uint32_t ring_bytes, uint32_t kinds,
                      uint64_t interval_ns)
{
    assert_int_equal(clp_wire_memory_create(ring_bytes, &r->memfd, &r->mapping), 0);
    r->ring_bytes = ring_bytes;
    assert_int_equal(clp_reader_new(r->mapping, ring_bytes, &r->reader), 0);
    assert_int_equal(loop_reader_welcome(r, r->attach.reader_nonce, r->memfd, kinds, interval_ns),
                     0);
}

void loop_reader_open(struct loop_reader *r, uint32_t ring_bytes, uint32_t kinds,
                      uint64_t interval_ns)
{
    loop_reader_announce(r);
    assert_true(loop_reader_accept(r, 10000));
    loop_reader_join(r, ring_bytes, kinds, interval_ns);
    loop_reader_wait_active(r);
}

void loop_reader_wait_active(struct loop_reader *r)
{
    struct clp_msg_refused m;
    for (int i = 0; clp_reader_heartbeat_ns(r->reader) == 0; i++) {
        if (loop_reader_receive(r, &m, sizeof(m), 0) == sizeof(m))
            fail_msg("refused: %.120s", m.reason);
        assert_true(i < 3000);
        usleep(1000);
    }
}

void loop_reader_send(struct loop_reader *r, const void *msg, size_t len)
{
    assert_int_equal(send(r->sock, msg, len, MSG_NOSIGNAL), len);
}

/* ---- reading ---- */

static void breaks(struct loop_reader *r, const char *what)
{
    if (!r->broken)
        r->broken = what;
}

static bool *flag(struct loop_reader *r, bool *table, uint32_t id)
{
    if (id >= LOOP_READER_IDS) {
        breaks(r, "an id beyond the test's tables");
        id = 0;
    }
    return &table[id];
}

static struct loop_reader_thread *thread_at(struct loop_reader *r, uint32_t id)
{
    if (id >= LOOP_READER_THREADS) {
        breaks(r, "a thread beyond the test's table");
        id = 0;
    }
    return &r->threads[id];
}

static void take_sample(struct loop_reader *r, const struct clp_reader_record *rec)
{
    const struct clp_rec_sample *s = rec->sample.rec;
    struct loop_reader_thread *t = thread_at(r, s->thread_id);
    uint16_t n = s->rec.count;
    if (!t->defined)
        breaks(r, "a sample of a thread that was not defined");
    if (n == 0 && !t->has_stack)
        breaks(r, "a sample without frames, and no stack before it");
    if (s->value == 0)
        breaks(r, "a sample of nothing");
    for (uint16_t i = 0; i < n; i++) {
        uint64_t f = rec->sample.frames[i];
        if (clp_frame_kind(f) == CLP_FRAME_MANAGED && !*flag(r, r->body, clp_frame_id(f)))
            breaks(r, "a body that was not defined");
        if (clp_frame_kind(f) == CLP_FRAME_NATIVE && !*flag(r, r->image, clp_frame_id(f)))
            breaks(r, "an image that was not defined");
        r->managed_frames += clp_frame_kind(f) == CLP_FRAME_MANAGED;
        r->native_frames += clp_frame_kind(f) == CLP_FRAME_NATIVE;
    }
    t->total_ns += (uint64_t)s->value;
    if (s->flags & CLP_SAMPLE_NO_STACK) {
        if (n != 1 || clp_frame_kind(rec->sample.frames[0]) != CLP_FRAME_SPECIAL)
            breaks(r, "time without a stack says no reason");
        else
            t->special_ns[clp_frame_id(rec->sample.frames[0])] += (uint64_t)s->value;
    } else {
        t->stack_ns += (uint64_t)s->value;
        t->has_stack = true;
        t->samples += n > 0;
        t->incomplete += (s->flags & CLP_SAMPLE_INCOMPLETE) != 0;
        t->truncated += (s->flags & CLP_SAMPLE_TRUNCATED) != 0;
    }
    r->last_time_ns = s->time_ns;
    if (r->on_sample && n > 0)
        r->on_sample(r->user, rec);
}

static void take(struct loop_reader *r, const struct clp_reader_record *rec)
{
    r->records++;
    switch (rec->type) {
    case CLP_REC_IMAGE:
        *flag(r, r->image, rec->image.rec->image_id) = true;
        if (rec->image.rec->image_id < CLP_ARRAY_LEN(r->image_path))
            snprintf(r->image_path[rec->image.rec->image_id], 256, "%s", rec->image.path);
        break;
    case CLP_REC_METHOD:
        if (!*flag(r, r->image, rec->method.rec->image_id))
            breaks(r, "a method before its image");
        *flag(r, r->method, rec->method.rec->method_id) = true;
        break;
    case CLP_REC_BODY:
        if (!*flag(r, r->method, rec->body.rec->method_id))
            breaks(r, "a body before its method");
        *flag(r, r->body, rec->body.rec->body_id) = true;
        break;
    case CLP_REC_THREAD: {
        struct loop_reader_thread *t = thread_at(r, rec->thread.rec->thread_id);
        t->defined = true;
        t->tid = rec->thread.rec->tid;
        t->kind = rec->thread.rec->kind;
        snprintf(t->name, sizeof(t->name), "%s", rec->thread.name);
        break;
    }
    case CLP_REC_SAMPLE:
        take_sample(r, rec);
        break;
    case CLP_REC_MARK:
        r->mark_id = rec->mark.rec->flush_id;
        r->mark_ns = rec->mark.rec->time_ns;
        r->total_at_mark_ns = loop_reader_total(r);
        break;
    default:
        breaks(r, "an unknown record");
    }
}

uint64_t loop_reader_pump(struct loop_reader *r)
{
    struct clp_reader_record rec;
    uint64_t before = r->records;
    if (clp_reader_poll(r->reader) < 0)
        fail_msg("ring: %s", clp_reader_error(r->reader));
    while (clp_reader_next(r->reader, &rec) == 1)
        take(r, &rec);
    assert_string_equal(clp_reader_error(r->reader), "");
    if (r->broken)
        fail_msg("broken promise: %s", r->broken);
    return r->records - before;
}

void loop_reader_pump_for(struct loop_reader *r, uint64_t ns)
{
    uint64_t end = clp_clock_monotonic_ns() + ns;
    while (clp_clock_monotonic_ns() < end) {
        loop_reader_pump(r);
        usleep(10000);
    }
}

void loop_reader_settings(struct loop_reader *r, uint32_t kinds, uint64_t interval_ns)
{
    struct clp_msg_settings m = {
        .msg = {sizeof(m), CLP_MSG_SETTINGS, 0},
        .settings = {.sample_kinds = kinds, .cpu_interval_ns = interval_ns}};
    loop_reader_send(r, &m, sizeof(m));
}

bool loop_reader_wait_mark(struct loop_reader *r, uint64_t id, int timeout_ms)
{
    for (int i = 0; i < timeout_ms; i++) {
        loop_reader_pump(r);
        if (r->mark_ns && r->mark_id == id)
            return true;
        usleep(1000);
    }
    return false;
}

void loop_reader_flush(struct loop_reader *r, uint64_t id)
{
    struct clp_msg_flush m = {.msg = {sizeof(m), CLP_MSG_FLUSH, 0}, .flush_id = id};
    loop_reader_send(r, &m, sizeof(m));
    assert_true(loop_reader_wait_mark(r, id, 3000));
}

void loop_reader_bye(struct loop_reader *r, uint16_t flags)
{
    struct clp_msg m = {sizeof(m), CLP_MSG_BYE, flags};
    loop_reader_send(r, &m, sizeof(m));
}

void loop_reader_close(struct loop_reader *r)
{
    if (r->sock >= 0)
        close(r->sock);
    if (r->memfd >= 0)
        close(r->memfd);
    close(r->listener);
    unlink(r->path);
    clp_reader_free(r->reader);
    if (r->mapping)
        munmap(r->mapping, CLP_WIRE_HEADER_BYTES + r->ring_bytes);
    r->sock = r->memfd = -1;
    r->reader = NULL;
    r->mapping = NULL;
}

/* ---- sums ---- */

struct loop_reader_thread *loop_reader_by_tid(struct loop_reader *r, int32_t tid)
{
    for (uint32_t i = LOOP_READER_THREADS; i-- > 0;)
        if (r->threads[i].defined && r->threads[i].tid == tid &&
            r->threads[i].kind != CLP_THREAD_PROCESS)
            return &r->threads[i];
    return NULL;
}

uint64_t loop_reader_total(const struct loop_reader *r)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < LOOP_READER_THREADS; i++)
        n += r->threads[i].total_ns;
    return n;
}

uint64_t loop_reader_special(const struct loop_reader *r, enum clp_special s)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < LOOP_READER_THREADS; i++)
        n += r->threads[i].special_ns[s];
    return n;
}
