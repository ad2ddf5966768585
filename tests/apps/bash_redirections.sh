# Program 4: what shells do with descriptors. Parts that end the shell's own output run in
# subshells.
set -eu
umask 022
cd "$APP_DIR"

echo one > plain
echo two >> plain
cat plain plain > doubled
wc -c < doubled
echo again >| plain
(set -C; echo refused > plain) 2>/dev/null || echo 'noclobber refused it'

cat > here <<'TEXT'
a here-document, $not expanded
TEXT
cat >> here <<TEXT
expanded: $((6 * 7))
TEXT
read -r first < here
echo "$first"
tr a-z A-Z <<< 'a here-string' > upper

# One open file description shared by a builtin, a program, a subshell and a background job.
(exec > shared; echo a; /bin/echo b; (echo c); echo d & wait; /bin/sh -c 'echo e; exec echo f')
cat shared
# The offset also comes back to the parent when the child moved it.
(exec 5<> shared; read -r line <&5; (read -r line <&5; echo "child read $line"); cat <&5)
(exec 6>> shared; echo g >&6; exec 7>&6 6>&-; echo h >&7; /bin/echo i 1>&7)
tail -n 3 shared

# stdout and stderr to one place, in order; swapped; closed.
ls /nonexistent-a . > both 2>&1 || true
(echo out; echo err >&2) > out 2> err
(echo out; echo err >&2) 3>&1 1>&2 2>&3 3>&- 2> swapped-err | cat > swapped-out
(echo lost >&-) 2>/dev/null || echo 'a closed descriptor is an error'
cat both out err swapped-err swapped-out

# Pipes, process substitution, tee, sort in place, a loop that reads and writes.
seq 1000 | grep 7 | tee sevens | wc -l
diff <(sort sevens) <(sort -u sevens) && echo 'same'
sort -rn -o sevens sevens
head -n 2 sevens
while read -r number; do echo $((number * 2)); done < sevens > twice
awk '{ s += $1 } END { print s }' twice
mkfifo fifo 2>/dev/null && rm fifo || true

# Parallel appenders: no line is lost and none is torn.
for writer in 1 2 3 4 5 6; do
    (for line in $(seq 200); do echo "writer $writer line $line"; done >> appended) &
done
for writer in 7 8; do
    (for line in $(seq 50); do /bin/echo "writer $writer line $line" >> appended; done) &
done
wait
wc -l < appended
sort -o appended appended
sha256sum appended

# cd, relative names, dot-dot, a link to a directory, globs, find and xargs.
mkdir -p deep/er/est 'with space'
ln -s deep/er shortcut
(cd shortcut/est && pwd -L | sed "s|$APP_DIR|MOUNT|" && pwd -P | sed "s|$APP_DIR|MOUNT|")
(cd shortcut/est && echo x > ../../up)
(cd deep && echo y > 'est' && ls ..)
touch 'with space/a' 'with space/b c'
find . -name '* *' -print0 | sort -z | xargs -0 ls -d
echo glob: *e*
[ -x plain ] || echo 'not executable'
printf '#!/bin/bash\necho "script $0 $@" | sed "s|$APP_DIR|MOUNT|"\nexit 7\n' > script
chmod 755 script
./script a b || echo "status $?"
"$APP_DIR/script" || echo "status $?"
[ plain -nt appended ] || [ plain -ot appended ] && echo 'times differ'
test shared -ef ./deep/../shared && echo 'same file'

# A loop whose output is a file that it also reads; a trap; exit inside a redirection.
(trap 'echo trapped > trap' EXIT; exit 3) || echo "status $?"
exec > final
echo 'the script itself now writes into the mount'
/bin/echo 'and so do its children'
(echo 'and its subshells')
