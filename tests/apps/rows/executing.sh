# Programs and scripts are executed from the mount, by every way there is to name one.
set -eu
mkdir bin
cat > main.c <<'TEXT'
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    char self[4096] = "";
    long length = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *leaf = length > 0 ? strrchr(self, '/') : "/none";
    printf("%d words, %s\n", count, leaf + 1);
    return count;
}
TEXT
gcc -o bin/program main.c
bin/program || echo "relative: $?"
"$APP_DIR/bin/program" a || echo "absolute: $?"
PATH=$APP_DIR/bin:$PATH program a b || echo "by PATH: $?"
(cd bin && ./program) || echo "from its directory: $?"
ln -s bin/program link && ./link || echo "by a link: $?"
ln bin/program hard && ./hard || echo "by a hard link: $?"
cp /bin/echo bin/myecho && bin/myecho 'a copied program'
printf '#!%s/bin/program word\n' "$APP_DIR" > script && chmod +x script
./script || echo "as an interpreter: $?"
env -i "$APP_DIR/bin/program" || echo "with an empty environment: $?"
nice "$APP_DIR/bin/program" || echo "by nice: $?"
timeout 5 bin/program 1 2 3 || echo "by timeout: $?"
find . -name program -exec {} x \; | head -n 1
echo a b c | xargs -n 1 bin/program || echo "by xargs: $?"
bash -c 'exec -a other bin/program' || echo "under another name: $?"
chmod -x bin/myecho
bin/myecho 2>/dev/null || echo "not executable: $?"
chmod +x bin/myecho
cp /bin/sleep bin/mysleep
bin/mysleep 60 &
sleeper=$!
sleep 0.3
rm -f bin/mysleep && kill $sleeper && { wait $sleeper || echo "removed while it ran: $?"; }
gcc -pg -o bin/profiled main.c && (bin/profiled || true) && ls gmon.out
gcc -fsanitize=address -o bin/checked main.c
bin/checked || true
