"""What rsync, git, cp -a and Python's tempfile do without asking: parts of submissions.py."""

import errno, os, stat

from submissions import Peer, expect, make, root, warm

LONG_AGO = 1_000_000_000
SIZES = [0, 30, 4000, 9000, 70000]


def all_of(s):
    return (s.st_ino, s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_nlink, s.st_blocks,
            s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)


def temporary():
    """A temporary file as rsync makes it: each look at it tells what the next one tells."""
    d = warm('temporary')
    p = Peer(d)
    fd_of_directory = os.open(d, os.O_RDONLY)
    for i in range(200):
        name, size = f'.f{i}.tmp', SIZES[i % 5]
        at = {'dir_fd': fd_of_directory} if i % 2 else {}
        new = name if i % 2 else f'{d}/{name}'
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, **at)
        os.fchmod(fd, 0o640)
        if i % 3 == 0:
            os.fchown(fd, os.getuid(), os.getgid())
        if i % 7 == 0:
            assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
        half = size // 2
        assert os.write(fd, b'x' * half) + os.write(fd, b'y' * (size - half)) == size
        if i % 11 == 0:
            os.fchmod(fd, 0o600)
        os.close(fd)
        first = os.stat(new, follow_symlinks=False, **at)
        mode = 0o600 if i % 11 == 0 else 0o640
        assert (stat.S_IMODE(first.st_mode), first.st_size, first.st_nlink) == (mode, size, 1), i
        assert first.st_ctime_ns >= first.st_mtime_ns, (i, first)
        assert all_of(os.stat(new, **at)) == all_of(first), (i, first, os.stat(new, **at))
        if i % 4:
            os.utime(new, (LONG_AGO, LONG_AGO + i), follow_symlinks=False, **at)
            second = os.stat(new, **at)
            assert (second.st_mtime, second.st_atime) == (LONG_AGO + i, LONG_AGO), (i, second)
            assert second.st_ctime_ns >= first.st_ctime_ns and second.st_ino == first.st_ino, i
        fd = os.open(new, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, **at)
        if i % 5 == 0:
            # Its name is another file's by now.
            os.rename(new, f'{d}/f{i}', src_dir_fd=at.get('dir_fd'))
            make(f'{d}/{name}')
        os.fchmod(fd, 0o644)
        if i % 6 == 0:
            os.utime(fd, (LONG_AGO, LONG_AGO - i))
            assert os.fstat(fd).st_mtime == LONG_AGO - i, i
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o644, i
        assert os.read(fd, 1 << 20) == b'x' * half + b'y' * (size - half), i
        os.close(fd)
        if i % 5 == 0:
            assert p.told(name)[0] == 0o640, i
            os.unlink(new, **at)
        else:
            os.rename(new, f'f{i}', src_dir_fd=at.get('dir_fd'), dst_dir_fd=fd_of_directory)
        assert p.told(f'f{i}')[0::2] == (0o644, size), i
        expect(errno.ENOENT, os.stat, new)
    # As O_PATH it stands for a name, whose file nobody changes by it.
    for i in range(20):
        fd = os.open(f'{d}/f{i}', os.O_PATH)
        expect(errno.EBADF, os.fchmod, fd, 0o700)
        expect(errno.EBADF, os.getxattr, fd, 'system.posix_acl_access')
        os.close(fd)
    os.close(fd_of_directory)
    p.end()


def extended():
    """Attributes of files that have none, or some, while something waits."""
    d = warm('extended')
    p = Peer(d)
    for i in range(120):
        f, g = f'{d}/f{i}', f'{d}/g{i}'
        with open(f, 'w') as file:
            file.write('x' * SIZES[i % 5])
        if i % 4 == 0:
            os.setxattr(f, 'user.a', b'value')
        reading = os.open(f, os.O_RDONLY)
        making = os.open(g, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        expected = ['user.a'] if i % 4 == 0 else []
        for of, has in (reading, expected), (making, []), (f, expected), (g, []):
            assert os.listxattr(of) == has, (i, of)
            for name in 'system.posix_acl_access', 'security.capability', 'a':
                expect(errno.EOPNOTSUPP, os.getxattr, of, name)
                expect(errno.EOPNOTSUPP, os.setxattr, of, name, b'')
                expect(errno.EOPNOTSUPP, os.removexattr, of, name)
            for name in 'user.a', 'user.b':
                if name in has:
                    assert os.getxattr(of, name) == b'value', i
                else:
                    expect(errno.ENODATA, os.getxattr, of, name)
                    expect(errno.ENODATA, os.removexattr, of, name)
            expect(errno.EINVAL, os.getxattr, of, 'user.')
            assert os.getxattr(of, 'user.mayfly.writers') in (b'0', b'1'), i
        expect(errno.ENOENT, os.getxattr, f'{d}/none', 'user.a')
        expect(errno.ENOENT, os.getxattr, f'{d}/none', 'system.posix_acl_access')
        os.setxattr(making, 'user.a', b'set')
        assert os.getxattr(g, 'user.a') == os.getxattr(making, 'user.a') == b'set', i
        os.close(reading)
        os.close(making)
        assert p.ask('stat', f'g{i}') == 'ok'
    p.end()


def nowhere():
    """Names in directories that are not there, until they are: as git makes its objects."""
    d = warm('nowhere')
    p = Peer(d)
    for i in range(120):
        inside = f'{d}/{i:02x}'
        for path in f'{inside}/f', f'{inside}/in/f', f'{inside}/./f', f'{inside}//f':
            expect(errno.ENOENT, os.stat, path)
            expect(errno.ENOENT, make, path)
            expect(errno.ENOENT, os.mkdir, path)
        expect(errno.EISDIR, os.open, f'{inside}/', os.O_CREAT | os.O_WRONLY)
        expect(errno.ENOTDIR, os.stat, f'{d}/w1/f')
        expect(errno.ENOTDIR, make, f'{d}/w1/f')
        if i % 3 == 0:
            assert p.ask('mkdir', f'{i:02x}') == 'ok'
        else:
            os.mkdir(inside)
        make(f'{inside}/f')
        assert p.ask('stat', f'{i:02x}/f') == 'ok', i
        os.chdir(inside)
        assert os.getcwd() == inside, (i, os.getcwd())
        os.chdir(d)
        if i % 4 == 0:
            os.unlink(f'{inside}/f')
            os.chdir(inside)
            os.rmdir(inside)
            expect(errno.ENOENT, os.getcwd)
            os.chdir(d)
            assert p.ask('stat', f'{i:02x}/f') == 'ENOENT', i
            expect(errno.ENOENT, make, f'{inside}/f')
        elif i % 4 == 1:
            os.chdir(inside)
            os.rename(inside, f'{inside}.moved')
            assert os.getcwd() == f'{inside}.moved', i
            os.chdir(d)
            expect(errno.ENOENT, make, f'{inside}/f')
    p.end()
