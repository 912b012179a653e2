/* SPDX-License-Identifier: Apache-2.0 */
/* For a process of the fault suite: its wall clock is off by as many seconds as a file says, from the moment on that the file does. Clocks that nobody sets are as they are, and
 * so is the machine's. (libfaketime asks for memory before the program's allocator can give any.) cc -shared -fPIC -O2; LD_PRELOAD, BARTIZAN_FAULT_CLOCK=FILE. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Eight bytes of the file, in the machine's order. */
static volatile long long *ahead;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("BARTIZAN_FAULT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);

    if (map != MAP_FAILED)
        ahead = map;
    if (file >= 0)
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int done = syscall(SYS_clock_gettime, clock, now);

    if (!done && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead;
    return done;
}

time_t time(time_t *to)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}
