"""Which instance is meant, and where it is: the files that `mayfly start` leaves for programs."""

import os

from . import _native

#: Variables that say of which batch job a process is, as `mayfly` reads them.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID", "FLUX_JOB_ID")

#: Counts the instances that this process has ended: who keeps a session then looks for it anew.
ended = 0


class Found:
    """An instance as one node of it is seen from this machine.

    ``name``, ``run_dir``, ``mount``, ``object_dir`` are text; ``identity`` is a number that no
    other instance has; ``node`` is the node's number, or None in an instance of one node.
    """

    __slots__ = ("name", "run_dir", "mount", "object_dir", "identity", "node")

    def __init__(self, run_dir):
        said = _native.described(run_dir)
        self.name, self.run_dir, self.mount, self.object_dir, self.identity, self.node = said

    def session(self):
        """This process's session; it attaches at its first use."""
        return _native.Session(self.run_dir, self.object_dir, self.identity)


def run_root():
    """The parent of the run directories, as `mayfly` chooses it."""
    chosen = os.environ.get("MAYFLY_RUN_ROOT", "")
    if os.path.isabs(chosen):
        return chosen
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "mayfly")
    # As Rust's temp_dir; tempfile would look for a place that can be written, and takes 20 ms.
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"mayfly-{os.getuid()}")


def usual_name():
    """The name of an instance that nobody names: in a batch job ``job-ID``, else ``default``."""
    said = ((name, os.environ.get(name, "").strip()) for name in _JOBS)
    name, number = next(((name, text) for name, text in said if text), (None, None))
    if number is None:
        return "default"
    if name == "FLUX_JOB_ID":
        number = number.removeprefix("f")
    element = os.environ.get("LSB_JOBINDEX", "").strip()
    if element and element != "0":
        number = f"{number}-{element}"
    number = number.split(".")[0]
    plain = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "-" for c in number)
    return f"job-{plain}"


def find(name=None):
    """The instance ``name``; without a name that of the environment, or the usual one.

    A process that was started in an instance (``mayfly run``, ``mayfly env``) has ``MAYFLY_RUN``
    or ``MAYFLY_MOUNT`` set. ``NAME@K`` is the node K of an instance of several on this machine;
    ``MAYFLY_NODE`` says K where the name does not.

    Raises FileNotFoundError when there is no such instance on this machine.
    """
    for run_dir in _places(name):
        try:
            return Found(run_dir)
        except FileNotFoundError:
            pass
    what = f"no instance {name or usual_name()!r} on this machine"
    raise FileNotFoundError(2, f"{what}; start one with mayfly.start() or `mayfly start`")


def again(run_dir, identity):
    """The session of a pickled one: with the same node, or with that of this machine."""
    run_dir = os.fspath(run_dir)
    try:
        found = Found(run_dir)
    except FileNotFoundError:
        found = find(_name_of(run_dir))
    if found.identity != identity:
        raise FileNotFoundError(2, "the instance of the pickled session has ended", run_dir)
    return found.session()


def _places(name):
    root = run_root()
    node = os.environ.get("MAYFLY_NODE")
    own = os.environ.get("MAYFLY_RUN")
    if name is None:
        if own:
            yield own
        mount = os.environ.get("MAYFLY_MOUNT")
        if mount:
            yield from _mounted_at(root, mount)
        name = usual_name()
    elif own and _name_of(own) == name and not node:
        yield own
    if node and node != "0" and "@" not in name:
        yield os.path.join(root, f"{name}@{node}")
        return
    yield os.path.join(root, name.removesuffix("@0"))
    # The first node may be on another machine.
    if "@" not in name:
        yield from sorted(_below(root, f"{name}@"), key=_number)


def _name_of(run_dir):
    return os.path.basename(run_dir).split("@")[0]


def _number(run_dir):
    last = run_dir.rpartition("@")[2]
    return int(last) if last.isdecimal() else 0


def _below(root, prefix=""):
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return []
    return [os.path.join(root, name) for name in names if name.startswith(prefix)]


def _mounted_at(root, mount):
    for run_dir in _below(root):
        try:
            if Found(run_dir).mount == mount:
                yield run_dir
        except (FileNotFoundError, NotADirectoryError):
            pass
