"""Directories that are opened without asking. Usage: directory_leases.py DIRECTORY [remover]"""

import errno, fcntl, os, subprocess, sys

from submissions import expect


def read_at(directory, name):
    fd = os.open(name, os.O_RDONLY, dir_fd=directory)
    try:
        return os.read(fd, 1 << 16).decode()
    finally:
        os.close(fd)


def remover(d):
    """Makes and removes a directory as it is told to."""
    for line in sys.stdin:
        os.rmdir(f'{d}/gone') if line == 'remove\n' else os.mkdir(f'{d}/gone')
        print('done', flush=True)


def main(d):
    for i in range(100):
        with open(f'{d}/f{i}', 'w') as f:
            f.write(str(i))
    os.mkdir(f'{d}/gone')
    for _ in range(8):
        os.close(os.open(d, os.O_DIRECTORY))
    wanted = sorted(['gone'] + [f'f{i}' for i in range(100)])
    helper = subprocess.Popen([sys.executable, __file__, d, 'remover'], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)

    def tell(what):
        helper.stdin.write(what + '\n')
        helper.stdin.flush()
        assert helper.stdout.readline() == 'done\n'

    for flags in (os.O_DIRECTORY, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, os.O_PATH):
        fd = os.open(d, flags)
        assert os.fstat(fd).st_ino == os.stat(d).st_ino
        assert read_at(fd, 'f7') == '7'
        if flags == os.O_PATH:
            expect(errno.EBADF, os.listdir, fd)
            assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_PATH
        else:
            assert sorted(os.listdir(fd)) == wanted
            assert sorted(os.listdir(fd)) == wanted, 'it is listed from its beginning again'
            expect(errno.EISDIR, os.read, fd, 1)
        copy = os.dup(fd)
        os.close(fd)
        assert read_at(copy, 'f9') == '9'
        os.mkdir('made', dir_fd=copy)
        assert os.stat('made', dir_fd=copy).st_ino == os.stat(f'{d}/made').st_ino
        os.rename('made', 'moved', src_dir_fd=copy, dst_dir_fd=copy)
        os.rmdir('moved', dir_fd=copy)
        before = os.getcwd()
        os.fchdir(copy)
        assert os.path.basename(os.getcwd()) == os.path.basename(d)
        os.chdir(before)
        os.close(copy)
        expect(errno.EBADF, os.fstat, copy)
    # It goes while it is open.
    for by_path in (False, True):
        fd = os.open(f'{d}/gone', os.O_PATH if by_path else os.O_DIRECTORY)
        held = os.fstat(fd).st_ino
        tell('remove')
        assert (os.fstat(fd).st_ino, os.fstat(fd).st_nlink) == (held, 0)
        expect(errno.ENOENT, lambda: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        if not by_path:
            assert os.listdir(fd) == []
        expect(errno.ENOENT, os.open, f'{d}/gone', os.O_DIRECTORY)
        tell('make')
        assert os.stat(f'{d}/gone').st_ino != held
        os.close(fd)
    # A child has what it inherits, and more are open at once than are leased.
    fds = [os.open(d, os.O_DIRECTORY) for _ in range(20)]
    child = os.fork()
    if child == 0:
        fine = all(sorted(os.listdir(fd)) == wanted for fd in fds)
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    for fd in fds:
        os.set_inheritable(fd, True)
    listing = 'import os, sys; print(len(os.listdir(int(sys.argv[1]))))'
    told = subprocess.run([sys.executable, '-c', listing, str(fds[19])], close_fds=False,
                          stdout=subprocess.PIPE, text=True)
    assert told.stdout == f'{len(wanted)}\n', told
    for fd in fds:
        os.close(fd)
    expect(errno.ENOTDIR, os.open, f'{d}/f1', os.O_DIRECTORY)
    expect(errno.ENOENT, os.open, f'{d}/none', os.O_DIRECTORY)
    os.symlink('gone', f'{d}/link')
    expect(errno.ENOTDIR, os.open, f'{d}/link', os.O_DIRECTORY | os.O_NOFOLLOW)
    os.close(os.open(f'{d}/link', os.O_DIRECTORY))
    helper.stdin.close()
    assert helper.wait() == 0


if sys.argv[2:] == ['remover']:
    remover(sys.argv[1])
else:
    main(sys.argv[1])
