#!/usr/bin/env python3
"""What a site's prolog and epilog take: python3 bench/site.py [MAYFLY [NODES [TURNS [JOBS]]]]

Runs the two commands as a batch system does, for a job of NODES nodes (2) that are all this machine
under other names, by the user who runs this; beside the start of a program that does nothing. Then
JOBS (100) jobs that are ended at random moments, and what they leave.
"""
import os, random, shutil, signal, statistics, subprocess, sys, tempfile, time

MAYFLY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else 'target/release/mayfly')
NODES = int(sys.argv[2]) if len(sys.argv) > 2 else 2
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
JOBS = int(sys.argv[4]) if len(sys.argv) > 4 else 100
ROOT = tempfile.mkdtemp(prefix='mayfly-site-')
CONFIG = f'{ROOT}/site.toml'


def environment(job, node, restarts=0):
    # Addresses of this machine are names that every resolver knows.
    nodes = ','.join(f'127.0.1.{number + 1}' for number in range(NODES))
    return {**os.environ, 'MAYFLY_JOB_ID': str(job), 'MAYFLY_JOB_UID': str(os.getuid()),
            'MAYFLY_JOB_NODE': f'127.0.1.{node + 1}', 'MAYFLY_JOB_NODELIST': nodes,
            'MAYFLY_JOB_COMMENT': 'mayfly', 'MAYFLY_JOB_RESTART_COUNT': str(restarts)}


def begin(what, job):
    """On all nodes at once, as a batch system does."""
    words = [MAYFLY, 'site', what, '--config', CONFIG]
    return [subprocess.Popen(words, env=environment(job, node), stderr=subprocess.PIPE)
            for node in range(NODES)]


def end(what, processes):
    failed = [process.stderr.read().decode() for process in processes if process.wait()]
    if failed and what:
        sys.exit(f'{what}: {failed}')


def timed(what, job):
    began = time.monotonic()
    end(what, begin(what, job))
    return time.monotonic() - began


def left():
    names = [f'{ROOT}/{place}/{name}' for place in ('run', 'data')
             for node in range(NODES)
             if os.path.isdir(f'{ROOT}/{place}/127.0.1.{node + 1}')
             for name in os.listdir(f'{ROOT}/{place}/127.0.1.{node + 1}')]
    ps = subprocess.run(['ps', 'axo', 'args'], capture_output=True, text=True).stdout
    # Those that serve a job know its directory, or have a name that only they have.
    return names + [line for line in ps.splitlines() if ROOT in line and 'bench/site' not in line]


def row(name, times):
    low, middle, high = min(times), statistics.median(times), max(times)
    print(f'{name:36} {middle:6.2f} s ({low:.2f} to {high:.2f})', flush=True)


def main():
    with open(CONFIG, 'w') as file:
        file.write(f'run = "{ROOT}/run/%n"\ndata = "{ROOT}/data/%n"\nkey = "{ROOT}/key"\n'
                   'ports = "20000-23999"\n')
    subprocess.run([MAYFLY, 'site', 'key', f'{ROOT}/key'], check=True)
    nothing, prologs, epilogs = [], [], []
    for turn in range(TURNS):
        began = time.monotonic()
        end('true', [subprocess.Popen(['true'], stderr=subprocess.PIPE) for _ in range(NODES)])
        nothing.append(time.monotonic() - began)
        prologs.append(timed('prolog', f'1{turn}'))
        epilogs.append(timed('epilog', f'1{turn}'))
    row(f'{NODES} programs that do nothing', nothing)
    row(f'prolog on {NODES} nodes', prologs)
    row(f'epilog on {NODES} nodes', epilogs)
    random.seed(1)
    for job in range(JOBS):
        processes = begin('prolog', f'2{job}')
        time.sleep(random.uniform(0, 2 * statistics.median(prologs)))
        if job % 2:
            for process in processes:
                process.send_signal(signal.SIGKILL)
        end(None, processes)
        end('epilog', begin('epilog', f'2{job}'))
    print(f'{JOBS} jobs ended at random moments      left: {left() or "nothing"}')
    shutil.rmtree(ROOT, ignore_errors=True)


main()
