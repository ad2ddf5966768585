// 2,000 threads at once, all making calls.
#include "check.h"
#define THREADS 2000

static pthread_barrier_t all;
static void *work(void *unused) {
    pthread_barrier_wait(&all);
    for (int i = 0; i < 20; i++) {
        char bytes[8];
        CHECK(getppid() == HOOKED_PPID);
        CHECK(read(700, bytes, 8) == 8);
        CHECK(syscall(SYS_gettid) > 0);
        sched_yield();
    }
    return unused;
}

int main(void) {
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], &attributes, work, NULL) != 0) return 3;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return wrong != 0;
}
