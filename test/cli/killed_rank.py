"""A rank that is killed in the middle takes the job down within 10 seconds, and what is printed tells which rank it was.
Arguments: the launcher build/mpiexec, the program build/partita and the rank to kill."""

import os
import re
import signal
import subprocess
import sys
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
command = [LAUNCHER, "-n", "4", PROGRAM, "train", "--data", "synthetic", "--samples", "4096", "--epochs", "1000", "--no-test"]
job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
pids = {}
for line in job.stdout:
    print(line, end="")
    if line.startswith("ranks"):
        pids = {int(rank): int(pid) for rank, pid in re.findall(r"(\d+):(\d+)", line)}
    if line.startswith("epoch"):
        break
assert len(pids) == 4, "the ranks' process numbers were not printed"
victim = int(sys.argv[3])
os.kill(pids[victim], signal.SIGKILL)
start = time.monotonic()
try:
    rest, _ = job.communicate(timeout=10)
except subprocess.TimeoutExpired:
    job.kill()
    sys.exit("FAIL: the job goes on 10 seconds after a rank was killed")
print(rest)
print(f"ended after {time.monotonic() - start:.1f} s with status {job.returncode}")
assert job.returncode != 0, "the job claims success"
named = re.findall(r"rank (\d+) \(process (\d+) on \S+\) died", rest)
assert named == [(str(victim), str(pids[victim]))], f"printed as dead: {named}, was: {victim}"
