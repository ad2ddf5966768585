"""Mayfly for jobs of PBS: a hook for three events, which run on each host of a job as root.

  qmgr -c 'create hook mayfly event="execjob_begin,execjob_prologue,execjob_end"'
  qmgr -c 'set hook mayfly alarm = 2000'
  qmgr -c 'import hook mayfly application/x-python default /usr/share/mayfly/pbs/mayfly.py'

The alarm is more than start_max and stage_in_max of /etc/mayfly/site.toml, or stage_out_max.
A job asks by the variable MAYFLY, which is empty or holds options:

  qsub -v MAYFLY='capacity=100G stage_in=/scratch/me/case:case' -l select=4 job.sh

execjob_begin comes to the first host before the others, and execjob_prologue when all have had
theirs: so the hosts are made ready in the one, and the first starts the instance in the other.
"""
import os
import pwd
import re
import subprocess

import pbs

PROGRAM = os.environ.get("MAYFLY_PROGRAM", "/usr/bin/mayfly")
CONFIG = os.environ.get("MAYFLY_SITE", "/etc/mayfly/site.toml")


def number(job):
    """As in the environment of the job's programs: 123[4].server is 123-4."""
    return re.sub(r"[^A-Za-z0-9_]", "-", str(job.id).split(".")[0]).strip("-")


def hosts(job):
    """Each host once, from n1/0*4+n2/1 or n1:15002/0*4+n2:15002/1."""
    places = str(job.exec_host2 or job.exec_host).split("+")
    return list(dict.fromkeys(re.split("[:/]", place)[0] for place in places))


def local(names):
    """What the job's list calls this host, which may have a longer name there or here."""
    short = pbs.get_local_nodename().split(".")[0]
    return next((name for name in names if name.split(".")[0] == short), short)


def site(job, *words):
    """Runs mayfly site; what it complains of."""
    names = hosts(job)
    environment = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "MAYFLY_JOB_ID": number(job),
        "MAYFLY_JOB_UID": str(pwd.getpwnam(str(job.euser)).pw_uid),
        "MAYFLY_JOB_NODE": local(names),
        "MAYFLY_JOB_NODELIST": ",".join(names),
        "MAYFLY_JOB_COMMENT": "mayfly " + str(job.Variable_List["MAYFLY"]),
        "MAYFLY_JOB_RESTART_COUNT": str(job.run_count or 0),
    }
    done = subprocess.run(
        [PROGRAM, "site", *words, "--config", CONFIG],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, universal_newlines=True, check=False)
    return done.stderr.strip() or str(done.returncode) if done.returncode else None


def perform(event):
    """What the event asks for; the reason to refuse the job."""
    job = event.job
    if job.Variable_List is None or "MAYFLY" not in job.Variable_List:
        return None
    if event.type == pbs.EXECJOB_BEGIN:
        return site(job, "prolog", "--only", "ready")
    if event.type == pbs.EXECJOB_PROLOGUE:
        return site(job, "prolog", "--only", "start")
    why = site(job, "epilog")
    if why:
        pbs.logjobmsg(job.id, why)
    return None


def main():
    event = pbs.event()
    why = perform(event)
    if why:
        # PBS would try the same again on other hosts, where the user's mistake is the same.
        event.job.delete()
        event.reject(why)
    event.accept()


main()
