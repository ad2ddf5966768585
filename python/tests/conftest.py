"""An instance for all tests, in directories of its own, and a fresh directory in it for each."""

import os
import subprocess
import sys
import uuid

import pytest

import mayfly

NAME = f"pytest-{os.getpid()}"


@pytest.fixture(scope="session", autouse=True)
def instance(tmp_path_factory):
    """An instance that starts after this process, and ends with the tests."""
    own = {
        "XDG_RUNTIME_DIR": tmp_path_factory.mktemp("r"),
        "XDG_CACHE_HOME": tmp_path_factory.mktemp("cache"),
        "XDG_STATE_HOME": tmp_path_factory.mktemp("state"),
    }
    before = {name: os.environ.get(name) for name in own}
    for name, place in own.items():
        os.environ[name] = str(place)
    found = mayfly.start(NAME, data_dir=tmp_path_factory.mktemp("data"))
    yield found
    mayfly.stop(NAME)
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture
def session(instance):
    return mayfly.attach(NAME)


@pytest.fixture
def there(session):
    """The path of a new directory."""
    path = f"/{uuid.uuid4().hex}"
    session.mkdir(path)
    return path


@pytest.fixture
def fs(instance):
    from mayfly.fs import MayflyFileSystem

    return MayflyFileSystem(instance=NAME)


@pytest.fixture
def url(there):
    """The same directory for whoever speaks fsspec."""
    return f"mayfly://{NAME}{there}"


@pytest.fixture
def served(instance):
    """Runs words of Python in a process that the preload library serves; what they print."""
    from mayfly import _program

    shell = f'eval "$("{_program.path()}" env --name {instance.name})"; exec "$0" -P -c "$@"'

    def run(words, *arguments):
        done = subprocess.run(
            ["sh", "-c", shell, sys.executable, words, *arguments],
            capture_output=True, text=True, timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
