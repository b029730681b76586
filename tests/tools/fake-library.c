/* A process that looks to clrpulse like a .NET process with the library in it, and does what a test
 * tells it: the other side of the diagnostics port and of the wire, without a runtime.
 *
 *     fake-library [--tmp DIR] [--result HRESULT] [--exit-after MS] [--no-mark] [--no-connect]
 *                  [--wrong-nonce] [--garbage] [--refuse TEXT] [--leave-after MS] [--version N.N.N]
 *                  [--cpu NS] [--undumpable] [--full MS] [--no-entry]
 *                  [--refused-calls FLAGS] [--mute-hook]
 *
 * It prints "ready PID" when its port is open, "resumed" when it is let go, and "detach" when a
 * reader's BYE asked for that. With --mute-hook it is ready for a start-up hook, prints "hook" when
 * asked to run one, and never answers. Every 10 ms a sample of NS nanoseconds (default 1,000,000)
 * of method Fake.Work.Spin called by Fake.Program.Main is written; after a FLUSH its MARK.  One
 * reader at a time. */
#include "base/clock.h"
#include "base/core/proctext.h"
#include "base/file.h"
#include "wire/memory.h"
#include "wire/message.h"
#include "wire/ring.h"
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SAMPLE_MS 10

static struct {
    const char *tmp, *version, *refuse;
    uint32_t result;
    uint64_t exit_after_ms, leave_after_ms, cpu_ns, refused_calls;
    uint64_t full_until_ns; /* every place is taken until then */
    bool no_entry, no_mark, mute_hook, no_connect, wrong_nonce, garbage;
} options = {.tmp = "/tmp", .version = "10.0.1", .cpu_ns = 1000000};

static void die(const char *what)
{
    perror(what);
    exit(99);
}

/* ---- diagnostics port ---- */

static uint64_t own_start_ticks(void)
{
    char *text = NULL;
    size_t len;
    struct clp_proc_stat s;
    if (clp_file_read("/proc/self/stat", 4096, &text, &len) < 0 ||
        clp_proctext_stat(text, len, &s) < 0)
        die("stat");
    free(text);
    return s.start_ticks;
}

static char port_path[108];

static void remove_port(void)
{
    unlink(port_path);
}

static int open_port(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/dotnet-diagnostic-%d-%llu-socket", options.tmp,
             getpid(), (unsigned long long)own_start_ticks());
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0)
        die(a.sun_path);
    memcpy(port_path, a.sun_path, sizeof(port_path));
    atexit(remove_port);
    return fd;
}

static size_t put_text(uint8_t *at, const char *s)
{
    uint32_t n = (uint32_t)strlen(s) + 1;
    memcpy(at, &n, 4);
    for (uint32_t i = 0; i < n; i++)
        memcpy(at + 4 + 2 * i, (uint16_t[]){(uint16_t)s[i]}, 2);
    return 4 + 2 * n;
}

static void reply(int fd, bool ok, const uint8_t *payload, size_t len)
{
    uint8_t m[1024];
    uint16_t size = (uint16_t)(20 + len);
    memcpy(m, "DOTNET_IPC_V1\0\0\0\xff\0\0\0", 20);
    memcpy(m + 14, &size, 2);
    m[17] = ok ? 0 : 0xff;
    memcpy(m + 20, payload, len);
    (void)!send(fd, m, size, MSG_NOSIGNAL);
}

static void reply_info(int fd)
{
    uint8_t p[512];
    char command[128];
    size_t n = 0;
    uint64_t pid = (uint64_t)getpid();
    memcpy(p, (uint32_t[]){1}, 4);
    memcpy(p + 4, &pid, 8);
    memset(p + 12, 0x5a, 16); /* the cookie: of this instance only */
    memcpy(p + 12, &pid, 8);
    memcpy(p + 20, (uint64_t[]){own_start_ticks()}, 8);
    n = 28;
    /* Its directory tells the stand-ins of one test from those of another. */
    snprintf(command, sizeof(command), "/usr/bin/fake --tmp %s", options.tmp);
    n += put_text(p + n, command);
    n += put_text(p + n, "Linux");
    n += put_text(p + n, "x64");
    n += put_text(p + n, options.no_entry ? "" : "Fake"); /* it has not begun to run */
    n += put_text(p + n, options.version);
    reply(fd, true, p, n);
}

/* The client data is the last thing in an attach. */
static bool serve_port(int port, struct clp_attach_data *ret)
{
    static uint8_t m[65536];
    int fd = accept(port, NULL, NULL);
    ssize_t n = fd < 0 ? -1 : recv(fd, m, sizeof(m), 0);
    bool attach = false;
    if (n >= 20 && m[16] == 4 && m[17] == 7 && options.mute_hook) {
        printf("hook\n");
        fflush(stdout);
        return false; /* stays open */
    }
    if (n >= 20 && m[16] == 4 && m[17] == 1) {
        reply(fd, true, (const uint8_t[4]){0}, 4);
        printf("resumed\n");
        fflush(stdout);
    } else if (n >= 20 && m[16] == 4) {
        reply_info(fd);
    } else if (n > (ssize_t)sizeof(*ret) && m[16] == 3) {
        memcpy(ret, m + n - sizeof(*ret), sizeof(*ret));
        reply(fd, options.result == 0, (const uint8_t *)&options.result, 4);
        attach = options.result == 0 || options.result == 0x80131375u;
    }
    if (fd >= 0)
        close(fd);
    return attach;
}

/* ---- wire ---- */

/* -1 when the reader has gone meanwhile: it may be killed at any moment. */
static int connect_reader(const struct clp_attach_data *data)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", data->socket_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        perror(a.sun_path);
        close(fd);
        return -1;
    }
    return fd;
}

static void say_hello(int fd, const struct clp_attach_data *data, bool wrong)
{
    struct clp_msg_hello h = {
        .msg = {.size = sizeof(h), .type = CLP_MSG_HELLO},
        .magic = CLP_WIRE_MAGIC,
        .version = CLP_WIRE_VERSION,
        .pid = (uint32_t)getpid(),
        .runtime_major = 10,
        .flags = options.refused_calls,
        .library_version = "fake",
    };
    memcpy(h.library_nonce, data->library_nonce, CLP_NONCE_BYTES);
    h.library_nonce[3] ^= wrong ? 1 : 0;
    (void)!send(fd, &h, sizeof(h), MSG_NOSIGNAL);
}

/* The memory's descriptor; -1 when the reader has gone. */
static int take_welcome(int fd, const struct clp_attach_data *data)
{
    alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    alignas(8) struct clp_msg_welcome w;
    struct iovec part = {&w, sizeof(w)};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) <= 0)
        return -1;
    if (clp_msg_check(&w, sizeof(w)) != CLP_MSG_WELCOME || !CMSG_FIRSTHDR(&m) ||
        !clp_nonce_equal(w.reader_nonce, data->reader_nonce))
        die("welcome");
    int memory;
    memcpy(&memory, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return memory;
}

static struct clp_ring ring;

static void write_record(void *record, size_t fixed, const char *const *texts, size_t count)
{
    uint8_t buf[1024] = {0};
    size_t n = fixed;
    for (size_t i = 0; i < count; i++) {
        memcpy(buf + n, texts[i], strlen(texts[i]));
        n += strlen(texts[i]);
    }
    ((struct clp_rec *)record)->size = (uint32_t)CLP_ALIGN_UP(n, 8);
    memcpy(buf, record, fixed);
    if (clp_ring_write(&ring, (const struct clp_rec *)buf) < 0)
        fprintf(stderr, "ring full\n");
}

static void define_method(uint32_t id, const char *type, const char *name)
{
    struct clp_rec_method m = {.rec = {.type = CLP_REC_METHOD},
                               .method_id = id,
                               .image_id = 1,
                               .token = 0x06000000 + id,
                               .type_len = (uint16_t)strlen(type),
                               .name_len = (uint16_t)strlen(name)};
    struct clp_rec_body b = {.rec = {.type = CLP_REC_BODY},
                             .body_id = id,
                             .method_id = id,
                             .start = 0x7f0000001000ull * id,
                             .code_bytes = 64};
    write_record(&m, sizeof(m), (const char *const[]){type, name}, 2);
    write_record(&b, sizeof(b), NULL, 0);
}

static void define_all(void)
{
    struct clp_rec_image image = {.rec = {.type = CLP_REC_IMAGE},
                                  .image_id = 1,
                                  .kind = CLP_IMAGE_MANAGED,
                                  .path_len = (uint16_t)strlen("/app/Fake.dll")};
    struct clp_rec_thread t = {.rec = {.type = CLP_REC_THREAD},
                               .thread_id = 1,
                               .tid = getpid(),
                               .kind = CLP_THREAD_MANAGED,
                               .name_len = (uint16_t)strlen("worker")};
    write_record(&image, sizeof(image), (const char *const[]){"/app/Fake.dll"}, 1);
    define_method(1, "Fake.Program", "Main");
    define_method(2, "Fake.Work", "Spin");
    write_record(&t, sizeof(t), (const char *const[]){"worker"}, 1);
}

/* Where a sample finds no room its time goes to the next one, as the library has it. */
static void write_sample(struct clp_wire_header *h)
{
    static uint64_t owed_ns;
    owed_ns += options.cpu_ns;
    struct {
        struct clp_rec_sample s;
        uint64_t frames[2];
    } r = {.s = {.rec = {.type = CLP_REC_SAMPLE, .count = 2, .size = sizeof(r)},
                 .time_ns = clp_clock_monotonic_ns(),
                 .value = (int64_t)owed_ns,
                 .thread_id = 1,
                 .kind = CLP_SAMPLE_CPU},
           .frames = {clp_frame_make(CLP_FRAME_MANAGED, 2, 5),
                      clp_frame_make(CLP_FRAME_MANAGED, 1, 9)}};
    if (clp_ring_write(&ring, &r.s.rec) < 0)
        return;
    atomic_fetch_add(&h->counters[CLP_CTR_PROCESS_CPU_NS], owed_ns);
    atomic_fetch_add(&h->counters[CLP_CTR_SAMPLED_CPU_NS], owed_ns);
    owed_ns = 0;
    atomic_fetch_add(&h->counters[CLP_CTR_SAMPLES], 1);
}

static void write_garbage(struct clp_wire_header *h)
{
    memset((uint8_t *)h + CLP_WIRE_HEADER_BYTES, 0xee, 256);
    atomic_store(&h->head, 256);
}

static void write_mark(uint64_t flush_id)
{
    struct clp_rec_mark mark = {.rec = {.type = CLP_REC_MARK, .size = sizeof(mark)},
                                .flush_id = flush_id,
                                .time_ns = clp_clock_monotonic_ns()};
    (void)!clp_ring_write(&ring, &mark.rec);
}

/* false: the reader has gone. */
static bool take_message(int fd)
{
    alignas(8) uint8_t m[256];
    ssize_t n = recv(fd, m, sizeof(m), 0);
    int type = n > 0 ? clp_msg_check(m, (size_t)n) : -1;
    if (type == CLP_MSG_FLUSH && !options.no_mark)
        write_mark(((struct clp_msg_flush *)m)->flush_id);
    if (type == CLP_MSG_BYE && (((struct clp_msg *)m)->flags & CLP_BYE_DETACH_IF_LAST)) {
        printf("detach\n");
        fflush(stdout);
    }
    return type > 0 && type != CLP_MSG_BYE;
}

static bool is_full(void)
{
    return clp_clock_monotonic_ns() < options.full_until_ns;
}

static void refuse(int fd)
{
    struct clp_msg_refused m = {.msg = {.size = sizeof(m), .type = CLP_MSG_REFUSED}};
    if (is_full())
        m.msg.flags = CLP_REFUSED_FULL;
    snprintf(m.reason, sizeof(m.reason), "%s", is_full() ? "no place" : options.refuse);
    (void)!send(fd, &m, sizeof(m), 0);
}

/* The port stays answered, as by a runtime that has a library in it. */
static void serve_reader(int fd, int port, struct clp_wire_header *h)
{
    struct clp_attach_data ignored;
    uint64_t start = clp_clock_monotonic_ns();
    define_all();
    if (options.mute_hook)
        atomic_store(&h->heartbeat_ns, start);
    if (options.garbage)
        write_garbage(h);
    for (;;) {
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = port, .events = POLLIN}};
        uint64_t ms = (clp_clock_monotonic_ns() - start) / CLP_NSEC_PER_MSEC;
        if (options.exit_after_ms && ms >= options.exit_after_ms) {
            write_mark(0);
            exit(7);
        }
        if (options.leave_after_ms && ms >= options.leave_after_ms)
            return;
        if (poll(p, 2, SAMPLE_MS) == 0 && !options.garbage)
            write_sample(h);
        if (p[1].revents)
            (void)serve_port(port, &ignored);
        if (p[0].revents && !take_message(fd))
            return;
    }
}

static void meet_reader(const struct clp_attach_data *data, int port)
{
    if (options.no_connect)
        return;
    if (options.wrong_nonce) {
        int impostor = connect_reader(data);
        say_hello(impostor, data, true);
        (void)poll(NULL, 0, 100);
        close(impostor);
    }
    int fd = connect_reader(data);
    if (fd < 0)
        return;
    if (options.refuse || is_full()) {
        refuse(fd);
        close(fd);
        return;
    }
    say_hello(fd, data, false);
    int memory = take_welcome(fd, data);
    size_t bytes;
    if (memory < 0) {
        close(fd);
        return;
    }
    if (clp_wire_memory_check(memory, &bytes) < 0)
        die("memory");
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapping == MAP_FAILED || clp_ring_open(&ring, mapping, bytes) < 0)
        die("ring");
    close(memory);
    serve_reader(fd, port, mapping);
    munmap(mapping, bytes);
    close(fd);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        i++;
        if (!strcmp(o, "--tmp"))
            options.tmp = v;
        else if (!strcmp(o, "--version"))
            options.version = v;
        else if (!strcmp(o, "--refuse"))
            options.refuse = v;
        else if (!strcmp(o, "--result"))
            options.result = (uint32_t)strtoul(v, NULL, 16);
        else if (!strcmp(o, "--exit-after"))
            options.exit_after_ms = strtoull(v, NULL, 10);
        else if (!strcmp(o, "--leave-after"))
            options.leave_after_ms = strtoull(v, NULL, 10);
        else if (!strcmp(o, "--full"))
            options.full_until_ns =
                clp_clock_monotonic_ns() + strtoull(v, NULL, 10) * CLP_NSEC_PER_MSEC;
        else if (!strcmp(o, "--cpu"))
            options.cpu_ns = strtoull(v, NULL, 10);
        else if (!strcmp(o, "--refused-calls"))
            options.refused_calls = strtoull(v, NULL, 10);
        else if (i--, !strcmp(o, "--no-mark"))
            options.no_mark = true;
        else if (!strcmp(o, "--mute-hook"))
            options.mute_hook = true;
        else if (!strcmp(o, "--no-entry"))
            options.no_entry = true;
        else if (!strcmp(o, "--no-connect"))
            options.no_connect = true;
        else if (!strcmp(o, "--wrong-nonce"))
            options.wrong_nonce = true;
        else if (!strcmp(o, "--undumpable"))
            (void)prctl(PR_SET_DUMPABLE, 0);
        else if (!strcmp(o, "--garbage"))
            options.garbage = true;
        else
            exit(98);
    }
}

static void leave(int sig)
{
    (void)sig;
    remove_port();
    _exit(0);
}

/* A runtime has a thread of its own for its port; a process without is taken for no .NET program.
 */
static void *sleep_on(void *context)
{
    for (;;)
        pause();
    return context;
}

int main(int argc, char **argv)
{
    pthread_t other;
    read_options(argc, argv);
    if (pthread_create(&other, NULL, sleep_on, NULL) != 0)
        return 97;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTERM, leave);
    int port = open_port();
    printf("ready %d\n", getpid());
    fflush(stdout);
    for (;;) {
        struct clp_attach_data data;
        if (serve_port(port, &data))
            meet_reader(&data, port);
    }
}
