"""Tests that a signal to one rank during training ends the job within 10 seconds, and that the output names the rank.
Arguments: the launcher build/mpiexec, the program build/partita, the signal, and the rank that gets it. Instead of a
rank it may be "launcher", for a signal such as that of Ctrl-C. Then the output may name any rank, and says that it was
interrupted or told to end (the launcher of Open MPI passes SIGINT on as SIGTERM). A stopped rank (SIGSTOP) is not dead:
the other ranks wait for it up to their limit."""

import os
import re
import signal
import subprocess
import sys
import time

from checks import Program, begin, check, end_of, finish, processes

partita = Program(sys.argv[2], sys.argv[1])
name, victim = sys.argv[3:5]
job = partita.start("train", "--data", "synthetic", "--samples", "4096", "--epochs", "1000", "--no-test",
                    *(["--timeout", "2"] if name == "STOP" else []), ranks=4)
begun = begin(job)
pids = processes(begun)
check("the ranks' process numbers are printed", len(pids) == 4, begun)
pids["launcher"] = job.pid
os.kill(pids[victim if victim == "launcher" else int(victim)], getattr(signal, f"SIG{name}"))
start = time.monotonic()
try:
    ran = end_of(job, begun, timeout=10)
except subprocess.TimeoutExpired:
    job.kill()
    sys.exit(f"FAIL: the job still runs 10 seconds after the signal\n{begun}")
print(ran, f"ended after {time.monotonic() - start:.1f} s")
check("the job reports no success", ran.status != 0)
how = {"STOP": "has waited 2 s for other ranks: .*", "INT": r"was (?:interrupted \(SIGINT\)|told to end \(SIGTERM\))",
       "TERM": r"was told to end \(SIGTERM\)", "HUP": r"was told to end \(SIGHUP\)"}.get(name, "died")
named = re.findall(rf"rank (\d+) \(process (\d+) on \S+\) {how}; the job ends", ran.out)
check(f"one line names a rank: {named}", len(named) == 1 == ran.out.count("the job ends"))
rank, process = map(int, named[0])
check("and its process", pids[rank] == process)
check("which is the right one", victim in ("launcher", str(rank)) if name != "STOP" else victim != str(rank))
finish()
