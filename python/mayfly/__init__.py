"""Mayfly: a temporary distributed file system that lives as long as one job.

Use an instance that runs on this node, whoever started it::

    import mayfly
    session = mayfly.attach()            # that of the environment, or by name
    session.write_file("/a", b"hello")

start one for a block (with fsspec installed, ``fs`` is a file system of fsspec's)::

    with mayfly.Instance(capacity="10G") as fs:
        fs.pipe_file("/a", b"hello")

or give ``mayfly:///path`` to any library that speaks fsspec.
"""

import os as _os

from . import _find
from ._native import File, Session, Stat, after_fork as _after_fork
from ._program import MayflyError

__version__ = "0.1.0"

_os.register_at_fork(after_in_child=_after_fork)

_LATER = ("Instance", "layout", "stage_in", "stage_out", "start", "status", "stop")


def find(name=None):
    """The instance ``name`` (without a name: that of the environment) as a `Found`.

    Raises FileNotFoundError when there is none on this machine.
    """
    return _find.find(name)


def attach(name=None):
    """Attaches this process to a running instance of this node, and returns its `Session`.

    The process may have been started before the instance. Threads share a session; the child of a
    fork attaches by itself at its first call.

    Raises FileNotFoundError when there is no such instance, ConnectionRefusedError when it has
    ended, OSError with EPROTO when it is of another version.
    """
    session = _find.find(name).session()
    session.attach()
    return session


def __getattr__(name):
    # To look for instances takes nothing of what starting them needs.
    if name in _LATER:
        from . import _instance

        return getattr(_instance, name)
    raise AttributeError(f"module 'mayfly' has no attribute {name!r}")


__all__ = ["File", "MayflyError", "Session", "Stat", "attach", "find", *_LATER]
