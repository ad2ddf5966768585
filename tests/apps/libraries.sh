# Program 7: programs whose libraries lie beside them, found in every way the loader knows. Building
# and running is what libtool, cmake and conda environments do.
set -eu
umask 022
cd "$APP_DIR"

mkdir -p bin lib lib/deep
echo 'int deep(void) { return 40; }' > deep.c
echo 'int deep(void); int answer(void) { return deep() + 2; }' > answer.c
cat > main.c <<'TEXT'
#include <dlfcn.h>
#include <stdio.h>
int answer(void);
int main(void) {
    void *plugin = dlopen("libplugin.so", RTLD_NOW);
    printf("%d, %s\n", answer(), plugin ? "with its plugin" : "without a plugin");
    return 0;
}
TEXT
gcc -shared -fPIC -Wl,-soname,libdeep.so -o lib/deep/libdeep.so deep.c
gcc -shared -fPIC -Wl,-soname,libanswer.so.1 -o lib/libanswer.so.1 answer.c \
    -Llib/deep -ldeep '-Wl,-rpath,$ORIGIN/deep'
ln -s libanswer.so.1 lib/libanswer.so
gcc -shared -fPIC -o lib/libplugin.so deep.c
link="-Llib -lanswer -Wl,-rpath-link,lib/deep"
gcc -o bin/plain main.c $link
gcc -o bin/runpath main.c $link -Wl,-rpath,"$APP_DIR/lib"
gcc -o bin/origin main.c $link '-Wl,-rpath,$ORIGIN/../lib'
gcc -o bin/rpath main.c $link '-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib'
gcc -shared -fPIC -o lib/libunnamed.so answer.c -Llib/deep -ldeep '-Wl,-rpath,$ORIGIN/deep'
gcc -o bin/slash main.c lib/libunnamed.so -Wl,-rpath-link,lib/deep

echo 'by LD_LIBRARY_PATH'
LD_LIBRARY_PATH=$APP_DIR/lib bin/plain
LD_LIBRARY_PATH=lib bin/plain
(cd lib; LD_LIBRARY_PATH=: ../bin/plain)
LD_LIBRARY_PATH=$APP_DIR/lib bash -c '"$APP_DIR/bin/plain"; cd /; "$APP_DIR/bin/plain" | cat'
echo 'by what the program says'
bin/runpath
bin/origin
bin/rpath
bin/slash
env -i "$APP_DIR/bin/runpath"
echo 'under another name'
ln -s bin/origin link
./link
PATH=$APP_DIR/bin:$PATH origin
mv bin programs
mkdir bin
programs/origin
printf '#!%s\n' "$APP_DIR/programs/origin" > script
chmod +x script
./script
echo 'from a program outside'
outside=$(mktemp)
chmod 700 "$outside"
cp programs/plain "$outside"
LD_LIBRARY_PATH=$APP_DIR/lib "$outside"
cp programs/runpath "$outside"
"$outside"
rm "$outside"
echo 'with thread-local storage that cannot be had later'
cat > deep.c <<'TEXT'
static __thread char storage[4096] __attribute__((tls_model("initial-exec")));
int deep(void) { return 40 + storage[7]; }
TEXT
gcc -shared -fPIC -Wl,-soname,libdeep.so -o lib/deep/libdeep.so deep.c
programs/runpath
echo 'and nothing where there is nothing'
programs/plain 2>&1 | sed 's/^[^:]*: //'
# Positions in the file are the same, paths in it are not.
rm -r programs lib
