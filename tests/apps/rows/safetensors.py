"""Weights as safetensors lays them out: a JSON header, then tensors that readers map and never
copy. Several processes map one file; another file is longer than memory and mapped all the same.
"""

import json
import mmap
import multiprocessing
import os
import struct

import numpy

PATH = os.path.join(os.environ["APP_DIR"], "model.safetensors")
NAMES = [f"layer{number}.{kind}" for number in range(12) for kind in ("weight", "bias")]
# Longer than the machine's memory; nearly all of it is a hole.
LONG_BYTES = 1 << 40


def write():
    numbers, header, place, tensors = numpy.random.default_rng(3), {}, 0, []
    for name in NAMES:
        shape = (256, 512) if name.endswith("weight") else (256,)
        tensor = numbers.random(shape, "f4")
        end = place + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, end]}
        place = end
        tensors.append(tensor)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(PATH, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            file.write(tensor.tobytes())
        file.flush()
        os.fsync(file.fileno())


def read(name):
    with open(PATH, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack("<Q", view[:8])
    entry = json.loads(view[8 : 8 + length])[name]
    start, end = entry["data_offsets"]
    count = (end - start) // 4
    tensor = numpy.frombuffer(view, "f4", count, 8 + length + start).reshape(entry["shape"])
    return name, f"{tensor.sum(dtype='f8'):.4f}"


def long_file():
    path = PATH + ".long"
    with open(path, "w+b") as file:
        file.truncate(LONG_BYTES)
        os.pwrite(file.fileno(), b"the end", LONG_BYTES - 7)
        os.pwrite(file.fileno(), b"the middle", LONG_BYTES // 2)
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as view:
                middle = LONG_BYTES // 2
                print(len(view), view[-7:], view[middle : middle + 10], view[4096:4100])
    os.unlink(path)


def main():
    write()
    with multiprocessing.Pool(4) as pool:
        for line in pool.map(read, NAMES):
            print(*line)
    long_file()


if __name__ == "__main__":
    main()
