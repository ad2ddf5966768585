// pthread_cancel runs destructors, wherever the thread is blocked.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string>
#include <unistd.h>

static std::atomic<int> destroyed;
static int pipe_ends[2];
static sem_t semaphore;

struct Guard {
    std::string text = "a string long enough to need memory of its own";
    ~Guard() { destroyed++; }
};

template <void (*block)()> void *thread_main(void *) {
    Guard outer;
    {
        Guard inner;
        block();
    }
    return nullptr;
}

static void in_read() { char byte; if (read(pipe_ends[0], &byte, 1)) return; }
static void in_pause() { pause(); }
static void in_sleep() { sleep(1000); }
static void in_poll() { poll(nullptr, 0, -1); }
static void in_wait() { sem_wait(&semaphore); }
static void in_hook() { for (;;) { getsid(-500); pthread_testcancel(); } }
static int check(const char *where, void *(*start)(void *)) {
    pthread_t thread;
    void *result;
    destroyed = 0;
    pthread_create(&thread, nullptr, start, nullptr);
    usleep(30000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    if (destroyed == 2 && result == PTHREAD_CANCELED) return 0;
    std::printf("cancelled in %s: %d of 2 destructors ran\n", where, destroyed.load());
    return 1;
}

int main() {
    int wrong = 0;
    if (pipe(pipe_ends) || sem_init(&semaphore, 0, 0)) return 2;
    wrong |= check("read", thread_main<in_read>);
    wrong |= check("pause", thread_main<in_pause>);
    wrong |= check("sleep", thread_main<in_sleep>);
    wrong |= check("poll", thread_main<in_poll>);
    wrong |= check("sem_wait", thread_main<in_wait>);
    wrong |= check("a hook", thread_main<in_hook>);
    return wrong;
}
