# gcc: objects, archives, shared objects, link-time optimisation, temporary files in the mount.
set -eu
export TMPDIR=$APP_DIR/tmp
mkdir "$TMPDIR" src
for n in $(seq 20); do
    printf 'int f%d(int x) { return x * %d + %d; }\n' "$n" "$n" "$n" > "src/f$n.c"
    printf 'int f%d(int x);\n' "$n"
done > src/all.h
{
    printf '#include <stdio.h>\n#include "all.h"\nint main(void) {\n    int x = 1;\n'
    for n in $(seq 20); do printf '    x = f%d(x) %% 10007;\n' "$n"; done
    printf '    printf("%%d\\n", x);\n    return x %% 100;\n}\n'
} > src/main.c
for c in src/*.c; do gcc -O2 -pipe -MMD -c -o "${c%.c}.o" "$c"; done
cat src/main.d
ar rcs libf.a src/f*.o && ar t libf.a | wc -l
gcc -o static src/main.o -L. -lf
gcc -O2 -save-temps=obj -o whole src/*.c
gcc -O2 -flto=2 -o optimised src/*.c
gcc -shared -fPIC -o libf.so src/f*.c
gcc -o dynamic src/main.o -L. -l:libf.so -Wl,-rpath,"$APP_DIR"
gcc -x c-header -o src/all.h.gch src/all.h && gcc -Isrc -o header src/main.c libf.a
for program in static whole optimised dynamic header; do ./$program || echo "status $?"; done
gcc -E src/main.c | wc -l
objdump -d static | grep -c '<f7>:' || true
strip static && objcopy --only-keep-debug whole whole.debug && ./static || echo "status $?"
gcc -c -o broken.o -x c - <<< 'int x = ;' 2> /dev/null || echo "an error is told: $?"
ls -A tmp
