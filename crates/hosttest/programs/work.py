# Children, threads, forks, and a timer going off all the time.
import subprocess, threading, multiprocessing, os, signal, tempfile, time, json
print(subprocess.run(["echo", "child"], capture_output=True).stdout)
hits = []
signal.signal(signal.SIGALRM, lambda *a: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
total = 0
for i in range(3000):
    with open("f", "w") as f: f.write(json.dumps({"i": i}))
    with open("f") as f: total += json.load(f)["i"]
signal.setitimer(signal.ITIMER_REAL, 0)
print(total, len(hits) > 10)
threads = [threading.Thread(target=lambda: [os.stat("f") for _ in range(200)]) for _ in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
def square(x): return x * x
if __name__ == "__main__":
    with multiprocessing.Pool(4) as pool: print(sum(pool.map(square, range(500))))
    pid = os.fork()
    if pid == 0: os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
