#!/usr/bin/env python3
"""What everyday tools ask the daemon for, by kind of request:

    cargo build --release -p mayfly-cli
    python3 bench/requests.py [--mayfly FILE] [--data-dir DIRECTORY] [--files N] [COMMAND...]

A tree of N (2,000) files in N / 50 directories: two of three below 4 KiB, the others below 64 KiB.
Each line is the difference of `mayfly_answers_total` of `mayfly metrics` before and after one
command in a fresh tree. Requests by which a process comes and goes (a few for each) are counted,
too. With the names of commands only those are counted. On a busy machine more is asked for: what a
process has submitted may still wait while the next one looks.
"""
import argparse, collections, os, random, re, shutil, subprocess, sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INSTANCE = 'bench-requests'
FILES_IN_DIRECTORY = 50

REPLACE = '''
import os, sys, tempfile
for place, _, names in os.walk('tree'):
    for name in names:
        path = os.path.join(place, name)
        handle, new = tempfile.mkstemp(dir=place)
        with os.fdopen(handle, 'w') as file:
            file.write('replaced' + name)
        os.rename(new, path)
'''
APPEND = '''
import glob
for path in glob.glob('tree/*/*'):
    with open(path, 'a') as file:
        file.write('x')
'''
SQLITE = '''
import sqlite3
database = sqlite3.connect('tree/d0/database')
database.execute('create table t (a, b)')
for number in range(100):
    database.execute('insert into t values (?, ?)', (number, 'x' * number))
    database.commit()
'''
GIT = 'git -c user.name=a -c user.email=a@a -c gc.auto=0 -c init.defaultBranch=one'
REPOSITORY = f'{GIT} init -q .'
ADDED = f'{REPOSITORY} && {GIT} add -A'
COMMITTED = f'{ADDED} && {GIT} commit -qm one'
OTHER = (f'{COMMITTED} && {GIT} checkout -qb two && for f in tree/*/*; do echo x > $f; done && '
         f'{GIT} add -A && {GIT} commit -qm two')

# Name: what is done before, and what is counted.
COMMANDS = {
    'git add': (REPOSITORY, f'{GIT} add -A'),
    'git status': (COMMITTED, f'{GIT} status --short'),
    'git commit': (ADDED, f'{GIT} commit -qm one'),
    'git commit of one file, 20 times': (
        COMMITTED, f'for i in $(seq 20); do echo $i > tree/d0/f0; {GIT} commit -qam $i; done'),
    'git checkout of another branch': (OTHER, f'{GIT} checkout -q one'),
    'git clone': (COMMITTED, f'{GIT} clone -q . ../cloned'),
    'rsync -a': ('true', 'rsync -a tree/ synced'),
    'rsync -a again': ('rsync -a tree/ synced', 'rsync -a tree/ synced'),
    'rsync -a of changed files': (
        'rsync -a tree/ synced && for f in tree/*/*; do echo x >> $f; done',
        'rsync -a tree/ synced'),
    'sed -i of 500 files': ('true', 'ls -d tree/*/* | head -500 | xargs sed -i s/a/b/'),
    'python tempfile, rename': ('true', 'python3 -c "$REPLACE"'),
    'cp -a': ('true', 'cp -a tree copied'),
    'tar x': ('tar cf a.tar tree && rm -r tree', 'tar xf a.tar'),
    'tar x over it': ('tar cf a.tar tree', 'tar xf a.tar'),
    'touch of all': ('true', 'touch tree/*/*'),
    'python, append': ('true', 'python3 -c "$APPEND"'),
    'sqlite, 100 commits': ('true', 'python3 -c "$SQLITE"'),
    'mkdir -p of 256': ('true', 'mkdir -p new/$(printf "%02x" 0) && cd new && for i in $(seq 255);'
                        ' do mkdir $(printf "%02x" $i); done'),
    'find, du, grep -r': ('true', 'find tree -type f > /dev/null; du -s tree > /dev/null;'
                          ' grep -r zzz tree; true'),
    'rm -r': ('true', 'rm -r tree'),
}


def run(mayfly, command, *options):
    return subprocess.run([mayfly, command, '--name', INSTANCE, *options], check=True,
                          capture_output=True, text=True).stdout


def answers(mayfly):
    counted = collections.Counter()
    for line in run(mayfly, 'metrics').splitlines():
        found = re.match(r'mayfly_answers_total\{(.*)\} ([0-9.e+]+)', line)
        if found:
            counted[re.search(r'op="(\w+)"', found[1])[1]] += int(float(found[2]))
    return counted


def make_tree(place, files):
    """In a directory of the host, copied into the instance before each command."""
    source = random.Random(1)
    for number in range(files):
        directory = f'{place}/tree/d{number // FILES_IN_DIRECTORY}'
        os.makedirs(directory, exist_ok=True)
        below = 64 << 10 if number % 3 == 2 else 4 << 10
        with open(f'{directory}/f{number}', 'wb') as file:
            file.write(source.randbytes(source.randrange(below)).hex()[:below].encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--mayfly', default=f'{HERE}/target/release/mayfly')
    parser.add_argument('--data-dir', default='/dev/shm/mayfly-requests')
    parser.add_argument('--files', type=int, default=2000)
    parser.add_argument('commands', nargs='*', metavar='COMMAND', help=', '.join(COMMANDS))
    options = parser.parse_args()
    mayfly, data = options.mayfly, options.data_dir
    shutil.rmtree(data, ignore_errors=True)
    make_tree(f'{data}/source', options.files)
    run(mayfly, 'start', '--data-dir', f'{data}/data')
    attach = run(mayfly, 'env')
    environment = dict(os.environ, REPLACE=REPLACE, APPEND=APPEND, SQLITE=SQLITE, HOME=data,
                       GIT_CONFIG_NOSYSTEM='1')

    def shell(text):
        # The shell itself, too, is a process that the library serves.
        within = f'cd "$MAYFLY_MOUNT" && {text}'
        done = subprocess.run(['bash', '-c', f'{attach}\nexec bash -c "$0"', within],
                              env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f'{text}: {done.stderr[-1000:]}')

    try:
        for name in options.commands or COMMANDS:
            before_it, command = COMMANDS[name]
            shell(f'mkdir at && cd at && cp -r {data}/source/tree . && {before_it}')
            # An empty command, so that all that was submitted is executed.
            shell('ls > /dev/null')
            before = answers(mayfly)
            shell(f'cd at && {command}')
            counted = answers(mayfly) - before
            kinds = ', '.join(f'{op} {count}' for op, count in counted.most_common(12))
            print(f'{name}: {counted.total():,} ({kinds})', flush=True)
            shell('rm -rf at cloned')
    finally:
        run(mayfly, 'stop')
        shutil.rmtree(data, ignore_errors=True)


if __name__ == '__main__':
    main()
