"""Files that are read without asking. Usage: [WIDTH=BYTES] file_leases.py DIRECTORY [PART...]

Files of more than 4096 bytes have objects, whichever way they became so long."""

import ctypes, errno, fcntl, mmap, os, resource, select, signal, struct, subprocess, sys
import threading, time

from submissions import expect

root = sys.argv[1]
WIDTH = int(os.environ.get('WIDTH', '2000'))
LONG = WIDTH > 4096


def make(path, text):
    with open(path, 'w') as f:
        f.write(text)


def warm(name):
    """A directory, after so many small files were opened that it is not asked for more."""
    d = f'{root}/{name}'
    os.mkdir(d)
    make(f'{d}/warm', 'warm')
    for _ in range(8):
        read(f'{d}/warm')
    return d


def read(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16).decode()
    finally:
        os.close(fd)


class Counter:
    """What has returned, as every process sees it."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, 16)
        self.map = mmap.mmap(fd, 16)
        os.close(fd)

    def get(self, at=0):
        return struct.unpack_from('<q', self.map, 8 * at)[0]

    def set(self, value, at=0):
        struct.pack_into('<q', self.map, 8 * at, value)


def text(number):
    return f'{number:08}' * (WIDTH // 8)


def number(content):
    """One write at a time, whole or not at all, but that a long one is seen on its way."""
    assert len(content) == WIDTH, (len(content), content[:40])
    if content == content[:8] * (WIDTH // 8):
        return int(content[:8])
    assert LONG, content[:40]
    return int(min(content[at : at + 8] for at in range(0, WIDTH, 8)))


def is_whole(content):
    """Is there something of it, and as much as is written at a time?"""
    return len(content) == WIDTH or content != '' and not LONG


def overwrite(path, n):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, text(n).encode(), 0)
    os.close(fd)


def replace(path, n):
    make(f'{path}.new', text(n))
    os.rename(f'{path}.new', path)


def again(path, n):
    os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, text(n).encode())
    os.close(fd)


def linked(path, n):
    make(f'{path}.link', text(n))
    os.unlink(path)
    os.link(f'{path}.link', path)
    os.unlink(f'{path}.link')


def anew(path, n):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text(n).encode())
    os.close(fd)


WAYS = [overwrite, replace, again, linked, anew]
# Between its two steps a file may be missing or empty.
GAPS = (again, linked, anew)


def writer(path, shared, seconds):
    counter, end, n = Counter(shared), time.time() + float(seconds), 1
    while time.time() < end:
        way = WAYS[n % len(WAYS)]
        counter.set(n if way in GAPS else 0, 1)
        way(path, n)
        counter.set(n)
        n += 1
    counter.set(-1)
    print(n)


def child(*args, **more):
    return subprocess.Popen([sys.executable, __file__, root, *args], text=True, **more)


def changes():
    """Whatever way another process changes a file, who reads after that sees it."""
    d = warm('changes')
    path, shared = f'{d}/f', os.environ['SHARED']
    make(path, text(0))
    counter = Counter(shared)
    counter.set(0), counter.set(0, 1)
    p = child('writer', path, shared, os.environ.get('SECONDS', '4'), stdout=subprocess.PIPE)
    looks = missing = 0
    held, held_from = os.open(path, os.O_RDONLY), 0
    while (before := counter.get()) >= 0:
        try:
            content = read(path)
        except FileNotFoundError:
            content = ''
        if not is_whole(content):
            assert counter.get() < 0 or counter.get(1) or counter.get() > before, before
            missing += 1
            continue
        found = number(content)
        assert found >= before, (found, before)
        looks += 1
        # A description that stays is its file's, with or without a name.
        before = counter.get()
        kept = os.pread(held, 1 << 16, 0).decode()
        if is_whole(kept):
            assert number(kept) >= held_from, (number(kept), held_from)
            held_from = number(kept)
        else:
            assert counter.get() < 0 or counter.get(1) or counter.get() > before, before
        if looks % 16 == 0:
            os.close(held)
            try:
                held, held_from = os.open(path, os.O_RDONLY), 0
                if os.fstat(held).st_size < (WIDTH if LONG else 1):
                    raise FileNotFoundError
            except FileNotFoundError:
                held, held_from = os.open(f'{d}/fixed', os.O_RDWR | os.O_CREAT), 0
                os.pwrite(held, text(0).encode(), 0)
    os.close(held)
    written = int(p.communicate()[0])
    assert p.returncode == 0
    print(f'{looks} looks, {missing} of nothing, {written} changes')
    assert looks > 100 and written > 100, (looks, written)


def remover(path, seconds):
    """Makes files that are removed at once, while others open them."""
    end, n = time.time() + float(seconds), 0
    while time.time() < end:
        for name in 'abcdefgh':
            fd = os.open(f'{path}{name}', os.O_WRONLY | os.O_CREAT)
            os.write(fd, text(n).encode())
            os.close(fd)
            os.unlink(f'{path}{name}')
            n += 1
    os.mkdir(f'{path}over')


def vanishing():
    """A file that was opened is there, however soon its name goes."""
    d = warm('vanishing')
    p = child('remover', f'{d}/f', '3')
    opened = 0
    while not os.path.exists(f'{d}/fover'):
        for name in 'abcdefgh' * 20:
            try:
                fd = os.open(f'{d}/f{name}', os.O_RDONLY)
            except FileNotFoundError:
                continue
            content = os.read(fd, 1 << 16).decode()
            not is_whole(content) or number(content)
            again = os.pread(fd, 1 << 16, 0).decode()
            assert again == content or not is_whole(content), (again, content)
            os.close(fd)
            opened += 1
    assert p.wait() == 0
    print(f'{opened} opened')
    assert opened > 100, opened


def peer():
    for line in sys.stdin:
        op, *args = line.split()
        if op == 'write':
            overwrite(args[0], int(args[1]))
        elif op == 'append':
            with open(args[0], 'a') as f:
                f.write('x' * int(args[1]))
        elif op == 'truncate':
            os.truncate(args[0], int(args[1]))
        elif op == 'unlink':
            os.unlink(args[0])
        elif op == 'rename':
            os.rename(*args)
        print('ok', flush=True)


class Peer:
    def __init__(self):
        self.p = child('peer', stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *words):
        print(*words, file=self.p.stdin, flush=True)
        assert self.p.stdout.readline() == 'ok\n'

    def end(self):
        self.p.stdin.close()
        assert self.p.wait() == 0


def each_change():
    """One change at a time, and what an open description says after it."""
    d, p = warm('each'), Peer()
    for i in range(30):
        f = f'{d}/f{i}'
        make(f, text(i))
        fd = os.open(f, os.O_RDONLY)
        assert number(os.read(fd, 1 << 16).decode()) == i
        p('write', f, i + 1)
        assert number(os.pread(fd, 1 << 16, 0).decode()) == i + 1
        p('truncate', f, 100)
        assert os.fstat(fd).st_size == 100 and len(os.pread(fd, 1 << 16, 0)) == 100
        assert os.lseek(fd, 0, os.SEEK_END) == 100
        if i % 3 == 0:
            p('append', f, 10000)
            assert os.fstat(fd).st_size == 10100 and len(os.pread(fd, 1 << 16, 0)) == 10100
        length = os.fstat(fd).st_size
        if i % 2:
            p('rename', f, f'{f}.moved')
            f = f'{f}.moved'
            assert len(os.pread(fd, 1 << 16, 0)) == length
            p('append', f, 5)
            length += 5
        assert len(os.pread(fd, 1 << 16, 0)) == length
        p('unlink', f)
        expect(errno.ENOENT, os.open, f, os.O_RDONLY)
        assert len(os.pread(fd, 1 << 16, 0)) == length and os.fstat(fd).st_nlink == 0
        os.close(fd)
    p.end()


def used():
    """Whatever else a descriptor is used for."""
    d = warm('used')
    f = f'{d}/f'
    make(f, 'x' * 10000 if LONG else '')
    os.truncate(f, 0)
    fd = os.open(f, os.O_WRONLY)
    os.write(fd, b'abcdefgh')
    os.close(fd)

    def fresh(flags=0):
        return os.open(f, os.O_RDONLY | flags)

    fd = fresh()
    assert os.read(fd, 3) == b'abc' and os.lseek(fd, 0, os.SEEK_CUR) == 3
    assert os.lseek(fd, -2, os.SEEK_END) == 6 and os.read(fd, 9) == b'gh' and os.read(fd, 9) == b''
    expect(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
    assert os.lseek(fd, 100, os.SEEK_SET) == 100 and os.read(fd, 1) == b''
    assert os.pread(fd, 2, 1) == b'bc' and os.lseek(fd, 0, os.SEEK_CUR) == 100
    expect(errno.EINVAL, os.pread, fd, 2, -1)
    pieces = [bytearray(3), bytearray(20)]
    assert os.preadv(fd, pieces, 1) == 7 and bytes(pieces[1][:4]) == b'efgh'
    expect(errno.EBADF, os.write, fd, b'x')
    expect(errno.EINVAL, os.ftruncate, fd, 1)
    expect(errno.EBADF, os.close, 987)
    os.close(fd)
    expect(errno.EBADF, os.read, fd, 1)

    fd = fresh(os.O_NONBLOCK)
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK) == os.O_NONBLOCK
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK == 0
    assert not os.isatty(fd) and not os.get_inheritable(fd)
    assert select.select([fd], [], [], 0)[0] == [fd]
    os.close(fd)

    fd, other = fresh(), fresh()
    assert os.path.sameopenfile(fd, other) and fd != other
    two = os.dup(fd)
    assert os.read(fd, 2) == b'ab' and os.read(two, 2) == b'cd' and os.read(other, 2) == b'ab'
    os.close(fd)
    assert os.read(two, 2) == b'ef'
    os.dup2(other, two)
    assert os.read(two, 1) == b'c' and os.read(other, 1) == b'd'
    os.close(two), os.close(other)

    fd = fresh()
    assert os.read(fd, 2) == b'ab'
    if (pid := os.fork()) == 0:
        os._exit(0 if os.read(fd, 2) == b'cd' else 1)
    assert os.waitpid(pid, 0)[1] == 0 and os.read(fd, 2) == b'ef'
    os.lseek(fd, 1, os.SEEK_SET)
    out = subprocess.run(['cat'], stdin=fd, capture_output=True)
    assert out.stdout == b'bcdefgh' and os.read(fd, 1) == b''
    os.close(fd)

    fd = fresh()
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
        assert m[:] == b'abcdefgh'
    os.close(fd)

    fd = fresh()
    fcntl.flock(fd, fcntl.LOCK_EX)
    other = fresh()
    expect(errno.EAGAIN, fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)

    fd = fresh()
    assert read(f'/proc/self/fd/{fd}') == 'abcdefgh' and read(f'/dev/fd/{fd}') == 'abcdefgh'
    os.fchmod(fd, 0o400)
    assert os.fstat(fd).st_mode & 0o777 == 0o400
    os.utime(fd, (5, 7))
    assert os.fstat(fd).st_mtime == 7 == os.stat(f).st_mtime
    os.fsync(fd)
    to = os.open(f'{d}/copy', os.O_WRONLY | os.O_CREAT)
    assert os.sendfile(to, fd, 0, 100) == 8 and read(f'{d}/copy') == 'abcdefgh'
    os.close(to)
    os.chmod(f, 0o600)
    os.close(fd)

    os.symlink('f', f'{d}/link'), os.symlink('.', f'{d}/here')
    assert read(f'{d}/link') == read(f'{d}/here/f') == read(f'{d}/../used/./f') == 'abcdefgh'
    expect(errno.ELOOP, os.open, f'{d}/link', os.O_RDONLY | os.O_NOFOLLOW)
    expect(errno.ENOTDIR, os.open, f'{f}/', os.O_RDONLY)
    expect(errno.ENOTDIR, os.open, f'{f}/g', os.O_RDONLY)
    expect(errno.ENOENT, os.open, f'{d}/none', os.O_RDONLY)
    expect(errno.ENOENT, os.open, f'{d}/none/f', os.O_RDONLY)
    expect(errno.ENOTDIR, os.open, f, os.O_RDONLY | os.O_DIRECTORY)
    at = os.open(d, os.O_RDONLY)
    fd = os.open('f', os.O_RDONLY, dir_fd=at)
    assert os.read(fd, 100) == b'abcdefgh'
    os.close(fd), os.close(at)

    # A process's locks go with any close of the file.
    a = os.open(f, os.O_RDWR)
    b = fresh()
    fcntl.lockf(a, fcntl.LOCK_EX)
    held = 'import fcntl,os,sys;fcntl.lockf(os.open(sys.argv[1],2),fcntl.LOCK_EX|fcntl.LOCK_NB)'
    job = [sys.executable, '-c', held, f]
    assert subprocess.run(job, capture_output=True).returncode != 0
    os.close(b)
    assert subprocess.run(job, capture_output=True).returncode == 0
    os.close(a)


def many():
    """More than are lent at a time, and all sizes."""
    d = warm('many')
    for size in (0, 1, 7, 8, 300, 2000, 3900, 3965, 3966, 3967, 4000, 4095, 4096, 4097, 20000):
        content = (f'{size}:' + 'abcdefg' * 3000)[:size]
        make(f'{d}/s{size}', content)
        assert read(f'{d}/s{size}') == content, size
        fd = os.open(f'{d}/s{size}', os.O_RDONLY)
        got = b''.join(iter(lambda: os.read(fd, 13), b''))
        assert got.decode() == content and os.fstat(fd).st_size == size
        os.close(fd)
    held = [os.open(f'{d}/warm', os.O_RDONLY) for _ in range(100)]
    assert all(os.read(fd, 9) == b'warm' for fd in held)
    os.unlink(f'{d}/warm')
    assert all(os.pread(fd, 9, 0) == b'warm' for fd in held)
    for fd in held:
        os.close(fd)


def threads():
    d = warm('threads')
    for i in range(20):
        make(f'{d}/f{i}', text(i))
    wrong = []

    def look(seed):
        try:
            for i in range(1500):
                which = (i * seed) % 20
                assert number(read(f'{d}/f{which}')) == which
        except Exception as e:
            wrong.append(e)

    def change():
        for i in range(400):
            replace(f'{d}/f{i % 20}', i % 20)

    all = [threading.Thread(target=look, args=(seed,)) for seed in (1, 3, 7, 11, 13, 17)]
    all.append(threading.Thread(target=change))
    for t in all:
        t.start()
    for t in all:
        t.join()
    assert not wrong, wrong


def holder(*paths):
    held = [os.open(path, os.O_RDONLY) for path in paths * 5]
    print(len(held), flush=True)
    time.sleep(100)


def killed():
    """A process that is killed leaves nothing open."""
    d = warm('killed')
    for i in range(4):
        make(f'{d}/f{i}', text(i))
    for unlinked in (False, True):
        p = child('holder', *[f'{d}/f{i}' for i in range(4)], stdout=subprocess.PIPE)
        assert p.stdout.readline() == '20\n'
        if unlinked:
            for i in range(4):
                os.unlink(f'{d}/f{i}')
        p.send_signal(signal.SIGKILL)
        p.wait()


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def private(fd, size, protection=mmap.PROT_READ, at=None, flags=0, offset=0):
    """A private mapping, without the descriptor that Python's own would duplicate."""
    address = LIBC.mmap(at, size, protection, mmap.MAP_PRIVATE | flags, fd, offset)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), 'mmap')
    return address


def mapped():
    """A private mapping has the file's bytes, zeros behind them, and a life of its own."""
    d = warm('mapped')
    text = ('abcdefg' * 1000)[:5000 if LONG else 3901]
    make(f'{d}/f', text)
    fd = os.open(f'{d}/f', os.O_RDONLY)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    address = private(fd, len(text), both)
    assert ctypes.string_at(address, len(text)).decode() == text
    assert ctypes.string_at(address + len(text), 10) == bytes(10)
    ctypes.memset(address, 65, 10)
    assert os.pread(fd, 10, 0).decode() == text[:10]
    assert private(fd, 100, at=address, flags=0x10) == address
    assert ctypes.string_at(address, 100).decode() == text[:100]
    expect(errno.EINVAL, private, fd, 0)
    expect(errno.EINVAL, private, fd, 10, offset=1)
    LIBC.munmap(address, len(text))
    os.close(fd)
    fd = os.open(f'{d}/f', os.O_WRONLY)
    expect(errno.EACCES, private, fd, 10)
    os.close(fd)


def unasked():
    """Reads often what nobody changes."""
    d, size = warm('unasked'), WIDTH if LONG else 3901
    for i in range(5):
        make(f'{d}/f{i}', 'y' * size)
    directory = os.open(d, os.O_RDONLY)
    for i in range(2000):
        fd = os.open(f'{d}/f{i % 5}', os.O_RDONLY)
        assert os.fstat(directory).st_ino != os.fstat(fd).st_ino
        if not LONG:
            address = private(fd, size)
            assert ctypes.string_at(address, size) == b'y' * size
            LIBC.munmap(address, size)
        assert len(os.read(fd, 1 << 16)) == size and os.fstat(fd).st_size == size
        os.lseek(fd, 0, os.SEEK_SET)
        os.close(fd)
        with open(f'{d}/f{(i + 1) % 5}') as f:
            assert len(f.read()) == size


def hidden():
    """Descriptors of objects take no number that a program could get, whatever its limit is."""
    d = warm('hidden')
    for i in range(40):
        make(f'{d}/f{i}', text(i))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for soft in (64, 512, 5000):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        free = [os.dup(0) for i in range(40)]
        for fd in free:
            os.close(fd)
        held = [os.open(f'{d}/f{i}', os.O_RDONLY) for i in range(40)]
        assert held == free, (held, free)
        for _ in range(2):
            assert [number(os.pread(fd, 1 << 16, 0).decode()) for fd in held] == list(range(40))
        for fd in held:
            os.close(fd)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


HELPERS = {'writer': writer, 'remover': remover, 'peer': peer, 'holder': holder}
PARTS = [changes, vanishing, each_change, used, many, mapped, threads, killed, hidden]

if len(sys.argv) > 2 and sys.argv[2] in HELPERS:
    HELPERS[sys.argv[2]](*sys.argv[3:])
else:
    wanted = sys.argv[2:] or [part.__name__ for part in PARTS]
    for name in wanted:
        globals()[name]()
