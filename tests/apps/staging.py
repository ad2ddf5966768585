"""Trees for staging: `make DIR`, `describe DIR` (all that a copy keeps), `many DIR COUNT`."""
import hashlib, os, stat, sys


def put(path, content, mode=0o644, time=None):
    with open(path, 'wb') as f:
        f.write(content)
    os.chmod(path, mode)
    if time is not None:
        os.utime(path, ns=(time, time))


def make(root):
    r = os.fsencode(root)
    for d in (b'a/b/c', b'empty', b'odd/\xff\xfe dir', b'odd/new\nline'):
        os.makedirs(os.path.join(r, d))
    put(r + b'/a/f', b'hello\n', 0o640, 1_000_000_000_123_456_789)
    os.link(r + b'/a/f', r + b'/a/g')
    os.link(r + b'/a/f', r + b'/a/b/h')
    os.symlink(b'../f', r + b'/a/b/link')
    os.symlink(b'nowhere', r + b'/dangling')
    os.mkfifo(r + b'/a/pipe', 0o620)
    put(r + b'/odd/\xff\xfe dir/\xe4', b'x' * 4097)
    put(r + b'/odd/new\nline/-rf', b'')
    put(r + b'/odd/' + b'n' * 255, b'long name')
    put(r + b'/a/program', b'#!/bin/sh\n', 0o755)
    put(r + b'/a/large', bytes(range(256)) * 4096 * 70)
    with open(r + b'/a/sparse', 'wb') as f:
        f.seek(3 << 20)
        f.write(b'in the middle')
        f.truncate(9 << 20)
    try:
        os.setxattr(r + b'/a/f', 'user.of', b'a file')
        os.setxattr(r + b'/empty', 'user.of', b'a directory')
    except OSError:
        pass
    os.chmod(r + b'/a/b', 0o555)
    for d in (b'/a/b', b'/empty'):
        os.utime(r + d, ns=(5, 1_234_567_890_987_654_321))


def many(root, count):
    for i in range(int(count)):
        d = f'{root}/d{i % 20}'
        if i < 20:
            os.makedirs(d)
        put(f'{d}/f{i}', f'{i}'.encode() * (1 + i % 500))


def describe(root):
    """A line for each name, sorted; files with several names by the first of them."""
    r, first, lines = os.fsencode(root), {}, []
    for d, dirs, files in os.walk(r):
        dirs.sort()
        for name in [b''] + sorted(files + [x for x in dirs if os.path.islink(os.path.join(d, x))]):
            path = os.path.join(d, name) if name else d
            s, inner = os.lstat(path), os.path.relpath(path, r)
            kind = stat.S_IFMT(s.st_mode)
            what = [inner, oct(s.st_mode)]
            if inner != b'.':
                what.append(s.st_mtime_ns)
            if kind == stat.S_IFLNK:
                what.append(os.readlink(path))
            elif kind == stat.S_IFREG:
                with open(path, 'rb') as f:
                    what.append(hashlib.sha256(f.read()).hexdigest())
                what.append(first.setdefault((s.st_dev, s.st_ino), inner))
                # Over several nodes nobody is told of holes.
                holes = s.st_size > 1 << 20 > s.st_blocks * 512 and 'MAYFLY_NODES' not in os.environ
                what.append('holes' if holes else '')
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                try:
                    what += [(k, os.getxattr(path, k)) for k in sorted(os.listxattr(path))]
                except OSError:
                    pass
            lines.append(repr(what))
    print('\n'.join(lines))


globals()[sys.argv[1]](*sys.argv[2:])
