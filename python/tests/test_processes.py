"""Forks, other processes, and what is pickled."""

import multiprocessing
import os
import pickle
import threading
import time

import pytest

import mayfly


def in_child(work):
    """Runs `work` in the child of a fork; its answer, or the exception's text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = pickle.dumps(work())
        except BaseException as error:
            said = pickle.dumps(repr(error))
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(said)


def test_the_child_of_a_fork_attaches_by_itself(session, there):
    session.write_file(f"{there}/before", b"1")

    def work():
        session.write_file(f"{there}/child", b"from the child")
        return session.read_file(f"{there}/before")

    assert in_child(work) == b"1"
    assert session.read_file(f"{there}/child") == b"from the child"


def test_a_grandchild_and_its_parents_all_work_at_the_same_time(session, there):
    def grandchild():
        session.write_file(f"{there}/2", b"2")
        return session.listdir(there)

    def child():
        session.write_file(f"{there}/1", b"1")
        return in_child(grandchild)

    session.write_file(f"{there}/0", b"0")
    assert sorted(in_child(child)) == ["0", "1", "2"]


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_file_that_the_parent_has_open_is_read_in_the_child(session, there, size):
    data = os.urandom(size)
    session.write_file(f"{there}/f", data)
    file = session.open(f"{there}/f")
    assert file.read(3) == data[:3]
    assert in_child(lambda: file.read(2)) == data[3:5]
    # Each has its own offset from then on.
    assert file.read(2) == data[3:5]
    file.close()


def test_an_unlinked_open_file_is_read_in_the_child(session, there):
    session.write_file(f"{there}/f", bytes(100_000))
    file = session.open(f"{there}/f", os.O_RDWR)
    file.pwrite(b"x", 0)
    session.unlink(f"{there}/f")
    assert in_child(lambda: file.pread(1, 0)) == b"x"


def test_a_name_that_leads_to_another_file_by_now_is_stale_in_the_child(session, there):
    session.write_file(f"{there}/f", b"first")
    file = session.open(f"{there}/f")
    file.read(1)
    fork_goes_on, done = os.pipe()

    def work():
        os.read(fork_goes_on, 1)
        return file.pread(5, 0)

    answers = []
    thread = threading.Thread(target=lambda: answers.append(in_child(work)))
    thread.start()
    time.sleep(0.2)
    file.close()
    session.unlink(f"{there}/f")
    session.write_file(f"{there}/f", b"second")
    os.write(done, b"1")
    thread.join()
    # The file itself, as long as its removal is under way; never the one that has its name.
    assert answers[0] == b"first" or "Stale file handle" in repr(answers[0])


def test_a_fork_beside_threads_that_use_the_session_works(session, there):
    over = threading.Event()
    session.write_file(f"{there}/f", b"x" * 5000)

    def busy():
        while not over.is_set():
            session.read_file(f"{there}/f")
            session.stat(there)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: len(session.read_file(f"{there}/f"))) == 5000
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_children_leave_no_session_and_no_descriptor_behind(instance, session, there):
    session.write_file(f"{there}/f", bytes(100_000))
    with_object = session.open(f"{there}/f")
    with_object.pread(1, 0)

    def descriptors():
        mayfly._after_fork()
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sorted(os.readlink(link) for link in links if os.path.lexists(link))

    held = [link for link in in_child(descriptors) if "objects" in link]
    assert held == []
    deadline = time.monotonic() + 10
    while mayfly.status(instance.name)["sessions"] > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert mayfly.status(instance.name)["sessions"] == 1
    with_object.close()


def write_and_list(fs, path, number):
    fs.pipe_file(f"{path}/{number}", b"%d" % number)
    return sorted(fs.ls(path, detail=False))


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_a_file_system_goes_to_other_processes_by_its_name(fs, there, how):
    context = multiprocessing.get_context(how)
    with context.Pool(3) as pool:
        pool.starmap(write_and_list, [(fs, there, number) for number in range(12)])
    names = {name.rpartition("/")[2] for name in fs.ls(there, detail=False)}
    assert names == {str(number) for number in range(12)}
    assert fs.cat_file(f"{there}/7") == b"7"


def test_only_name_and_options_are_pickled(fs):
    from mayfly.fs import MayflyFileSystem

    fs.session.listdir()
    assert len(pickle.dumps(fs)) < 400
    other = pickle.loads(pickle.dumps(fs))
    assert other == fs and other.exists("/")
    plain = MayflyFileSystem(instance=fs.instance, auto_mkdir=False)
    assert pickle.loads(pickle.dumps(plain)).auto_mkdir is False


def test_a_session_is_pickled_by_the_name_of_its_instance(session, there):
    session.write_file(f"{there}/f", b"1")
    assert pickle.loads(pickle.dumps(session)).read_file(f"{there}/f") == b"1"


def test_what_a_child_drops_attaches_nobody(instance, session, there):
    session.write_file(f"{there}/f", b"1")
    held = [session.open(f"{there}/f")]

    def work():
        held.clear()
        return mayfly.status(instance.name)["sessions"]

    assert in_child(work) == mayfly.status(instance.name)["sessions"]
    assert held[0].read() == b"1"


def test_a_file_that_is_read_is_pickled_with_its_place(fs, there):
    fs.pipe_file(f"{there}/f", b"0123456789")
    with fs.open(f"{there}/f") as file:
        file.read(4)
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.read() == b"456789"
    with fs.open(f"{there}/f", "wb") as file, pytest.raises(TypeError):
        pickle.dumps(file)


def test_a_process_that_the_preload_library_serves_has_both(served, there):
    words = (
        "import os, mayfly\n"
        "mount = os.environ['MAYFLY_MOUNT']\n"
        f"there = {there!r}\n"
        "inside = mayfly.attach()\n"
        "for turn in range(50):\n"
        "    with open(f'{mount}{there}/l', 'w') as file: file.write(f'{turn}')\n"
        "    assert inside.read_file(f'{there}/l') == b'%d' % turn\n"
        "    inside.write_file(f'{there}/p', b'%d' % turn * 2000)\n"
        "    with open(f'{mount}{there}/p', 'rb') as file: assert len(file.read()) >= 2000\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    inside.write_file(f'{there}/c', b'c')\n"
        "    open(f'{mount}{there}/d', 'w').close()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(sorted(os.listdir(mount + there)), sorted(inside.listdir(there)))\n"
    )
    names = ["c", "d", "l", "p"]
    assert served(words) == f"{names} {names}\n"


def test_a_killed_daemon_goes_unnoticed(instance, session, there):
    import signal

    file = session.open(f"{there}/kept", os.O_RDWR | os.O_CREAT)
    for turn in range(5):
        for number in range(100):
            session.write_file(f"{there}/{number}", b"%d-%d" % (turn, number))
        file.pwrite(b"%04d" % turn, turn * 4)
        os.kill(mayfly.status(instance.name)["daemon_pid"], signal.SIGKILL)
        for number in range(100):
            assert session.read_file(f"{there}/{number}") == b"%d-%d" % (turn, number)
    assert file.pread(20, 0) == b"00000001000200030004"
    assert len(session.listdir(there)) == 101
    file.close()
