"""Small files that get other content, without asking: parts of submissions.py."""

import os, random, shutil, signal, subprocess, sys

from submissions import warm


class Reader:
    """Another process, which has the files open all the time and reads when it is asked."""

    def __init__(self, paths):
        (self.heard, back), (go, self.on) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.on)
            held = [os.open(path, os.O_RDONLY) for path in paths]
            os.write(back, b'!')
            while command := os.read(go, 4):
                at, how = command[0], command[1:2]
                if how == b'w':
                    with open(paths[at], 'wb') as f:
                        f.write(b'by the other %d' % command[2])
                    told = b'!'
                elif how == b'p':
                    with open(paths[at], 'rb') as f:
                        told = f.read()
                elif how == b's':
                    told = b'%d' % os.stat(paths[at]).st_size
                else:
                    told = os.pread(held[at], 8192, 0)
                os.write(back, told or b'\0')
            os._exit(0)
        os.close(go)
        os.close(back)
        assert os.read(self.heard, 1) == b'!'

    def ask(self, at, how, number=0):
        os.write(self.on, bytes((at,)) + how + bytes((number, 0)))
        told = os.read(self.heard, 8192)
        return b'' if told == b'\0' else told

    def end(self):
        os.close(self.on)
        os.close(self.heard)
        assert os.waitpid(self.pid, 0)[1] == 0


def overwritten():
    """Each is read by who has had it open all the time, by its name, and looked at."""
    d = warm('overwritten')
    paths = [f'{d}/f{i}' for i in range(12)]
    for path in paths:
        with open(path, 'wb') as f:
            f.write(b'first')
    ids = [os.stat(path).st_ino for path in paths]
    reader, dice = Reader(paths), random.Random(5)
    own = [os.open(path, os.O_RDONLY) for path in paths]
    for i in range(1500):
        at = dice.randrange(12)
        if i % 13 == 7:
            reader.ask(at, b'w', i % 250)
            whole = b'by the other %d' % (i % 250)
        else:
            whole = b'%d ' % i * dice.choice((0, 1, 7, 300, 1200))
            fd = os.open(paths[at], os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if i % 2 else 0))
            if i % 5 == 0:
                s = os.fstat(fd)
                assert (s.st_ino, s.st_size, s.st_nlink) == (ids[at], 0, 1)
            if i % 17 == 3:
                assert reader.ask(at, b'h') == b''
            half = len(whole) // 2 if i % 3 else len(whole)
            os.write(fd, whole[:half])
            if i % 7 == 1:
                assert reader.ask(at, b'ph'[i % 2 : i % 2 + 1]) == whole[:half], i
            os.write(fd, whole[half:])
            if i % 11 == 2:
                assert os.fstat(fd).st_size == len(whole)
            os.close(fd)
        how = b'hps'[i % 3 : i % 3 + 1]
        expected = b'%d' % len(whole) if how == b's' else whole
        if i % 4 < 3:
            assert reader.ask(at, how) == expected, (i, how)
        if i % 4 > 1:
            assert os.pread(own[at], 8192, 0) == whole, i
            assert os.stat(paths[at]).st_ino == ids[at]
    reader.end()
    for fd in own:
        os.close(fd)


def copied_over():
    """As `cp -r` over a tree that is there, and as a shell's `>`."""
    d = warm('copied_over', 0)
    for turn in range(3):
        os.makedirs(f'{d}/from', exist_ok=True)
        for i in range(150):
            with open(f'{d}/from/f{i}', 'w') as f:
                f.write(f'turn {turn} of {i}\n' * (i % 40))
        subprocess.run(['cp', '-r', f'{d}/from/.', f'{d}/to'], check=True)
        for i in range(150):
            assert open(f'{d}/to/f{i}').read() == f'turn {turn} of {i}\n' * (i % 40)
    code = """cd "$1"
for i in $(seq 0 149); do
    echo "$i" > f$i; read x < f$i; [ "$x" = $i ] || exit 1
done"""
    subprocess.run(['bash', '-c', code, 'bash', f'{d}/to'], check=True)
    assert all(open(f'{d}/to/f{i}').read() == f'{i}\n' for i in range(150))
    shutil.rmtree(f'{d}/from')


def overwriter_killed():
    """What a process has written and closed is there when it is killed; of the next file either."""
    d = warm('overwriter_killed')
    code = """import os, sys
d = sys.argv[1]
for i in range(20):
    with open(f'{d}/k{i}', 'w') as f: f.write('0')
for n in range(1, 100000):
    for i in range(20):
        fd = os.open(f'{d}/k{i}', os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'%d' % n)
        os.close(fd)
        os.write(1, b'%d %d\\n' % (n, i))
"""
    p = subprocess.Popen([sys.executable, '-c', code, d], stdout=subprocess.PIPE)
    for _ in range(700):
        line = p.stdout.readline()
    p.send_signal(signal.SIGKILL)
    rest = p.stdout.read().splitlines()
    p.wait()
    n, last = (int(word) for word in (rest[-1] if rest else line).split())
    for i in range(20):
        is_next = i == (last + 1) % 20
        now = n if i <= last else n - 1
        may = {str(now), '', str(now + 1)} if is_next else {str(now)}
        assert open(f'{d}/k{i}').read() in may, (i, n, last)


def overwritten_by_several():
    """Of several who overwrite one file it has what one of them wrote, as a whole."""
    d = warm('overwritten_by_several')
    with open(f'{d}/f', 'w') as f:
        f.write('0' * 100)
    children = []
    for k in range(3):
        if (pid := os.fork()) == 0:
            for i in range(10):
                with open(f'{d}/own{k}.{i}', 'w'):
                    pass
            for n in range(300):
                fd = os.open(f'{d}/f', os.O_WRONLY | os.O_TRUNC)
                os.write(fd, b'%d' % k * 100)
                os.close(fd)
                with open(f'{d}/f') as f:
                    held = f.read()
                assert held in ('', '0' * 100, '1' * 100, '2' * 100), held
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    assert open(f'{d}/f').read() in ('0' * 100, '1' * 100, '2' * 100)
