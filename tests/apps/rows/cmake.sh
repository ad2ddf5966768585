# cmake and ninja: configured, built, changed, built again, nothing left to do, tested, installed.
set -eu
mkdir -p project/src
cat > project/CMakeLists.txt <<'TEXT'
cmake_minimum_required(VERSION 3.13)
project(row C)
enable_testing()
file(GLOB parts CONFIGURE_DEPENDS src/part*.c)
add_library(parts SHARED ${parts})
add_executable(main src/main.c)
target_link_libraries(main parts)
add_custom_command(OUTPUT made.txt COMMAND main > made.txt DEPENDS main)
add_custom_target(made ALL DEPENDS made.txt)
add_test(NAME runs COMMAND main)
install(TARGETS main parts)
TEXT
for n in $(seq 12); do echo "int part$n(void) { return $n; }" > "project/src/part$n.c"; done
{
    echo '#include <stdio.h>'
    for n in $(seq 12); do echo "int part$n(void);"; done
    echo 'int main(void) { printf("%d\n", part1() + part12()); return 0; }'
} > project/src/main.c
cmake -G Ninja -S project -B build > configured || cat configured
ninja -C build -j 2 > built || cat built
cat build/made.txt
ninja -C build -n | tail -n 1
sleep 0.01
echo 'int part12(void) { return 100; }' > project/src/part12.c
ninja -C build -j 2 > again || cat again
grep -c 'C object' again
cat build/made.txt
ninja -C build -n | tail -n 1
(cd build && ctest > tested) && grep 'tests passed' build/tested
cmake --install build --prefix "$APP_DIR/installed" > /dev/null
find installed -type f | sort
LD_LIBRARY_PATH=$APP_DIR/installed/lib installed/bin/main
ninja -C build -t clean > /dev/null
rm -r build && ls
