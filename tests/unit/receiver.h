/* A small HTTP receiver inside the test: one thread, a port of the kernel's choice on the loopback,
 * every wait bounded. It answers each request with the same bytes and keeps the last request. */
#ifndef CLP_TESTS_UNIT_RECEIVER_H
#define CLP_TESTS_UNIT_RECEIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct receiver {
    /* Before receiver_start: */
    /* The whole reply, head and body; NULL: none ever comes. May change while it runs. */
    const char *_Atomic reply;
    /* Chooses the reply by the request's head, in the receiver's thread; NULL: `reply`. */
    const char *(*choose)(const struct receiver *r);
    size_t reply_len; /* 0: strlen(reply) */
    unsigned drip_ms; /* pause before each byte of the reply; 0: all at once */
    bool ignore_body; /* answers after the request's head and closes */

    /* After receiver_stop: */
    unsigned requests, connections;
    char head[4096]; /* of the last request, up to its empty line */
    uint8_t body[65536];
    size_t body_len;

    uint16_t port;
    int listen_fd, stop_fds[2];
    pthread_t thread;
};

/* 0 or -1; r->port is set. */
int receiver_start(struct receiver *r);
void receiver_stop(struct receiver *r);
/* The value of a header of the last request, or NULL. Valid until the next call. */
const char *receiver_header(const struct receiver *r, const char *name);

#endif
