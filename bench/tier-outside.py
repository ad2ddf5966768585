#!/usr/bin/env python3
"""A slow directory outside, read and written through an instance and directly:

    cargo build --release -p mayfly-cli -p outside
    python3 bench/tier-outside.py [MAYFLY [DIRECTORY [TURNS [MIB]]]]

The directory is shown by tests/outside: 1 ms for a call without bytes, in one queue, and 200 MiB a
second. Instances' data and what is below are in DIRECTORY (/dev/shm). Each row is the median of
TURNS (3) turns: the rate through the instance by the rate of the same done directly, or in a plain
instance where the row says so. The large file has MIB (1024) MiB.
"""
import os, shutil, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAYFLY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else f'{HERE}/target/release/mayfly')
ROOT = os.path.join(sys.argv[2] if len(sys.argv) > 2 else '/dev/shm', 'mayfly-outside')
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
MIB = int(sys.argv[4]) if len(sys.argv) > 4 else 1024
OUTSIDE = os.path.join(os.path.dirname(MAYFLY), 'outside')
BELOW, SHOWN, DATA = (f'{ROOT}/{name}' for name in ('below', 'shown', 'data'))
FILES, FILE_BYTES, READERS = 1000, 64 << 10, 8
# What is read by turns: so many files, together twice what an instance holds.
SET_FILES, SET_FILE_MIB = 32, max(MIB // 64, 1)

# What is timed, in a process of its own: the seconds that it took.
WORK = '''
import os, sys, time
what, root = sys.argv[1:3]
piece = bytearray(1 << 20)
def dirs(at, depth):
    yield at
    if depth:
        for branch in range(3):
            yield from dirs(f"{at}/b{branch}", depth - 1)
def items():
    all_dirs = list(dirs(f"{root}/tree", 3))
    return [f"{at}/i{number}" for at in all_dirs for number in range(100 // 4)]
def share(number):
    for at in range(number, %d, %d):
        with open(f"{root}/many/{at}", "rb") as file:
            assert len(file.read()) == %d
begin = time.monotonic()
if what == "read":
    with open(f"{root}/large", "rb", buffering=0) as file:
        while file.readinto(piece): pass
elif what == "first":
    with open(f"{root}/large", "rb", buffering=0) as file:
        assert len(file.read(1)) == 1
elif what == "set":
    for number in list(range(%d)) * 2:
        with open(f"{root}/set/{number}", "rb", buffering=0) as file:
            while file.readinto(piece): pass
elif what == "write":
    with open(f"{root}/written", "wb", buffering=0) as file:
        for _ in range(%d): file.write(piece)
elif what == "many":
    children = []
    for number in range(%d):
        child = os.fork()
        if not child:
            share(number)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
elif what == "make":
    for at in dirs(f"{root}/tree", 3): os.mkdir(at)
    begin = time.monotonic()
    for item in items(): os.close(os.open(item, os.O_CREAT | os.O_WRONLY))
elif what == "crowd":
    os.mkdir(f"{root}/crowd")
    begin = time.monotonic()
    for number in range(2000): os.close(os.open(f"{root}/crowd/{number}", os.O_CREAT | os.O_WRONLY))
elif what == "stat":
    for item in items(): os.stat(item)
elif what == "remove":
    for item in items(): os.unlink(item)
print(time.monotonic() - begin)
''' % (FILES, READERS, FILE_BYTES, SET_FILES, MIB, READERS)


def directly(what):
    done = subprocess.run([sys.executable, '-c', WORK, what, SHOWN], check=True,
                          capture_output=True, text=True)
    return float(done.stdout)


class Instance:
    """With the slow directory as its origin, or a plain one."""

    def __init__(self, *options):
        shutil.rmtree(DATA, ignore_errors=True)
        os.makedirs(DATA)
        self.run('start', '--data-dir', DATA, *options)
        self.attach = self.run('env')

    def run(self, command, *options):
        done = subprocess.run([MAYFLY, command, '--name', 'tier-outside', *options], check=True,
                              capture_output=True, text=True)
        return done.stdout

    def time(self, what):
        done = subprocess.run(['bash', '-c', 'eval "$1"; shift; cd / && exec "$@" "$MAYFLY_MOUNT"',
                               'bash', self.attach, sys.executable, '-c', WORK, what],
                              check=True, capture_output=True, text=True)
        return float(done.stdout)

    def flush(self):
        begin = time.monotonic()
        subprocess.run([MAYFLY, 'tier', 'flush', '--name', 'tier-outside'], check=True,
                       capture_output=True)
        return time.monotonic() - begin

    def stop(self):
        self.run('stop')


def with_origin(*options):
    return Instance('--origin', SHOWN, '--validate', '1h', *options)


def turn(rows):
    def row(name, before, after):
        rows.setdefault(name, []).append(before / after)

    plain = Instance()
    written = plain.time('write')
    plain.stop()
    straight = {what: directly(what) for what in ('read', 'first', 'many', 'write')}
    os.unlink(f'{SHOWN}/written')
    one = with_origin()
    row('first byte of a large file', straight['first'], one.time('first'))
    one.stop()
    one = with_origin()
    row('large file, miss', straight['read'], one.time('read'))
    row('1,000 files of 64 KiB by 8 processes, miss', straight['many'], one.time('many'))
    row('the same, second pass', straight['many'], one.time('many'))
    closed = one.time('write')
    row('large file written until close, by a plain instance', written, closed)
    row('the same until flushed', straight['write'], closed + one.flush())
    os.unlink(f'{SHOWN}/written')
    one.stop()
    one = Instance('--origin', SHOWN, '--validate', '1h', '--capacity',
                   f'{SET_FILES * SET_FILE_MIB // 2}MiB')
    row('twice what there is room for, read twice', directly('set'), one.time('set'))
    one.stop()
    tree = {what: directly(what) for what in ('make', 'stat', 'remove')}
    shutil.rmtree(f'{BELOW}/tree')
    one = with_origin()
    for what in ('make', 'stat', 'remove'):
        row(f'tree, {what}', tree[what], one.time(what))
    one.stop()
    shutil.rmtree(f'{BELOW}/tree', ignore_errors=True)
    crowd = directly('crowd')
    shutil.rmtree(f'{BELOW}/crowd')
    one = Instance('--origin', SHOWN)
    row('2,000 files in one directory, --validate 1s', crowd, one.time('crowd'))
    one.stop()
    shutil.rmtree(f'{BELOW}/crowd', ignore_errors=True)
    one = with_origin('--names', 'async')
    for what in ('make', 'stat', 'remove'):
        row(f'tree, {what}, --names async', tree[what], one.time(what))
    one.flush()
    assert not [files for _, _, files in os.walk(f'{BELOW}/tree') if files]
    one.stop()
    shutil.rmtree(f'{BELOW}/tree', ignore_errors=True)


shutil.rmtree(ROOT, ignore_errors=True)
for directory in (BELOW, SHOWN, f'{BELOW}/many', f'{BELOW}/set'):
    os.makedirs(directory)
with open(f'{BELOW}/large', 'wb') as file:
    for _ in range(MIB):
        file.write(os.urandom(1 << 20))
for number in range(FILES):
    with open(f'{BELOW}/many/{number}', 'wb') as file:
        file.write(os.urandom(FILE_BYTES))
for number in range(SET_FILES):
    with open(f'{BELOW}/set/{number}', 'wb') as file:
        for _ in range(SET_FILE_MIB):
            file.write(os.urandom(1 << 20))
shown = subprocess.Popen([OUTSIDE, BELOW, SHOWN], stdout=subprocess.PIPE, text=True)
try:
    shown.stdout.readline()
    rows = {}
    for _ in range(TURNS):
        turn(rows)
    for name, ratios in rows.items():
        middle = statistics.median(ratios)
        print(f'{name:52} {middle:6.2f} ({min(ratios):.2f}–{max(ratios):.2f})')
finally:
    shown.terminate()
    shown.wait()
    shutil.rmtree(ROOT, ignore_errors=True)
