"""A data loader: 50,000 small files in 100 directories, read in random order by 4 workers."""

import hashlib
import multiprocessing
import os
import random

ROOT = os.path.join(os.environ["APP_DIR"], "samples")
FILES, CLASSES, WORKERS, BATCH = 50_000, 100, 4, 64


def content(number):
    return random.Random(number).randbytes(200 + number % 1800)


def make(group):
    directory = os.path.join(ROOT, f"class{group:03d}")
    os.makedirs(directory)
    for number in range(group, FILES, CLASSES):
        with open(os.path.join(directory, f"{number}.bin"), "wb") as file:
            file.write(content(number))


def load(batch):
    digests = []
    for path in batch:
        with open(path, "rb") as file:
            data = file.read()
        assert len(data) == os.stat(path).st_size
        number = int(os.path.basename(path)[:-4])
        digests.append((number, hashlib.sha256(data).digest()))
    return digests


def main():
    with multiprocessing.Pool(WORKERS) as pool:
        pool.map(make, range(CLASSES), chunksize=5)
        paths = [os.path.join(d, f) for d, _, files in os.walk(ROOT) for f in files]
        print(len(paths), "files")
        for epoch in range(2):
            paths.sort()
            random.Random(epoch).shuffle(paths)
            batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
            found = {}
            for digests in pool.imap_unordered(load, batches):
                found.update(digests)
            whole = hashlib.sha256(b"".join(found[number] for number in range(FILES)))
            print("epoch", epoch, len(found), whole.hexdigest()[:16])
    for number in random.Random(9).sample(range(FILES), 500):
        with open(f"{ROOT}/class{number % CLASSES:03d}/{number}.bin", "rb") as file:
            assert file.read() == content(number)


if __name__ == "__main__":
    main()
