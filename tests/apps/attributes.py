"""Random calls on a few files: what is set of times and modes stays until something is written.

attributes.py DIRECTORY SEED STEPS: makes the directory, and ends with what was seen and the last
calls when a file shows another time or mode than it was given. A time that nobody has set since the
last write is a recent one.
"""

import os
import random
import sys

RECENT = 1_000_000_000
BYTES = [1, 100, 3000, 5000, 70_000, 200_001]


class Player:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.files = {}  # by name: what was set of it
        self.open = []  # descriptors, and the same
        self.calls = []
        self.about = ''

    def name(self):
        name = f'f{self.random.randrange(4)}'
        self.about += f' {name}'
        return name

    def descriptor(self):
        fd, file = self.random.choice(self.open) if self.open else (-1, {})
        self.about += f' {fd}'
        return fd, file

    def mode(self):
        return self.random.choice([0o600, 0o644, 0o755])

    def open_file(self, step):
        if len(self.open) == 8:
            return os.close(self.open.pop(0)[0])
        name = self.name()
        kinds = [os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDONLY]
        create = self.random.choice([os.O_CREAT, os.O_CREAT, 0])
        fd = os.open(name, self.random.choice(kinds) | create, 0o644)
        self.open.append((fd, self.files.setdefault(name, {})))

    def write(self, step):
        fd, file = self.descriptor()
        data = b'w' * self.random.choice(BYTES)
        if self.random.random() < 0.5:
            os.write(fd, data)
        else:
            os.pwrite(fd, data, self.random.choice([0, 1, 4000]))
        file.pop('time', None)

    def write_in_child(self, step):
        fd, file = self.descriptor()
        child = os.fork()
        if child == 0:
            try:
                os.write(fd, b'of the child')
            except OSError:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            file.pop('time', None)

    def replace(self, step):
        name = self.name()
        with open(name, 'wb') as file:
            file.write(b'r' * self.random.choice(BYTES))
        self.files.setdefault(name, {}).pop('time', None)

    def truncate(self, step):
        name = self.name()
        os.truncate(name, self.random.choice([0, 10, 5000]))
        self.files[name].pop('time', None)

    def chmod(self, step):
        name, mode = self.name(), self.mode()
        os.chmod(name, mode)
        self.files[name]['mode'] = mode

    def fchmod(self, step):
        (fd, file), mode = self.descriptor(), self.mode()
        os.fchmod(fd, mode)
        file['mode'] = mode

    def utime(self, step):
        name = self.name()
        os.utime(name, (step, step))
        self.files[name]['time'] = step

    def futime(self, step):
        fd, file = self.descriptor()
        os.utime(fd, (step, step))
        file['time'] = step

    def utime_now(self, step):
        name = self.name()
        os.utime(name)
        self.files[name].pop('time', None)

    def set_all(self, step):
        name, mode = self.name(), self.mode()
        os.chmod(name, mode)
        os.utime(name, (step, step))
        self.files[name].update(mode=mode, time=step)
        self.compare(os.stat(name), self.files[name])

    def rename(self, step):
        old, new = self.name(), self.name()
        os.rename(old, new)
        self.files[new] = self.files.pop(old)

    def unlink(self, step):
        name = self.name()
        os.unlink(name)
        del self.files[name]

    def stat(self, step):
        name = self.name()
        self.compare(os.stat(name), self.files[name])

    def fstat(self, step):
        fd, file = self.descriptor()
        self.compare(os.fstat(fd), file)

    def compare(self, seen, file):
        time, mode = file.get('time'), file.get('mode')
        time_is_so = seen.st_mtime == time if time is not None else seen.st_mtime > RECENT
        if time_is_so and mode in (None, seen.st_mode & 0o777):
            return
        calls = '\n'.join(self.calls[-30:])
        sys.exit(f'set: {file}; seen: {seen}; the last calls:\n{calls}')

    def play(self, steps):
        calls = [
            self.open_file, self.open_file, self.write, self.write, self.write_in_child,
            self.replace, self.truncate, self.chmod, self.fchmod, self.utime, self.futime,
            self.utime_now, self.set_all, self.set_all, self.rename, self.unlink, self.stat,
            self.fstat,
        ]
        for step in range(1, steps + 1):
            call = self.random.choice(calls)
            self.about = ''
            try:
                call(step)
                done = 'done'
            except OSError as error:
                done = error.strerror
            self.calls.append(f'{step} {call.__name__}{self.about}: {done}')


os.mkdir(sys.argv[1])
os.chdir(sys.argv[1])
Player(int(sys.argv[2])).play(int(sys.argv[3]))
