"""What is done to files without asking. Usage: submissions.py DIRECTORY [PART...]"""

import ctypes, errno, os, random, resource, signal, subprocess, sys, time

root = sys.argv[1]


def expect(code, act, *args):
    try:
        act(*args)
    except OSError as e:
        assert e.errno == code, (e, errno.errorcode[code])
        return
    raise AssertionError(f'no {errno.errorcode[code]}: {act} {args}')


def make(path, flags=0):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | flags, 0o640))


def warm(name, count=20):
    d = f'{root}/{name}'
    os.mkdir(d)
    for i in range(count):
        make(f'{d}/w{i}')
    return d


def peer(d):
    for line in sys.stdin:
        op, name = line.split()
        try:
            if op == 'stat':
                os.stat(f'{d}/{name}')
                r = 'ok'
            elif op == 'list':
                r = 'ok' if name in os.listdir(d) else 'missing'
            elif op == 'make':
                make(f'{d}/{name}')
                r = 'ok'
            elif op == 'remove':
                os.unlink(f'{d}/{name}')
                r = 'ok'
            elif op == 'mkdir':
                os.mkdir(f'{d}/{name}')
                r = 'ok'
            elif op == 'rmdir':
                os.rmdir(f'{d}/{name}')
                r = 'ok'
            elif op == 'told':
                from changed import told

                r = repr(told(f'{d}/{name}'))
            elif op == 'read':
                r = open(f'{d}/{name}').read() or 'empty'
        except OSError as e:
            r = errno.errorcode[e.errno]
        print(r, flush=True)


class Peer:
    def __init__(self, d):
        self.p = subprocess.Popen(
            [sys.executable, __file__, root, 'peer', d],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, op, name):
        print(op, name, file=self.p.stdin, flush=True)
        return self.p.stdout.readline().strip()

    def told(self, name):
        return tuple(int(n) for n in self.ask('told', name).strip('()').split(','))

    def end(self):
        self.p.stdin.close()
        assert self.p.wait() == 0


def seen_at_once():
    d = warm('seen')
    p = Peer(d)
    for i in range(200):
        make(f'{d}/f{i}')
        assert p.ask('stat' if i % 2 else 'list', f'f{i}') == 'ok', i
        assert os.path.exists(f'{d}/f{i}') and len(os.listdir(d)) == 21 + i
    p.end()


def made_once():
    d = warm('once')
    p = Peer(d)
    for i in range(200):
        if i % 3 == 0:
            make(f'{d}/f{i}')
            assert p.ask('make', f'f{i}') == 'EEXIST'
        elif i % 3 == 1:
            assert p.ask('make', f'f{i}') == 'ok'
            expect(errno.EEXIST, make, f'{d}/f{i}')
        else:
            make(f'{d}/f{i}')
            expect(errno.EEXIST, make, f'{d}/f{i}')
    assert len(os.listdir(d)) == 220
    p.end()


def removed_and_made_again():
    d = warm('again')
    p = Peer(d)
    for i in range(50):
        make(f'{d}/f')
        os.unlink(f'{d}/f')
        expect(errno.ENOENT, os.stat, f'{d}/f')
        make(f'{d}/f')
        assert p.ask('remove', 'f') == 'ok'
        expect(errno.ENOENT, os.stat, f'{d}/f')
    p.end()


def gone_at_once():
    d = warm('gone')
    p = Peer(d)
    os.mkdir(f'{d}/directory')
    for i in range(200):
        f = f'{d}/f{i}'
        if i % 4 == 3:
            assert p.ask('make', f'f{i}') == 'ok'
        else:
            make(f)
        os.unlink(f)
        assert p.ask('stat' if i % 2 else 'list', f'f{i}') in ('ENOENT', 'missing'), i
        expect(errno.ENOENT, os.unlink, f)
        expect(errno.ENOENT, os.stat, f)
        expect(errno.EISDIR, os.unlink, f'{d}/directory')
    assert p.ask('remove', 'w0') == 'ok'
    expect(errno.ENOENT, os.unlink, f'{d}/w0')
    os.rename(f'{d}/w1', f'{d}/moved')
    expect(errno.ENOENT, os.unlink, f'{d}/w1')
    os.link(f'{d}/moved', f'{d}/linked')
    os.unlink(f'{d}/moved')
    assert os.stat(f'{d}/linked').st_nlink == 1
    os.symlink('linked', f'{d}/symbolic')
    os.unlink(f'{d}/symbolic')
    assert p.ask('read', 'linked') == 'empty'
    p.end()
    os.chdir(d)
    os.rmdir('directory')
    for n in os.listdir('.'):
        os.unlink(n)
    os.rmdir(d)


def written():
    d = warm('written')
    p = Peer(d)
    for i in range(320):
        k, f = i % 8, f'{d}/f{i}'
        append = os.O_APPEND if k == 3 else 0
        fd = os.open(f, os.O_CREAT | (os.O_RDONLY if k == 7 else os.O_RDWR) | append, 0o640)
        expected = 'text'
        if k == 0:
            os.write(fd, b'text')
            assert i % 3 or p.ask('read', f'f{i}') == 'text'
        elif k == 1:
            os.write(fd, b'te')
            assert i % 3 or p.ask('read', f'f{i}') == 'te'
            os.write(fd, b'xt')
        elif k == 2:
            os.writev(fd, [b'te', b'', b'xt'])
        elif k == 3:
            os.write(fd, b'te')
            os.write(fd, b'xt')
        elif k == 4:
            expected = 'x' * 4096 + 'yz'
            os.write(fd, b'x' * 4096)
            os.write(fd, b'yz')
        elif k == 5:
            os.write(fd, b'TEXT')
            os.lseek(fd, 0, 0)
            os.write(fd, b'text')
        elif k == 6:
            os.write(fd, b'text')
            os.unlink(f)
            assert os.pread(fd, 9, 0) == b'text' and os.fstat(fd).st_nlink == 0
        elif k == 7:
            expect(errno.EBADF, os.write, fd, b'x')
            expected = 'empty'
        os.close(fd)
        if k == 6:
            expect(errno.ENOENT, os.stat, f)
        elif i % 5 == 0:
            assert p.ask('read', f'f{i}') == expected, k
        else:
            assert (open(f).read() or 'empty') == expected, k
    p.end()
    before = time.time()
    fd = os.open(f'{d}/later', os.O_CREAT | os.O_WRONLY)
    time.sleep(0.05)
    os.write(fd, b'x')
    os.close(fd)
    assert before + 0.045 <= os.stat(f'{d}/later').st_mtime <= time.time() + 0.005


def limited():
    d = warm('limited')
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f'{d}/nowhere', os.O_CREAT | os.O_WRONLY)
    assert libc.write(fd, ctypes.c_void_p(8), 10) == -1 and ctypes.get_errno() == errno.EFAULT
    os.close(fd)
    assert os.stat(f'{d}/nowhere').st_size == 0
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, resource.RLIM_INFINITY))
    fd = os.open(f'{d}/short', os.O_CREAT | os.O_WRONLY)
    assert os.write(fd, b'text') == 2
    expect(errno.EFBIG, os.write, fd, b'xt')
    os.close(fd)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert os.stat(f'{d}/short').st_size == 2


def used():
    d = warm('used')
    p = Peer(d)
    for i in range(60):
        fd = os.open(f'{d}/f{i}', os.O_CREAT | os.O_RDWR, 0o640)
        k = i % 6
        if k == 0:
            os.write(fd, b'text')
        elif k == 1:
            other = os.dup(fd)
            os.close(fd)
            os.write(other, b'text')
            fd = other
        elif k == 2:
            if os.fork() == 0:
                os.write(fd, b'text')
                os._exit(0)
            assert os.wait()[1] == 0
        elif k == 3:
            os.set_inheritable(fd, True)
            subprocess.run(['sh', '-c', f'printf text >&{fd}'], pass_fds=[fd], check=True)
        elif k == 4:
            os.pwrite(fd, b'xt', 2)
            os.pwrite(fd, b'te', 0)
        elif k == 5:
            os.ftruncate(fd, 4)
            os.pwrite(fd, b'text', 0)
        assert os.fstat(fd).st_size == 4, k
        assert os.pread(fd, 10, 0) == b'text', k
        os.close(fd)
        answer = p.ask('read', f'f{i}')
        assert answer == 'text', (k, i, answer)
    expect(errno.EBADF, os.write, fd, b'x')
    p.end()


def ways():
    d = warm('ways')
    make(f'{d}/f')
    expect(errno.ENOTEMPTY, os.rmdir, d)
    for i in range(20):
        make(f'{d}/x{i}')
    make(f'{d}/g')
    os.rename(d, f'{root}/moved')
    expect(errno.ENOENT, make, f'{d}/h')
    assert os.path.exists(f'{root}/moved/g')
    for i in range(20):
        make(f'{root}/moved/y{i}')
    os.chdir(f'{root}/moved')
    for i in range(20):
        make(f'z{i}')
    os.mkdir('sub')
    expect(errno.EEXIST, make, 'sub')
    os.symlink('nowhere', 'link')
    expect(errno.EEXIST, make, 'link')
    os.link('z1', 'hard')
    expect(errno.EEXIST, make, 'hard')
    os.rename('z2', 'z99')
    expect(errno.EEXIST, make, 'z99')
    make('z2')
    fd = os.open('link', os.O_CREAT | os.O_WRONLY)
    os.close(fd)
    assert os.path.exists('nowhere')
    for n in os.listdir('.'):
        (os.rmdir if n == 'sub' else os.unlink)(n)
    os.chdir('/')
    os.rmdir(f'{root}/moved')
    expect(errno.ENOENT, make, f'{root}/moved/q')
    for i in range(100):
        e = f'{root}/e'
        os.mkdir(e)
        for k in range(12):
            make(f'{e}/k{k}')
        for k in range(12):
            os.unlink(f'{e}/k{k}')
        os.rmdir(e)


def directories():
    d = warm('directories', 0)
    p = Peer(d)
    os.umask(0o027)
    for i in range(300):
        n = f'n{i}'
        os.mkdir(f'{d}/{n}')
        expect(errno.EEXIST, os.mkdir, f'{d}/{n}')
        expect(errno.EISDIR, os.unlink, f'{d}/{n}')
        how = i % 6
        if how == 0:
            assert p.ask('list', n) == 'ok' and p.ask('mkdir', n) == 'EEXIST'
            os.rmdir(f'{d}/{n}')
            assert p.ask('stat', n) == 'ENOENT' and p.ask('rmdir', n) == 'ENOENT'
        elif how == 1:
            assert p.ask('make', f'{n}/inside') == 'ok'
            expect(errno.ENOTEMPTY, os.rmdir, f'{d}/{n}')
            assert p.ask('remove', f'{n}/inside') == 'ok'
            os.rmdir(f'{d}/{n}')
        elif how == 2:
            assert p.ask('rmdir', n) == 'ok'
            expect(errno.ENOENT, os.rmdir, f'{d}/{n}')
            make(f'{d}/{n}')
            expect(errno.ENOTDIR, os.rmdir, f'{d}/{n}')
            os.unlink(f'{d}/{n}')
        elif how == 3:
            here = os.open(f'{d}/{n}', os.O_RDONLY | os.O_DIRECTORY)
            os.rmdir(f'{d}/{n}')
            assert os.listdir(here) == []
            expect(errno.ENOENT, lambda: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=here))
            os.close(here)
        elif how == 4:
            os.mkdir(f'{d}/{n}/sub')
            expect(errno.ENOTEMPTY, os.rmdir, f'{d}/{n}')
            os.rmdir(f'{d}/{n}/sub')
            os.rmdir(f'{d}/{n}')
    kept = [f'n{i}' for i in range(5, 300, 6)]
    assert sorted(os.listdir(d)) == sorted(kept)
    at = os.stat(d)
    assert at.st_nlink == 2 + len(kept), at
    for n in kept:
        at = os.stat(f'{d}/{n}')
        assert at.st_mode == 0o040750 and at.st_nlink == 2 and at.st_uid == os.getuid(), at
    p.end()


def times():
    d = warm('times')
    spans = []
    for i in range(20):
        before = time.time()
        make(f'{d}/f{i}')
        spans.append((before, time.time()))
        time.sleep(0.02)
    for i, (before, after) in enumerate(spans):
        at = os.stat(f'{d}/f{i}').st_mtime
        assert before - 0.005 <= at <= after + 0.005, (i, before, at, after)


def modes():
    d = warm('modes')
    os.umask(0o027)
    make(f'{d}/f')
    s = os.stat(f'{d}/f')
    assert s.st_mode & 0o7777 == 0o640 and s.st_uid == os.getuid() and s.st_gid == os.getgid()
    os.chmod(d, 0o2755)
    make(f'{d}/g')
    assert os.stat(f'{d}/g').st_gid == os.stat(d).st_gid
    for n in ['n' * 255, 'a\nb', '...', '\xff\x01']:
        make(f'{d}/{n}')
        assert n in os.listdir(d)
    expect(errno.ENAMETOOLONG, make, f'{d}/' + 'n' * 256)


def killed():
    d = warm('killed')
    code = """import os, sys
for i in range(100000):
    fd = os.open(f'{sys.argv[1]}/k{i}', os.O_CREAT | os.O_WRONLY)
    os.write(fd, b'%d' % i)
    os.close(fd)
    if i >= 20:
        os.unlink(f'{sys.argv[1]}/k{i - 20}')
    os.write(1, b'%d\\n' % i)
"""
    p = subprocess.Popen([sys.executable, '-c', code, d], stdout=subprocess.PIPE)
    for _ in range(500):
        last = p.stdout.readline()
    p.kill()
    rest = p.stdout.read().split()
    p.wait()
    last = int(rest[-1] if rest else last)
    # What it was at when it was killed may have been done.
    for i in range(last - 18, last + 1):
        assert open(f'{d}/k{i}').read() == str(i)
    for i in range(last - 19):
        expect(errno.ENOENT, os.stat, f'{d}/k{i}')


def many():
    procs = []
    os.mkdir(f'{root}/shared')
    for k in range(6):
        if os.fork() == 0:
            d = f'{root}/many{k}'
            os.mkdir(d)
            for i in range(3000):
                fd = os.open(f'{d}/f{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                os.write(fd, b'%d' % (k * i))
                os.close(fd)
                if i % 7 == 0:
                    make(f'{root}/shared/f{k}.{i}')
                if i % 50 == 0:
                    assert len(os.listdir(d)) == i + 1
            for i in range(0, 3000, 2):
                os.unlink(f'{d}/f{i}')
            os._exit(0)
    for _ in range(6):
        assert os.wait()[1] == 0
    for k in range(6):
        names = os.listdir(f'{root}/many{k}')
        assert len(names) == 1500
        for n in names:
            assert open(f'{root}/many{k}/{n}').read() == str(k * int(n[1:]))
    assert len(os.listdir(f'{root}/shared')) == 6 * 429, len(os.listdir(f'{root}/shared'))


def racer(d, k, names):
    random.Random(k).shuffle(names)
    made = []
    for n in names:
        try:
            fd = os.open(f'{d}/{n}', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            continue
        os.write(fd, b'%d' % k)
        os.close(fd)
        made.append(n)
    yield len(made)
    for n in made:
        assert open(f'{d}/{n}').read() == str(k), n
    yield len(names)
    removed = 0
    for n in reversed(names):
        try:
            os.unlink(f'{d}/{n}')
            removed += 1
        except FileNotFoundError:
            pass
    yield removed


# Several processes make the same names of one directory, and remove them: each is made once, and
# removed once.
def raced():
    d = f'{root}/raced'
    os.mkdir(d)
    for turn in range(3):
        names = [f'{turn}.{i}' for i in range(600)]

        def counted(step):
            assert len(os.listdir(d)) == (0 if step == 2 else 600), (turn, step)

        counts = together(lambda k: racer(d, k, names), 4, 3, counted)
        assert sum(counts[0]) == 600 and sum(counts[2]) == 600, counts


def rival(d, k, names):
    random.Random(k).shuffle(names)
    made = 0
    for n in names:
        try:
            os.mkdir(f'{d}/{n}')
            made += 1
        except FileExistsError:
            pass
    yield made
    done = 0
    for n in names:
        try:
            if k % 2:
                os.rmdir(f'{d}/{n}')
            else:
                os.close(os.open(f'{d}/{n}/inside{k}', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            done += 1
        except FileNotFoundError:
            pass
        except OSError as e:
            assert e.errno == errno.ENOTEMPTY and k % 2, e
    yield done


# Of a directory either the removal succeeds, of one of those who want to remove it, or all that is
# made in it.
def rivals():
    d = f'{root}/rivals'
    os.mkdir(d)
    for turn in range(4):
        names = [f'{turn}.{i}' for i in range(600)]
        made, done = together(lambda k: rival(d, k, names), 4, 2)
        left = [n for n in names if os.path.exists(f'{d}/{n}')]
        inside = sum(len(os.listdir(f'{d}/{n}')) for n in left)
        assert sum(made) == 600, made
        assert done[1] + done[3] == 600 - len(left), (done, len(left))
        assert done[0] + done[2] == inside and all(os.listdir(f'{d}/{n}') for n in left), done
        assert os.stat(d).st_nlink == 2 + len(os.listdir(d))


# What each of some processes says after each step, which all end before the next one begins.
def together(work, processes, steps, between=lambda step: None):
    there = []
    for k in range(processes):
        (heard, back), (go, on) = os.pipe(), os.pipe()
        if os.fork() == 0:
            for done in work(k):
                os.write(back, b'%d\n' % done)
                os.read(go, 1)
            os._exit(0)
        os.close(back)
        there.append((os.fdopen(heard), on))
    counts = []
    for step in range(steps):
        counts.append([int(heard.readline()) for heard, _ in there])
        between(step)
        for _, on in there:
            os.write(on, b'x')
    for heard, on in there:
        heard.close()
        os.close(on)
        assert os.wait()[1] == 0
    return counts


if __name__ == '__main__':
    if sys.argv[2:3] == ['peer']:
        peer(sys.argv[3])
        sys.exit()
    sys.dont_write_bytecode = True
    from changed import absent, attributes, copied, linked, looked, owners, replaced, symlinks
    from outgrown import outgrown, outgrown_at_limits, outgrown_by_threads
    from appended import appended, appended_by_several, appender_killed, locked, onto_itself
    from appended import programs, unwritten
    from overwritten import copied_over, overwriter_killed, overwritten, overwritten_by_several
    from tools import extended, nowhere, temporary
    from trees import forest, trees

    parts = [
        seen_at_once,
        made_once,
        removed_and_made_again,
        raced,
        directories,
        rivals,
        trees,
        forest,
        gone_at_once,
        written,
        limited,
        outgrown,
        outgrown_at_limits,
        outgrown_by_threads,
        overwritten,
        overwritten_by_several,
        copied_over,
        overwriter_killed,
        appended,
        appended_by_several,
        appender_killed,
        locked,
        onto_itself,
        programs,
        unwritten,
        used,
        ways,
        times,
        modes,
        attributes,
        owners,
        replaced,
        linked,
        symlinks,
        looked,
        copied,
        absent,
        temporary,
        extended,
        nowhere,
        killed,
        many,
    ]
    for part in [globals()[name] for name in sys.argv[2:]] or parts:
        part()
