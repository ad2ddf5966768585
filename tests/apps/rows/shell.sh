# A portable script for any POSIX shell: redirections, pipes, subshells, jobs, globs, traps.
set -eu
echo one > a
echo two >> a
while read -r line; do echo "<$line>"; done < a
cat <<TEXT > here
a here-document of $((6 * 7))
TEXT
cat here - < a > joined
(cd / && echo sub > "$APP_DIR/sub")
{ echo out; echo err >&2; } > both 2>&1
exec 3<> both
read -r first <&3
echo "$first, then $(cat <&3)"
exec 3>&-
exec 4>> appended
for n in 1 2 3; do (echo "job $n" >&4) & wait; done
exec 4>&-
cat appended
mkdir -p d/e f
ln -s ../a d/link
cat d/link
cd d/e
pwd | sed "s|$APP_DIR|MOUNT|"
cd ../..
for name in *; do printf '%s ' "$name"; done
echo
[ -d d ] && [ -f a ] && [ -L d/link ] && [ ! -e none ] && [ -s a ] && [ -w a ] && echo tests
[ a -ef d/link ] && echo 'the same file'
(trap 'echo trapped > trap' EXIT; exit 3) || echo "status $?"
cat trap
set -C
(echo no > a) 2>/dev/null || echo 'noclobber refused it'
set +C
printf '#!/bin/sh\necho "a script: $1"\nexit 5\n' > script
chmod +x script
./script arg || echo "status $?"
echo 'echo sourced' > sourced
. ./sourced
seq 500 | sort -rn | tee numbers | head -n 1
wc -l < numbers
umask 027
echo > masked
ls -l masked | cut -c1-10
exec > final
echo 'from the shell'
/bin/echo 'from a program'
(echo 'from a subshell')
exec >&2
cat final numbers | cksum
