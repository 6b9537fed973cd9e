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

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
command = [LAUNCHER, "-n", "4", PROGRAM, "train", "--data", "synthetic", "--samples", "4096", "--epochs", "1000", "--no-test",
           *(["--timeout", "2"] if sys.argv[3] == "STOP" else [])]
job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
pids = {}
for line in job.stdout:
    print(line, end="")
    if line.startswith("ranks"):
        pids = {int(rank): int(pid) for rank, pid in re.findall(r"(\d+):(\d+)", line)}
    if line.startswith("epoch"):
        break
assert len(pids) == 4, "the ranks' process numbers were not printed"
name, victim = sys.argv[3:5]
pids["launcher"] = job.pid
os.kill(pids[victim if victim == "launcher" else int(victim)], getattr(signal, f"SIG{name}"))
start = time.monotonic()
try:
    rest, _ = job.communicate(timeout=10)
except subprocess.TimeoutExpired:
    job.kill()
    sys.exit("FAIL: the job still runs 10 seconds after the signal")
print(rest)
print(f"ended after {time.monotonic() - start:.1f} s with status {job.returncode}")
assert job.returncode != 0, "the job reports success"
how = {"STOP": "has waited 2 s for other ranks: .*", "INT": r"was (?:interrupted \(SIGINT\)|told to end \(SIGTERM\))", "TERM": r"was told to end \(SIGTERM\)", "HUP": r"was told to end \(SIGHUP\)"}.get(name, "died")
named = re.findall(rf"rank (\d+) \(process (\d+) on \S+\) {how}; the job ends", rest)
assert len(named) == 1 == rest.count("the job ends"), f"printed: {named}"
rank, process = map(int, named[0])
assert pids[rank] == process, f"printed: rank {rank} ({process})"
assert victim in ("launcher", str(rank)) if name != "STOP" else victim != str(rank), f"printed: rank {rank}, was: {victim}"
