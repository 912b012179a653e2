// SPDX-License-Identifier: Apache-2.0
// What a function in a process of its own would cost: packets go there and back by two rings in shared memory, and who waits sleeps on a futex or on an
// eventfd, or spins. Bytes are not copied: both have them in shared memory, as ports would. Prints one line a case: way, batch, nanoseconds a packet.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 1024, BYTES = 256, ROUNDS = 5 };
enum way { FUTEX, EVENTFD, SPIN, CALL };
static const char *NAMES[] = {"futex", "eventfd", "spin", "call"};

// A packet as a function is shown it: descriptor and the beginning of its bytes.
struct slot {
    uint32_t length, verdict;
    uint8_t bytes[BYTES];
};

// One direction. The two counters lie on lines of their own.
struct ring {
    _Alignas(128) _Atomic uint32_t head;
    _Alignas(128) _Atomic uint32_t sleeps;
    struct slot slots[SLOTS];
};

struct shared {
    struct ring there, back;
    _Atomic uint32_t end;
};

// Each slot is written before the first packet: no page is met for the first time while it counts.
static void touch(struct shared *s) { memset(s, 0, sizeof *s); }

static void sleep_until(struct ring *r, enum way way, int fd, uint32_t seen) {
    if (way == SPIN) {
        while (atomic_load_explicit(&r->head, memory_order_acquire) == seen)
            __builtin_ia32_pause();
        return;
    }
    while (atomic_load_explicit(&r->head, memory_order_acquire) == seen) {
        if (way == FUTEX) {
            atomic_store(&r->sleeps, 1);
            syscall(SYS_futex, &r->head, FUTEX_WAIT, seen, NULL, NULL, 0);
            atomic_store(&r->sleeps, 0);
        } else {
            uint64_t count;
            if (read(fd, &count, sizeof count) < 0)
                _exit(1);
        }
    }
}

static void publish(struct ring *r, enum way way, int fd, uint32_t head) {
    atomic_store(&r->head, head);
    if (way == FUTEX && atomic_load(&r->sleeps))
        syscall(SYS_futex, &r->head, FUTEX_WAKE, 1, NULL, NULL, 0);
    if (way == EVENTFD) {
        uint64_t one = 1;
        if (write(fd, &one, sizeof one) < 0)
            _exit(1);
    }
}

// The least that a function does: it reads headers and answers.
__attribute__((noinline)) static uint32_t judge(const struct slot *packet) {
    return packet->bytes[23] == 6 && packet->bytes[36] == 0 && packet->bytes[37] == 80;
}

static void serve(struct shared *s, enum way way, int in, int out) {
    for (uint32_t done = 0;;) {
        sleep_until(&s->there, way, in, done);
        if (atomic_load(&s->end))
            _exit(0);
        uint32_t head = atomic_load_explicit(&s->there.head, memory_order_acquire);
        for (; done != head; done++)
            s->back.slots[done % SLOTS].verdict = judge(&s->there.slots[done % SLOTS]);
        publish(&s->back, way, out, head);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static volatile uint32_t sum;

static double run(enum way way, uint32_t batch, uint32_t packets) {
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int in = eventfd(0, 0), out = eventfd(0, 0);
    touch(s);
    pid_t child = way == CALL ? 0 : fork();
    if (way != CALL && child == 0)
        serve(s, way, in, out);
    double begin = now();
    for (uint32_t sent = 0; sent < packets; sent += batch) {
        for (uint32_t i = 0; i < batch; i++) {
            struct slot *slot = &s->there.slots[(sent + i) % SLOTS];
            slot->length = 64, slot->bytes[23] = 6, slot->bytes[37] = (uint8_t)i;
            if (way == CALL)
                sum += judge(slot);
        }
        if (way == CALL)
            continue;
        publish(&s->there, way, in, sent + batch);
        while (atomic_load_explicit(&s->back.head, memory_order_acquire) != sent + batch)
            sleep_until(&s->back, way, out, sent);
        for (uint32_t i = 0; i < batch; i++)
            sum += s->back.slots[(sent + i) % SLOTS].verdict;
    }
    double each = (now() - begin) / packets;
    if (way != CALL) {
        atomic_store(&s->end, 1);
        publish(&s->there, way, in, packets + batch);
        waitpid(child, NULL, 0);
    }
    close(in), close(out), munmap(s, sizeof *s);
    return each;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    for (enum way way = FUTEX; way <= CALL; way++) {
        for (uint32_t batch = 1; batch <= 32; batch += 31) {
            double each[ROUNDS];
            for (int i = 0; i < ROUNDS; i++)
                each[i] = run(way, batch, (way == CALL ? 3200000 : 32000 * batch));
            qsort(each, ROUNDS, sizeof *each, by_value);
            printf("%s %u %.1f %.1f %.1f\n", NAMES[way], batch, each[ROUNDS / 2], each[0], each[ROUNDS - 1]);
            fflush(stdout);
        }
    }
}
