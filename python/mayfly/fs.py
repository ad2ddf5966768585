"""Instances for everything that speaks fsspec: ``mayfly:///path``, ``mayfly://NAME/path``."""

import datetime
import errno
import io
import os
import stat as _stat
import time

from fsspec.implementations.local import trailing_sep
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from . import _find
from ._file import BUFFER_BYTES, RawFile, flags_of

#: Bytes that are copied at a time.
_COPY_BYTES = 4 * 1024 * 1024
#: What a path that names nothing is refused with.
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV)
#: Tries to find a name that no other file has.
_NAME_TRIES = 16


class MayflyFileSystem(AbstractFileSystem):
    """The files of a running instance of this node.

    Parameters
    ----------
    instance: str or None
        Its name; without one that of the environment (``MAYFLY_RUN``, ``MAYFLY_MOUNT``), of the
        batch job, or ``default``. ``NAME@K`` is the node K of several on this machine.
    auto_mkdir: bool
        Make the directories above what is written, as object stores seem to have them. It costs
        nothing where they are there. Without it there is FileNotFoundError, as on a disk.

    Paths begin at the root of the instance. Sizes are bytes, times in `info` seconds since 1970.
    Errors are OSErrors with the errno of the system call; EIO says that the instance has ended or
    a node of it does not answer. Only name and options are pickled: a process on another node
    finds the same instance there.
    """

    protocol = "mayfly"
    root_marker = "/"

    def __init__(self, instance=None, auto_mkdir=True, **kwargs):
        super().__init__(**kwargs)
        self.instance = instance
        self.auto_mkdir = auto_mkdir
        self._session = None
        self._found = None
        self._ended = None

    @property
    def session(self):
        """The `mayfly.Session` of this process with the instance."""
        if self._session is None or self._ended != _find.ended:
            self._session = None
            self._ended = _find.ended
            self._found = _find.find(self.instance)
            self._session = self._found.session()
        return self._session

    def attach(self):
        """Looks for the instance anew: after another one has been started under its name."""
        self._session = None
        self.session.attach()

    @property
    def fsid(self):
        self.session
        return f"mayfly-{self._found.identity:x}"

    # Names.

    @classmethod
    def _strip_protocol(cls, path):
        if type(path) is str and path[:1] == "/" and path[-1] != "/":
            return path
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = stringify_path(path)
        if path.startswith("mayfly://"):
            # What is before the next slash is the instance.
            _, slash, rest = path[len("mayfly://") :].partition("/")
            path = slash + rest
        if not path.startswith("/"):
            path = "/" + path.removeprefix("./")
        return path.rstrip("/") or cls.root_marker

    def unstrip_protocol(self, name):
        return f"mayfly://{self.instance or ''}{self._strip_protocol(name)}"

    @staticmethod
    def _get_kwargs_from_urls(path):
        if isinstance(path, (list, tuple)):
            path = path[0] if path else ""
        path = stringify_path(path)
        if not path.startswith("mayfly://"):
            return {}
        name = path[len("mayfly://") :].partition("/")[0]
        return {"instance": name} if name else {}

    # What is there.

    def _described(self, path, attr):
        told = {
            "name": path,
            "size": attr.st_size,
            "type": attr.kind,
            "created": attr.st_birthtime,
            "islink": False,
            "mode": attr.st_mode,
            "uid": attr.st_uid,
            "gid": attr.st_gid,
            "mtime": attr.st_mtime,
            "ino": attr.st_ino,
            "nlink": attr.st_nlink,
        }
        if attr.kind == "link":
            told.update(self._behind(path))
        return told

    def _behind(self, path):
        """What a symbolic link leads to: type and size, as fsspec's local file system has them."""
        told = {"islink": True, "destination": self.session.readlink(path)}
        try:
            attr = self.session.stat(path)
        except OSError:
            return {**told, "type": "other", "size": 0}
        return {**told, "type": attr.kind, "size": attr.st_size, "mode": attr.st_mode}

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        attr = self.session.stat(path, follow_symlinks=False)
        if attr.kind == "link":
            # One that leads nowhere is not there.
            self.session.stat(path)
        return self._described(path, attr)

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        above = path.rstrip("/") + "/"
        try:
            if not detail:
                return [above + name for name in self.session.listdir(path)]
            found = self.session.scandir(path)
        except NotADirectoryError:
            info = self.info(path)
            return [info] if detail else [info["name"]]
        return [self._described(above + name, attr) for name, attr in found]

    def _kind(self, path, follow_symlinks=True):
        session = self.session
        try:
            return session.stat(self._strip_protocol(path), follow_symlinks=follow_symlinks).kind
        except ValueError:
            return None
        except OSError as error:
            # An instance that does not answer is not one without the file.
            if error.errno not in _NOT_THERE:
                raise
            return None

    def exists(self, path, **kwargs):
        return self._kind(path) is not None

    def lexists(self, path, **kwargs):
        return self._kind(path, follow_symlinks=False) is not None

    def isfile(self, path):
        return self._kind(path) == "file"

    def isdir(self, path):
        return self._kind(path) == "directory"

    def islink(self, path):
        return self._kind(path, follow_symlinks=False) == "link"

    def created(self, path):
        return _moment(self.session.stat(self._strip_protocol(path)).st_birthtime)

    def modified(self, path):
        return _moment(self.session.stat(self._strip_protocol(path)).st_mtime)

    def disk_usage(self):
        """Bytes of the whole instance: a dict with ``total``, ``used`` and ``free``."""
        told = self.session.statfs()
        total, used = told["capacity_bytes"], told["used_bytes"]
        return {"total": total, "used": used, "free": max(total - used, 0)}

    # Directories and names.

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        try:
            self.session.mkdir(path)
        except FileNotFoundError:
            if not create_parents:
                raise
            self.makedirs(self._parent(path), exist_ok=True)
            self.session.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        path = self._strip_protocol(path)
        try:
            self.session.mkdir(path)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            self.makedirs(path, exist_ok=exist_ok)

    def rmdir(self, path):
        self.session.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.session.unlink(self._strip_protocol(path))

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            return super().rm(path, recursive=recursive, maxdepth=maxdepth)
        for each in self._named(path):
            if self.isdir(each) and not self.islink(each):
                if not recursive:
                    raise IsADirectoryError(21, "Is a directory; say recursive=True", each)
                self._remove_tree(each)
            else:
                self.session.unlink(each)

    def _named(self, path):
        """The paths that a path or a list of them means, patterns expanded."""
        paths = path if isinstance(path, (list, tuple)) else [path]
        for each in map(self._strip_protocol, paths):
            if any(c in each for c in "*?[") and not self.lexists(each):
                yield from self.expand_path(each)
            else:
                yield each

    def _remove_tree(self, path):
        above = path.rstrip("/") + "/"
        for name, attr in self.session.scandir(path):
            if attr.kind == "directory":
                self._remove_tree(above + name)
            else:
                self.session.unlink(above + name)
        if path != "/":
            self.session.rmdir(path)

    def _rm(self, path):
        path = self._strip_protocol(path)
        if self.isdir(path) and not self.islink(path):
            self.session.rmdir(path)
        else:
            self.session.unlink(path)

    def mv(self, path1, path2, recursive=True, maxdepth=None, **kwargs):
        """Moves a file or a directory: one rename, whatever its size. Into ``path2`` when that is
        a directory; over it when it is a file."""
        if isinstance(path1, (list, tuple)) or isinstance(path2, (list, tuple)):
            return super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        source = self._strip_protocol(path1)
        target = self._strip_protocol(path2)
        if trailing_sep(stringify_path(path2)) or self.isdir(target):
            if source != target:
                target = target.rstrip("/") + "/" + source.rpartition("/")[2]
        self.session.stat(source, follow_symlinks=False)
        self._with_parents(target, lambda: self.session.rename(source, target))

    def cp_file(self, path1, path2, **kwargs):
        source = self._strip_protocol(path1)
        target = self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        with RawFile(self.session, source, os.O_RDONLY) as reader:
            if self._same(reader, target):
                return
            with self._raw(target, flags_of("wb")) as writer:
                _copy(reader, writer)

    def _same(self, reader, path):
        try:
            return reader.file.stat().st_ino == self.session.stat(path).st_ino
        except OSError:
            return False

    def symlink(self, src, dst, **kwargs):
        """Makes a symbolic link ``dst`` that says ``src``, as it stands."""
        self.session.symlink(stringify_path(src), self._strip_protocol(dst))

    def link(self, src, dst, **kwargs):
        """Gives the file ``src`` a further name, ``dst``."""
        self.session.link(self._strip_protocol(src), self._strip_protocol(dst))

    def chmod(self, path, mode):
        """Sets the permission bits."""
        self.session.chmod(self._strip_protocol(path), mode)

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        with self._raw(path, flags):
            pass
        now = time.time_ns()
        self.session.utime(path, now, now)

    # Bytes.

    def _with_parents(self, path, work):
        """Does `work`, and once more when the directories above ``path`` had to be made."""
        try:
            return work()
        except FileNotFoundError:
            if not self.auto_mkdir:
                raise
        # Another thread may have made them meanwhile.
        self.makedirs(self._parent(path), exist_ok=True)
        return work()

    def _raw(self, path, flags, kind=RawFile):
        if flags & os.O_CREAT:
            return self._with_parents(path, lambda: kind(self.session, path, flags))
        return kind(self.session, path, flags)

    def cat_file(self, path, start=None, end=None, **kwargs):
        return self.session.read_file(self._strip_protocol(path), start, end)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        count = len(paths)
        starts = list(starts) if isinstance(starts, (list, tuple)) else [starts] * count
        ends = list(ends) if isinstance(ends, (list, tuple)) else [ends] * count
        if len(starts) != count or len(ends) != count:
            raise ValueError("there are not as many starts and ends as paths")
        read = self.session.read_file
        out = []
        for path, start, end in zip(paths, starts, ends, strict=True):
            try:
                out.append(read(self._strip_protocol(path), start, end))
            except Exception as error:
                if on_error != "return":
                    raise
                out.append(error)
        return out

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if self._intrans:
            return super().pipe_file(path, value, mode=mode, **kwargs)
        path = self._strip_protocol(path)
        exclusive = mode == "create"
        write = self.session.write_file
        self._with_parents(path, lambda: write(path, value, exclusive=exclusive))

    def open(
        self, path, mode="rb", block_size=None, cache_options=None, compression=None, **kwargs
    ):
        if compression is None and "b" in mode and not kwargs and not self._intrans:
            return self._open(path, mode, block_size)
        return super().open(path, mode, block_size, cache_options, compression, **kwargs)

    def _open(
        self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs
    ):
        path = self._strip_protocol(path)
        flags = flags_of(mode)
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        kind = Unbuffered if block_size == 0 else RawFile
        replaces = _Replacement(self, path, mode, kind) if writes and not autocommit else None
        raw = replaces.raw if replaces else self._raw(path, flags, kind)
        raw.name = path
        if block_size == 0:
            return _dressed(raw, self, path, mode, replaces)
        room = block_size if block_size and block_size > 1 else BUFFER_BYTES
        if flags & os.O_RDWR:
            file = BufferedBoth(raw, room)
        else:
            file = BufferedWriter(raw, room) if writes else BufferedReader(raw, room)
        return _dressed(file, self, path, mode, replaces)

    def map(self, path):
        """The bytes of a file as a read-only memoryview: the kernel's pages, without a copy.

        The file may be changed while it is mapped, and the view shows that; it has the length of
        the moment. OSError with ENODEV when the bytes are not all on this node (a file of another
        node, or a striped one).
        """
        import mmap

        path = self._strip_protocol(path)
        with RawFile(self.session, path, os.O_RDONLY) as raw:
            size = raw.file.stat().st_size
            if size == 0:
                return memoryview(b"")
            descriptor = raw.file.map_descriptor()
            try:
                return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)


def _moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def _copy(reader, writer):
    room = memoryview(bytearray(_COPY_BYTES))
    while count := reader.readinto(room):
        done = 0
        while done < count:
            done += writer.write(room[done:count])


class _Replacement:
    """A file that takes the place of another one when a transaction is committed.

    It lies beside it under a name that begins with a dot. A process that is killed before the
    commit leaves it there.
    """

    def __init__(self, fs, path, mode, kind):
        self.fs = fs
        self.path = path
        self.exclusive = "x" in mode
        above, _, name = path.rpartition("/")
        for _ in range(_NAME_TRIES):
            self.temporary = f"{above}/.{name[:40]}.{os.urandom(6).hex()}.part"
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
                self.raw = fs._raw(self.temporary, flags, kind)
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(17, "no free name for a temporary file", path)
        if "w" not in mode and "x" not in mode:
            self._begin_with_what_is_there("a" in mode)

    def _begin_with_what_is_there(self, appends):
        try:
            with RawFile(self.fs.session, self.path, os.O_RDONLY) as reader:
                mode = _stat.S_IMODE(reader.file.stat().st_mode)
                _copy(reader, self.raw)
                self.fs.session.chmod(self.temporary, mode)
        except FileNotFoundError:
            if not appends:
                self.discard()
                raise
        if not appends:
            self.raw.seek(0)

    def commit(self):
        session = self.fs.session
        if self.exclusive:
            session.link(self.temporary, self.path)
            session.unlink(self.temporary)
        else:
            session.rename(self.temporary, self.path)

    def discard(self):
        self.raw.close()
        self.fs.session.unlink(self.temporary)


class _Dressed:
    """What fsspec's users look for in a file besides what Python's files have."""

    fs = None
    path = None
    mode = "rb"
    _replaces = None

    @property
    def size(self):
        """The file's length, bytes."""
        return self._file.stat().st_size

    @property
    def _file(self):
        return (self if isinstance(self, io.RawIOBase) else self.raw).file

    def commit(self):
        """Puts what was written in its place; for files of a transaction."""
        if self._replaces is None:
            raise RuntimeError("only a file of a transaction can be committed")
        self.close()
        self._replaces.commit()

    def discard(self):
        """Drops what was written; for files of a transaction."""
        if self._replaces is None:
            raise RuntimeError("only a file of a transaction can be discarded")
        self.close()
        self._replaces.discard()

    def __reduce__(self):
        if self._replaces is not None or self.mode not in ("rb", "r+b"):
            raise TypeError("a file that is being written cannot be pickled")
        return _opened, (self.fs, self.path, self.mode, self.tell())

    def __reduce_ex__(self, protocol):
        return self.__reduce__()


class Unbuffered(_Dressed, RawFile):
    """A file without a buffer."""


class BufferedReader(_Dressed, io.BufferedReader):
    """A file that is read."""


class BufferedWriter(_Dressed, io.BufferedWriter):
    """A file that is written."""


class BufferedBoth(_Dressed, io.BufferedRandom):
    """A file that is read and written."""


def _dressed(file, fs, path, mode, replaces):
    file.fs, file.path, file.mode, file._replaces = fs, path, mode, replaces
    return file


def _opened(fs, path, mode, position):
    file = fs.open(path, mode)
    file.seek(position)
    return file
