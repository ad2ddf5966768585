# vim in ex mode: swap files, backups, undo files, several buffers, a recovered swap file.
set -eu
export HOME=$APP_DIR TERM=dumb TMPDIR=$APP_DIR/tmp
mkdir tmp
vi() { vim -Nes -u NONE -i NONE -c "set backupskip=" "$@"; }
seq 2000 > text
vi -c 'set backup undofile' -c '%s/7/seven/g' -c '1000,1999d' -c 'wq' text
wc text text~
head -n 8 text | tail -n 2
ls -A
vi -c 'set undofile' -c 'rundo .text.un~' -c 'undo' -c 'undo' \
    -c 'w! undone' -c 'q!' text
cmp undone text~ && echo 'undone by the undo file'
vi -c 'set writebackup backupcopy=yes' -c 'normal Gomore' -c 'wq' text
tail -n 1 text
chmod 640 text && ln text linked
vi -c 'set backupcopy=auto' -c '1d' -c 'wq' text
stat -c '%a %h' text && cmp text linked
# The editor dies; another one finds its swap file and recovers.
vi -c 'set swapsync=fsync' -c 'normal ggOlost' -c 'preserve' \
    -c 'call system("kill -9 " . getpid())' text || echo "killed: $?"
[ -e .text.swp ] && echo 'a swap file is left'
vi -r -c 'w! recovered' -c 'q!' text || true
head -n 1 recovered
vi -c 'args *.none text linked' -c 'argdo 1s/^/x/ | silent! write' -c 'qa!' \
    < /dev/null || true
rm -f .text.swp
ls -A
