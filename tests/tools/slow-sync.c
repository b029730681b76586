/* LD_PRELOAD: a disk that takes CLP_SYNC_MS to keep what was done to a directory: the time in which
 * a spooled file has its name already and whoever wrote it still waits. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int fsync(int fd)
{
    struct stat st;
    const char *text = getenv("CLP_SYNC_MS");
    long ms = text ? atol(text) : 0;
    int (*next)(int);
    if (ms > 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        (void)nanosleep(&pause, NULL);
    }
    *(void **)&next = dlsym(RTLD_NEXT, "fsync");
    return next(fd);
}
