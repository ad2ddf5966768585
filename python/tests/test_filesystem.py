"""What fsspec's suites do not ask of a file system."""

import datetime
import errno
import os

import fsspec
import pytest

import mayfly
from mayfly.fs import MayflyFileSystem


def test_urls_name_the_instance_or_leave_it_to_the_environment(instance, fs, there, monkeypatch):
    fs.pipe_file(f"{there}/a", b"1")
    with fsspec.open(f"mayfly://{instance.name}{there}/a") as file:
        assert file.read() == b"1"
    assert fs.unstrip_protocol(f"{there}/a") == f"mayfly://{instance.name}{there}/a"
    monkeypatch.setenv("MAYFLY_RUN", instance.run_dir)
    assert MayflyFileSystem(skip_instance_cache=True).cat_file(f"{there}/a") == b"1"
    monkeypatch.delenv("MAYFLY_RUN")
    monkeypatch.setenv("MAYFLY_MOUNT", instance.mount)
    assert MayflyFileSystem(skip_instance_cache=True).cat_file(f"{there}/a") == b"1"
    monkeypatch.delenv("MAYFLY_MOUNT")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(FileNotFoundError, match="job-17"):
        MayflyFileSystem(skip_instance_cache=True).ls("/")


def test_a_transaction_shows_everything_at_its_end_or_nothing(fs, there):
    path = f"{there}/a"
    fs.pipe_file(path, b"old")
    with fs.transaction:
        with fs.open(path, "wb") as file:
            file.write(b"new")
        fs.pipe_file(f"{there}/b", b"b")
        with fs.open(f"{there}/log", "ab") as file:
            file.write(b"1")
        assert fs.cat_file(path) == b"old" and not fs.exists(f"{there}/b")
    assert fs.cat_file(path) == b"new" and fs.cat_file(f"{there}/b") == b"b"
    with pytest.raises(RuntimeError, match="no"), fs.transaction:
        with fs.open(path, "wb") as file:
            file.write(b"worse")
        raise RuntimeError("no")
    assert fs.cat_file(path) == b"new"
    assert sorted(fs.ls(there, detail=False)) == [path, f"{there}/b", f"{there}/log"]


def test_a_replaced_file_is_never_seen_in_part(fs, there):
    import threading

    path = f"{there}/checkpoint"
    whole = [bytes([number]) * 300_000 for number in range(20)]
    fs.pipe_file(path, whole[0])
    over = threading.Event()
    seen = []

    def look():
        while not over.is_set():
            data = fs.session.read_file(path)
            seen.append(len(data) == 300_000 and len(set(data)) == 1)

    thread = threading.Thread(target=look)
    thread.start()
    for data in whole:
        with fs.transaction, fs.open(path, "wb") as file:
            file.write(data)
    over.set()
    thread.join()
    assert seen and all(seen)


def test_a_file_is_mapped_without_a_copy(fs, there):
    data = os.urandom(300_000)
    fs.pipe_file(f"{there}/f", data)
    fs.pipe_file(f"{there}/small", b"12")
    fs.pipe_file(f"{there}/empty", b"")
    view = fs.map(f"{there}/f")
    assert view.readonly and view == data
    assert fs.map(f"{there}/small") == b"12" and fs.map(f"{there}/empty") == b""
    with fs.open(f"{there}/f", "r+b") as file:
        file.write(b"changed")
    assert bytes(view[:7]) == b"changed"
    fs.rm(f"{there}/f")
    assert view[7:] == data[7:]


def test_trees_are_found_moved_and_removed(fs, there):
    fs.pipe({f"{there}/t/{a}/{b}": b"%d" % b for a in "xy" for b in range(3)})
    assert len(fs.find(f"{there}/t")) == 6
    assert fs.glob(f"{there}/t/*/1") == [f"{there}/t/x/1", f"{there}/t/y/1"]
    assert fs.du(f"{there}/t") == 6
    fs.mv(f"{there}/t", f"{there}/u/v")
    assert not fs.exists(f"{there}/t") and fs.cat_file(f"{there}/u/v/x/2") == b"2"
    fs.mkdir(f"{there}/into")
    fs.mv(f"{there}/u/v/x/2", f"{there}/into")
    assert fs.cat_file(f"{there}/into/2") == b"2"
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{there}/u")
    fs.rm([f"{there}/u", f"{there}/into/*"], recursive=True)
    assert fs.ls(there, detail=False) == [f"{there}/into"]
    with pytest.raises(OSError):
        fs.rmdir(there)


def test_attributes_are_those_of_the_file(fs, there):
    before = datetime.datetime.now(tz=datetime.timezone.utc) - datetime.timedelta(seconds=5)
    fs.pipe_file(f"{there}/a", b"123")
    fs.symlink("a", f"{there}/l")
    fs.symlink("nowhere", f"{there}/dangling")
    info = fs.info(f"{there}/a")
    assert (info["size"], info["type"], info["islink"]) == (3, "file", False)
    link = fs.info(f"{there}/l")
    assert (link["size"], link["type"], link["destination"]) == (3, "file", "a")
    assert not fs.exists(f"{there}/dangling") and fs.lexists(f"{there}/dangling")
    kinds = {entry["name"].rpartition("/")[2]: entry["type"] for entry in fs.ls(there)}
    assert kinds == {"a": "file", "l": "file", "dangling": "other"}
    assert fs.created(f"{there}/a") >= before and fs.modified(f"{there}/a") >= before
    fs.touch(f"{there}/a", truncate=False)
    assert fs.size(f"{there}/a") == 3
    fs.touch(f"{there}/a")
    assert fs.size(f"{there}/a") == 0
    assert fs.disk_usage()["total"] > 0
    assert fs.isfile(f"{there}/a") and not fs.isdir(f"{there}/a") and fs.isdir(there)


def test_ranges_are_read_in_one_call(fs, there):
    data = os.urandom(10_000)
    fs.pipe_file(f"{there}/f", data)
    paths = [f"{there}/f"] * 3 + [f"{there}/missing"]
    got = fs.cat_ranges(paths, [0, 100, -10, 0], [10, 200, None, 1])
    assert got[:3] == [data[:10], data[100:200], data[-10:]]
    assert isinstance(got[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 1, on_error="raise")


def test_directories_above_are_made_unless_that_is_not_wanted(instance, fs, there):
    fs.pipe_file(f"{there}/a/b/c", b"1")
    plain = MayflyFileSystem(instance=instance.name, auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        plain.pipe_file(f"{there}/x/y", b"1")
    with pytest.raises(FileNotFoundError):
        plain.open(f"{there}/x/y", "wb")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{there}/x/y", "rb")


def test_text_and_compression_are_fsspecs(fs, there):
    with fs.open(f"{there}/t.gz", "wt", compression="gzip") as file:
        file.write("ä\n" * 1000)
    with fs.open(f"{there}/t.gz", "rt", compression="infer") as file:
        assert file.read() == "ä\n" * 1000
    assert fs.cat_file(f"{there}/t.gz")[:2] == b"\x1f\x8b"
    with fs.open(f"{there}/raw", "wb", block_size=0) as file:
        assert file.write(b"12") == 2
        assert fs.cat_file(f"{there}/raw") == b"12"


def test_an_instance_lives_as_long_as_its_block(tmp_path, instance):
    with mayfly.Instance(data_dir=tmp_path, capacity="64M", deadline=2) as own:
        name, left = own.instance, own.session
        own.pipe_file("/a", b"1")
        assert mayfly.status(name)["name"] == name
        assert own.disk_usage()["total"] == 64 << 20
        assert mayfly.find(name).mount
    with pytest.raises(FileNotFoundError):
        mayfly.find(name)
    with pytest.raises(mayfly.MayflyError, match=name):
        mayfly.stop(name)
    with pytest.raises(OSError) as raised:
        left.write_file("/b", b"1")
    assert raised.value.errno == errno.EIO
    # It is not said that there is no such file.
    with pytest.raises(FileNotFoundError, match="no instance"):
        own.exists("/a")
    # The same object finds the next instance of that name.
    with mayfly.Instance(name, data_dir=tmp_path) as again:
        assert again.ls("/") == []
        with pytest.raises(FileNotFoundError):
            own.cat_file("/a")


def test_a_start_that_fails_says_why(instance):
    with pytest.raises(mayfly.MayflyError, match="is running"):
        mayfly.start(instance.name)
    with pytest.raises(mayfly.MayflyError, match="capacity"):
        mayfly.start("other", capacity="much")


def test_trees_come_in_and_go_out(instance, fs, there, tmp_path):
    (tmp_path / "in" / "d").mkdir(parents=True)
    (tmp_path / "in" / "d" / "f").write_bytes(b"1")
    events = mayfly.stage_in(tmp_path / "in", f"{there}/tree", name=instance.name)
    assert events and fs.cat_file(f"{there}/tree/d/f") == b"1"
    mayfly.stage_out(f"{there}/tree", tmp_path / "out", name=instance.name)
    assert (tmp_path / "out" / "d" / "f").read_bytes() == b"1"
    with pytest.raises(mayfly.MayflyError):
        mayfly.stage_in(tmp_path / "missing", "x", name=instance.name)


def test_layouts_are_chosen_by_directory(instance, fs, there):
    fs.mkdir(f"{there}/big")
    mayfly.layout(f"{there}/big", "stripe", name=instance.name)
    assert "stripe" in str(mayfly.layout(f"{there}/big", name=instance.name))
    with pytest.raises(mayfly.MayflyError):
        mayfly.layout(f"{there}/missing", "stripe", name=instance.name)


def test_nodes_of_an_instance_have_one_namespace(tmp_path, instance):
    with mayfly.Instance(nodes="local:2", data_dir=tmp_path) as first:
        second = MayflyFileSystem(instance=f"{first.instance}@1")
        assert second.session is not first.session
        # A directory is at the node that makes it.
        first.mkdir("/of-first")
        second.mkdir("/of-second")
        for directory in ["/of-first", "/of-second"]:
            for number in range(6):
                path = f"{directory}/{number}"
                data = os.urandom(200_000 if number % 2 else 100)
                first.pipe_file(path, data)
                assert second.cat_file(path) == data
                with second.open(path, "r+b") as file:
                    file.write(b"changed")
                assert first.cat_file(path, end=7) == b"changed"
            assert len(second.ls(directory)) == 6
        assert first.map("/of-first/1")[:7] == b"changed"
        with pytest.raises(OSError) as refused:
            first.map("/of-second/1")
        assert refused.value.errno == errno.ENODEV


def test_the_stubs_name_what_is_there():
    import ast
    import pathlib

    from mayfly import _native

    stub = ast.parse(pathlib.Path(_native.__file__).with_name("_native.pyi").read_text())
    for said in stub.body:
        if isinstance(said, ast.ClassDef):
            there = {name for name in vars(getattr(_native, said.name)) if name[0] != "_"}
            named = {member.name for member in said.body if member.name[0] != "_"}
            assert named == there, said.name
        elif isinstance(said, ast.FunctionDef):
            assert callable(getattr(_native, said.name))
