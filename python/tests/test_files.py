"""The calls of the extension module: what they do, and how they fail."""

import errno
import io
import os
import threading

import pytest

import mayfly

FAR = 4 << 30


def fails(number, work, *words, **named):
    with pytest.raises(OSError) as raised:
        work(*words, **named)
    assert raised.value.errno == number, raised.value
    return raised.value


def test_what_is_written_is_read(session, there):
    path = f"{there}/a"
    for size in (0, 1, 4096, 4097, 1 << 20, (3 << 20) + 5):
        data = os.urandom(size)
        assert session.write_file(path, data) == size
        assert session.read_file(path) == data
        assert session.stat(path).st_size == size
    session.write_file(path, b"end", append=True)
    assert session.read_file(path, -3) == b"end"
    assert session.read_file(path, -3, -1) == b"en"
    assert session.read_file(path, 5, 2) == b""


def test_a_missing_name_is_file_not_found(session, there):
    path = f"{there}/missing"
    error = fails(errno.ENOENT, session.stat, path)
    assert isinstance(error, FileNotFoundError) and error.filename == path
    fails(errno.ENOENT, session.read_file, path)
    fails(errno.ENOENT, session.open, path)
    fails(errno.ENOENT, session.unlink, path)
    fails(errno.ENOENT, session.listdir, path)
    error = fails(errno.ENOENT, session.rename, path, f"{there}/other")
    assert error.filename2 == f"{there}/other"
    fails(errno.ENOENT, session.write_file, f"{path}/below", b"")


def test_a_name_that_is_taken_is_file_exists(session, there):
    session.mkdir(f"{there}/d")
    session.write_file(f"{there}/f", b"1")
    assert isinstance(fails(errno.EEXIST, session.mkdir, f"{there}/d"), FileExistsError)
    fails(errno.EEXIST, session.mkdir, f"{there}/f")
    fails(errno.EEXIST, session.write_file, f"{there}/f", b"2", exclusive=True)
    fails(errno.EEXIST, session.open, f"{there}/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    assert session.read_file(f"{there}/f") == b"1"


def test_a_directory_with_names_is_not_removed(session, there):
    session.mkdir(f"{there}/d")
    session.write_file(f"{there}/d/f", b"1")
    fails(errno.ENOTEMPTY, session.rmdir, f"{there}/d")
    session.unlink(f"{there}/d/f")
    session.rmdir(f"{there}/d")
    assert session.listdir(there) == []


def test_a_directory_is_no_file_and_a_file_is_no_directory(session, there):
    session.mkdir(f"{there}/d")
    session.write_file(f"{there}/f", b"1")
    assert isinstance(fails(errno.EISDIR, session.read_file, f"{there}/d"), IsADirectoryError)
    fails(errno.EISDIR, session.write_file, f"{there}/d", b"1")
    fails(errno.EISDIR, session.unlink, f"{there}/d")
    fails(errno.ENOTDIR, session.listdir, f"{there}/f")
    fails(errno.ENOTDIR, session.rmdir, f"{there}/f")
    fails(errno.ENOTDIR, session.stat, f"{there}/f/x")


def test_names_of_any_bytes_come_back_as_they_are(session, there):
    names = [b"a\nb", b"\xff\xfe", b"  ", "ü".encode(), b"-rf", b"x" * 255]
    for name in names:
        session.write_file(os.fsencode(there) + b"/" + name, name)
    assert sorted(session.listdir(os.fsencode(there))) == sorted(names)
    as_text = session.listdir(there)
    assert sorted(map(os.fsencode, as_text)) == sorted(names)
    for name in as_text:
        assert session.read_file(f"{there}/{name}") == os.fsencode(name)
    fails(errno.ENAMETOOLONG, session.write_file, f"{there}/{'x' * 256}", b"")
    with pytest.raises(ValueError, match="null"):
        session.stat("a\0b")
    with pytest.raises(TypeError):
        session.stat(3)


def test_a_path_like_object_is_a_path(session, there):
    import pathlib

    session.write_file(pathlib.PurePosixPath(there) / "a", b"1")
    assert session.read_file(pathlib.PurePosixPath(there) / "a") == b"1"


def test_offsets_beyond_4_gib_are_kept(session, there):
    file = session.open(f"{there}/far", os.O_RDWR | os.O_CREAT)
    assert file.pwrite(b"behind", FAR + 3) == 6
    assert file.pread(100, FAR) == b"\0\0\0behind"
    assert file.seek(-2, 2) == FAR + 7
    assert file.read() == b"nd"
    room = bytearray(4)
    assert file.preadinto(room, FAR + 5) == 4 and room == b"hind"
    assert file.stat().st_size == session.stat(f"{there}/far").st_size == FAR + 9
    assert file.truncate(10) == 10
    assert session.read_file(f"{there}/far") == bytes(10)
    file.close()


def test_a_file_reads_into_any_writable_buffer(session, there):
    numpy = pytest.importorskip("numpy")
    made = numpy.arange(1000, dtype="float64")
    session.write_file(f"{there}/n", made)
    read = numpy.zeros(1000)
    file = session.open(f"{there}/n")
    assert file.readinto(read) == 8000
    assert (read == made).all()
    assert file.readinto(bytearray(1)) == 0
    with pytest.raises(TypeError):
        file.readinto(b"fixed")
    with pytest.raises(BufferError):
        file.readinto(read[::2])
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_files_are_files_of_pythons(session, there):
    from mayfly._file import open_file

    path = f"{there}/lines"
    with open_file(session, path, "wb") as file:
        assert isinstance(file, io.BufferedWriter)
        for number in range(10_000):
            file.write(b"line %d\n" % number)
        assert file.tell() == session_size(file, path)
    with open_file(session, path, "ab") as file:
        file.write(b"last\n")
    with io.TextIOWrapper(open_file(session, path)) as text:
        lines = text.readlines()
    assert len(lines) == 10_001 and lines[-1] == "last\n" and lines[7] == "line 7\n"
    with open_file(session, path, "r+b") as file:
        file.seek(5)
        file.write(b"X")
        file.seek(0)
        assert file.readline() == b"line X\n"
    with open_file(session, path, "rb", 0) as raw:
        assert raw.read(6) == b"line X"
    with pytest.raises(FileExistsError):
        open_file(session, path, "xb")
    with pytest.raises(ValueError, match="mode"):
        open_file(session, path, "rwb")


def session_size(file, path):
    file.flush()
    return file.raw.file.stat().st_size


def test_attributes_are_kept(session, there):
    path = f"{there}/a"
    session.write_file(path, b"12", mode=0o640)
    session.chmod(path, 0o604)
    session.utime(path, 1_000_000_001, -5)
    stat = session.stat(path)
    assert stat.st_mode == 0o100604 and stat.kind == "file" and stat.st_nlink == 1
    assert stat.st_mtime_ns == -5 and stat.st_size == 2
    assert stat.st_uid == os.geteuid()
    session.link(path, f"{there}/b")
    assert session.stat(f"{there}/b").st_ino == stat.st_ino
    assert session.stat(path).st_nlink == 2
    session.symlink("a", f"{there}/l")
    assert session.readlink(f"{there}/l") == "a"
    assert session.stat(f"{there}/l", follow_symlinks=False).kind == "link"
    assert session.read_file(f"{there}/l") == b"12"
    kinds = {name: stat.kind for name, stat in session.scandir(there)}
    assert kinds == {"a": "file", "b": "file", "l": "link"}
    assert session.statfs()["capacity_bytes"] > 0


def test_a_link_out_of_the_instance_says_where_to(session, there):
    session.symlink("/etc/hostname", f"{there}/out")
    error = fails(errno.EXDEV, session.read_file, f"{there}/out")
    assert error.filename2 == "/etc/hostname"


def test_what_python_writes_programs_see_and_the_other_way_round(instance, session, there):
    import subprocess

    session.write_file(f"{there}/from-python", b"1\n")
    env = dict(os.environ, MAYFLY_MOUNT=instance.mount)
    place = instance.mount + there
    words = f"cat {place}/from-python; echo 2 > {place}/from-shell"
    from mayfly import _program

    shell = f'eval "$({_program.path()} env --name {instance.name})"; exec sh -c "{words}"'
    said = subprocess.run(["sh", "-c", shell], env=env, capture_output=True, check=True)
    assert said.stdout == b"1\n"
    assert session.read_file(f"{there}/from-shell") == b"2\n"


def test_threads_share_a_session_and_do_not_wait_for_each_other(session, there):
    wrong = []

    def work(number):
        try:
            for turn in range(100):
                path = f"{there}/{number}-{turn}"
                data = bytes([number]) * (turn * 97)
                session.write_file(path, data)
                assert session.read_file(path) == data
                session.unlink(path)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and session.listdir(there) == []


def test_threads_read_one_file_at_the_same_time(session, there):
    from concurrent.futures import ThreadPoolExecutor

    data = os.urandom(1 << 20)
    session.write_file(f"{there}/f", data)
    file = session.open(f"{there}/f")
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda at: file.pread(1000, at * 1000), range(1049)))
    assert b"".join(parts) == data


def test_appends_of_several_files_do_not_overwrite_each_other(session, there):
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    one, other = (session.open(f"{there}/log", flags) for _ in range(2))
    for turn in range(100):
        one.write(b"a%03d\n" % turn)
        other.write(b"b%03d\n" % turn)
    one.close()
    other.close()
    lines = session.read_file(f"{there}/log").split()
    assert len(lines) == 200 and len(set(lines)) == 200


def test_an_instance_that_is_not_there_is_file_not_found():
    with pytest.raises(FileNotFoundError, match="no-such"):
        mayfly.attach("no-such")
