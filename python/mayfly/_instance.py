"""Starting and ending instances, and bringing data in and out, by the shipped program."""

import json
import os

from . import _find, _program
from ._program import MayflyError, options


def _name(name):
    return [] if name is None else ["--name", name]


def start(name=None, **given):
    """Starts an instance that lives until `stop`, and returns the instance as `find` does.

    Keyword arguments are the options of `mayfly start`, with ``_`` for ``-``: ``nodes="n[01-04]"``
    or ``"job"``, ``data_dir="/local/nvme"``, ``capacity="100G"``, ``layout="stripe"``,
    ``mount="/tmp/m"``, ``durability="none"``, ``keep=True``. Sizes are numbers of bytes, or text
    with K, M, G, T for powers of 1024.

    Raises MayflyError with the program's message.
    """
    # What is asked for stands before what the environment says of an instance around this one.
    chosen = name or _find.usual_name()
    _program.run("start", "--name", chosen, *options(given))
    return _find.find(chosen)


def stop(name=None):
    """Ends an instance; its data are gone. Sessions of this process with it fail with EIO.

    Raises MayflyError.
    """
    _program.run("stop", *_name(name))
    _find.ended += 1


def status(name=None):
    """What `mayfly status --json` says: a dict of the instance, or without a name a list of all.

    Sizes are bytes. Raises MayflyError.
    """
    return json.loads(_program.run("status", "--json", *_name(name)))


def stage_in(sources, destination, *, name=None, **given):
    """Copies trees from outside into an instance, in parallel; the events of `mayfly stage`.

    ``sources`` is a path or a list of paths outside, ``destination`` a path in the instance. More
    keyword arguments are the options of `mayfly stage in`: ``include="*.h5"``, ``changed=True``.

    Raises MayflyError when anything could not be brought in; its text names it.
    """
    return _stage("in", _listed(sources), _inside(destination), name, given)


def stage_out(sources, destination, *, name=None, **given):
    """The same from an instance to the outside, with the options of `mayfly stage out`."""
    inside = [_inside(source) for source in _listed(sources)]
    return _stage("out", inside, destination, name, given)


def _listed(paths):
    return [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)


def _inside(path):
    """A path of this module's as the program has it: without a slash it begins at the root."""
    return os.fspath(path).lstrip("/") or "."


def _stage(direction, sources, destination, name, given):
    words = [*_name(name), *options(given), "--json", "--", *sources, destination]
    said = _program.run("stage", direction, *words)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def layout(path, words=None, *, name=None, chunk_size=None):
    """On which nodes the bytes of a file are, or of what is made in a directory.

    ``path`` begins at the root of the instance. Without ``words`` returns what
    `mayfly layout get --json` says of it, a dict; with ``words`` (``"stripe:4"``, ``"local"``)
    chooses the layout of what is made in the directory from now on. ``chunk_size`` is in bytes, or
    text such as ``"1M"``.

    Raises MayflyError.
    """
    place = os.path.join(_find.find(name).mount, os.fspath(path).lstrip("/"))
    if words is None:
        (said,) = json.loads(_program.run("layout", "get", "--json", place))
        return said
    _program.run("layout", "set", words, place, *options({"chunk_size": chunk_size}))
    return None


class Instance:
    """An instance for the duration of a ``with`` block::

        with mayfly.Instance(nodes="job", capacity="100G") as fs:
            fs.pipe_file("/a", b"1")

    Keyword arguments are those of `start`. The block gets a `mayfly.fs.MayflyFileSystem` when
    fsspec is installed, and a `Session` otherwise. The instance ends with the block; what is to
    stay must be copied out before (`stage_out`). The processes of the block's program end with it,
    or their calls fail with EIO.
    """

    def __init__(self, name=None, **given):
        self.name = name
        self._given = given
        self.found = None

    def __enter__(self):
        name = self.name or f"python-{os.getpid()}"
        self.found = start(name, **self._given)
        self.name = name
        try:
            from .fs import MayflyFileSystem
        except ModuleNotFoundError as error:
            if error.name != "fsspec":
                raise
            return self.found.session()
        return MayflyFileSystem(instance=name)

    def __exit__(self, kind, error, trace):
        self.stop()

    def stop(self):
        """Ends the instance; nothing happens when it has ended."""
        if self.found is not None:
            self.found = None
            stop(self.name)

    @property
    def mount(self):
        """Where programs of the instance find it; None when it does not run."""
        return self.found and self.found.mount

    def status(self):
        """As `mayfly.status`."""
        return status(self.name)

    def stage_in(self, sources, destination, **given):
        """As `mayfly.stage_in`."""
        return stage_in(sources, destination, name=self.name, **given)

    def stage_out(self, sources, destination, **given):
        """As `mayfly.stage_out`."""
        return stage_out(sources, destination, name=self.name, **given)

    def layout(self, path, words=None, *, chunk_size=None):
        """As `mayfly.layout`."""
        return layout(path, words, name=self.name, chunk_size=chunk_size)


__all__ = [
    "Instance",
    "MayflyError",
    "layout",
    "stage_in",
    "stage_out",
    "start",
    "status",
    "stop",
]
