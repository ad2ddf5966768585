# rsync into the mount, within it and again: nothing is left to do the second time.
set -eu
mkdir tree
for n in $(seq 200); do
    mkdir -p "tree/d$((n % 9))"
    seq "$n" $((n * 60)) > "tree/d$((n % 9))/f$n"
done
ln tree/d1/f1 tree/hard
ln -s d1/f1 tree/soft
find tree -exec touch -h -d '2000-01-02 03:04:05.6' {} +
chmod 640 tree/d2/f2
touch -d '2001-02-03 04:05:06.789' tree/d3/f3
changed() { rsync --archive --hard-links --itemize-changes "$@" | grep -c '^>f' || true; }
changed tree/ copy
changed tree/ copy
diff -r tree copy
stat -c '%a %h %y' copy/d2/f2 copy/hard copy/d3/f3
echo more >> tree/d4/f4
rm tree/d5/f5
changed --delete tree/ copy
diff -r tree copy
changed --checksum tree/ copy
rsync --archive --inplace --no-whole-file --append-verify tree/ inplace
echo tail >> tree/d4/f4
rsync --archive --no-whole-file --partial --delay-updates tree/ inplace
diff -r tree inplace
rsync --archive --sparse tree/ sparse
rsync --archive --backup --backup-dir="$APP_DIR/old" --link-dest="$APP_DIR/copy" tree/ linked
diff -r tree linked
[ copy/d1/f10 -ef linked/d1/f10 ] && echo 'hard links to what is unchanged'
echo "files with temporary names: $(find . -name '.*.*' -type f | wc -l)"
