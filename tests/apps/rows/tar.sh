# tar keeps modes, times, links, holes and extended attributes, and takes out of pipes and files.
set -eu
umask 022
mkdir -p tree/a/b tree/empty
for n in $(seq 100); do seq "$n" $((n * 10)) > "tree/a/f$n"; done
ln tree/a/f1 tree/a/b/hard
ln -s ../f2 tree/a/b/soft
truncate -s 1M tree/sparse
printf end | dd of=tree/sparse bs=1 seek=700000 conv=notrunc status=none
chmod 751 tree/a/f3
find tree -exec touch -h -d '2001-02-03 04:05:06.5' {} +
touch -h -d '2002-03-04 05:06:07.123456789' tree/a/f4 tree/a/b/soft tree/empty
tar -cf plain.tar --sort=name tree
tar -czSf sparse.tgz --sort=name tree
tar -tf plain.tar | sort | sha256sum
tar -df plain.tar && echo 'the archive is as the tree'
mkdir out1 out2 out3
tar -xpf plain.tar -C out1
tar -xpzSf sparse.tgz -C out2
tar -cf - tree | (cd out3 && tar -xpf -)
for out in out1 out2 out3; do
    diff -r tree $out/tree
    (cd $out/tree && stat -c '%n %a %h %Y' a/f3 a/f1 a/b/hard a/f4 empty && readlink a/b/soft)
done
echo changed > tree/a/f5
tar -uf plain.tar tree/a/f5
tar -xOf plain.tar --occurrence=2 tree/a/f5
tar --delete -f plain.tar tree/a/f6
tar -tf plain.tar | grep -c f6 || true
tar -cf moved.tar --remove-files out3
[ -e out3 ] || echo 'files that were packed are gone'
tar -xf moved.tar && diff -r out1 out3
