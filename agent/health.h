/* /healthz and /metrics over HTTP, for probes and Prometheus.
 *
 * The server has no thread of its own: the owner polls one descriptor and calls step, so that an
 * answer proves that the owner's loop runs. Connections are few and are dropped after a few
 * seconds; nothing that a client sends is kept. */
#ifndef CLP_AGENT_HEALTH_H
#define CLP_AGENT_HEALTH_H

#include "agent/fault.h"
#include "base/core/core.h"
#include "base/strbuf.h"

#define CLP_HEALTH_CONNECTIONS 16u
#define CLP_HEALTH_CONNECTION_SECONDS 5u
#define CLP_HEALTH_MAX_BYTES (16u << 20)

struct clp_health;

enum clp_health_state {
#define CLP_HEALTH(id, status, answer, meaning) CLP_HEALTH_##id,
#include "agent/healths.def"
#undef CLP_HEALTH
};

struct clp_health_answers {
    /* How the agent is; the reason where the answer wants one. */
    enum clp_health_state (*health)(void *context, struct clp_strbuf *ret_reason);
    /* Prometheus' text format. */
    void (*metrics)(void *context, struct clp_strbuf *ret);
    void *context;
};

/* `listen` as clp_value_listen takes it. 0, or a fault. */
int clp_health_start(const char *listen, const struct clp_health_answers *answers,
                     struct clp_health **ret, struct clp_fault *fault) CLP_MUST_USE;
/* Accepts NULL; returns NULL. */
struct clp_health *clp_health_stop(struct clp_health *h);
/* Readable when step has something to do; -1 for NULL. */
int clp_health_fd(const struct clp_health *h);
/* Call when the descriptor is readable, and about once a second. */
void clp_health_step(struct clp_health *h);
/* The port: another one than was asked for when that was 0. */
unsigned clp_health_port(const struct clp_health *h);

#endif
