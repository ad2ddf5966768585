"""The `mayfly` program that is shipped in the package, and what it says."""

import os
import sys


class MayflyError(RuntimeError):
    """The `mayfly` program could not do what it was asked for; the text is what it said."""


def path():
    """Where the program is: ``$MAYFLY_PROGRAM``, else in this package, else on ``PATH``."""
    chosen = os.environ.get("MAYFLY_PROGRAM")
    if chosen:
        return chosen
    shipped = os.path.join(os.path.dirname(__file__), "bin", "mayfly")
    if os.access(shipped, os.X_OK):
        return shipped
    import shutil

    there = shutil.which("mayfly")
    # The console script of this very package starts what is shipped.
    if there and not _is_script(there):
        return there
    raise MayflyError(
        "this package was built without the mayfly program, and there is none on PATH; "
        "set MAYFLY_PROGRAM"
    )


def _is_script(program):
    with open(program, "rb") as file:
        return file.read(2) == b"#!"


def run(*words, codes=(0,)):
    """Runs the program; what it has printed. MayflyError with its message when it fails."""
    import subprocess

    command = [path(), *(os.fspath(word) for word in words)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    if done.returncode not in codes:
        said = done.stderr.strip().removeprefix("mayfly: ")
        raise MayflyError(said or f"`mayfly {words[0]}` ended with status {done.returncode}")
    return done.stdout


def options(given):
    """Keyword arguments as options of the program: ``data_dir="/a"`` is ``--data-dir /a``."""
    words = []
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            for each in value:
                words += [option, _word(each)]
        else:
            words += [option, _word(value)]
    return words


def _word(value):
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def main():
    """The console script: becomes the program."""
    try:
        program = path()
    except MayflyError as error:
        sys.exit(f"mayfly: {error}")
    os.execv(program, ["mayfly", *sys.argv[1:]])
