#!/usr/bin/env python3
"""An instance with an origin beside one without: python3 bench/tier.py [MAYFLY [DIRECTORY [TURNS]]]

What is here already is to cost what it costs where there is no origin. The instances' data and the
origins are below DIRECTORY (/dev/shm). In turns: an instance without an origin, one that shows one
with `--validate never`, and one with the usual second. Each row is the rate with an origin by the
rate without, the median of TURNS (5) turns and the span.

- patterns: rows of `mayfly bench --workload patterns` that change no name: nothing is done
  outside. With `never` alone, since each file is looked at once, long after it was made.
- data: `mayfly bench --workload data`, transfers of 4 KiB and 1 MiB.
- again: files of 2000 bytes that are looked at again and again (bench/tier-hits.c).
"""
import json, os, shutil, statistics, subprocess, sys

MAYFLY = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else 'target/release/mayfly')
ROOT = os.path.join(sys.argv[2] if len(sys.argv) > 2 else '/dev/shm', 'mayfly-tier')
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
ORIGIN, DATA, LOOP, JSON = (f'{ROOT}/{name}' for name in ('origin', 'data', 'loop', 'out.json'))
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tier-hits.c')
PHASES = ['open-rdonly', 'open-wronly', 'open-rdwr', 'patterns/read', 'overwrite', 'update',
          'truncate', 'patterns/append', 'patterns/stat', 'access']
# These make names, or set times outside.
OTHERS = {'patterns/append-new'}
WAYS = {'without': [], 'never': ['--validate', 'never'], '1s': ['--validate', '1s']}


def fresh():
    for directory in (ORIGIN, DATA):
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)


def origin(way):
    return ['--origin', ORIGIN, *WAYS[way]] if WAYS[way] else []


def bench(way, *options):
    fresh()
    command = [MAYFLY, 'bench', '--procs', '1', '--runs', '1', '--data-dir', DATA,
               '--json', JSON, *options, *origin(way)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(JSON) as file:
        phases = json.load(file)['phases']
    rates = {}
    for phase in phases:
        mine = [of for of in phase['targets'] if of['target'] == 'mayfly']
        if mine and phase['phase'] not in OTHERS:
            rates[phase['phase']] = mine[0]['ops_per_s']['median']
    return rates


def patterns(way):
    chosen = [word for phase in PHASES for word in ('--phase', phase)]
    return bench(way, '--workload', 'patterns', '--files', '2000', *chosen)


def data(way):
    return bench(way, '--workload', 'data', '--transfer', '4K,1M', '--size', '256M')


def again(way):
    fresh()
    make = 'd="$MAYFLY_MOUNT/files"; mkdir "$d"; ' \
           'for i in $(seq 0 99); do head -c 2000 /dev/zero > "$d/$i"; done; ' \
           f'{LOOP} "$d" 100 1 > /dev/null; {LOOP} "$d" 100 3'
    run = subprocess.run([MAYFLY, 'run', '--data-dir', DATA, *origin(way), '--', 'sh', '-c', make],
                         check=True, capture_output=True, text=True)
    rates = (line.split() for line in run.stdout.splitlines())
    return {f'again/{name}': float(rate) for name, rate in rates}


def compare(what, ways):
    rates = {way: [] for way in ways}
    for _ in range(TURNS):
        for way in ways:
            rates[way].append(what(way))
    for way in ways[1:]:
        middle = []
        for row in rates[way][0]:
            ratios = [with_one[row] / without[row]
                      for with_one, without in zip(rates[way], rates['without'])]
            middle.append(statistics.median(ratios))
            print(f'{row:34} {way:6} {middle[-1]:5.2f} ({min(ratios):.2f}–{max(ratios):.2f})')
        print(f'{what.__name__ + ", geometric mean":34} {way:6} '
              f'{statistics.geometric_mean(middle):5.2f}', flush=True)


os.makedirs(ROOT, exist_ok=True)
try:
    subprocess.run(['cc', '-O2', '-o', LOOP, SOURCE], check=True)
    compare(again, ['without', 'never', '1s'])
    compare(patterns, ['without', 'never'])
    compare(data, ['without', 'never', '1s'])
finally:
    shutil.rmtree(ROOT, ignore_errors=True)
