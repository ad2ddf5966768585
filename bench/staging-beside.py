#!/usr/bin/env python3
"""What staging from a slow place, and beside a job, costs:
python3 bench/staging-beside.py [MAYFLY [DIRECTORY]]

Files are below DIRECTORY (/dev/shm). First 2,000 files from a directory where each call takes 1 ms
(bench/slow.py): time of `cp -r` by that of `mayfly stage in --streams 16`. Then a loop that makes,
looks at and removes files in an instance: its rate beside a `mayfly stage out --idle` that is held
to 500 files a second, by its rate alone, in turns.
"""
import json, os, shutil, statistics, subprocess, sys, time

MAYFLY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else 'target/release/mayfly')
ROOT = os.path.join(sys.argv[2] if len(sys.argv) > 2 else '/dev/shm', 'mayfly-beside')
HERE = os.path.dirname(os.path.abspath(__file__))
ENV = {**os.environ, 'XDG_STATE_HOME': f'{ROOT}/state'}
NAME = 'staging-beside'
TURNS, SECONDS = 5, 4

LOOP = '''
import os, sys, time
top = os.environ['MAYFLY_MOUNT'] + '/loop'
os.makedirs(top, exist_ok=True)
os.chdir(top)
until, done = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < until:
    for i in range(500):
        os.close(os.open(f'f{i}', os.O_CREAT | os.O_WRONLY))
    for i in range(500):
        os.stat(f'f{i}')
    for i in range(500):
        os.unlink(f'f{i}')
    done += 1500
print(done)
'''


def run(*command):
    began = time.monotonic()
    subprocess.run(command, check=True, env=ENV, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def stage(*words):
    return run(MAYFLY, 'stage', words[0], '--quiet', '--name', NAME, *words[1:])


def make(directories, files):
    content = os.urandom(4096)
    for d in range(directories):
        os.makedirs(f'{ROOT}/tree/d{d}')
        for f in range(files):
            with open(f'{ROOT}/tree/d{d}/f{f}', 'wb') as file:
                file.write(content)


def slow_source():
    os.makedirs(f'{ROOT}/slow')
    server = subprocess.Popen([sys.executable, f'{HERE}/slow.py', f'{ROOT}/tree', f'{ROOT}/slow'])
    try:
        while not os.path.ismount(f'{ROOT}/slow'):
            assert server.poll() is None, 'bench/slow.py does not serve'
            time.sleep(0.05)
        by = run('cp', '-r', f'{ROOT}/slow', f'{ROOT}/copy')
        ours = stage('in', '--streams', '16', f'{ROOT}/slow', 'slow')
        print(f'2,000 files from the slow source   {by / ours:5.2f}   {ours:6.2f} s, cp {by:.2f} s')
    finally:
        subprocess.run(['umount', f'{ROOT}/slow'])
        server.wait()


def rate(environment):
    loop = [sys.executable, '-c', LOOP, str(SECONDS)]
    done = subprocess.run(loop, env={**ENV, **environment}, check=True, stdout=subprocess.PIPE)
    return int(done.stdout) / SECONDS


def beside():
    told = subprocess.run([MAYFLY, 'env', '--json', '--name', NAME], env=ENV, check=True,
                          stdout=subprocess.PIPE)
    environment = dict(json.loads(told.stdout)['variables'])
    ratios = []
    for turn in range(TURNS):
        alone = rate(environment)
        copy = subprocess.Popen(
            [MAYFLY, 'stage', 'out', '--name', NAME, '--quiet', '--idle', '--files-per-second',
             '500', 'tree', f'{ROOT}/out{turn}'], env=ENV, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        ratios.append(rate(environment) / alone)
        assert copy.poll() is None, 'the copy has ended before the loop'
        copy.terminate()
        copy.wait()
    low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
    print(f'a loop beside a stage out          {middle:5.2f} ({low:.2f} to {high:.2f})')


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    make(20, 100)
    run(MAYFLY, 'start', '--name', NAME, '--data-dir', ROOT)
    try:
        slow_source()
        shutil.rmtree(f'{ROOT}/tree')
        make(100, 100)
        stage('in', f'{ROOT}/tree', 'tree')
        beside()
    finally:
        run(MAYFLY, 'stop', '--name', NAME)
        shutil.rmtree(ROOT)


main()
