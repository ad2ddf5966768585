"""What is done to trees of directories without asking: parts of submissions.py."""

import errno, os, random

from submissions import Peer, expect, make, root, together


# What is made in directories that were just made, several levels down.
def trees():
    d = f'{root}/trees'
    os.mkdir(d)
    p = Peer(d)
    for i in range(150):
        n, how = f'n{i}', i % 6
        at, files = f'{d}/{n}', [f'f{k}' for k in range(4)]
        os.mkdir(at)
        os.mkdir(f'{at}/sub')
        for f in files:
            make(f'{at}/sub/{f}')
        if how == 0:
            assert p.ask('stat', f'{n}/sub/f3') == 'ok'
            assert p.ask('make', f'{n}/sub/f3') == p.ask('mkdir', f'{n}/sub') == 'EEXIST'
            expect(errno.ENOTEMPTY, os.rmdir, f'{at}/sub')
        elif how == 1:
            assert p.ask('remove', f'{n}/sub/f0') == 'ok'
            expect(errno.ENOENT, os.unlink, f'{at}/sub/f0')
            for f in files[1:]:
                os.unlink(f'{at}/sub/{f}')
            assert p.ask('make', f'{n}/sub/g') == 'ok'
            expect(errno.ENOTEMPTY, os.rmdir, f'{at}/sub')
            os.unlink(f'{at}/sub/g')
            os.rmdir(f'{at}/sub')
            assert p.ask('make', f'{n}/sub/g') == p.ask('stat', f'{n}/sub') == 'ENOENT'
        elif how == 2:
            os.rename(at, f'{d}/moved{i}')
            expect(errno.ENOENT, make, f'{at}/sub/g')
            make(f'{d}/moved{i}/sub/g')
            assert sorted(os.listdir(f'{d}/moved{i}/sub')) == files + ['g']
        elif how == 3:
            os.rename(f'{at}/sub', f'{d}/out{i}')
            expect(errno.ENOENT, make, f'{at}/sub/g')
            os.rmdir(at)
            assert p.ask('remove', f'out{i}/f0') == 'ok'
            assert sorted(os.listdir(f'{d}/out{i}')) == files[1:]
        elif how == 4:
            os.chdir(f'{at}/sub')
            for f in files:
                os.unlink(f)
            make('g')
            os.mkdir('deep')
            make('deep/g')
            assert p.ask('stat', f'{n}/sub/deep/g') == 'ok'
            assert sorted(os.listdir('.')) == ['deep', 'g']
            os.chdir('/')
        elif how == 5:
            for f in files:
                os.unlink(f'{at}/sub/{f}')
            os.rmdir(f'{at}/sub')
            os.rmdir(at)
            os.mkdir(at)
            make(f'{at}/sub')
            expect(errno.ENOTDIR, make, f'{at}/sub/f0')
            assert p.ask('mkdir', f'{n}/other') == 'ok'
    p.end()
    left = {0: ['sub'], 1: [], 4: ['sub'], 5: ['other', 'sub']}
    for i in range(150):
        if i % 6 in left:
            assert sorted(os.listdir(f'{d}/n{i}')) == left[i % 6], i
            assert os.stat(f'{d}/n{i}').st_nlink == (2 if i % 6 == 1 else 3), i
    assert len(os.listdir(d)) == 150


GROVE = ['a', 'a/b', 'a/b/c', 'a/b/c/d', 'a/b/c/d/e', 'a/b/c/d/f', 'a/b/g', 'h', 'h/i', 'h/i/j']


# Makes and removes names of one tree at random: how many more of each it made than removed.
def forester(d, k):
    choice = random.Random(k)
    balance = dict.fromkeys(GROVE, 0)
    for _ in range(4000):
        n = choice.choice(GROVE)
        path = f'{d}/{n}'
        act = choice.choice([os.mkdir, os.mkdir, make, os.unlink, os.rmdir])
        try:
            if k % 4 == 3 and n.startswith('a/b/'):
                os.chdir(f'{d}/a/b')
                path = n[4:]
            act(path)
            balance[n] += 1 if act in (os.mkdir, make) else -1
        except OSError as e:
            wrong = (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY)
            assert e.errno in wrong, e
    yield from balance.values()


# Of all that make or remove a name of a tree as many have done it as can have.
def forest():
    d = f'{root}/forest'
    os.mkdir(d)
    for turn in range(3):
        there = [os.path.exists(f'{d}/{n}') for n in GROVE]
        counts = together(lambda k: forester(d, 4 * turn + k), 4, len(GROVE))
        for n, before, done in zip(GROVE, there, counts):
            assert before + sum(done) == os.path.exists(f'{d}/{n}'), (n, before, done)
