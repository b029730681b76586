/* /healthz and /metrics, as a probe asks for them; what a service manager is told; and the table of
 * numbers behind them. */
#include "tests/unit/clp-cmocka.h"

#include "agent/health.h"
#include "agent/notify.h"
#include "agent/numbers.h"
#include "base/clock.h"
#include "config/value.h"
#include "wire/tables.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- HTTP ---------------------------------------------------------------------------------- */

static struct clp_health *server;
static struct clp_fault fault;
static enum clp_health_state state_of_agent;

static enum clp_health_state health(void *context, struct clp_strbuf *ret_reason)
{
    (void)context;
    if (state_of_agent == CLP_HEALTH_BLIND)
        clp_strbuf_str(ret_reason, "Permission denied");
    return state_of_agent;
}

static void metrics(void *context, struct clp_strbuf *ret)
{
    (void)context;
    for (unsigned i = 0; i < 40000; i++) /* more than a socket holds */
        clp_strbuf_printf(ret, "clrpulse_number_%05u 1\n", i);
}

static const struct clp_health_answers answers = {.health = health, .metrics = metrics};

static int set_up(void **state)
{
    (void)state;
    state_of_agent = CLP_HEALTH_OK;
    assert_int_equal(clp_health_start("127.0.0.1:0", &answers, &server, &fault), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    server = clp_health_stop(server);
    return 0;
}

static int connect_client(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)clp_health_port(server)),
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static void serve_a_moment(void)
{
    struct pollfd p = {.fd = clp_health_fd(server), .events = POLLIN};
    (void)poll(&p, 1, 5);
    clp_health_step(server);
}

/* One request on a connection of its own; the whole reply. */
static size_t ask(const char *request, char *reply, size_t cap)
{
    int fd = connect_client();
    size_t len = 0;
    ssize_t n = -1;
    uint64_t until_ns = clp_clock_monotonic_ns() + 20 * CLP_NSEC_PER_SEC;
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    while (n != 0 && clp_clock_monotonic_ns() < until_ns) {
        serve_a_moment();
        while ((n = recv(fd, reply + len, cap - 1 - len, MSG_DONTWAIT)) > 0)
            len += (size_t)n;
    }
    assert_int_equal(n, 0);
    reply[len] = '\0';
    close(fd);
    return len;
}

#define REQUEST(method, path) method " " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static void says_how_it_is(void **state)
{
    (void)state;
    char reply[4096];
    (void)ask(REQUEST("GET", "/healthz"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 200 "));
    assert_non_null(strstr(reply, "\r\n\r\nok\n"));
    state_of_agent = CLP_HEALTH_STOPPING;
    (void)ask(REQUEST("GET", "/healthz"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 503 "));
    assert_non_null(strstr(reply, "\r\n\r\nstopping\n"));
    state_of_agent = CLP_HEALTH_BLIND;
    (void)ask(REQUEST("GET", "/healthz"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 503 "));
    assert_non_null(strstr(reply, "\r\n\r\ncannot read /proc: Permission denied\n"));
}

static void gives_all_metrics(void **state)
{
    (void)state;
    static char reply[2 << 20];
    (void)ask(REQUEST("GET", "/metrics"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "Content-Type: text/plain; version=0.0.4"));
    assert_non_null(strstr(reply, "clrpulse_number_00000 1\n"));
    assert_non_null(strstr(reply, "clrpulse_number_39999 1\n"));
    (void)ask(REQUEST("HEAD", "/metrics"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 200 "));
    assert_null(strstr(reply, "clrpulse_number_"));
}

static void nothing_else_is_answered(void **state)
{
    (void)state;
    char reply[4096];
    (void)ask(REQUEST("GET", "/metrics/../etc"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 404 "));
    (void)ask(REQUEST("DELETE", "/metrics"), reply, sizeof(reply));
    assert_non_null(strstr(reply, "HTTP/1.1 405 "));
    (void)ask("\x16\x03\x01 nonsense\r\n\r\n", reply, sizeof(reply));
    assert_null(strstr(reply, "200 "));
}

/* Whoever takes all places and says nothing keeps nobody out for long. */
static void silent_clients_go(void **state)
{
    (void)state;
    int fds[CLP_HEALTH_CONNECTIONS];
    char reply[4096];
    for (size_t i = 0; i < CLP_HEALTH_CONNECTIONS; i++)
        fds[i] = connect_client();
    (void)ask(REQUEST("GET", "/healthz"), reply, sizeof(reply)); /* waits until one is dropped */
    assert_non_null(strstr(reply, "\r\n\r\nok\n"));
    for (size_t i = 0; i < CLP_HEALTH_CONNECTIONS; i++)
        close(fds[i]);
}

static void a_port_in_use_is_told(void **state)
{
    (void)state;
    char listen[32];
    struct clp_health *second = NULL;
    snprintf(listen, sizeof(listen), "127.0.0.1:%u", clp_health_port(server));
    assert_int_equal(clp_health_start(listen, &answers, &second, &fault), -EADDRINUSE);
    assert_non_null(strstr(fault.text, "health.listen"));
}

static void places_to_listen(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",          "x",     "65536",      "1:2:3",  "host:1",
                                        "1.2.3:80x", ":9464", "[::1]:",     "::1:80", "-1",
                                        "127.0.0.1", " 80",   "[::1]:99999"};
    struct sockaddr_storage at;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
    assert_int_equal(clp_value_listen("9464", &at), 0);
    assert_int_equal(v4->sin_family, AF_INET);
    assert_int_equal(ntohs(v4->sin_port), 9464);
    assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_LOOPBACK);
    assert_int_equal(clp_value_listen("localhost:1", &at), 0);
    assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_LOOPBACK);
    assert_int_equal(clp_value_listen("0.0.0.0:65535", &at), 0);
    assert_int_equal(ntohl(v4->sin_addr.s_addr), INADDR_ANY);
    assert_int_equal(clp_value_listen("[::1]:80", &at), 0);
    assert_int_equal(v6->sin6_family, AF_INET6);
    assert_memory_equal(&v6->sin6_addr, &in6addr_loopback, sizeof(in6addr_loopback));
    for (size_t i = 0; i < CLP_ARRAY_LEN(wrong); i++)
        if (clp_value_listen(wrong[i], &at) != -EINVAL)
            fail_msg("taken: '%s'", wrong[i]);
}

/* ---- the service manager ------------------------------------------------------------------- */

static int listen_to_agent(const char *name, size_t len)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, name, len);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
        0);
    return fd;
}

static const char *heard(int fd)
{
    static char text[256];
    ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void tells_the_manager(void **state)
{
    (void)state;
    struct clp_notify n;
    char name[64], pid[16];
    snprintf(name, sizeof(name), "@clp-notify-%d", getpid());
    char abstract[64] = "";
    memcpy(abstract + 1, name + 1, strlen(name) - 1);
    int fd = listen_to_agent(abstract, strlen(name));
    snprintf(pid, sizeof(pid), "%d", getpid());
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    clp_notify_init(&n);
    assert_null(getenv("NOTIFY_SOCKET")); /* not for what we may start */
    clp_notify_send(&n, "READY=1");
    assert_string_equal(heard(fd), "READY=1");
    clp_notify_status(&n, "%d of %d", 1, 2);
    assert_string_equal(heard(fd), "STATUS=1 of 2");
    clp_notify_status(&n, "%d of %d", 1, 2);
    assert_string_equal(heard(fd), "");
    clp_notify_alive(&n, 5 * CLP_NSEC_PER_SEC);
    assert_string_equal(heard(fd), "WATCHDOG=1");
    clp_notify_alive(&n, 6 * CLP_NSEC_PER_SEC - 1);
    assert_string_equal(heard(fd), "");
    clp_notify_alive(&n, 6 * CLP_NSEC_PER_SEC);
    assert_string_equal(heard(fd), "WATCHDOG=1");
    clp_notify_reloading(&n);
    assert_memory_equal(heard(fd), "RELOADING=1\nMONOTONIC_USEC=", 27);
    close(fd);
    clp_notify_send(&n, "STOPPING=1"); /* nobody is there any more */
    clp_notify_done(&n);
    clp_notify_send(&n, "STOPPING=1");
}

static void without_a_manager_nothing_is_sent(void **state)
{
    (void)state;
    struct clp_notify n;
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", "1", 1); /* somebody else's */
    setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
    clp_notify_init(&n);
    assert_int_equal(n.fd, -1);
    assert_int_equal(n.every_ns, 0);
    clp_notify_status(&n, "nothing");
    clp_notify_alive(&n, 1);
    clp_notify_done(&n);
}

/* ---- the table ----------------------------------------------------------------------------- */

struct world {
    struct clp_roster roster;
    struct clp_walltime walltime;
    struct clp_outbox_lane lane;
    struct clp_status s;
};

static void make_world(struct world *w, const char *service)
{
    struct clp_dotnet d = {.pid = 7, .start_ticks = 1, .state = CLP_DOTNET_READY};
    *w = (struct world){.lane = {.name = "upload 1 (http)", .delivered = 12}};
    w->lane.dropped[CLP_DROP_STALE] = 4;
    struct clp_member *m = clp_roster_meet(&w->roster, &d, 20 * CLP_NSEC_PER_SEC);
    snprintf(m->service, sizeof(m->service), "%s", service);
    m->totals.windows = 3;
    m->totals.counters[CLP_CTR_PROCESS_CPU_NS] = 1500000000;
    m->totals.counters[CLP_CTR_LIBRARY_BYTES] = 4096;
    w->s = (struct clp_status){.config_path = "",
                               .now_ns = 100 * CLP_NSEC_PER_SEC,
                               .started_ns = 10 * CLP_NSEC_PER_SEC,
                               .period_ns = 60 * CLP_NSEC_PER_SEC,
                               .cpu_ns = 250000000,
                               .roster = &w->roster,
                               .walltime = &w->walltime,
                               .lanes = &w->lane,
                               .lane_count = 1};
}

static void metrics_by_name(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "# TYPE clrpulse_cpu_seconds_total counter\nclrpulse_cpu_seconds_total 0.250000000\n",
        "# TYPE clrpulse_uptime_seconds gauge\nclrpulse_uptime_seconds 90\n",
        "clrpulse_period_seconds 60.000000000\n",
        "clrpulse_targets{state=\"seen\"} 1\n",
        "clrpulse_targets{state=\"profiling\"} 0\n",
        "clrpulse_target_windows_total{pid=\"7\",service=\"shop\"} 3\n",
        "clrpulse_upload_delivered_total{upload=\"upload 1 (http)\"} 12\n",
        "clrpulse_upload_dropped_total{upload=\"upload 1 (http)\",reason=\"stale\"} 4\n",
        "clrpulse_library_process_cpu_seconds_total{pid=\"7\",service=\"shop\"} 1.500000000\n",
        ("# TYPE clrpulse_library_bytes gauge\nclrpulse_library_bytes{pid=\"7\",service=\"shop\"} "
         "4096\n"),
    };
    static struct world w;
    struct clp_strbuf text;
    make_world(&w, "shop");
    clp_strbuf_init(&text, 1 << 20);
    clp_numbers_metrics(&w.s, &text);
    assert_int_equal(clp_strbuf_error(&text), 0);
    for (size_t i = 0; i < CLP_ARRAY_LEN(lines); i++)
        if (!strstr(clp_strbuf_text(&text), lines[i]))
            fail_msg("missing: %s", lines[i]);
    clp_strbuf_done(&text);
    clp_roster_done(&w.roster);
}

/* A name that a target gave itself ends no line and no label. */
static void labels_hold(void **state)
{
    (void)state;
    static struct world w;
    struct clp_strbuf text;
    make_world(&w, "a\"} 1\nevil 2\\\xff");
    clp_strbuf_init(&text, 1 << 20);
    clp_numbers_metrics(&w.s, &text);
    const char *t = clp_strbuf_text(&text);
    assert_null(strstr(t, "\nevil"));
    assert_non_null(strstr(t, "service=\"a\\\"} 1?evil 2\\\\\xef\xbf\xbd\"} 3\n"));
    clp_strbuf_done(&text);
    clp_roster_done(&w.roster);
}

/* One table: whatever is a metric is explained, and what is explained is in the JSON. */
static void all_three_agree(void **state)
{
    (void)state;
    static struct world w;
    struct clp_strbuf metric, json, words;
    unsigned n = 0;
    make_world(&w, "shop");
    clp_strbuf_init(&metric, 1 << 20);
    clp_strbuf_init(&json, 1 << 20);
    clp_strbuf_init(&words, 1 << 20);
    clp_numbers_metrics(&w.s, &metric);
    clp_status_json(&w.s, &json);
    clp_numbers_explain(&words);
    for (const char *at = clp_strbuf_text(&metric); (at = strstr(at, "# HELP ")); n++) {
        char name[128], line[140];
        assert_int_equal(sscanf(at, "# HELP %127s", name), 1);
        snprintf(line, sizeof(line), "\n  %s  ", name);
        if (!strstr(clp_strbuf_text(&words), line))
            fail_msg("not explained: %s", name);
        at++;
    }
    assert_true(n > CLP_CTR_COUNT + 20);
    for (const char *at = clp_strbuf_text(&words); (at = strstr(at, "(JSON: ")); at++) {
        char key[64], quoted[70];
        assert_int_equal(sscanf(at, "(JSON: %63[a-z_0-9]", key), 1);
        snprintf(quoted, sizeof(quoted), "\"%s\":", key);
        if (!strstr(clp_strbuf_text(&json), quoted))
            fail_msg("not in the JSON: %s", key);
    }
    clp_strbuf_done(&metric);
    clp_strbuf_done(&json);
    clp_strbuf_done(&words);
    clp_roster_done(&w.roster);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(says_how_it_is),
        T(gives_all_metrics),
        T(nothing_else_is_answered),
        T(silent_clients_go),
        T(a_port_in_use_is_told),
        cmocka_unit_test(places_to_listen),
        cmocka_unit_test(tells_the_manager),
        cmocka_unit_test(without_a_manager_nothing_is_sent),
        cmocka_unit_test(metrics_by_name),
        cmocka_unit_test(labels_hold),
        cmocka_unit_test(all_three_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
