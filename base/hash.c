/* SipHash (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012) with one round a word and
 * three at the end, the variant that hash tables commonly use. */
#include "base/hash.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static uint64_t process_key[2];
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    if (getrandom(process_key, sizeof(process_key), GRND_NONBLOCK) == (ssize_t)sizeof(process_key))
        return;
    /* Early boot or a filter on the call: weaker, still not the same for every process. */
    process_key[0] = clp_clock_monotonic_ns() ^ (uint64_t)(uintptr_t)&key_once;
    process_key[1] = clp_clock_realtime_ns();
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotl(s->v1, 13) ^ s->v0;
    s->v0 = rotl(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotl(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotl(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotl(s->v1, 17) ^ s->v2;
    s->v2 = rotl(s->v2, 32);
}

static void sip_word(struct sip *s, uint64_t m)
{
    s->v3 ^= m;
    sip_round(s);
    s->v0 ^= m;
}

uint64_t clp_hash_bytes_keyed(const void *data, size_t len, uint64_t k0, uint64_t k1)
{
    struct sip s = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull,
                    k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull};
    const uint8_t *at = data;
    uint64_t m;
    for (size_t left = len; left >= 8; left -= 8, at += 8) {
        memcpy(&m, at, 8); /* little-endian, like the published vectors */
        sip_word(&s, m);
    }
    m = (uint64_t)len << 56;
    for (size_t i = 0; i < len % 8; i++)
        m |= (uint64_t)at[i] << (8 * i);
    sip_word(&s, m);
    s.v2 ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t clp_hash_bytes(const void *data, size_t len)
{
    (void)pthread_once(&key_once, draw_key);
    return clp_hash_bytes_keyed(data, len, process_key[0], process_key[1]);
}

uint64_t clp_hash_u64(uint64_t v)
{
    return clp_hash_bytes(&v, sizeof(v));
}
