# The loader takes shared objects from the mount: needed ones, preloaded ones, by dlopen, by Python.
set -eu
mkdir lib
echo 'int answer(void) { return 42; }' > answer.c
gcc -shared -fPIC -Wl,-soname,libanswer.so -o lib/libanswer.so answer.c
cat > main.c <<'TEXT'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : 0;
    printf("%s: %d\n", count > 2 ? words[2] : "dlopen", answer ? answer() : -1);
    return library ? dlclose(library) : 1;
}
TEXT
gcc -o main main.c
./main "$APP_DIR/lib/libanswer.so"
LD_LIBRARY_PATH=lib ./main libanswer.so 'by its name'
echo 'int answer(void); int main(void) { return answer(); }' > needs.c
gcc -o needs needs.c -Llib -lanswer -Wl,-rpath,"$APP_DIR/lib"
./needs || echo "a needed library: $?"
# Replaced under a running program's name: the next one gets the new one.
sed -i s/42/43/ answer.c
gcc -shared -fPIC -Wl,-soname,libanswer.so -o lib/new.so answer.c && mv lib/new.so lib/libanswer.so
./needs || echo "a replaced library: $?"
echo 'int getuid(void) { return 4711; }' > uid.c
gcc -shared -fPIC -o lib/uid.so uid.c
LD_PRELOAD=$APP_DIR/lib/uid.so id -ru
"$ROW_PYTHON" -c "import ctypes; print(ctypes.CDLL('$APP_DIR/lib/libanswer.so').answer())"
