"""fsspec's own suites for file systems."""

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests import abstract


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, instance):
        from mayfly.fs import MayflyFileSystem

        return MayflyFileSystem(instance=instance.name)

    @pytest.fixture
    def fs_path(self, there):
        return there

    @pytest.fixture
    def local_fs(self):
        return LocalFileSystem(auto_mkdir=True)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
