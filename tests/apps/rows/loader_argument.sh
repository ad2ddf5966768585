# Programs given to the dynamic loader as its argument, and ldd.
set -eu
loader=/lib64/ld-linux-x86-64.so.2
mkdir lib bin
echo 'int answer(void) { return 42; }' > answer.c
gcc -shared -fPIC -Wl,-soname,libanswer.so -o lib/libanswer.so answer.c
cat > show.c <<'TEXT'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef NEEDS
int answer(void);
#else
int answer(void) { return 0; }
#endif
int main(int count, char **words) {
    char self[4096] = "";
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    int open = 0;
    for (int number = 0; number < 1000; number++) open += fcntl(number, F_GETFD) >= 0;
    printf("%d:", answer());
    for (int at = 0; at < count; at++) printf(" %s", words[at]);
    printf(" (%s, %d descriptors)\n", bytes > 0 ? self : "?", open);
    fflush(stdout);
    return system("env | grep -c MAYFLY_LOADED") == 0;
}
TEXT
gcc -o show show.c
gcc -DNEEDS -o bin/needs show.c -Llib -lanswer
gcc -DNEEDS -o bin/origin show.c -Llib -lanswer -Wl,-rpath,'$ORIGIN/../lib'
gcc -DNEEDS -o bin/path show.c -Llib -lanswer -Wl,-rpath,"$APP_DIR/lib"
ln -s "$APP_DIR/bin/origin" link
ln -s origin bin/link
cp /bin/ls large && head -c 3000000 /dev/zero >> large
"$loader" "$APP_DIR/show" one 'two three'
"$loader" ./show
(cd bin && "$loader" ../show "")
"$loader" --argv0 other ./show
"$loader" --library-path lib bin/needs
"$loader" --inhibit-cache --library-path "/nowhere:$APP_DIR/lib" "$APP_DIR/bin/needs"
LD_LIBRARY_PATH=$APP_DIR/lib "$loader" bin/needs
"$loader" bin/needs > lost 2>&1 || echo "without its library: $?"
"$loader" bin/origin
"$loader" bin/link
"$loader" ./link > lost 2>&1 || echo "by a link from elsewhere: $?"
"$loader" "$APP_DIR/bin/path"
"$loader" ./large -d /
"$loader" --verify ./show && echo verified
"$loader" --verify ./show.c || echo "a text: $?"
"$loader" ./missing > lost 2>&1 || echo "missing: $?"
"$loader" ./lib > lost 2>&1 || echo "a directory: $?"
"$loader" /bin/echo of the kernel
mkdir own && cp "$loader" own/ && own/ld-linux-x86-64.so.2 ./bin/origin
show_libraries() { grep -v 'linux-vdso\|mayfly\|statically' | sed 's/ (0x.*//' | sort; }
"$loader" --list ./bin/path | show_libraries
ldd bin/path | show_libraries
ldd "$APP_DIR/show" ./bin/path | show_libraries
LD_LIBRARY_PATH=lib ldd bin/needs | show_libraries
ldd show.c > lost 2>&1 || echo "ldd of a text: $?"
ldd missing > lost 2>&1 || echo "ldd of nothing: $?"
# Started by others than a shell, and at the same time.
printf 'show\nbin/origin\nbin/path\n' | xargs -I {} "$loader" ./{} by-xargs
for number in 1 2 3 4 5 6 7 8; do "$loader" ./bin/origin & done | sort | uniq -c | sed 's/^ *//'
wait
if [ -e /lib/ld-musl-x86_64.so.1 ] && command -v musl-gcc > musl; then
    musl-gcc -o show-musl show.c
    /lib/ld-musl-x86_64.so.1 ./show-musl a | sed 's/ (.*//'
    /lib/ld-musl-x86_64.so.1 -- ./show-musl b > lost && echo by musl
fi
