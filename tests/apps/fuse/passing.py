# Threads hand files over to the mount by passing them, while the program starts children.
import os, socket, threading

CHILDREN, THREADS = 300, 4
over, wrong = False, []


def pass_files(number):
    here, there = socket.socketpair()
    name = f"passed{number}"
    while not over:
        file = os.open(name, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        os.write(file, b"text")
        socket.send_fds(here, [b"x"], [file])
        _, (came,), _, _ = socket.recv_fds(there, 1, 1)
        os.close(file)
        if os.pread(came, 9, 0) != b"text":
            wrong.append(number)
        os.close(came)


threads = [threading.Thread(target=pass_files, args=(number,)) for number in range(THREADS)]
for thread in threads:
    thread.start()
failed = 0
for child in range(CHILDREN):
    try:
        pid = os.fork()
    except OSError as error:
        failed += 1
        print(error)
        continue
    if pid == 0:
        os._exit(0)
    failed += os.waitpid(pid, 0)[1] != 0
over = True
for thread in threads:
    thread.join()
print(failed, wrong)
