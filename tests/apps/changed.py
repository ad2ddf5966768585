"""What is done to files that are there, without asking: parts of submissions.py."""

import errno, os, stat, time

from submissions import Peer, expect, make, root, warm

LONG_AGO = 1_000_000_000


def told(path):
    s = os.stat(path)
    return stat.S_IMODE(s.st_mode), int(s.st_mtime), s.st_size, s.st_nlink


def attributes():
    """As tar, touch, cp -p and rsync change them, of small files and of large ones."""
    d = warm('attributes')
    p = Peer(d)
    for i in range(160):
        f, size = f'{d}/f{i}', [0, 30, 9000, 70000][i % 4]
        before = time.time()
        fd = os.open(f, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, b'x' * size)
        if i % 3 == 0:
            os.utime(fd, (LONG_AGO, LONG_AGO + i))
            os.fchown(fd, os.getuid(), os.getgid())
            os.fchmod(fd, 0o751)
            if i % 5 == 0:
                os.fchmod(fd, 0o640)
            if i % 6 == 0:
                # What is written then has the time of the write.
                os.write(fd, b'y')
            os.close(fd)
        else:
            os.close(fd)
            os.utime(f, (LONG_AGO, LONG_AGO + i))
            os.chmod(f, 0o640 if i % 5 == 0 else 0o751)
            if i % 6 == 1:
                os.utime(f)
        mode, mtime, length, links = told(f) if i % 2 else p.told(f'f{i}')
        assert (mode, links) == (0o640 if i % 5 == 0 else 0o751, 1), (i, oct(mode))
        assert length == size + (i % 6 == 0), (i, length)
        s = os.stat(f)
        if i % 6 < 2:
            # The kernel's clock is coarse.
            assert int(before) - 1 <= mtime <= time.time() + 1, (i, mtime)
        else:
            assert mtime == LONG_AGO + i, (i, mtime)
            assert int(s.st_atime) == LONG_AGO, (i, s)
        assert before - 1 < s.st_ctime < time.time() + 1, (i, s)
    # Of files that are there, by name; of others' too, and of those with more names.
    for i in range(160):
        f = f'{d}/f{i}'
        if i % 8 == 0:
            os.link(f, f'{d}/l{i}')
        os.chmod(f, 0o604)
        os.utime(f, (LONG_AGO, LONG_AGO - i))
        if i % 8 == 0:
            os.chmod(f'{d}/l{i}', 0o600)
        mode, mtime, _, links = p.told(f'f{i}')
        assert (mode, mtime) == (0o600 if i % 8 == 0 else 0o604, LONG_AGO - i), (i, oct(mode))
        assert links == 1 + (i % 8 == 0)
        os.unlink(f)
        expect(errno.ENOENT, os.chmod, f, 0o600)
    os.symlink('f', f'{d}/symbolic')
    expect(errno.ENOENT, os.chmod, f'{d}/symbolic', 0o600)
    make(f'{d}/f')
    os.chmod(f'{d}/symbolic', 0o611)
    assert told(f'{d}/f')[0] == 0o611
    p.end()


def owners():
    """A change of owner takes what lets others run the file as the former one."""
    d = warm('owners')
    for mode, after in [(0o6755, 0o755), (0o4755, 0o755), (0o2745, 0o2745)]:
        make(f'{d}/f')
        os.chmod(f'{d}/f', mode)
        os.chown(f'{d}/f', os.getuid(), -1)
        assert told(f'{d}/f')[0] == after, oct(mode)
        os.unlink(f'{d}/f')


def linked():
    """As git gives its objects names, and as programs move files to another directory."""
    d = warm('linked')
    p = Peer(d)
    for n in range(4):
        os.mkdir(f'{d}/{n}')
    for i in range(160):
        n, size = i % 4, [0, 30, 9000, 70000][i // 4 % 4]
        tmp, name = f'{d}/{n}/tmp{i}', f'{d}/{n}/o{i}'
        fd = os.open(tmp, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o440)
        os.write(fd, b'x' * size)
        if i % 3 == 0:
            os.close(fd)
        os.link(tmp, name)
        if i % 5 == 0:
            assert told(tmp)[2:] == told(name)[2:] == (size, 2), i
            assert p.told(f'{n}/tmp{i}')[3] == 2
        os.unlink(tmp)
        if i % 3:
            os.fchmod(fd, 0o400)
            os.write(fd, b'more')
            assert os.fstat(fd).st_nlink == 1
            os.close(fd)
        is_told = p.told(f'{n}/o{i}')
        wanted = (0o400, size + 4) if i % 3 else (0o440, size)
        assert (is_told[0], is_told[2], is_told[3]) == (*wanted, 1), (i, is_told)
        expect(errno.ENOENT, os.stat, tmp)
        expect(errno.EEXIST, os.link, name, f'{d}/w1')
        expect(errno.ENOENT, os.link, tmp, f'{d}/{n}/other')
        # To another directory and back, also in place of a file.
        other = f'{d}/{(n + 1) % 4}/moved'
        os.rename(name, other)
        assert p.told(f'{(n + 1) % 4}/moved')[2] == wanted[1]
        expect(errno.ENOENT, os.stat, name)
        if i % 2:
            os.rename(other, name)
            assert p.ask('stat', f'{(n + 1) % 4}/moved') == 'ENOENT'
            assert told(name)[2:] == (wanted[1], 1)
    for n in range(4):
        if n % 2:
            expect(errno.ENOTEMPTY, os.rmdir, f'{d}/{n}')
        for name in os.listdir(f'{d}/{n}'):
            os.unlink(f'{d}/{n}/{name}')
        os.rmdir(f'{d}/{n}')
    # Two names of one file both stay, and what is done by one is seen by the other.
    for i in range(40):
        make(f'{d}/a')
        os.link(f'{d}/a', f'{d}/b')
        os.rename(f'{d}/a', f'{d}/b')
        os.chmod(f'{d}/a', 0o600)
        assert told(f'{d}/b') == told(f'{d}/a') and p.told('b')[0] == 0o600
        os.unlink(f'{d}/a')
        os.chmod(f'{d}/b', 0o604)
        assert p.told('b')[0] == 0o604 and told(f'{d}/b')[3] == 1
        os.unlink(f'{d}/b')
    p.end()


def replaced():
    """As git, rsync, sed -i and editors do it."""
    d = warm('replaced')
    p = Peer(d)
    for i in range(150):
        f, temporary = f'{d}/f{i % 7}', f'{d}/.f{i}.tmp'
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.write(fd, b'%d' % i)
        if i % 4 == 0:
            os.write(fd, b' ' * 9000)
        keep = i % 3 == 0
        if not keep:
            os.close(fd)
            os.chmod(temporary, 0o644)
        os.rename(temporary, f)
        if keep:
            os.fchmod(fd, 0o640)
            os.write(fd, b'more')
            assert os.fstat(fd).st_nlink == 1
            os.close(fd)
        assert p.ask('read', f'f{i % 7}').split('more')[0].strip() == str(i), i
        expect(errno.ENOENT, os.stat, temporary)
        expect(errno.ENOENT, os.rename, temporary, f)
        assert told(f)[0] == (0o640 if keep else 0o644)
    # What is open keeps its content; two names of one file stay.
    fd = os.open(f'{d}/f0', os.O_RDONLY)
    was = os.read(fd, 100)
    make(f'{d}/new')
    os.rename(f'{d}/new', f'{d}/f0')
    assert os.fstat(fd).st_nlink == 0 and os.pread(fd, 100, 0) == was
    os.close(fd)
    os.link(f'{d}/f0', f'{d}/f1.link')
    os.rename(f'{d}/f0', f'{d}/f1.link')
    assert os.stat(f'{d}/f0').st_nlink == 2
    # Onto a directory, into another one, and of a directory.
    os.mkdir(f'{d}/inside')
    make(f'{d}/f')
    expect(errno.EISDIR, os.rename, f'{d}/f', f'{d}/inside')
    os.rename(f'{d}/f', f'{d}/inside/f')
    expect(errno.ENOTDIR, os.rename, f'{d}/inside', f'{d}/f1')
    for i in range(30):
        make(f'{d}/inside/.g')
        os.rename(f'{d}/inside/.g', f'{d}/inside/g')
        assert sorted(os.listdir(f'{d}/inside')) == ['f', 'g']
    os.rename(f'{d}/inside', f'{d}/outside')
    assert p.ask('read', 'outside/g') == 'empty'
    # One that others have made, and that they remove.
    for i in range(40):
        assert p.ask('make', 'theirs') == 'ok'
        os.rename(f'{d}/theirs', f'{d}/ours')
        assert p.ask('stat', 'theirs') == 'ENOENT' and p.ask('remove', 'ours') == 'ok'
        expect(errno.ENOENT, os.rename, f'{d}/ours', f'{d}/theirs')
    p.end()


def same(one, other):
    fields = ('st_ino', 'st_mode', 'st_nlink', 'st_uid', 'st_gid', 'st_size', 'st_blocks')
    for field in fields + ('st_mtime_ns', 'st_ctime_ns'):
        assert getattr(one, field) == getattr(other, field), (field, one, other)


def looked():
    """What fstat says of a new file is what everybody sees, also when more is written later."""
    d = warm('looked')
    p = Peer(d)
    inodes = set()
    for i in range(200):
        f = f'{d}/f{i}'
        before = time.time()
        fd = os.open(f, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)
        if i % 2:
            os.write(fd, b'x' * i)
        first = os.fstat(fd)
        if i % 5 == 0:
            assert p.ask('stat', f'f{i}') == 'ok'
        if i % 7 == 0:
            same(first, os.stat(f))
        assert before - 1 < first.st_mtime < time.time() + 1
        if i % 3 == 0:
            os.write(fd, b'y' * i)
            second = os.fstat(fd)
            assert second.st_size == (i % 2 + 1) * i and second.st_ino == first.st_ino
            assert second.st_mtime_ns >= first.st_mtime_ns
            os.close(fd)
            same(second, os.stat(f))
        else:
            os.close(fd)
            same(first, os.stat(f))
        inodes.add(first.st_ino)
    assert len(inodes) == 200
    with open(f'{d}/text', 'w') as f:
        f.write('as stdio does it')
    assert p.ask('read', 'text') == 'as stdio does it'
    os.mkdir(f'{d}/group')
    if os.getuid() == 0:
        os.chown(f'{d}/group', -1, 77)
    os.chmod(f'{d}/group', 0o2755)
    for i in range(30):
        fd = os.open(f'{d}/group/f{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        first = os.fstat(fd)
        os.close(fd)
        same(first, os.stat(f'{d}/group/f{i}'))
        assert first.st_gid == os.stat(f'{d}/group').st_gid
    p.end()


def copied():
    """As cp does it, by copy_file_range and by read and write."""
    d = warm('copied')
    p = Peer(d)
    sizes = [0, 10, 4000, 5000, 70000, 200_000]
    for i, size in enumerate(sizes):
        with open(f'{d}/from{i}', 'wb') as f:
            f.write(bytes(k * 7 % 251 for k in range(size)))
    for i in range(180):
        size = sizes[i % 6]
        source = os.open(f'{d}/from{i % 6}', os.O_RDONLY)
        target = os.open(f'{d}/to{i}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        assert os.fstat(target).st_size == 0
        done = 0
        while i % 3:
            count = os.copy_file_range(source, target, 1 << 30 if i % 2 else 3000)
            done += count
            if count == 0:
                break
        while i % 3 == 0:
            data = os.read(source, 50000)
            done += os.write(target, data)
            if not data:
                break
        assert done == size, (i, done)
        assert os.lseek(source, 0, 1) == os.lseek(target, 0, 1) == size
        expect(errno.EINVAL if size else 0, lambda: copy_onto_itself(source, f'{d}/from{i % 6}'))
        os.close(source)
        os.close(target)
        with open(f'{d}/from{i % 6}', 'rb') as one, open(f'{d}/to{i}', 'rb') as other:
            assert one.read() == other.read(), i
    # Out of the file and into it by others' descriptors.
    source = os.open(f'{d}/from2', os.O_RDONLY)
    appending = os.open(f'{d}/to2', os.O_WRONLY | os.O_APPEND)
    reading = os.open(f'{d}/to3', os.O_RDONLY)
    expect(errno.EBADF, os.copy_file_range, source, appending, 10)
    expect(errno.EBADF, os.copy_file_range, source, reading, 10)
    assert os.lseek(source, 0, 1) == 0
    p.end()


def copy_onto_itself(source, path):
    os.lseek(source, 0, 0)
    onto = os.open(path, os.O_WRONLY)
    try:
        if os.fstat(source).st_size == 0:
            raise OSError(0, 'nothing to copy')
        os.copy_file_range(source, onto, 5)
    finally:
        os.close(onto)


def absent():
    """A name that is not there is not there for who may make it, whoever had it before."""
    d = warm('absent')
    p = Peer(d)
    for i in range(150):
        f = f'{d}/f{i % 5}'
        # So that something waits.
        make(f'{d}/waits{i}')
        expect(errno.ENOENT, os.stat, f)
        expect(errno.ENOENT, os.open, f, os.O_RDONLY)
        assert not os.path.lexists(f'{f}.other')
        make(f'{d}/waits-too{i}')
        assert p.ask('make', f'f{i % 5}') == 'ok'
        make(f'{d}/waits-again{i}')
        assert os.stat(f).st_size == 0 and os.path.exists(f)
        if i % 2:
            os.unlink(f)
        else:
            assert p.ask('remove', f'f{i % 5}') == 'ok'
        make(f'{d}/waits-still{i}')
        expect(errno.ENOENT, os.stat, f)
        expect(errno.ENOENT, os.stat, f'{d}/none{i}/f')
        expect(errno.ENOTDIR, os.stat, f'{d}/waits{i}/f')
    p.end()


def symlinks():
    """As tar and cp -a make them: to what is there, to what comes later, and to nothing."""
    d = warm('symlinks')
    p = Peer(d)
    for i in range(120):
        f, link = f'{d}/f{i}', f'{d}/l{i}'
        if i % 3 == 0:
            make(f)
        os.symlink(f'f{i}' if i % 4 else f'{d}/f{i}', link)
        expect(errno.EEXIST, os.symlink, 'x', link)
        if i % 3 == 1:
            make(f)
        if i % 3 == 2:
            expect(errno.ENOENT, os.stat, link)
            assert p.ask('stat', f'l{i}') == 'ENOENT', i
        else:
            assert os.stat(link).st_ino == os.stat(f).st_ino, i
            assert p.ask('stat', f'l{i}') == 'ok', i
        s = os.lstat(link)
        assert stat.S_ISLNK(s.st_mode) and s.st_uid == os.getuid() and s.st_nlink == 1, i
        assert os.readlink(link) == (f'f{i}' if i % 4 else f'{d}/f{i}'), i
        if i % 5 == 0:
            os.lchown(link, os.getuid(), os.getgid())
            os.utime(link, (LONG_AGO, LONG_AGO + i), follow_symlinks=False)
            assert int(os.lstat(link).st_mtime) == LONG_AGO + i, i
        if i % 7 == 0:
            os.rename(link, f'{link}.moved')
            assert os.readlink(f'{link}.moved') and p.ask('stat', f'l{i}') == 'ENOENT', i
        elif i % 7 == 1:
            os.unlink(link)
            expect(errno.ENOENT, os.lstat, link)
    os.mkdir(f'{d}/in')
    os.symlink('in', f'{d}/way')
    make(f'{d}/way/f')
    assert os.path.exists(f'{d}/in/f') and p.ask('remove', 'way/f') == 'ok'
    assert not os.path.exists(f'{d}/way/f') and os.listdir(f'{d}/way') == []
    p.end()
