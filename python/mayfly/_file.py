"""Files as Python's `io` module has them."""

import io
import os

_MODES = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}

#: Bytes that are read or written at a time, when nobody says how many. Larger reads go past the
#: buffer; a larger one is mapped anew for each file, which takes longer than to open a small file.
BUFFER_BYTES = 64 * 1024


def flags_of(mode):
    """The flags of `os.open` for a mode of `open`. ValueError for one that there is not."""
    kind = mode.replace("b", "", 1).replace("+", "", 1)
    if kind not in _MODES:
        raise ValueError(f"invalid mode: {mode!r}")
    flags = _MODES[kind]
    if "+" in mode:
        flags = flags & ~(os.O_WRONLY | os.O_RDONLY) | os.O_RDWR
    return flags


class RawFile(io.RawIOBase):
    """An open file of an instance, without buffers. `File` has pread, pwrite, fsync and more."""

    def __init__(self, session, path, flags):
        #: The file of the extension module.
        self.file = file = session.open(path, flags)
        self.name = path
        # As bound methods of the extension module they cost no further call.
        self.readinto = file.readinto
        self.readall = file.read
        self.seek = file.seek
        self.tell = file.tell
        if flags & os.O_APPEND:
            file.seek(0, 2)

    def seekable(self):
        return True

    def readable(self):
        return self.file.readable()

    def writable(self):
        return self.file.writable()

    def write(self, data):
        return self.file.write(data)

    def truncate(self, size=None):
        return self.file.truncate(size)

    def close(self):
        if not self.closed:
            self.file.close()
            super().close()


def open_file(session, path, mode="rb", buffering=-1):
    """Opens ``path``; binary files only. ``buffering`` is in bytes, 0 for none."""
    raw = RawFile(session, path, flags_of(mode))
    if buffering == 0:
        return raw
    bytes_kept = BUFFER_BYTES if buffering < 2 else buffering
    if "+" in mode:
        return io.BufferedRandom(raw, bytes_kept)
    if raw.readable():
        return io.BufferedReader(raw, bytes_kept)
    return io.BufferedWriter(raw, bytes_kept)
