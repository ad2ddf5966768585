"""Small files that are appended to, overwritten and cut without asking: parts of submissions.py."""

import errno, fcntl, os, random, signal, subprocess, sys, time

from overwritten import Reader
from submissions import expect, warm


def changed(dice, path, i, whole):
    """Changes a file in one of many ways; what it has then."""
    text = b'%d ' % i * dice.choice((1, 2, 9))
    at = dice.randrange(len(whole) + 20)
    length = dice.randrange(len(whole) + 40)
    match i % 9:
        case 0:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(fd, text[:3])
            os.write(fd, text[3:])
            os.close(fd)
            return whole + text
        case 1:
            with open(path, 'ab') as f:
                assert f.tell() == len(whole)
                f.write(text)
            return whole + text
        case 2 | 3:
            fd = os.open(path, os.O_RDWR if i % 2 else os.O_WRONLY)
            if i % 2:
                assert os.pread(fd, 8192, 0) == whole
            assert os.pwrite(fd, text, at) == len(text)
            os.close(fd)
        case 4:
            with open(path, 'r+b') as f:
                assert f.read() == whole
                f.seek(at)
                f.write(text)
                f.flush()
                assert os.fstat(f.fileno()).st_size == max(len(whole), at + len(text))
                f.seek(0)
                f.truncate(length)
            whole = whole.ljust(at, b'\0')
            whole = whole[:at] + text + whole[at + len(text) :]
            return whole[:length].ljust(length, b'\0')
        case 5:
            os.truncate(path, length)
            return whole[:length].ljust(length, b'\0')
        case 6:
            fd = os.open(path, os.O_WRONLY)
            os.ftruncate(fd, length)
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, text)
            os.close(fd)
            return whole[:length].ljust(length, b'\0') + text
        case 7:
            for half in (text[:2], text[2:]):
                fd = os.open(path, os.O_RDWR | os.O_APPEND)
                assert os.fstat(fd).st_size == len(whole) + (0 if half == text[:2] else 2)
                os.write(fd, half)
                os.close(fd)
            return whole + text
        case _:
            with open(path, 'wb') as f:
                f.write(text)
            return text
    whole = whole.ljust(at, b'\0')
    return whole[:at] + text + whole[at + len(text) :]


def appended():
    """Each is read by who has had it open all the time, by its name, and looked at."""
    d = warm('appended')
    paths = [f'{d}/f{i}' for i in range(7)]
    for path in paths:
        with open(path, 'wb') as f:
            f.write(b'first')
    ids = [os.stat(path).st_ino for path in paths]
    reader, dice, wholes = Reader(paths), random.Random(7), [b'first'] * 7
    own = [os.open(path, os.O_RDONLY) for path in paths]
    for i in range(3000):
        at = i // 3 % 7 if i % 600 < 300 else dice.randrange(7)
        if len(wholes[at]) > 3500:
            os.truncate(paths[at], 10)
            wholes[at] = wholes[at][:10]
        if i % 31 == 7:
            reader.ask(at, b'w', i % 250)
            wholes[at] = b'by the other %d' % (i % 250)
        else:
            wholes[at] = changed(dice, paths[at], dice.randrange(900) if i % 2 else i, wholes[at])
        how = b'hps'[i % 3 : i % 3 + 1]
        expected = b'%d' % len(wholes[at]) if how == b's' else wholes[at]
        if i % 5 == 1:
            assert reader.ask(at, how) == expected, (i, how)
        if i % 7 == 3:
            assert os.pread(own[at], 8192, 0) == wholes[at], i
            assert os.stat(paths[at]).st_ino == ids[at]
    reader.end()
    for fd, whole in zip(own, wholes):
        assert os.pread(fd, 8192, 0) == whole
        os.close(fd)


def unwritten():
    """What is opened for writing, and not written to, is as it was."""
    d = warm('unwritten')
    with open(f'{d}/f', 'w') as f:
        f.write('text')
    before = os.stat(f'{d}/f')
    time.sleep(0.01)
    for flags in (os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT):
        for told in (False, True):
            fd = os.open(f'{d}/f', flags)
            now = os.fstat(fd) if told else before
            assert now == before, (flags, told)
            os.close(fd)
    assert os.stat(f'{d}/f') == before
    with open(f'{d}/f', 'a'), open(f'{d}/f') as f:
        assert f.read() == 'text'
    assert os.stat(f'{d}/f') == before
    os.truncate(f'{d}/f', 4)
    after = os.stat(f'{d}/f')
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns
    time.sleep(0.01)
    with open(f'{d}/f', 'a') as f:
        f.write('!')
    last = os.stat(f'{d}/f')
    assert last.st_mtime_ns > after.st_mtime_ns and last.st_size == 5


def appended_by_several():
    """Each line that somebody has appended is there once, behind his line before."""
    d = warm('appended_by_several')
    children = []
    for k in range(3):
        if (pid := os.fork()) == 0:
            for i in range(10):
                with open(f'{d}/own{k}.{i}', 'w'):
                    pass
            for n in range(60):
                with open(f'{d}/log', 'a') as f:
                    f.write(f'{k} {n}\n')
                with open(f'{d}/own{k}', 'a') as f:
                    f.write(f'{n}\n')
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    lines = [line.split() for line in open(f'{d}/log').read().splitlines()]
    for k in range(3):
        own = [int(n) for (of, n) in lines if of == str(k)]
        assert own == list(range(60)), (k, own)
        assert open(f'{d}/own{k}').read() == ''.join(f'{n}\n' for n in range(60))
    assert len(lines) == 180


def appender_killed():
    """What a process has appended and closed is there when it is killed, once."""
    d = warm('appender_killed')
    code = """import os, sys
d = sys.argv[1]
for n in range(100000):
    with open(f'{d}/log{n // 300}', 'ab') as f: f.write(b'%d\\n' % n)
    fd = os.open(f'{d}/last', os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b'%9d' % n, 0)
    os.close(fd)
    os.write(1, b'%d\\n' % n)
"""
    p = subprocess.Popen([sys.executable, '-c', code, d], stdout=subprocess.PIPE)
    for _ in range(700):
        line = p.stdout.readline()
    p.send_signal(signal.SIGKILL)
    rest = p.stdout.read().splitlines()
    p.wait()
    n = int(rest[-1] if rest else line)
    found = []
    for i in range((n + 1) // 300 + 1):
        if os.path.exists(f'{d}/log{i}'):
            found += [int(word) for word in open(f'{d}/log{i}').read().split()]
    assert found in (list(range(n + 1)), list(range(n + 2))), (n, found[-3:])
    assert int(open(f'{d}/last').read()) in (n, n + 1)


def locked():
    """A close gives up the locks of its process, however the file was opened."""
    d = warm('locked')
    with open(f'{d}/f', 'w') as f:
        f.write('text')

    def is_free():
        code = '''import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)'''
        done = subprocess.run([sys.executable, '-c', code, f'{d}/f'], stderr=subprocess.DEVNULL)
        return done.returncode == 0

    with open(f'{d}/f', 'a') as f:
        f.write('!')
    held = open(f'{d}/f', 'r+')
    fcntl.lockf(held, fcntl.LOCK_EX)
    assert not is_free()
    with open(f'{d}/f', 'a') as f:
        f.write('?')
    assert is_free()
    held.close()
    assert open(f'{d}/f').read() == 'text!?'


def onto_itself():
    """What copy_file_range refuses it refuses of a file that was opened so, too."""
    d = warm('onto_itself')
    with open(f'{d}/f', 'w') as f, open(f'{d}/g', 'w') as g:
        f.write('some text')
        g.write('other')
    source = os.open(f'{d}/f', os.O_RDONLY)
    for path, flags, code in [
        ('f', os.O_WRONLY, errno.EINVAL),
        ('g', os.O_WRONLY | os.O_APPEND, errno.EBADF),
    ]:
        target = os.open(f'{d}/{path}', flags)
        expect(code, os.copy_file_range, source, target, 5)
        os.close(target)
    target = os.open(f'{d}/g', os.O_WRONLY)
    assert os.copy_file_range(source, target, 4) == 4
    os.close(target)
    os.close(source)
    assert open(f'{d}/g').read() == 'somer' and open(f'{d}/f').read() == 'some text'


def programs():
    """A shell's >> and 1<>, sed -i and dd."""
    d = warm('programs')
    code = """set -e; cd "$1"
for i in $(seq 0 99); do
    echo "one $i" >> f$((i % 10)); echo "two $i" >> f$((i % 10))
    [ "$(tail -n 1 f$((i % 10)))" = "two $i" ]
    echo "$i" >> log
done
for i in $(seq 0 9); do
    sed -i 's/one/ONE/' f$i
    echo "by sed" >> f$i
    printf abc 1<> f$i
    printf xyz | dd of=f$i conv=notrunc bs=1 seek=1 status=none
done"""
    subprocess.run(['bash', '-c', code, 'bash', d], check=True)
    assert open(f'{d}/log').read() == ''.join(f'{i}\n' for i in range(100))
    for k in range(10):
        lines = [f'ONE {i}\ntwo {i}\n' for i in range(k, 100, 10)]
        whole = 'axyz' + (''.join(lines) + 'by sed\n')[4:]
        assert open(f'{d}/f{k}').read() == whole, k
