/* LD_PRELOAD: a resolver that takes 30 s for every name below ".stuck" and then knows none of them.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <time.h>

typedef int lookup_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **ret)
{
    size_t len = name ? strlen(name) : 0;
    lookup_fn *next;
    if (len > 6 && strcmp(name + len - 6, ".stuck") == 0) {
        (void)nanosleep(&(struct timespec){.tv_sec = 30}, NULL);
        return EAI_AGAIN;
    }
    *(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
    return next(name, service, hints, ret);
}
