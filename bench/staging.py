#!/usr/bin/env python3
"""Staging beside `cp`: python3 bench/staging.py [MAYFLY [DIRECTORY [TURNS]]]

Sources, destinations and the instances' data are below DIRECTORY (/dev/shm). Each row is the time
of `cp` by the time of `mayfly stage`, in turns, the median of them and the span; 1 is as fast. The
last rows are the most memory of its own (RssAnon) that a process of a stage of all files had.
"""
import os, shutil, statistics, subprocess, sys, time

MAYFLY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else 'target/release/mayfly')
ROOT = os.path.join(sys.argv[2] if len(sys.argv) > 2 else '/dev/shm', 'mayfly-staging')
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
ENV = {**os.environ, 'XDG_STATE_HOME': f'{ROOT}/state'}
TREE, LARGE, COPY, OUT = (f'{ROOT}/{name}' for name in ('tree', 'large', 'copy', 'out'))


def run(*command):
    began = time.monotonic()
    subprocess.run(command, check=True, env=ENV, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def stage(name, *words):
    return run(MAYFLY, 'stage', words[0], '--quiet', '--name', name, *words[1:])


def own_memory(pid):
    try:
        with open(f'/proc/{pid}/status') as status:
            return sum(int(line.split()[1]) for line in status if line.startswith('RssAnon'))
    except OSError:
        return 0


def family(pid):
    """A process, and those that it has started."""
    try:
        with open(f'/proc/{pid}/task/{pid}/children') as children:
            below = children.read().split()
    except OSError:
        below = []
    return [pid] + [process for child in below for process in family(child)]


def memory(name, *words):
    command = [MAYFLY, 'stage', words[0], '--quiet', '--name', name, *words[1:]]
    process = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max([most] + [own_memory(pid) for pid in family(process.pid)])
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f'{command}: status {process.returncode}')
    return most / 1024


def cp(source):
    spent = run('cp', '-r', source, COPY)
    run('rm', '-r', COPY)
    return spent


def out(name, source):
    spent = stage(name, 'out', source, OUT)
    run('rm', '-r', OUT)
    return spent


def row(name, pairs):
    ratios = [by / ours for by, ours in pairs]
    ours = statistics.median(ours for _, ours in pairs)
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f'{name:34} {middle:5.2f} ({low:.2f} to {high:.2f})   {ours:6.2f} s', flush=True)


def make():
    shutil.rmtree(ROOT, ignore_errors=True)
    content = os.urandom(4096)
    for d in range(1000):
        os.makedirs(f'{TREE}/d{d}')
        for f in range(100):
            with open(f'{TREE}/d{d}/f{f}', 'wb') as file:
                file.write(content)
    with open(LARGE, 'wb') as file:
        for _ in range(4096):
            file.write(content * 256)


def main():
    make()
    start = [MAYFLY, 'start', '--data-dir', ROOT, '--name']
    run(*start, 'staging-1')
    run(*start, 'staging-4', '--nodes', 'local:4')
    rows = {}
    try:
        for turn in range(TURNS):
            by, name = cp(TREE), f'tree{turn}'
            into = stage('staging-1', 'in', TREE, name)
            rows.setdefault('100,000 files of 4 KiB in', []).append((by, into))
            rows.setdefault('  out', []).append((by, out('staging-1', name)))
            again = stage('staging-1', 'in', '--changed', TREE, name)
            rows.setdefault('  again, beside the first time', []).append((into, again))
            spread = stage('staging-4', 'in', TREE, name)
            rows.setdefault('  in over 4 nodes, beside one', []).append((into, spread))
            by = cp(LARGE)
            rows.setdefault('4 GiB in', []).append((by, stage('staging-1', 'in', LARGE, 'large')))
            rows.setdefault('  out of 4 GiB', []).append((by, out('staging-1', 'large')))
        own = memory('staging-1', 'in', TREE, 'again'), memory('staging-1', 'out', 'again', OUT)
    finally:
        run(MAYFLY, 'stop', '--name', 'staging-1')
        run(MAYFLY, 'stop', '--name', 'staging-4')
        shutil.rmtree(ROOT, ignore_errors=True)
    for name, pairs in rows.items():
        row(name, pairs)
    print(f'memory, 100,000 files: in; out      {own[0]:.1f} MiB; {own[1]:.1f} MiB')


main()
