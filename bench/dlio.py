"""DLIO's benchmark of training input, in an instance and in a directory of the same file system.

    python3 bench/dlio.py target/release/mayfly /dev/shm 3           # both settings
    python3 bench/dlio.py target/release/mayfly /dev/shm 5 unet3d

https://github.com/argonne-lcf/dlio_benchmark; the two take turns. Two small settings after its
unet3d (a sample is a file of NumPy's of some MiB) and its resnet50 (many samples in each TFRecord
file). Both are read by TensorFlow, of which there is a build for processors alone; of PyTorch there
is none on PyPI, so unet3d's own loader is not used. What DLIO needs is installed by pip in
target/test-input/dlio the first time, some 600 MB.

Prints samples a second of each run, and the ratio of instance to directory: median, least and most.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = [
    "numpy<2",
    "pillow",
    "pyyaml",
    "h5py",
    "mpi4py",
    "mpich",
    "omegaconf",
    "pandas",
    "psutil",
    "hydra-core",
    "tensorflow-cpu==2.21.0",
]
# Without what they need: libraries of graphics processors.
ALONE = ["pydftracer==1.0.2", "dlio-benchmark==2.0.0"]

# DALI's, which is for graphics processors, makes the same: where each record begins, and how long
# it is.
TFRECORD2IDX = """#!{python}
import struct, sys
with open(sys.argv[1], "rb") as records, open(sys.argv[2], "w") as index:
    while header := records.read(8):
        begin = records.tell() - 8
        records.seek(4 + struct.unpack("<Q", header)[0] + 4, 1)
        index.write(f"{{begin}} {{records.tell() - begin}}\\n")
"""

USUAL = {
    "dataset.num_files_eval": 0,
    "workflow.profiling": False,
    "workflow.checkpoint": False,
    "train.computation_time": 0.0,
    "train.epochs": 3,
    "reader.read_threads": 2,
    "reader.computation_threads": 1,
}
SETTINGS = {
    "unet3d": {
        "framework": "tensorflow",
        "reader.data_loader": "tensorflow",
        "dataset.num_files_train": 64,
        "dataset.record_length": 4 << 20,
        "dataset.record_length_stdev": 1 << 20,
        "dataset.record_length_resize": 1 << 20,
        "reader.batch_size": 4,
    },
    "resnet50": {
        "dataset.num_files_train": 16,
        "dataset.num_samples_per_file": 251,
        "dataset.record_length": 114_660,
        "dataset.record_length_resize": 114_660,
        "reader.batch_size": 64,
    },
}


def environment():
    """An environment of Python's with DLIO in it."""
    place = ROOT / "target/test-input/dlio"
    python = place / "bin/python"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        subprocess.run([*pip, "--no-deps", *ALONE], check=True)
        tool = place / "bin/tfrecord2idx"
        tool.write_text(TFRECORD2IDX.format(python=python))
        tool.chmod(0o755)
        (place / "ready").touch()
    return place


def dlio(place, setting, data, output, generate, around=()):
    """Runs DLIO once; samples a second when it trains."""
    given = {
        **USUAL,
        **SETTINGS[setting],
        "dataset.data_folder": data,
        "workflow.generate_data": generate,
        "workflow.train": not generate,
    }
    words = [f"++workload.{key}={value}" for key, value in given.items()]
    command = [*around, place / "bin/dlio_benchmark", f"workload={setting}_a100"]
    told = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*command, f"hydra.run.dir={output}", *words],
        env=told,
        cwd=output.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        sys.exit(f"DLIO ended with {done.returncode}:\n{done.stdout[-3000:]}")
    if generate:
        return None
    summary = json.loads((output / "summary.json").read_text())
    return summary["metric"]["train_throughput_mean_samples_per_second"]


def main():
    mayfly, directory, turns = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3])
    place = environment()
    name = f"dlio-{os.getpid()}"
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="dlio-", dir=directory))
    try:
        start = [mayfly, "start", "--name", name, "--data-dir", scratch / "instance"]
        subprocess.run([*start, "--access", "preload"], check=True)
        status = subprocess.run(
            [mayfly, "status", "--name", name, "--json"], check=True, stdout=subprocess.PIPE
        )
        mount = pathlib.Path(json.loads(status.stdout)["mount"])
        inside = ["sh", "-c", f'eval "$("{mayfly}" env --name {name})" && exec "$@"', "sh"]
        for setting in sys.argv[4:] or SETTINGS:
            compare(place, setting, turns, scratch, mount, inside)
    finally:
        subprocess.run([mayfly, "stop", "--name", name], check=False)
        shutil.rmtree(scratch, ignore_errors=True)


def compare(place, setting, turns, scratch, mount, inside):
    (scratch / "directory").mkdir(exist_ok=True)
    ways = {
        "directory": (scratch / "directory" / setting, ()),
        "instance": (mount / setting, inside),
    }
    for way, (data, around) in ways.items():
        dlio(place, setting, data, scratch / f"make-{setting}-{way}", True, around)
    rates = {way: [] for way in ways}
    for turn in range(turns):
        for way, (data, around) in ways.items():
            output = scratch / f"{setting}-{way}-{turn}"
            rates[way].append(dlio(place, setting, data, output, False, around))
    ratios = [ours / theirs for ours, theirs in zip(rates["instance"], rates["directory"])]
    for way, measured in rates.items():
        print(f"{setting:10} {way:10}", " ".join(f"{rate:9.1f}" for rate in measured), "samples/s")
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{setting:10} instance / directory {statistics.median(ratios):.2f} {spread}", flush=True)


if __name__ == "__main__":
    main()
