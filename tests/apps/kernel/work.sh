# What everyday programs do, in a directory of their own; prints what must be the same everywhere.
set -e
mkdir work && cd work
git init -q repository && cd repository
for i in $(seq 300); do echo $i > f$i; done
git add . && git -c user.name=a -c user.email=a@b commit -qm files
git status --short | wc -l
python3 - <<'P'
import mmap, os, shutil, subprocess, tempfile
os.makedirs('d/e')
open('d/e/f', 'w').write('x' * 100000)
shutil.copytree('d', 'c')
file = os.open('c/e/f', os.O_RDWR)
mapped = mmap.mmap(file, 100000)
mapped[0:1] = b'y'
mapped.flush()
print(subprocess.check_output(['head', '-c', '3', 'c/e/f']), os.access('d', os.W_OK))
shutil.rmtree('c')
with tempfile.TemporaryFile(dir='.') as temporary:
    temporary.write(b'text')
P
tar c . | tar t | grep -vc '^./.git/'
cp -a . ../copy && diff -r . ../copy && rm -r ../copy
find . -path ./.git -prune -o -name 'f*' -print | wc -l
