# find, du, cp, mv, ls, ln, install, dd, split, truncate, sort on disk: what scripts do to trees.
set -eu
umask 022
mkdir -p tree/{a,b,c}/{x,y}
for n in $(seq 300); do
    directory=tree/$(echo abc | cut -c$((n % 3 + 1)))/$(echo xy | cut -c$((n % 2 + 1)))
    head -c $((n * 97)) /dev/zero > "$directory/file$n"
done
touch -d '2000-01-01' tree/a/x/old tree/b/y/old
find tree -type f -size +20k | wc -l
find tree -name 'old' ! -newermt 2001-01-01 -printf '%p %s %m %TY\n' | sort
find tree -depth -type d -printf '%d %f\n' | sort | sha256sum
find tree -name 'file1*' -print0 | xargs -0 -P 4 -n 10 sha256sum | sort | sha256sum
find tree -type f -links +1 | wc -l
du --apparent-size --bytes --summarize tree/a/x
du --inodes --summarize tree
cp -a tree copy
diff -r tree copy
find tree -printf '%P %m %n %T@ %l\n' | sort > one
find copy -printf '%P %m %n %T@ %l\n' | sort > two
# Directories' link counts and times are as they were, files' too.
cmp one two && echo 'cp -a keeps modes, links and times'
cp --sparse=always --reflink=auto tree/a/x/file300 sparse && cmp tree/a/x/file300 sparse
cp -al tree linked && [ tree/a/x/old -ef linked/a/x/old ] && echo 'cp -l links'
cp -u tree/a/x/old copy/a/x/old
mv copy moved && mv moved/a moved/b/a && ls moved moved/b
mv -n moved/b/x/* moved/c/x/ && ls moved/b/x | wc -l
mv tree/a/x/file300 "${TMPDIR:-/tmp}/outside" && mv "${TMPDIR:-/tmp}/outside" back
cmp back sparse && echo 'out of the mount and back'
install -D -m 4750 one installed/deep/one && stat -c %a installed/deep/one
ln -sr installed/deep/one relative && readlink relative
seq 100000 > numbers
split -n l/7 numbers part. && cat part.* | cmp - numbers && ls part.* | wc -l
sort -R --random-source=numbers numbers > mixed
sort -n -S 1M -T "$APP_DIR" mixed | cmp - numbers && echo 'sorted in the mount'
dd if=numbers of=blocks bs=4k conv=fsync,notrunc oflag=append status=none && cmp numbers blocks
dd if=numbers of=direct bs=4k iflag=fullblock oflag=nonblock conv=sparse status=none
truncate -s 5000 direct && stat -c %s direct
head -c 3000 numbers | tee teed | md5sum
tail -c 100 numbers | tac | head -n 3
(sleep 0.2; echo three >> followed) & echo two > followed
timeout 10 tail -f -n +1 --pid=$! followed || true
wait
shuf -n 5 --random-source=numbers numbers | paste -sd,
patch --quiet teed <<'TEXT' && head -n 2 teed
--- teed
+++ teed
@@ -1,3 +1,3 @@
-1
+one
 2
 3
TEXT
sed -i 's/^2$/two/' teed && head -n 2 teed
rm -rf tree moved linked && ls
