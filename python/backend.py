"""Builds the wheel: puts the `mayfly` program into the package, and has maturin do the rest.

The program is the one that MAYFLY_PROGRAM names, or is built with cargo. A wheel for other machines
wants a program that works there (`cargo xtask dist`), and MATURIN_PEP517_ARGS with the platform.
"""

import os
import shutil
import subprocess

import maturin
from maturin import (  # noqa: F401
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

HERE = os.path.dirname(os.path.abspath(__file__))


def build_wheel(directory, settings=None, metadata=None):
    _put_program()
    return maturin.build_wheel(directory, settings, metadata)


def build_editable(directory, settings=None, metadata=None):
    _put_program()
    return maturin.build_editable(directory, settings, metadata)


def build_sdist(directory, settings=None):
    raise NotImplementedError("the package is built from the whole source tree of Mayfly")


def _put_program():
    place = os.path.join(HERE, "mayfly", "bin", "mayfly")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    program = os.environ.get("MAYFLY_PROGRAM") or _built()
    # Nine tenths of it are for debuggers.
    if shutil.which("strip"):
        subprocess.run(["strip", "-o", place, program], check=True)
    else:
        shutil.copyfile(program, place)
    os.chmod(place, 0o755)


def _built():
    root = os.path.dirname(HERE)
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "-p", "mayfly-cli"], cwd=root, check=True
    )
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    return os.path.join(root, target, "release", "mayfly")
