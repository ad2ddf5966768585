"""What PBS gives to its hooks, for a job of two hosts: the environment says which event it is."""
import os
import sys

EXECJOB_BEGIN, EXECJOB_PROLOGUE, EXECJOB_END = 64, 128, 512
_EVENTS = {"begin": EXECJOB_BEGIN, "prologue": EXECJOB_PROLOGUE, "end": EXECJOB_END}


class _Job:
    id = "12[3].server"
    euser = "nobody"
    exec_host = "n1/0*4+n2/0*4"
    exec_host2 = "n1:15002/0*4+n2:15002/0*4"
    run_count = 1
    Variable_List = {"PBS_O_HOME": "/"}

    def delete(self):
        print("deleted")


class _Event:
    def __init__(self):
        self.type = _EVENTS[os.environ["EVENT"]]
        self.job = _Job()
        path = os.path.join(os.environ["SCRATCH"], "wanted")
        if os.path.exists(path):
            with open(path) as wanted:
                self.job.Variable_List["MAYFLY"] = wanted.read().strip()

    def accept(self):
        sys.exit(0)

    def reject(self, why):
        print(why)
        sys.exit(1)


def event():
    return _Event()


def get_local_nodename():
    return os.environ["HOST"].split(".")[0]


def logjobmsg(job, text):
    print(job, text, file=sys.stderr)
