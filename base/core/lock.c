#include "base/core/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The three-state mutex of Ulrich Drepper's "Futexes Are Tricky". */
void clp_lock(struct clp_lock *l)
{
    uint32_t seen = 0;
    if (atomic_compare_exchange_strong(&l->word, &seen, 1))
        return;
    if (seen != 2)
        seen = atomic_exchange(&l->word, 2);
    while (seen != 0) {
        syscall(SYS_futex, &l->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
        seen = atomic_exchange(&l->word, 2);
    }
}

void clp_unlock(struct clp_lock *l)
{
    if (atomic_exchange(&l->word, 0) == 2)
        syscall(SYS_futex, &l->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
