"""Files that outgrow their records, without asking: parts of submissions.py."""

import errno, os, resource, signal, threading

from submissions import Peer, expect, warm


def text(length, seed):
    return bytes((seed + at) % 251 + 1 for at in range(251)) * (length // 251 + 1)


PIECES = [[5000], [4096, 1], [1, 4096], [100, 9000, 3], [10240] * 6, [70000, 70000], [1 << 20, 9]]


def outgrown():
    """In pieces of every length; seen by another process at every moment."""
    d = warm('outgrown')
    p = Peer(d)
    for i in range(210):
        pieces, f = PIECES[i % 7], f'{d}/f{i}'
        whole = text(sum(pieces), i)[: sum(pieces)]
        fd = os.open(f, os.O_CREAT | os.O_EXCL | (os.O_RDWR if i % 2 else os.O_WRONLY), 0o640)
        at = 0
        for number, piece in enumerate(pieces):
            assert os.write(fd, whole[at : at + piece]) == piece
            at += piece
            if i % 5 == number:
                assert p.told(f'f{i}')[2] == at, (i, number)
            if i % 2 and i % 3 == number:
                assert os.pread(fd, at, 0) == whole[:at], (i, number)
        if i % 11 == 3:
            os.lseek(fd, 1, 0)
            os.write(fd, b'!')
            whole = whole[:1] + b'!' + whole[2:]
        if i % 11 == 4:
            os.ftruncate(fd, 4500)
            whole = whole[:4500].ljust(4500, b'\0')
        if i % 11 == 5:
            os.lseek(fd, 3, 2)
            os.write(fd, b'behind')
            whole = whole + b'\0\0\0behind'
        if i % 11 == 6:
            os.rename(f, f'{f}.moved')
            f += '.moved'
        if i % 11 == 7:
            other = os.dup(fd)
            os.write(other, b'more')
            os.close(other)
            whole += b'more'
        if i % 11 == 8 and os.fork() == 0:
            os._exit(0 if os.write(fd, b'child') == 5 else 1)
        if i % 11 == 8:
            assert os.wait()[1] == 0
            whole += b'child'
        os.close(fd)
        if i % 4 == 0:
            assert p.told(os.path.basename(f))[2] == len(whole), i
        with open(f, 'rb') as file:
            found = file.read()
        assert found == whole, (i, len(found), len(whole))
    p.end()


def outgrown_at_limits():
    """With a umask and a limit that keep a process from making objects by itself as others do."""
    d = warm('limits')
    for mask in [0o777, 0o277, 0o077, 0o022]:
        before = os.umask(mask)
        fd = os.open(f'{d}/m{mask}', os.O_CREAT | os.O_WRONLY, 0o644)
        os.umask(mask)
        assert os.write(fd, text(9000, mask)[:9000]) == 9000
        os.close(fd)
        os.umask(before)
        s = os.stat(f'{d}/m{mask}')
        assert (s.st_size, s.st_mode & 0o777) == (9000, 0o644 & ~mask), oct(mask)
        os.chmod(f'{d}/m{mask}', 0o600)
        assert open(f'{d}/m{mask}', 'rb').read() == text(9000, mask)[:9000]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
    fd = os.open(f'{d}/short', os.O_CREAT | os.O_WRONLY)
    assert os.write(fd, b'x' * 9000) == 6000
    expect(errno.EFBIG, os.write, fd, b'xt')
    os.close(fd)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert os.stat(f'{d}/short').st_size == 6000


def outgrown_by_threads():
    """Several threads make files at the same time, and two write to one."""
    d = warm('threads')
    wrong = []

    def some(number):
        try:
            for i in range(40):
                f, whole = f'{d}/t{number}-{i}', text(20000, number + i)[:20000]
                fd = os.open(f, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                for at in range(0, 20000, 8000):
                    os.write(fd, whole[at : at + 8000])
                os.close(fd)
                if open(f, 'rb').read() != whole:
                    wrong.append(f)
        except OSError as e:
            wrong.append(e)

    threads = [threading.Thread(target=some, args=(number,)) for number in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for i in range(20):
        fd = os.open(f'{d}/both{i}', os.O_CREAT | os.O_WRONLY)
        halves = [
            threading.Thread(target=os.write, args=(fd, bytes([half]) * 9000)) for half in (1, 2)
        ]
        [t.start() for t in halves]
        [t.join() for t in halves]
        os.close(fd)
        found = open(f'{d}/both{i}', 'rb').read()
        halves = [bytes([half]) * 9000 for half in (1, 2)]
        assert found in (halves[0] + halves[1], halves[1] + halves[0]), len(found)
    assert not wrong, wrong
