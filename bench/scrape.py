#!/usr/bin/env python3
"""How long one scrape of all nodes takes, and what it costs each of them.

    python3 bench/scrape.py target/release/mayfly [NODES] [SCRAPES]

Starts an instance of so many nodes on this machine (64 unless said otherwise), lets a job do
something on it, and scrapes by `mayfly metrics --all-nodes`. Printed are the median, least and
greatest time of a scrape, and the processor time of each, that of the nodes' own processes and of
all that it started, divided by the number of nodes.
"""

import os
import re
import resource
import statistics
import subprocess
import sys
import time

NAME = "bench-scrape"
JOB = """eval "$("$0" env --name "$1")" && cd "$MAYFLY_MOUNT" || exit
for i in $(seq 200); do echo text > file$i; done; ls -l > /dev/null"""


def main():
    mayfly = os.path.abspath(sys.argv[1])
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    scrapes = int(sys.argv[3]) if len(sys.argv) > 3 else 20

    def call(*words):
        done = subprocess.run([mayfly, *words], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def scrape():
        return call("metrics", "--name", NAME, "--all-nodes")

    def processor_time(text):
        """Of the nodes' processes, and of everything that this one has waited for, seconds."""
        samples = re.findall(r"^mayfly_cpu_seconds_total\{.*\} (\S+)$", text, re.M)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(map(float, samples)) + children.ru_utime + children.ru_stime

    call("start", "--name", NAME, "--nodes", f"local:{nodes}")
    try:
        subprocess.run(["bash", "-c", JOB, mayfly, NAME], check=True)
        before = processor_time(scrape())
        times = []
        for _ in range(scrapes):
            began = time.perf_counter()
            text = scrape()
            times.append(1e3 * (time.perf_counter() - began))
        up = len(re.findall(r"^mayfly_up\{.*\} 1.0$", text, re.M))
        assert up == nodes, f"{up} of {nodes} nodes answered"
        each = 1e3 * (processor_time(text) - before) / scrapes / nodes
        print(
            f"{nodes} nodes: {statistics.median(times):.0f} ms "
            f"({min(times):.0f} to {max(times):.0f}), {each:.2f} ms of processor time a node"
        )
    finally:
        call("stop", "--name", NAME)


if __name__ == "__main__":
    main()
