# Libraries that make system calls by instructions of their own, loaded by dlopen: of the program's
# directory and of another file system, again and again, by several threads, and by Python.
set -eu
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
cat > raw.c <<'TEXT'
#include <stddef.h>
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}
long write_file(const char *path, const char *text, size_t bytes) {
    long fd = call(2, (long)path, 02 | 0100 | 01000, 0644);
    if (fd < 0) return fd;
    long written = call(1, fd, (long)text, bytes), moved = call(8, fd, NUMBER, 0);
    return call(3, fd, 0, 0) == 0 && moved == NUMBER ? written : -1;
}
TEXT
cat > main.c <<'TEXT'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
typedef long writer(const char *, const char *, size_t);
static const char *library;
static long use(const char *path, void *handle, const char *name) {
    writer *write = handle ? (writer *)dlsym(handle, "write_file") : NULL;
    long written = write ? write(name, path, strlen(path)) : -1;
    struct stat stat_;
    return written == (long)strlen(path) && stat(name, &stat_) == 0 && stat_.st_size == written;
}
static void *work(void *number) {
    char name[30];
    snprintf(name, sizeof name, "thread%ld", (long)number);
    long good = 0;
    for (int round = 0; round < 100; round++) {
        void *handle = dlopen(library, RTLD_NOW);
        good += use(library, handle, name);
        if (handle) dlclose(handle);
    }
    return (void *)good;
}
int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        library = words[at];
        void *handle = dlopen(library, RTLD_NOW);
        if (!handle) puts(dlerror());
        long once = use(library, handle, "once"), again = 0;
        if (handle) dlclose(handle);
        for (int round = 0; round < 200; round++) {
            handle = dlopen(words[1 + round % (count - 1)], RTLD_NOW);
            again += use(library, handle, "again");
            if (handle) dlclose(handle);
        }
        handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
        long apart = use(library, handle, "apart");
        if (handle) dlclose(handle);
        pthread_t threads[4];
        long sum = 0;
        for (long number = 0; number < 4; number++)
            pthread_create(&threads[number], NULL, work, (void *)number);
        for (int number = 0; number < 4; number++) {
            void *good;
            pthread_join(threads[number], &good);
            sum += (long)good;
        }
        printf("once %ld, again %ld, apart %ld, by threads %ld\n", once, again, apart, sum);
    }
    return 0;
}
TEXT
gcc -o main main.c -pthread
number=0
for directory in "$APP_DIR" "$outside"; do
    for id in --build-id --build-id=none; do
        number=$((number + 1))
        gcc -O2 -shared -fPIC -Wl,$id -DNUMBER=$number -o "$directory/libraw$number.so" raw.c
    done
done
# Headers, code and data in one mapping, as older linkers lay it out; much code.
gcc -O2 -shared -fPIC -Wl,-z,noseparate-code -DNUMBER=5 -o "$outside/libraw5.so" raw.c
{
    cat raw.c
    for function in $(seq 200); do echo "int f$function(int a) { return a * $function + 1; }"; done
} > large.c
gcc -O2 -shared -fPIC -DNUMBER=6 -o "$outside/libraw6.so" large.c
./main "$APP_DIR"/libraw[12].so "$outside"/libraw[3456].so
wc -c once again apart thread* | sed "s/^ *[0-9]* //; s/^ *//" | sort -u
# Without system calls, by a name that the search path leads to, and many at one time.
echo 'int answer(void) { return 42; }' > answer.c
gcc -shared -fPIC -o "$outside/libanswer.so" answer.c
for copy in $(seq 80); do cp "$outside/libraw3.so" "$outside/copy$copy.so"; done
"$ROW_PYTHON" - "$outside" <<'TEXT'
import ctypes, os, sys
directory = sys.argv[1]
print(ctypes.CDLL(directory + "/libanswer.so").answer())
# The place of each library that stays is taken; those beyond are loaded all the same.
copies = [ctypes.CDLL(f"{directory}/copy{copy}.so") for copy in range(1, 81)]
print(sum(copy.write_file(b"many", b"text", 4) for copy in copies[:50]), open("many").read())
TEXT
# libaio submits by an instruction of its own.
"$ROW_PYTHON" - <<'TEXT'
import ctypes, os
try:
    aio = ctypes.CDLL("libaio.so.1", use_errno=True)
except OSError:
    aio = ctypes.CDLL("libaio.so.1t64", use_errno=True)
class Request(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw", ctypes.c_uint32),
                ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32),
                ("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32),
                ("event", ctypes.c_uint32)]
class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("request", ctypes.c_uint64),
                ("result", ctypes.c_int64), ("second", ctypes.c_int64)]
context = ctypes.c_void_p()
print("set up", aio.io_queue_init(8, ctypes.byref(context)))
fd = os.open("asynchronous", os.O_RDWR | os.O_CREAT)
text = ctypes.create_string_buffer(b"written by libaio")
request = Request(data=7, opcode=1, fd=fd, buffer=ctypes.addressof(text), bytes=17, offset=3)
print("submitted", aio.io_submit(context, 1, ctypes.byref(ctypes.pointer(request))))
event = Event()
print("got", aio.io_getevents(context, 1, 1, ctypes.byref(event), None), event.data, event.result)
print(os.pread(fd, 100, 0))
print("released", aio.io_queue_release(context))
TEXT
