// pthread_cancel in C runs cleanup handlers.
#include "check.h"
#include <poll.h>

static volatile int cleaned;
static int pipe_ends[2];
static void clean(void *unused) { (void)unused, cleaned++; }

static void *blocked_in_read(void *unused) {
    char byte;
    pthread_cleanup_push(clean, NULL);
    if (read(pipe_ends[0], &byte, 1) == 1) cleaned = -100;
    pthread_cleanup_pop(0);
    return unused;
}

static void *blocked_in_poll(void *unused) {
    pthread_cleanup_push(clean, NULL);
    poll(NULL, 0, -1);
    pthread_cleanup_pop(0);
    return unused;
}

// At any instruction: of the program, a trampoline, the filter or a hook.
static void *asynchronous(void *unused) {
    pthread_cleanup_push(clean, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;) getppid(), getpgid(0), spin_in_hook(1);
    pthread_cleanup_pop(0);
    return unused;
}

int main(void) {
    void *(*starts[])(void *) = {blocked_in_read, blocked_in_poll};
    CHECK(pipe(pipe_ends) == 0);
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        void *result;
        cleaned = 0;
        pthread_create(&thread, NULL, starts[i % 2], NULL);
        if (i % 4 < 2) usleep(2000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        CHECK(result == PTHREAD_CANCELED);
        CHECK(i % 4 >= 2 || cleaned == 1);
    }
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        cleaned = 0;
        pthread_create(&thread, NULL, asynchronous, NULL);
        usleep(1000 + 13 * i);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        CHECK(cleaned == 1);
    }
    return wrong != 0;
}
